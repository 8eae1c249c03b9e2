"""A run: the one way into the handlers behind the transition table, where the theory is (`core.table`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from steprail_daemon.core.commands import Command, Emit
from steprail_daemon.core.errors import IllegalTransition
from steprail_daemon.core.events import RunEvent, Timer
from steprail_daemon.core.handlers.queued import Queued
from steprail_daemon.core.model import RunSpec, RunState
from steprail_daemon.core.records import RunCreated, RunStateChanged
from steprail_daemon.core.replay import open_run
from steprail_daemon.core.table import TABLE
from steprail_daemon.core.views import RunView


class Run(Queued):
    """One run. Feed it what happens, with the time of it, and carry out what it answers, in order.

    `view` shows how it stands; nobody else may change it. `capabilities` are what its session can do; `TurnCame` sets
    them, and whoever learns that they changed sets them anew.
    """

    __slots__ = ()

    @classmethod
    def create(cls, run_id: str, session_id: str, spec: RunSpec, at: int) -> tuple[Run, list[Command]]:
        """Make a run in state QUEUED."""
        created = RunCreated(run_id, session_id, spec, at)
        run = cls(open_run(created))
        queued = run._emit(RunStateChanged(RunState.QUEUED, None, at))
        return run, [Emit(created), queued, run._start_timer(Timer.QUEUE, at + spec.limits.queue_timeout_ns)]

    @classmethod
    def restore(cls, view: RunView) -> Run:
        """Take up a live run that was replayed. The first thing that happens to it is `DaemonRestarted`."""
        return cls(view)

    @property
    def next_step_number(self) -> int:
        """The number of the step that the agent completes next."""
        waiting = self._evaluating
        return len(self.view.steps) + (2 if waiting is not None and waiting.completed is not None else 1)

    def handle(self, event: RunEvent, at: int) -> list[Command]:
        """Take what happened at `at` and give what is to be done, in order.

        Raises:
            WrongState: DECISION_NOT_PENDING, PERMISSION_NOT_PENDING, QUESTION_NOT_PENDING, STEER_NOT_POSSIBLE,
                CAPABILITY_MISSING; nothing changed, and what was pending still is.
            Unavailable: DRAINING, for CONTINUE in a drain; likewise.
            Invalid: FIELD_INVALID, a decision or an answer is not what is accepted; likewise.
            IllegalTransition: a bug of the caller; nothing changed.
        """
        view = self.view
        handler = HANDLERS.get((view.state, type(event)))
        if handler is None:
            raise IllegalTransition(f"{type(event).__name__} in state {view.state.name} of run {view.run_id}")
        if at < view.state_since:  # noqa: PLR1730  # a call for what nearly never is
            at = view.state_since
        return handler(self, event, at)


#: The methods that the table's rows name, looked up beforehand.
HANDLERS: Final[dict[tuple[RunState, type], Callable[[Run, Any, int], list[Command]]]] = {
    pair: getattr(Run, row.handler) for pair, row in TABLE.items()
}
