"""What closes: open permissions and questions, a turn, and the run itself."""

from __future__ import annotations

from msgspec.structs import replace

from steprail_daemon.core import failures, policy
from steprail_daemon.core.commands import (
    AnswerPermission,
    AnswerQuestion,
    Command,
    FinishRun,
)
from steprail_daemon.core.events import Timer, TurnEnded, UsageSpent
from steprail_daemon.core.handlers.base import (
    ABORTING,
    AWAITING_PERMISSION,
    COMPLETED,
    FAILED,
    GATE_LOST,
    NO_FINISH_REASON,
    RUNNING,
    STOPPED,
    RunBase,
)
from steprail_daemon.core.model import (
    Failure,
    FinishReason,
    PermissionAnswer,
    ResolutionSource,
    RunState,
    StopKind,
    StopReason,
    TurnEndReason,
    Verdict,
)
from steprail_daemon.core.records import (
    PermissionResolved,
    QuestionResolved,
    RunEnded,
    RunStateChanged,
    TurnFinished,
    UsageBeside,
    UsageCounted,
)
from steprail_daemon.core.stops.expressions import ExpressionResult
from steprail_daemon.core.usage import incomplete_cost, incomplete_usage


class Closing(RunBase):
    """The ways in which something of a run comes to its end; no handlers of its own."""

    __slots__ = ()

    # --- what is open -----------------------------------------------------------------------------------------------

    def _close_asks(
        self, source: ResolutionSource, reason: str, *, only_main_loop: bool = False, due_at: int | None = None
    ) -> tuple[list[Command], list[Command]]:
        """Close open permissions and questions, all or some: give the facts, and the answers to the agent.

        With the source AGENT it no longer waits, so there is nothing to answer.
        """
        view = self.view
        facts: list[Command] = []
        answers: list[Command] = []
        answer = None if source is ResolutionSource.AGENT else PermissionAnswer.DENY
        for permission in list(view.pending_permissions):
            if _concerns(permission.subagent_id, permission.deadline_at, only_main_loop, due_at):
                own_id = self._own_ids.pop(permission.permission_id, "")
                resolved = PermissionResolved(permission.permission_id, answer, source, reason, tool=permission.tool)
                facts.append(self._emit(resolved))
                answers.append(AnswerPermission(own_id, False, policy.DENIAL_MESSAGE))
        for question in list(view.pending_questions):
            if _concerns(question.subagent_id, question.deadline_at, only_main_loop, due_at):
                own_id = self._own_ids.pop(question.question_id, "")
                facts.append(self._emit(QuestionResolved(question.question_id, None, source)))
                answers.append(AnswerQuestion(own_id, None))
        return facts, ([] if answer is None else answers)

    def _ask_or_run(self, at: int) -> list[Command]:
        """Change between RUNNING and AWAITING_PERMISSION as is fit now."""
        view = self.view
        if view.state is AWAITING_PERMISSION and not view.asks:
            return [self._change(RUNNING, at)]
        if view.state is RUNNING and view.asks:
            return [self._change(AWAITING_PERMISSION, at)]
        return []

    def _watch_asks(self) -> list[Command]:
        """Have the timer run out at the earliest deadline of what is open."""
        view = self.view
        deadlines = [one.deadline_at for one in view.pending_permissions]
        deadlines += [one.deadline_at for one in view.pending_questions]
        if not deadlines:
            return self._cancel(Timer.PERMISSION)
        earliest = min(deadlines)
        if Timer.PERMISSION in self._timers and earliest == self._permission_deadline:
            return []
        self._permission_deadline = earliest
        return [self._start_timer(Timer.PERMISSION, earliest)]

    # --- ends -------------------------------------------------------------------------------------------------------

    def _turn_facts(self, event: TurnEnded) -> list[Command]:
        """Record the end of the turn. Nothing waits for an answer any more."""
        facts = self._close_asks(ResolutionSource.AGENT, "the turn ended before anybody answered")[0]
        completed = event.reason is TurnEndReason.COMPLETED
        if event.usage is not None or event.cost is not None:
            facts.append(self._emit(UsageCounted(event.usage, event.cost)))
        if completed:
            self._tally.settle(None if event.usage is None else self.view.usage, event.cost)
            facts += self._steers_delivered()
        facts.append(self._emit(TurnFinished(event.reason, event.reason_raw, event.text)))
        return facts

    def _spent(self, event: UsageSpent, _at: int) -> list[Command]:
        """Something beside the main loop was used."""
        self._tally.spend(event.usage, event.cost)
        return [self._emit(UsageBeside(event.usage, event.cost, event.side_request))]

    def _cut_off(self, at: int, reason: StopReason | None = None) -> list[Command]:
        """Interrupt the agent, or hold the interrupt until it can take one."""
        settled = self._settle_evaluation(at)
        closed, answers = self._close_asks(ResolutionSource.ABORT, "the run is being aborted")
        dropped = self._drop_steers("the run was aborted first")
        return [
            *settled,
            *closed,
            *dropped,
            self._change(ABORTING, at, reason),
            *self._cancel(
                Timer.HARD_TIMEOUT, Timer.DECISION, Timer.DISCONNECT, Timer.STOP, Timer.PROMPT, Timer.PERMISSION
            ),
            self._start_timer(Timer.ABORT, at + self.view.spec.limits.abort_timeout_ns),
            *answers,
            *(self._interrupt() if self._confirmed else []),
        ]

    def _finish(
        self,
        state: RunState,
        at: int,
        *effects: Command,
        failure: Failure | None = None,
        reason: StopReason | None = None,
        final_verdicts: tuple[Verdict, ...] = (),
    ) -> list[Command]:
        view = self.view
        loose = self._settle_evaluation(at)
        loose += self._close_asks(ResolutionSource.ABORT, "the run ended")[0]
        loose += self._drop_steers("the run ended first")
        reason = self._final_reason(state, reason)
        # Steps add up to the whole only where nothing came after the last one.
        stopped = reason is not None and reason.exact and reason.kind is not StopKind.PERMISSION_DENIED
        whole = state is STOPPED and stopped
        usage = view.usage if whole or view.usage_counted else incomplete_usage(view.usage)
        cost = view.cost if whole or view.cost_counted else incomplete_cost(view.cost)
        return [
            *loose,
            self._emit(RunStateChanged(state, view.state, at, reason, failure)),
            self._emit(RunEnded(state, reason, failure, len(view.steps), usage, cost, final_verdicts)),
            *self._cancel(*Timer),
            *effects,
            FinishRun(),
        ]

    def _final_reason(self, state: RunState, reason: StopReason | None) -> StopReason | None:
        reason = reason or self.view.stop_reason
        if state is COMPLETED or reason is None:
            return None
        return replace(reason, exact=False, overshoot_requests=self._overshoot) if self._overshoot else reason

    def _fail(self, failure: Failure, at: int, *effects: Command, reason: StopReason | None = None) -> list[Command]:
        """Give the run up. What was complete at a boundary is stored by the agent and can be continued from."""
        settled = self._settle_evaluation(at)
        steps = len(self.view.steps)
        if steps and failure.resumable_at_step is None:
            failure = replace(failure, resumable_at_step=steps)
        return [*settled, *self._finish(FAILED, at, *effects, failure=failure, reason=reason)]

    def _complete(
        self,
        at: int,
        *effects: Command,
        results: tuple[ExpressionResult, ...] = (),
        finish_reason: FinishReason = NO_FINISH_REASON,
    ) -> list[Command]:
        """A text-only end: no boundary, nobody is asked, what the rules say is noted and changes nothing."""
        self._evaluating = None
        verdicts = self._final_verdicts(at, results, finish_reason)
        return self._finish(COMPLETED, at, *effects, final_verdicts=verdicts)

    def _lose_gate(self, what: str, at: int, *, turn_over: bool = False) -> list[Command]:
        """Give the run up because the agent went past a boundary, and take EXACT from its session."""
        cut = [] if turn_over else [*self._interrupt(), *self._end_process(GATE_LOST)]
        reason = self.view.stop_reason
        if reason is not None:
            reason = replace(reason, exact=False, overshoot_requests=1)
        return [*self._lower_gate(what), *self._fail(failures.gate_lost(what), at, *cut, reason=reason)]


def _concerns(subagent_id: str, deadline_at: int, only_main_loop: bool, due_at: int | None) -> bool:
    if only_main_loop and subagent_id:
        return False
    return due_at is None or deadline_at <= due_at
