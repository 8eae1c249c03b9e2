"""What changes a run, for the unary calls and for the messages of an open stream alike.

Each function decodes, sees to it that a retry acts once, and gives the id of the run that it is about, or what the
facade gave. What nothing shows later is put together again for a retry: it has the same body from the same caller.
"""

from __future__ import annotations

import msgspec

from steprail.v1 import runs_pb2
from steprail_daemon.core.model import Decision, ResolutionSource
from steprail_daemon.core.records import PermissionResolved, QuestionResolved
from steprail_daemon.engine.facade import Caller, Facade, shown_items
from steprail_daemon.service import checks, decode, decode_asks
from steprail_daemon.service.request_ids import RequestIds


class Verbs:
    """The verbs of runs."""

    def __init__(self, facade: Facade, request_ids: RequestIds) -> None:
        self._facade = facade
        self._request_ids = request_ids

    async def start(self, request: runs_pb2.StartRunRequest, caller: Caller) -> str:
        """Start a run; gives its id."""
        wanted = decode.start_run(request)

        async def act(caller: Caller) -> str:
            return (await self._facade.start_run(caller, wanted)).run_id

        return await self._request_ids.once(caller, wanted.request_id, request, act)

    async def continue_run(self, request: runs_pb2.ContinueRunRequest, caller: Caller) -> str:
        """Go on after a run; gives the id of the new one."""
        wanted = decode.continue_run(request)

        async def act(caller: Caller) -> str:
            return (await self._facade.continue_run(caller, wanted)).run_id

        return await self._request_ids.once(caller, wanted.request_id, request, act)

    def stop(self, request: runs_pb2.StopRunRequest, caller: Caller) -> str:
        """Ask for a stop at the next boundary."""
        reason = checks.reason(request.reason)

        def act(caller: Caller) -> str:
            return self._facade.stop_run(caller, request.run_id, reason=reason).run_id

        return self._request_ids.once_now(caller, checks.request_id(request.request_id), request, act)

    def abort(self, request: runs_pb2.AbortRunRequest, caller: Caller) -> str:
        """Cut a run off."""
        reason = checks.reason(request.reason)

        def act(caller: Caller) -> str:
            return self._facade.abort_run(caller, request.run_id, reason=reason).run_id

        return self._request_ids.once_now(caller, checks.request_id(request.request_id), request, act)

    def decide(self, request: runs_pb2.SubmitDecisionRequest, caller: Caller) -> Decision:
        """Decide about the step that waits; gives the decision as it is recorded."""
        step_id, action, reason, error, guidance = decode.decision(request)
        request_id, run_id = request.request_id, request.run_id
        submit = self._facade.submit_decision
        if not request_id:
            return submit(caller, run_id, step_id, action, reason=reason, error=error, guidance=guidance)

        def act(caller: Caller) -> str:
            submit(caller, run_id, step_id, action, reason=reason, error=error, guidance=guidance)
            return step_id

        self._request_ids.once_now(caller, checks.request_id(request_id), request, act)
        return self._facade.get_run(caller, run_id).decisions[step_id]

    def answer_permission(self, request: runs_pb2.AnswerPermissionRequest, caller: Caller) -> PermissionResolved:
        """Answer a permission; gives how it was resolved."""
        reply = decode_asks.permission_reply(request)
        resolved = PermissionResolved(
            reply.permission_id, reply.answer, ResolutionSource.CLIENT, reply.reason, caller.name, reply.alternative
        )

        def act(caller: Caller) -> str:
            nonlocal resolved
            resolved = self._facade.answer_permission(
                caller,
                request.run_id,
                reply.permission_id,
                reply.answer,
                alternative=reply.alternative,
                reason=reply.reason,
            )
            return reply.permission_id

        self._request_ids.once_now(caller, checks.request_id(request.request_id), request, act)
        return resolved

    def answer_question(self, request: runs_pb2.AnswerQuestionRequest, caller: Caller) -> QuestionResolved:
        """Answer a question; gives how it was resolved, without what is secret."""
        question_id, answers = decode_asks.question_reply(request)

        def act(caller: Caller) -> str:
            resolved = self._facade.answer_question(caller, request.run_id, question_id, answers)
            return shown_items(resolved)

        # Which items may be shown is known only as long as the question is open.
        shown = self._request_ids.once_now(caller, checks.request_id(request.request_id), request, act)
        item_ids = msgspec.json.decode(shown, type=frozenset[str])
        recorded = None if answers is None else tuple(answer for answer in answers if answer.item_id in item_ids)
        return QuestionResolved(question_id, recorded, ResolutionSource.CLIENT, caller.name)

    def steer(self, request: runs_pb2.SteerRunRequest, caller: Caller) -> str:
        """Give a text to the running turn; gives the id that events about it carry."""
        text = decode_asks.steer_text(request)

        def act(caller: Caller) -> str:
            return self._facade.steer_run(caller, request.run_id, text)

        return self._request_ids.once_now(caller, checks.request_id(request.request_id), request, act)
