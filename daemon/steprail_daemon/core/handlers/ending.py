"""Stops, aborts and timers, and the ends of a run."""

from __future__ import annotations

from collections.abc import Callable

from steprail_daemon.core import failures
from steprail_daemon.core.boundary import permission_denied, stop_reason
from steprail_daemon.core.commands import Command
from steprail_daemon.core.events import (
    AbortRequested,
    AgentExited,
    AgentSilent,
    PromptConfirmed,
    ProtocolFailed,
    RunEvent,
    Timer,
    TimerFired,
    TurnEnded,
)
from steprail_daemon.core.handlers.base import COMPLETED, STOPPED
from steprail_daemon.core.handlers.deciding import Deciding
from steprail_daemon.core.model import (
    Decision,
    DecisionAction,
    DecisionSource,
    Failure,
    RunState,
    TurnEndReason,
)
from steprail_daemon.core.records import AbortAsked, DecisionRecorded, TurnStarted


class Ending(Deciding):
    """Handlers of what brings a run to its end."""

    __slots__ = ()

    # --- aborts -----------------------------------------------------------------------------------------------------

    def _abort(self, event: AbortRequested, at: int) -> list[Command]:
        asked = self._emit(AbortAsked(event.identity, event.reason))
        if self.view.turn_ended:
            return [asked, *self._complete(at)]  # the agent had finished first
        return [asked, *self._cut_off(at)]

    def _start_aborting(self, _event: PromptConfirmed, at: int) -> list[Command]:
        if self._confirmed:
            return []
        self._confirmed = True
        return [self._emit(TurnStarted(self.view.spec.prompt_synthesized, at)), *self._interrupt()]

    # --- timers -----------------------------------------------------------------------------------------------------

    def _timer(self, event: TimerFired, at: int) -> list[Command]:
        timer = event.timer
        if timer not in self._timers:
            return []  # it was cancelled while it fired
        self._timers.remove(timer)
        ran_out: Callable[[int], list[Command]] = getattr(self, _ON_TIMER[timer])
        return ran_out(at)

    def _ran_too_long(self, at: int) -> list[Command]:
        if self.view.turn_ended:
            return self._complete(at)
        failure = failures.hard_timeout(self.view.spec.limits.hard_timeout_ns)
        return self._fail(failure, at, *self._end_process("hard timeout of its run"))

    def _prompt_not_taken(self, at: int) -> list[Command]:
        failure = failures.prompt_not_taken(self.view.spec.limits.prompt_timeout_ns)
        return self._fail(failure, at, *self._end_process(failure.message))

    def _queued_too_long(self, at: int) -> list[Command]:
        return self._fail(failures.queue_timeout(self.view.spec.limits.queue_timeout_ns), at)

    def _not_stopped(self, _at: int) -> list[Command]:
        return self._give_up(failures.unresponsive("stop", self.view.spec.limits.stop_timeout_ns))

    def _not_aborted(self, _at: int) -> list[Command]:
        return self._give_up(failures.unresponsive("abort", self.view.spec.limits.abort_timeout_ns))

    def _give_up(self, failure: Failure) -> list[Command]:
        """End the process; what became of the run is claimed when it is gone."""
        if self._noted is None:
            self._noted = failure
        return self._end_process(failure.message)

    def _silent(self, event: AgentSilent, at: int) -> list[Command]:
        if self.view.turn_ended or self._evaluating is not None:
            return []  # it does not have the word
        failure = failures.silent(event.silence_ns)
        return self._fail(failure, at, *self._end_process(failure.message))

    # --- the turn ends ----------------------------------------------------------------------------------------------

    def _turn_ended(self, event: TurnEnded, at: int) -> list[Command]:
        if self.view.turn_ended:
            return []  # said again
        if self._evaluating is not None and not self._inexact:
            return [*self._settle_evaluation(at), *self._turn_ended_gated(event, at)]
        settled = self._settle_evaluation(at)
        facts = [*settled, *self._turn_facts(event)]
        if event.denied:
            return [*facts, *self._stopped_by_denial(at)]
        if event.reason is not TurnEndReason.COMPLETED:
            return [*facts, *self._fail(failures.turn_failed(event), at)]
        if self._expressions:
            back = self._ask_or_run(at)
            return [*facts, *back, *self._watch_asks(), self._evaluate(None, event.finish_reason)]
        return [*facts, *self._complete(at, finish_reason=event.finish_reason)]

    def _stopped_by_denial(self, at: int) -> list[Command]:
        denial = self._denial
        if denial is None:
            cause = permission_denied(DecisionSource.AUTO, "", "")
        else:
            cause = permission_denied(denial.source, denial.reason, denial.identity)
        return self._finish(STOPPED, at, reason=stop_reason([cause]))

    def _turn_ended_stopping(self, event: TurnEnded, at: int) -> list[Command]:
        interrupted = self._inexact and event.reason is TurnEndReason.ABORTED and self._interrupted
        if event.reason is TurnEndReason.STOP_CONDITION or interrupted:
            facts = self._turn_facts(event)
            if self._stop_failure is not None:
                return [*facts, *self._fail(self._stop_failure, at)]
            return [*facts, *self._finish(STOPPED, at)]
        if self._inexact and event.reason is TurnEndReason.COMPLETED:
            facts = self._turn_facts(event)  # it was done before the stop reached it
            return [*facts, *self._complete(at, finish_reason=event.finish_reason)]
        return self._turn_ended_gated(event, at)

    def _turn_ended_aborting(self, event: TurnEnded, at: int) -> list[Command]:
        facts = self._turn_facts(event)
        if event.reason is TurnEndReason.COMPLETED:
            return [*facts, *self._complete(at, finish_reason=event.finish_reason)]
        failure = failures.turn_failed(event) if event.reason is TurnEndReason.ERROR else None
        return [*facts, *self._finish(RunState.ABORTED, at, failure=self._noted or failure)]

    # --- the process and the daemon ---------------------------------------------------------------------------------

    def _protocol_failed(self, event: ProtocolFailed, at: int) -> list[Command]:
        if self.view.turn_ended:
            return self._complete(at, *self._end_process("protocol error"))
        return self._fail(failures.protocol_error(event.message), at, *self._end_process("protocol error"))

    def _protocol_failed_aborting(self, event: ProtocolFailed, _at: int) -> list[Command]:
        return [*self._cancel(Timer.ABORT), *self._give_up(failures.protocol_error(event.message))]

    def _exited(self, event: AgentExited, at: int) -> list[Command]:
        if self.view.turn_ended:
            return self._complete(at)
        return self._fail(self._noted or failures.agent_exited(event), at)

    def _exited_aborting(self, event: AgentExited, at: int) -> list[Command]:
        return self._finish(RunState.ABORTED, at, failure=self._noted or failures.agent_exited(event))

    def _restarted(self, _event: RunEvent, at: int) -> list[Command]:
        view = self.view
        if view.turn_ended:
            # It was done and only its final verdicts were waited for; what they need is lost.
            return self._finish(COMPLETED, at)
        pending = view.pending_decision
        commands: list[Command] = []
        if pending is not None:
            decision = Decision(
                action=DecisionAction.STOP,
                source=DecisionSource.RESTART,
                reason="The daemon restarted while the decision was pending.",
                waited_ns=at - pending.asked_at,
                decided_at=at,
            )
            commands.append(self._emit(DecisionRecorded(pending.step_id, decision)))
        return [*commands, *self._fail(failures.daemon_restarted(), at)]


#: The methods that handle timers, by name as in the table.
_ON_TIMER = {
    Timer.HARD_TIMEOUT: "_ran_too_long",
    Timer.DECISION: "_nobody_decided",
    Timer.DISCONNECT: "_nobody_connected",
    Timer.PERMISSION: "_asks_expired",
    Timer.STOP: "_not_stopped",
    Timer.ABORT: "_not_aborted",
    Timer.PROMPT: "_prompt_not_taken",
    Timer.QUEUE: "_queued_too_long",
}
