"""AdminService: takes the daemon out of service."""

from __future__ import annotations

from typing import Final

from steprail.v1 import admin_pb2
from steprail_daemon.engine.facade import Caller, DrainView, Facade
from steprail_daemon.service import checks
from steprail_daemon.service.bounds import NAME, REASON
from steprail_daemon.service.calls import Call
from steprail_daemon.service.fields import optional_timestamp, short
from steprail_daemon.service.request_ids import RequestIds

#: What a remembered request for a drain meant: there is only one.
_THE_DRAIN: Final = "drain"


class AdminService:
    """Implements `steprail.v1.AdminService`."""

    def __init__(self, facade: Facade, request_ids: RequestIds) -> None:
        self._facade = facade
        self._request_ids = request_ids

    async def drain(self, request: admin_pb2.DrainRequest, call: Call) -> admin_pb2.DrainResponse:
        """Begin to drain."""
        reason = checks.reason(request.reason)
        window_ns = checks.span("window", request.window) if request.HasField("window") else None

        def act(caller: Caller) -> str:
            self._facade.drain(caller, window_ns, reason)
            return _THE_DRAIN

        self._request_ids.once_now(call.caller, checks.request_id(request.request_id), request, act)
        return admin_pb2.DrainResponse(status=drain_status(self._facade.drain_status()))

    async def get_drain_status(
        self, _request: admin_pb2.GetDrainStatusRequest, _call: Call
    ) -> admin_pb2.GetDrainStatusResponse:
        """Tell how far a drain is."""
        return admin_pb2.GetDrainStatusResponse(status=drain_status(self._facade.drain_status()))


def drain_status(view: DrainView) -> admin_pb2.DrainStatus:
    """Give a `DrainStatus`."""
    return admin_pb2.DrainStatus(
        phase=admin_pb2.DrainPhase.ValueType(view.phase),
        identity=short(view.identity, NAME),
        reason=short(view.reason, REASON),
        start_time=optional_timestamp(view.started_at),
        deadline=optional_timestamp(view.deadline_at),
        live_runs=view.live_runs,
        awaiting_decision_runs=view.awaiting_decision_runs,
        awaiting_permission_runs=view.awaiting_permission_runs,
        queued_runs=view.queued_runs,
        stopped_runs=view.stopped_runs,
        aborted_runs=view.aborted_runs,
        processes=view.processes,
    )
