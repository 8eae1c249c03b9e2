"""Before the agent took the prompt: the run waits for its turn, then for its agent, then for the confirmation.

Until its turn came a run hears nothing of the agent. Between its turn and its prompt it hears the tail of an earlier
turn, which is answered so that the agent comes to rest, and is no part of this run. A run whose prompt was not given
yet survives a restart of the daemon; one whose prompt was given does not, as nobody can tell how far the agent got.
"""

from __future__ import annotations

from steprail_daemon.core import failures, policy
from steprail_daemon.core.boundary import stop_reason, stop_request
from steprail_daemon.core.commands import AnswerBoundary, AnswerPermission, AnswerQuestion, Command
from steprail_daemon.core.errors import IllegalTransition
from steprail_daemon.core.events import (
    AbortRequested,
    AgentExited,
    AgentSilent,
    AgentStartFailed,
    DaemonRestarted,
    PermissionAsked,
    PromptConfirmed,
    PromptSent,
    QuestionAsked,
    StepCompleted,
    StopRequested,
    Timer,
    TurnCame,
    TurnEnded,
)
from steprail_daemon.core.handlers.base import RUNNING, STOPPED
from steprail_daemon.core.handlers.ending import Ending
from steprail_daemon.core.model import (
    DecisionAction,
    DecisionSource,
    PermissionAction,
    ResolutionSource,
    RunState,
    TurnEndReason,
)
from steprail_daemon.core.records import AbortAsked, PromptGiven, RunTurnCame, TurnStarted

_DENY_EARLY = policy.Ruling(PermissionAction.DENY, "the agent asked before it had taken the prompt")


class Queued(Ending):
    """Handlers of the state QUEUED."""

    __slots__ = ()

    def _turn_came(self, event: TurnCame, _at: int) -> list[Command]:
        self.capabilities = event.capabilities
        self._steps_before = event.steps_before
        self._keep_tally(event.usage_before, event.cost_before)
        return [] if self.view.turn_came else [self._emit(RunTurnCame())]

    def _prompt_sent(self, event: PromptSent, at: int) -> list[Command]:
        if not self.view.turn_came:
            raise IllegalTransition(f"a prompt for run {self.view.run_id}, whose turn has not come")
        return [
            self._emit(PromptGiven(event.prompt_id)),
            *self._cancel(Timer.QUEUE),
            self._start_timer(Timer.PROMPT, at + self.view.spec.limits.prompt_timeout_ns),
        ]

    def _start(self, _event: PromptConfirmed, at: int) -> list[Command]:
        view = self.view
        if not view.prompt_id:
            return []  # the tail of an earlier turn; this run has not begun
        self._confirmed = True
        return [
            self._change(RUNNING, at),
            self._emit(TurnStarted(view.spec.prompt_synthesized, at)),
            *self._cancel(Timer.PROMPT),
            self._start_timer(Timer.HARD_TIMEOUT, at + view.spec.limits.hard_timeout_ns),
        ]

    def _stop_queued(self, event: StopRequested, at: int) -> list[Command]:
        view = self.view
        if not view.prompt_id and event.source is DecisionSource.DRAIN:
            return []  # it stays for the next start of the daemon
        commands = self._note_stop(event, at)
        request = view.stop_requested
        if not view.prompt_id and request is not None:
            commands += self._finish(STOPPED, at, reason=stop_reason([stop_request(request)]))
        return commands

    def _abort_queued(self, event: AbortRequested, at: int) -> list[Command]:
        if self.view.prompt_id:
            return self._abort(event, at)
        asked = self._emit(AbortAsked(event.identity, event.reason))
        return [asked, *self._finish(RunState.ABORTED, at)]

    # --- the agent --------------------------------------------------------------------------------------------------

    def _step_queued(self, event: StepCompleted, at: int) -> list[Command]:
        if not self.view.prompt_id:
            # The tail of an earlier turn.
            return [AnswerBoundary(event.boundary_id, DecisionAction.STOP)] if event.held else []
        what = f"it completed a step ({event.boundary_id!r}) before it took the prompt"
        return self._fail(failures.protocol_error(what), at, *self._end_process("protocol error"))

    def _permission_queued(self, event: PermissionAsked, _at: int) -> list[Command]:
        if not self.view.prompt_id:
            return [AnswerPermission(event.permission_id, False, policy.DENIAL_MESSAGE)]  # the tail of an earlier turn
        asks = event.ruling.action is PermissionAction.ASK
        return self._resolve(event, _DENY_EARLY if asks else event.ruling, ResolutionSource.POLICY)

    def _question_queued(self, event: QuestionAsked, _at: int) -> list[Command]:
        if not self.view.prompt_id:
            return [AnswerQuestion(event.question_id, None)]  # the tail of an earlier turn
        return self._decline(event, ResolutionSource.POLICY)

    def _turn_ended_queued(self, event: TurnEnded, at: int) -> list[Command]:
        if not self.view.prompt_id:
            return []  # the tail of an earlier turn; this run has not begun
        facts = self._turn_facts(event)
        if event.reason is TurnEndReason.ERROR:
            return [*facts, *self._fail(failures.turn_failed(event), at)]
        failure = failures.protocol_error(f"it ended a turn ({event.reason_raw!r}) that it had not begun")
        return [*facts, *self._fail(failure, at, *self._end_process("protocol error"))]

    def _start_failed(self, event: AgentStartFailed, at: int) -> list[Command]:
        return self._fail(event.failure, at)

    def _exited_queued(self, event: AgentExited, at: int) -> list[Command]:
        sent = bool(self.view.prompt_id)
        return self._fail(failures.agent_exited(event) if sent else failures.agent_start_failed(event), at)

    def _silent_queued(self, event: AgentSilent, at: int) -> list[Command]:
        return self._silent(event, at) if self.view.prompt_id else []

    # --- the daemon -------------------------------------------------------------------------------------------------

    def _restarted_queued(self, event: DaemonRestarted, at: int) -> list[Command]:
        view = self.view
        if view.prompt_id:
            return self._restarted(event, at)
        return [self._start_timer(Timer.QUEUE, view.created_at + view.spec.limits.queue_timeout_ns)]
