"""The script: what the agent is told to do and what is to go wrong, as typed values."""

from typing import TYPE_CHECKING, NamedTuple

from steprail_scripted.faults import Fault
from steprail_scripted.model import Reply

if TYPE_CHECKING:
    import re


class Timers(NamedTuple):
    """Seconds. The defaults are those of Autohand CLI 0.8.2.

    `first_reply` is the least that the first reply of a turn takes, which is what the fastest model takes there. It is
    the time in which a host can answer `changesBatchStart`.
    """

    permission_unacknowledged: float = 30.0
    permission_acknowledged: float = 3_600.0
    ping: float = 15.0
    shutdown: float = 2.5
    turn_start: float = 0.0
    first_reply: float = 0.02
    reset: float = 0.0
    retries: tuple[float, ...] = (1.0, 1.5, 2.25)


class Bootstrap(NamedTuple):
    """What the CLI does in the workspace before it asks the model: it takes time, and can end the turn silently."""

    delay: float = 0.0
    fails: bool = False


class TurnScript(NamedTuple):
    """What happens in one turn. `match` restricts it to prompts that contain the pattern."""

    replies: tuple[Reply, ...] = ()
    match: "re.Pattern[str] | None" = None
    faults: tuple[Fault, ...] = ()
    bootstrap: Bootstrap = Bootstrap()


class Startup(NamedTuple):
    """How the process begins: `error` is "authentication" or "failed"."""

    delay: float = 0.0
    error: str | None = None


class Script(NamedTuple):
    """A whole script. Without any turn, every prompt runs the default plan.

    `repeat` says what follows the last turn: "plan" the default plan, "last" the last turn again, "all" from the first.
    """

    model: str = "scripted"
    context_window: int = 112_000
    max_iterations: int = 100
    guards: bool = False
    report_usage: bool = True
    vision: bool = False
    repeat: str = "plan"
    timers: Timers = Timers()
    startup: Startup = Startup()
    turns: tuple[TurnScript, ...] = ()
    faults: tuple[Fault, ...] = ()


class Cursor:
    """Picks the turn for each prompt: the first that was not used and whose pattern, if it has one, fits."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self._used: set[int] = set()

    def next_turn(self, prompt: str) -> TurnScript | None:
        """Give the turn for a prompt, or `None` for the default plan."""
        turns = self.script.turns
        if turns and self.script.repeat == "all" and len(self._used) == len(turns):
            self._used.clear()
        for index, turn in enumerate(turns):
            if index not in self._used and (turn.match is None or turn.match.search(prompt)):
                self._used.add(index)
                return turn
        last = turns[-1] if turns and self.script.repeat == "last" else None
        return last if last is not None and (last.match is None or last.match.search(prompt)) else None
