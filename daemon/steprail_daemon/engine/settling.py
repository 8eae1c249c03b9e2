"""Commit, then act, then publish: what a session decided gets its effects here, in the order that is the promise.

**What was decided is committed before any effect of it leaves the daemon, and every event is committed before anybody
sees it.** At a step boundary the agent waits for us, so there the facts (the step and its decision) are committed
alone, the answer is written, and then their events are encoded, committed and published; a crash in between is mended
at the next start, which makes the events from the facts. Likewise a client that wants no events is asked by the facts,
and the events are held for its answer; nothing else is interpreted before they are published.
"""

from __future__ import annotations

import asyncio

from steprail_daemon.core.commands import (
    AgentCommand,
    AnswerBoundary,
    AnswerPermission,
    AnswerQuestion,
    CancelTimer,
    Command,
    EndProcess,
    EvaluateExpressions,
    FinishRun,
    Interrupt,
    SendPrompt,
    SetModel,
    SetPermissionMode,
    StartTimer,
)
from steprail_daemon.core.events import (
    DecisionSubmitted,
    RunEvent,
)
from steprail_daemon.core.model import DecisionAction
from steprail_daemon.engine.broker import Feed
from steprail_daemon.engine.expressions import ExpressionDesk
from steprail_daemon.engine.lineup import Lineup, RunPlace
from steprail_daemon.engine.timers import Timers

#: How long the events of a step that a client was asked about ahead of them may be held.
HOLD_SECONDS = 0.002

_AGENT_COMMANDS = frozenset(
    {SendPrompt, AnswerBoundary, AnswerPermission, AnswerQuestion, Interrupt, SetModel, SetPermissionMode}
)
# A member of an enumeration costs a function call to look up.
_CONTINUE = DecisionAction.CONTINUE


class Settling(Lineup):
    """The part of a session's runner that commits, acts and publishes."""

    feed: Feed
    _timers: Timers
    _expressions: ExpressionDesk

    def __init__(self, places: dict[str, RunPlace]) -> None:
        super().__init__(places)
        #: Runs while events are held whose facts are committed; see `_ask_at_once`.
        self._held: asyncio.TimerHandle | None = None
        self._commands: list[Command] = []
        #: The run that they are of.
        self._commands_of = ""
        self._answers = False
        self._asks = False
        self._gate_shut = False
        self._gave_up = False

    # --- commit, then act, then publish -----------------------------------------------------------------------------

    def _settle(self) -> bool:
        """Commit, act, publish; whether the facts are committed, their events being only a matter of time."""
        recorded = False
        if self._asks:
            self._asks = False
            if self._ask_at_once():
                self._answers = False
                self._act()
                return True
        if self._answers:
            self._answers = False
            recorded = self.ledger.commit_facts()
            if recorded:
                self._act()
        self._release()
        if self.ledger.commit():
            recorded = True
            if self._commands:
                self._act()
            self._sync_state()
        return recorded

    def _ask_at_once(self) -> bool:
        """Ask by the facts, where somebody wants no events; whether that was possible.

        What is committed first is the step and the question. Their events are held until the agent has its answer, or
        anything else happens, and no longer than `HOLD_SECONDS`.
        """
        run, builder = self.run, self._builder
        pending = run.view.pending_decision if run is not None else None
        respondents = self.feed.respondents(builder.run_no) if pending is not None else None
        if pending is None or not respondents or not self.ledger.commit_facts():
            return False
        step = builder.step_of(pending.step_id)
        if step is not None:
            for respondent in respondents:
                respondent.ask(pending, step)
        builder.hold()
        self._held = self.world.loop.call_later(HOLD_SECONDS, self.world.guarded(self.publish_held))
        return True

    def publish_held(self) -> None:
        """Commit and publish the events that are held, if there are any."""
        if self._held is not None:
            self._release()
            self.ledger.commit()

    def _release(self) -> None:
        if self._held is not None:
            self._held.cancel()
            self._held = None

    def _is_answer(self, event: RunEvent) -> bool:
        pending = self.run.view.pending_decision if self.run is not None else None
        return type(event) is DecisionSubmitted and pending is not None and event.step_id == pending.step_id

    def _act(self) -> None:
        commands, self._commands = self._commands, []
        run_id = self._commands_of
        to_agent: list[AgentCommand] = []
        later: list[Command] = []
        for command in commands:
            kind = type(command)
            if kind in _AGENT_COMMANDS:
                to_agent.append(command)  # type: ignore[arg-type]
                if kind is AnswerBoundary and command.action is _CONTINUE:  # type: ignore[union-attr]
                    self._gate_shut = False
            elif kind is EndProcess:
                if to_agent:
                    self.host.send(to_agent)
                    to_agent = []
                self._perform(run_id, command)
            else:
                # Timers and the like are ours: the agent waits and comes first.
                later.append(command)
        if to_agent:
            self.host.send(to_agent)
        for command in later:
            self._perform(run_id, command)

    def _perform(self, run_id: str, command: Command) -> None:
        if isinstance(command, StartTimer):
            self._timers.start(run_id, command.timer, command.deadline_at)
        elif isinstance(command, CancelTimer):
            self._timers.cancel(run_id, command.timer)
        elif isinstance(command, EndProcess):
            self._state_reason = command.reason
            self.host.end()
        elif isinstance(command, EvaluateExpressions):
            self._expressions.evaluate(self.places[run_id].view, command)
        elif isinstance(command, FinishRun):
            self.on_run_edge()
            self.next_turn_soon()

    # --- a journal that refuses -------------------------------------------------------------------------------------

    def ledger_stalled(self) -> None:
        """See `LedgerOwner`."""
        self.host.pause()

    def ledger_waits_too_long(self) -> None:
        """See `LedgerOwner`: the agent waits at its gate or for its reader, and must not wait for ever."""
        self._gave_up = True
        self.host.end()

    def ledger_goes_on(self) -> None:
        """See `LedgerOwner`."""
        self._act()
        self.host.resume()
        self._sync_state()
        self.next_turn_soon()
