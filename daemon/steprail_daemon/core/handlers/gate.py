"""A gate that does not hold, and one that was never said to.

On an EXACT gate whatever shows a model request past a boundary that was not answered is GATE_LOST. On the other gates
nothing is lost by that: a stop comes late and says so, with the requests that were made meanwhile.
"""

from __future__ import annotations

from msgspec.structs import replace

from steprail_daemon.core import failures
from steprail_daemon.core.commands import AnswerBoundary, Command
from steprail_daemon.core.events import ActivityPastGate, BoundaryCancelled, StepCompleted, TurnEnded
from steprail_daemon.core.handlers.asking import Asking
from steprail_daemon.core.handlers.base import GATE_LOST, STOPPING
from steprail_daemon.core.model import DecisionAction, TurnEndReason


class Gate(Asking):
    """Handlers of what an agent does that should be waiting."""

    __slots__ = ()

    def _activity_past_gate(self, event: ActivityPastGate, at: int) -> list[Command]:
        if self.view.turn_ended:
            return []
        if self._inexact:
            if self.view.state is STOPPING:
                self._overshot()
            return []
        return self._lose_gate(event.what, at)

    def _activity_aborting(self, _event: ActivityPastGate, _at: int) -> list[Command]:
        """How an agent winds up its turn; or the requests that an abort in place of a stop came too late for."""
        if self._inexact and self.view.stop_reason is not None:
            self._overshot()
        return []

    def _step_past_gate(self, event: StepCompleted, at: int) -> list[Command]:
        settled = self._settle_evaluation(at)
        ended, _ = self._step_ended(event, at)
        if self._inexact and self.view.state is STOPPING:
            self._step_overshot()
            return [ended, *([AnswerBoundary(event.boundary_id, DecisionAction.STOP)] if event.held else [])]
        return [*settled, ended, *self._lose_gate(_was_completed(event), at)]

    def _step_aborting(self, event: StepCompleted, at: int) -> list[Command]:
        ended, _ = self._step_ended(event, at)
        if self._inexact:
            if self.view.stop_reason is not None:
                self._step_overshot()
            return [ended, *self._interrupt()]
        if not self._boundary_id and not event.past_gate:
            self._boundary_id = event.boundary_id  # it crossed the interrupt and is left unanswered
            return [ended, *self._interrupt()]
        what = _was_completed(event)
        if self._noted is None:
            self._noted = failures.gate_lost(what)
        return [ended, *self._lower_gate(what), *self._interrupt(), *self._end_process(GATE_LOST)]

    def _step_overshot(self) -> None:
        self._overshot()
        self._overshooting = False

    def _gave_up_waiting(self, _event: BoundaryCancelled, at: int) -> list[Command]:
        settled = self._settle_evaluation(at)
        failure = failures.gave_up_waiting(len(self.view.steps))
        return [*settled, *self._fail(failure, at, *self._end_process("it no longer waits at its step boundary"))]

    def _cancelled(self, event: BoundaryCancelled, at: int) -> list[Command]:
        """It crossed our answer, unless there is none yet because expressions are being evaluated."""
        waiting = self._evaluating
        if waiting is None or waiting.completed is None or event.boundary_id != self._boundary_id:
            return []
        if not self._inexact:
            return self._gave_up_waiting(event, at)
        self._boundary_id = ""
        self._evaluating = replace(waiting, completed=replace(waiting.completed, held=False))
        return []

    def _turn_ended_gated(self, event: TurnEnded, at: int) -> list[Command]:
        facts = self._turn_facts(event)
        if event.reason is TurnEndReason.COMPLETED:
            return [*facts, *self._lose_gate("the turn was completed", at, turn_over=True)]
        return [*facts, *self._fail(failures.turn_failed(event), at)]


def _was_completed(event: StepCompleted) -> str:
    return f"step {event.step.number} was completed"
