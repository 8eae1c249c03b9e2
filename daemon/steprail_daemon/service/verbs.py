"""What changes a run, for the unary calls and for the messages of an open stream alike.

Each function decodes, sees to it that a retry acts once, and gives the id of the run that it is about.
"""

from __future__ import annotations

from steprail.v1 import runs_pb2
from steprail_daemon.core.model import Decision
from steprail_daemon.engine.facade import Caller, Facade
from steprail_daemon.service import checks, decode
from steprail_daemon.service.request_ids import RequestIds


class Verbs:
    """The verbs of runs."""

    def __init__(self, facade: Facade, request_ids: RequestIds) -> None:
        self._facade = facade
        self._request_ids = request_ids

    async def start(self, request: runs_pb2.StartRunRequest, caller: Caller) -> str:
        """Start a run; gives its id."""
        wanted = decode.start_run(request)

        async def act() -> str:
            return (await self._facade.start_run(caller, wanted)).run_id

        return await self._request_ids.once(caller, wanted.request_id, request, act)

    async def continue_run(self, request: runs_pb2.ContinueRunRequest, caller: Caller) -> str:
        """Go on after a run; gives the id of the new one."""
        wanted = decode.continue_run(request)

        async def act() -> str:
            return (await self._facade.continue_run(caller, wanted)).run_id

        return await self._request_ids.once(caller, wanted.request_id, request, act)

    def stop(self, request: runs_pb2.StopRunRequest, caller: Caller) -> str:
        """Ask for a stop at the next boundary."""
        reason = checks.reason(request.reason)

        def act() -> str:
            return self._facade.stop_run(caller, request.run_id, reason=reason).run_id

        return self._request_ids.once_now(caller, checks.request_id(request.request_id), request, act)

    def abort(self, request: runs_pb2.AbortRunRequest, caller: Caller) -> str:
        """Cut a run off."""
        reason = checks.reason(request.reason)

        def act() -> str:
            return self._facade.abort_run(caller, request.run_id, reason=reason).run_id

        return self._request_ids.once_now(caller, checks.request_id(request.request_id), request, act)

    def decide(self, request: runs_pb2.SubmitDecisionRequest, caller: Caller) -> Decision:
        """Decide about the step that waits; gives the decision as it is recorded."""
        step_id, action, reason, error = decode.decision(request)
        request_id, run_id = request.request_id, request.run_id
        submit = self._facade.submit_decision
        if not request_id:
            return submit(caller, run_id, step_id, action, reason=reason, error=error)

        def act() -> str:
            submit(caller, run_id, step_id, action, reason=reason, error=error)
            return step_id

        self._request_ids.once_now(caller, checks.request_id(request_id), request, act)
        return self._facade.get_run(caller, run_id).decisions[step_id]
