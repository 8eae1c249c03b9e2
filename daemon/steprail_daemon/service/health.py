"""The standard health service, `grpc.health.v1.Health`. A daemon that goes down is NOT_SERVING before it is gone."""

from __future__ import annotations

from typing import Final

import anyio
from grpc_health.v1 import health_pb2

from steprail_daemon.core.errors import NotFound
from steprail_daemon.service.calls import Call

#: Names that can be asked about; the empty one is the whole server.
SERVED: Final = ("", "steprail.v1.RunService")

_Status = health_pb2.HealthCheckResponse


class Health:
    """Implements `Health`."""

    def __init__(self) -> None:
        self._status = _Status.SERVING
        self._changed = anyio.Event()

    def refuse(self) -> None:
        """Say NOT_SERVING from now on."""
        self._status = _Status.NOT_SERVING
        self._changed.set()
        self._changed = anyio.Event()

    async def check(self, request: health_pb2.HealthCheckRequest, _: Call) -> health_pb2.HealthCheckResponse:
        """Give the status of one service."""
        if request.service not in SERVED:
            raise NotFound("SERVICE_NOT_FOUND", f"no health is kept for service {request.service!r}")
        return _Status(status=self._status)

    async def watch(self, request: health_pb2.HealthCheckRequest, call: Call) -> None:
        """Send the status now and when it changes; an unknown service is SERVICE_UNKNOWN, as the protocol asks."""
        while True:
            changed = self._changed
            known = request.service in SERVED
            await call.send(_Status(status=self._status if known else _Status.SERVICE_UNKNOWN))
            await changed.wait()
