"""The standard health service, `grpc.health.v1.Health`.

A daemon that drains is NOT_SERVING as a whole, which load balancers and probes ask about, while its RunService stays
SERVING: clients that check the health of what they use go on to watch and to decide until their streams are ended.
"""

from __future__ import annotations

from typing import Final

import anyio
import grpc
from grpc_health.v1 import health_pb2

from steprail_daemon.service.calls import Call
from steprail_daemon.service.errors import PlainStatus

#: Names that can be asked about: the daemon as a whole, and what clients name in their health checks.
WHOLE: Final = ""
RUNS: Final = "steprail.v1.RunService"

_Status = health_pb2.HealthCheckResponse


class Health:
    """Implements `Health`."""

    def __init__(self) -> None:
        self._statuses = {WHOLE: _Status.SERVING, RUNS: _Status.SERVING}
        self._changed = anyio.Event()

    def refuse(self) -> None:
        """Say from now on that the daemon as a whole is NOT_SERVING."""
        self._statuses[WHOLE] = _Status.NOT_SERVING
        self._changed.set()
        self._changed = anyio.Event()

    async def check(self, request: health_pb2.HealthCheckRequest, _: Call) -> health_pb2.HealthCheckResponse:
        """Give the status of one service.

        Raises:
            PlainStatus: NOT_FOUND; no health is kept for it.
        """
        status = self._statuses.get(request.service)
        if status is None:
            raise PlainStatus(grpc.StatusCode.NOT_FOUND, f"no health is kept for service {request.service!r}")
        return _Status(status=status)

    async def watch(self, request: health_pb2.HealthCheckRequest, call: Call) -> None:
        """Send the status now and when it changes; an unknown service is SERVICE_UNKNOWN, as the protocol asks."""
        told: int | None = None
        while True:
            changed = self._changed
            status = self._statuses.get(request.service, _Status.SERVICE_UNKNOWN)
            if status != told:
                await call.send(_Status(status=status))
                told = status
            else:
                await changed.wait()
