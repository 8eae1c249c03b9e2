"""Permissions and questions: what the agent asks of people, who answers, and what happens if nobody does.

Policy comes first and is the engine's to add (`PermissionAsked.ruling`): what it allows or denies is answered at once.
What it leaves to people is open until somebody answers, the agent no longer asks, its deadline passes (then it is
denied), or the run is stopped, aborted or over. Calls of sub-agents are asked about like those of the main loop; they
are all that can be open while the main loop is held at a boundary.
"""

from __future__ import annotations

from typing import NoReturn

from steprail_daemon.core import policy
from steprail_daemon.core.commands import AnswerPermission, AnswerQuestion, Command
from steprail_daemon.core.errors import WrongState
from steprail_daemon.core.events import (
    DrainWindowEnding,
    PermissionAnswered,
    PermissionAsked,
    PermissionWithdrawn,
    QuestionAnswered,
    QuestionAsked,
    QuestionWithdrawn,
)
from steprail_daemon.core.handlers.answers import check_alternative, check_answers, without_secrets
from steprail_daemon.core.handlers.base import STOPPING, Denial, facts_first
from steprail_daemon.core.handlers.closing import Closing
from steprail_daemon.core.model import (
    DecisionSource,
    Permission,
    PermissionAction,
    PermissionAnswer,
    Question,
    ResolutionSource,
)
from steprail_daemon.core.records import (
    PermissionRequested,
    PermissionResolved,
    QuestionRequested,
    QuestionResolved,
    ToolGranted,
)

_ASK = PermissionAction.ASK
_DENY_DRAINING = policy.Ruling(PermissionAction.DENY, "the daemon is draining")
_PAST_DEADLINE = "nobody answered in time"
_WITHDRAWN = "the agent no longer asks"

#: What a turn was stopped by, if it ended by a denial that came from there.
_DENIED_BY = {
    ResolutionSource.CLIENT: DecisionSource.CLIENT,
    ResolutionSource.TIMEOUT: DecisionSource.TIMEOUT,
    ResolutionSource.DRAIN: DecisionSource.DRAIN,
}


class Asking(Closing):
    """Handlers of permissions and questions."""

    __slots__ = ()

    # --- the agent asks ---------------------------------------------------------------------------------------------

    def _permission(self, event: PermissionAsked, at: int) -> list[Command]:
        if self.view.turn_ended:
            return [AnswerPermission(event.permission_id, False, policy.DENIAL_MESSAGE)]  # the turn is over
        if self._evaluating is not None and not self._inexact and not event.subagent_id:
            return self._permission_past_gate(event, at)
        return self._judge_permission(event, at)

    def _judge_permission(self, event: PermissionAsked, at: int) -> list[Command]:
        if event.ruling.action is not _ASK:
            return self._resolve(event, event.ruling, ResolutionSource.POLICY)
        if self._drain_ended:
            return self._resolve(event, _DENY_DRAINING, ResolutionSource.DRAIN)
        if self._public_id(event.permission_id, "p"):
            return []  # said again
        view = self.view
        permission = Permission(
            permission_id=self._next_permission_id(),
            step_number=len(view.steps) + 1,
            tool=event.tool,
            tool_kind=event.tool_kind,
            title=event.title,
            arguments_json=event.arguments_json,
            asked_at=at,
            deadline_at=at + view.spec.limits.permission_timeout_ns,
            subagent_id=event.subagent_id,
            call_id=event.call_id,
        )
        self._own_ids[permission.permission_id] = event.permission_id
        return [self._emit(PermissionRequested(permission)), *self._ask_or_run(at), *self._watch_asks()]

    def _next_permission_id(self) -> str:
        self._permissions_asked += 1
        return f"{self.view.run_id}.p{self._permissions_asked:06d}"

    def _resolve(self, event: PermissionAsked, ruling: policy.Ruling, source: ResolutionSource) -> list[Command]:
        """Answer a permission that nobody is asked about."""
        allow = ruling.allow
        if not allow:
            self._note_denial(source, ruling.reason, "")
        answer = PermissionAnswer.ALLOW_ONCE if allow else PermissionAnswer.DENY
        resolved = PermissionResolved(self._next_permission_id(), answer, source, ruling.reason, tool=event.tool)
        return [
            self._emit(resolved),
            AnswerPermission(event.permission_id, allow, "" if allow else policy.DENIAL_MESSAGE),
        ]

    def _note_denial(self, source: ResolutionSource, reason: str, identity: str) -> None:
        self._denial = Denial(_DENIED_BY.get(source, DecisionSource.AUTO), reason, identity)

    def _question(self, event: QuestionAsked, at: int) -> list[Command]:
        if self.view.turn_ended:
            return [AnswerQuestion(event.question_id, None)]  # the turn is over
        if self._evaluating is not None and not self._inexact and not event.subagent_id:
            return self._question_past_gate(event, at)
        return self._open_question(event, at)

    def _open_question(self, event: QuestionAsked, at: int) -> list[Command]:
        if self._drain_ended:
            return self._decline(event, ResolutionSource.DRAIN)
        if self._public_id(event.question_id, "q"):
            return []  # said again
        view = self.view
        question = Question(
            question_id=self._next_question_id(),
            step_number=len(view.steps) + 1,
            items=event.items,
            asked_at=at,
            deadline_at=at + view.spec.limits.permission_timeout_ns,
            subagent_id=event.subagent_id,
            call_id=event.call_id,
        )
        self._own_ids[question.question_id] = event.question_id
        return [self._emit(QuestionRequested(question)), *self._ask_or_run(at), *self._watch_asks()]

    def _next_question_id(self) -> str:
        self._questions_asked += 1
        return f"{self.view.run_id}.q{self._questions_asked:06d}"

    def _decline(self, event: QuestionAsked, source: ResolutionSource) -> list[Command]:
        """Answer a question that nobody is asked."""
        resolved = QuestionResolved(self._next_question_id(), None, source)
        return [self._emit(resolved), AnswerQuestion(event.question_id, None)]

    # --- the agent asks where it should wait or wind up -------------------------------------------------------------

    def _permission_gated(self, event: PermissionAsked, at: int) -> list[Command]:
        stopping = self.view.state is STOPPING
        if not event.subagent_id and not (stopping and self._inexact):
            return self._permission_past_gate(event, at)
        if not stopping:
            return self._judge_permission(event, at)
        if not event.subagent_id:
            self._overshot()
        return self._resolve(event, policy.DENY_STOPPING, ResolutionSource.POLICY)

    def _question_gated(self, event: QuestionAsked, at: int) -> list[Command]:
        stopping = self.view.state is STOPPING
        if not event.subagent_id and not (stopping and self._inexact):
            return self._question_past_gate(event, at)
        if not stopping:
            return self._open_question(event, at)
        if not event.subagent_id:
            self._overshot()
        return self._decline(event, ResolutionSource.POLICY)

    def _permission_past_gate(self, event: PermissionAsked, at: int) -> list[Command]:
        denied = self._resolve(event, policy.DENY_PAST_GATE, ResolutionSource.ABORT)
        return facts_first([*denied, *self._lose_gate(f"leave was asked for the tool {event.tool!r}", at)])

    def _question_past_gate(self, event: QuestionAsked, at: int) -> list[Command]:
        declined = self._decline(event, ResolutionSource.ABORT)
        return facts_first([*declined, *self._lose_gate("a question was asked", at)])

    def _permission_aborting(self, event: PermissionAsked, _at: int) -> list[Command]:
        return self._resolve(event, policy.DENY_ABORTING, ResolutionSource.ABORT)

    def _question_aborting(self, event: QuestionAsked, _at: int) -> list[Command]:
        return self._decline(event, ResolutionSource.ABORT)

    def _overshot(self) -> None:
        """Count a model request after the boundary at which the run was stopped; it goes on until its step is over."""
        if not self._overshooting:
            self._overshoot += 1
        self._overshooting = True

    # --- the agent no longer asks -----------------------------------------------------------------------------------

    def _permission_withdrawn(self, event: PermissionWithdrawn, at: int) -> list[Command]:
        public_id = self._public_id(event.permission_id, "p")
        if not public_id:
            return []
        tool = next(one.tool for one in self.view.pending_permissions if one.permission_id == public_id)
        del self._own_ids[public_id]
        resolved = PermissionResolved(public_id, None, ResolutionSource.AGENT, _WITHDRAWN, tool=tool)
        return [self._emit(resolved), *self._ask_or_run(at), *self._watch_asks()]

    def _question_withdrawn(self, event: QuestionWithdrawn, at: int) -> list[Command]:
        public_id = self._public_id(event.question_id, "q")
        if not public_id:
            return []
        del self._own_ids[public_id]
        resolved = QuestionResolved(public_id, None, ResolutionSource.AGENT)
        return [self._emit(resolved), *self._ask_or_run(at), *self._watch_asks()]

    def _public_id(self, own_id: str, kind: str) -> str:
        start = f"{self.view.run_id}.{kind}"
        found = (public for public, own in self._own_ids.items() if own == own_id and public.startswith(start))
        return next(found, "")

    # --- people answer ----------------------------------------------------------------------------------------------

    def _permission_answered(self, event: PermissionAnswered, at: int) -> list[Command]:
        view = self.view
        permission = next((one for one in view.pending_permissions if one.permission_id == event.permission_id), None)
        if permission is None:
            self._refuse_permission(event, at)
        if event.alternative is not None:
            check_alternative(event, self.capabilities)
        allow = event.answer is not PermissionAnswer.DENY
        own_id = self._own_ids.pop(event.permission_id)
        facts: list[Command] = []
        if event.answer is PermissionAnswer.ALLOW_SESSION:
            facts.append(self._emit(ToolGranted(permission.tool, permission.arguments_json)))
        if not allow:
            self._note_denial(ResolutionSource.CLIENT, event.reason, event.identity)
        resolved = PermissionResolved(
            event.permission_id,
            event.answer,
            ResolutionSource.CLIENT,
            event.reason,
            event.identity,
            event.alternative,
            permission.tool,
        )
        message = "" if allow else event.reason or policy.DENIAL_MESSAGE
        return [
            *facts,
            self._emit(resolved),
            *self._ask_or_run(at),
            *self._watch_asks(),
            AnswerPermission(own_id, allow, message, event.alternative),
        ]

    def _question_answered(self, event: QuestionAnswered, at: int) -> list[Command]:
        view = self.view
        question = next((one for one in view.pending_questions if one.question_id == event.question_id), None)
        if question is None:
            self._refuse_question(event, at)
        recorded = None
        if event.answers is not None:
            check_answers(question, event.answers)
            recorded = without_secrets(question, event.answers)
        own_id = self._own_ids.pop(event.question_id)
        resolved = QuestionResolved(event.question_id, recorded, ResolutionSource.CLIENT, event.identity)
        return [
            self._emit(resolved),
            *self._ask_or_run(at),
            *self._watch_asks(),
            AnswerQuestion(own_id, event.answers),
        ]

    def _refuse_permission(self, event: PermissionAnswered, _at: int) -> NoReturn:
        view = self.view
        raise WrongState(
            "PERMISSION_NOT_PENDING",
            f"permission {event.permission_id!r} is not pending; the run is {view.state.name}",
            run_id=view.run_id,
            permission_id=event.permission_id,
        )

    def _refuse_question(self, event: QuestionAnswered, _at: int) -> NoReturn:
        view = self.view
        raise WrongState(
            "QUESTION_NOT_PENDING",
            f"question {event.question_id!r} is not pending; the run is {view.state.name}",
            run_id=view.run_id,
            question_id=event.question_id,
        )

    # --- nobody answers ---------------------------------------------------------------------------------------------

    def _asks_expired(self, at: int) -> list[Command]:
        due_at = max(at, self._permission_deadline)
        self._note_denial(ResolutionSource.TIMEOUT, _PAST_DEADLINE, "")
        facts, answers = self._close_asks(ResolutionSource.TIMEOUT, _PAST_DEADLINE, due_at=due_at)
        return [*facts, *self._ask_or_run(at), *self._watch_asks(), *answers]

    def _drain_ending(self, _event: DrainWindowEnding, at: int) -> list[Command]:
        self._drain_ended = True
        facts, answers = self._close_asks(ResolutionSource.DRAIN, _DENY_DRAINING.reason)
        if facts:
            self._note_denial(ResolutionSource.DRAIN, _DENY_DRAINING.reason, "")
        return [*facts, *self._ask_or_run(at), *self._watch_asks(), *answers]
