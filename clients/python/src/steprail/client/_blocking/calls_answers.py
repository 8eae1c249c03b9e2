"""Generated from `steprail.client._answers` by scripts/blocking.py; never edited by hand."""

from __future__ import annotations

from collections.abc import Iterable

from steprail.client._blocking.portal import Blocking
from steprail.client._client import Client
from steprail.v1 import decisions_pb2, events_pb2, runs_pb2


class SyncAnswerCalls(Blocking[Client]):
    """Shows what waits for somebody, and answers it. The first valid answer wins, whichever way it came."""

    def list_pending(self, session_id: str = "") -> list[runs_pb2.PendingItem]:
        """Give the decisions, permissions and questions that wait, of a session or of all; nearest deadline first."""
        return self._portal.wait(self._calls.list_pending(session_id))

    def submit_decision(
        self,
        run_id: str,
        step_id: str,
        action: decisions_pb2.DecisionAction.ValueType = decisions_pb2.DECISION_ACTION_UNSPECIFIED,
        *,
        guidance: str = "",
        model: str = "",
        reason: str = "",
        error: str = "",
        request_id: str = "",
    ) -> decisions_pb2.Decision:
        """Decide about the step that waits, or with `error` alone say that no decision could be made.

        With CONTINUE, `guidance` is text that the model gets with its next step, `model` the one from then on. An
        `error` ends the run: FAILED, DECIDER_ERROR.

        Raises:
            FailedPrecondition: DECISION_NOT_PENDING for a late, second or wrong one; CAPABILITY_MISSING for guidance
                or a model that the agent cannot take, and the step goes on waiting.
        """
        return self._portal.wait(
            self._calls.submit_decision(
                run_id,
                step_id,
                action,
                guidance=guidance,
                model=model,
                reason=reason,
                error=error,
                request_id=request_id,
            )
        )

    def answer_permission(
        self,
        run_id: str,
        permission_id: str,
        answer: decisions_pb2.PermissionAnswer.ValueType | None = None,
        *,
        command: str | None = None,
        arguments_json: str | None = None,
        reason: str = "",
        request_id: str = "",
    ) -> events_pb2.PermissionResolved:
        """Allow or deny, or with `command` or `arguments_json` say what is to be done instead.

        Raises:
            ValueError: not exactly one of answer, command and arguments_json is given.
            FailedPrecondition: PERMISSION_NOT_PENDING; CAPABILITY_MISSING, and the permission goes on waiting.
        """
        return self._portal.wait(
            self._calls.answer_permission(
                run_id,
                permission_id,
                answer,
                command=command,
                arguments_json=arguments_json,
                reason=reason,
                request_id=request_id,
            )
        )

    def answer_question(
        self,
        run_id: str,
        question_id: str,
        answers: Iterable[decisions_pb2.QuestionItemAnswer] | None = None,
        *,
        request_id: str = "",
    ) -> events_pb2.QuestionResolved:
        """Answer each item of a question; without answers it is declined.

        Raises:
            FailedPrecondition: QUESTION_NOT_PENDING.
        """
        return self._portal.wait(self._calls.answer_question(run_id, question_id, answers, request_id=request_id))
