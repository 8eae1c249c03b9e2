"""Conversations with a run: events in, commands out, whole objects compared.

    play = Playbook(spec)
    play.hears(TurnCame(capabilities)).says(Emit(RunTurnCame()))
    play.hears(PromptSent("p1")).says(...)
    play.hears(PromptConfirmed("p1")).says(Emit(...), StartTimer(...))
    play.ends_in(RunState.RUNNING)

Whatever the conversation is about, after every event a playbook holds the run to what is true of all of them:

- the state afterwards is one that the table's row names;
- facts come before effects, so that they can be committed first; `LowerGate`, which stands for one, likewise;
- the recorded form of the emitted facts, short and whole, written and read again, folds to the view of the live run;
- the four spans add up to the time that has passed up to the last change;
- `FinishRun` comes once, last, together with the one `RunEnded`, and nothing follows it.

Time stands still unless an event is heard `after` some nanoseconds. `visited` collects the rows that were used.
"""

from __future__ import annotations

import msgspec

from steprail_daemon.core.commands import Command, Emit, FinishRun, LowerGate
from steprail_daemon.core.errors import StepRailError
from steprail_daemon.core.events import RunEvent
from steprail_daemon.core.model import RunSpec, RunState
from steprail_daemon.core.records import Fact, Record, RunCreated, RunEnded, StepEnded
from steprail_daemon.core.replay import fold_run, open_run, spans_at, summarise
from steprail_daemon.core.run import Run
from steprail_daemon.core.table import TABLE
from steprail_daemon.core.views import RunView

RUN_ID = "run_01"
SESSION_ID = "ses_01"
#: When every playbook begins: far from zero, so that a time that was forgotten shows.
BEGIN = 1_700_000_000_000_000_000

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Record] = msgspec.msgpack.Decoder(Record)


class Playbook:
    """One conversation with one run."""

    def __init__(self, spec: RunSpec) -> None:
        self.at = BEGIN
        self.run, self.commands = Run.create(RUN_ID, SESSION_ID, spec, BEGIN)
        #: Rows of the table that were used: state, class of event, state afterwards.
        self.visited: set[tuple[RunState, type, RunState]] = set()
        self.facts: list[Fact] = []
        #: The views that the recorded forms of the facts fold to, short and whole.
        self._mirrors: list[tuple[RunView, bool]] = []
        self._finished = False
        self._check()

    def hears(self, event: RunEvent, *, after: int = 0) -> Playbook:
        """Let something happen, `after` nanoseconds; `says` and `commands` are of this event."""
        self.at += after
        before = self.run.view.state
        self.commands = self.run.handle(event, self.at)
        state = self.run.view.state
        self.visited.add((before, type(event), state))
        allowed = TABLE[before, type(event)].to
        assert state in allowed, f"{before.name} x {type(event).__name__} -> {state.name} is not in the table"
        self._check()
        return self

    def says(self, *commands: Command) -> Playbook:
        """Expect these commands in answer to the last event, and no others."""
        assert self.commands == list(commands), _difference(self.commands, list(commands))
        return self

    def refuses(self, event: RunEvent, reason: str) -> StepRailError:
        """Expect that an event is refused for `reason` and changes nothing. Gives the error."""
        state = self.run.view.state
        before = _encoder.encode(self.run.view)
        refusal: StepRailError | None = None
        try:
            self.run.handle(event, self.at)
        except StepRailError as error:
            refusal = error
        assert refusal is not None, f"{event} was not refused"
        assert refusal.reason == reason, refusal
        assert _encoder.encode(self.run.view) == before, "a refused event changed the view"
        self.visited.add((state, type(event), state))
        return refusal

    def ends_in(self, state: RunState) -> RunView:
        """Expect a state, terminal or not, and give the view."""
        assert self.run.view.state is state, f"the run is {self.run.view.state.name}, not {state.name}"
        return self.run.view

    def _check(self) -> None:
        facts = [command.fact for command in self.commands if isinstance(command, Emit)]
        effects = [command for command in self.commands if not isinstance(command, Emit | LowerGate)]
        assert self.commands[len(self.commands) - len(effects) :] == effects, "an effect before a fact"
        assert not (self._finished and self.commands), f"after the end: {self.commands}"
        self.facts += facts
        view = self.run.view
        if not self._mirrors:
            self._mirrors = [(replayed(facts, whole=whole), whole) for whole in (False, True)]
        else:
            self._mirror(facts)
        for mirror, whole in self._mirrors:
            assert mirror == view, f"the facts do not replay to the live view, recorded {'whole' if whole else 'short'}"
        spans = spans_at(view, view.state_since)
        assert spans.total_ns == view.state_since - view.created_at, "the spans do not partition the time"
        ends = sum(isinstance(fact, RunEnded) for fact in facts)
        finishes = [n for n, command in enumerate(self.commands) if isinstance(command, FinishRun)]
        assert len(finishes) == ends, "RunEnded and FinishRun come together"
        if finishes:
            assert finishes == [len(self.commands) - 1], "FinishRun comes once and last"
            last_fact = self.commands[len(self.commands) - len(effects) - 1]
            assert isinstance(last_fact, Emit) and isinstance(last_fact.fact, RunEnded), "RunEnded is the last fact"  # noqa: PT018
            self._finished = True
        assert view.ended == self._finished, "a run has ended when it is finished"

    def _mirror(self, facts: list[Fact]) -> None:
        for mirror, whole in self._mirrors:
            for fact in facts:
                fold_run(mirror, _written(fact, whole=whole))


def replayed(facts: list[Fact], *, whole: bool = False) -> RunView:
    """Write facts as they are recorded, read them again, and fold them. `whole`: as before their events are kept."""
    first, *rest = [_written(fact, whole=whole) for fact in facts]
    assert isinstance(first, RunCreated)
    view = open_run(first)
    for record in rest:
        fold_run(view, record)
    return view


def _written(fact: Fact, *, whole: bool) -> Record:
    return _decoder.decode(_encoder.encode(_recorded(fact, whole=whole)))


def _recorded(fact: Fact, *, whole: bool) -> Record:
    return summarise(fact.step) if isinstance(fact, StepEnded) and not whole else fact


def _difference(said: list[Command], expected: list[Command]) -> str:
    lines = ["the run said:", *(f"  {command}" for command in said)]
    lines += ["expected was:", *(f"  {command}" for command in expected)]
    return "\n".join(lines)
