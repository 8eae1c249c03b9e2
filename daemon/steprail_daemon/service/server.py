"""The gRPC server: puts the services together, listens, and goes down in order."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import grpc
import grpc.aio
from google.protobuf.descriptor import ServiceDescriptor
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection

from steprail.v1 import agents_pb2, runs_pb2, sessions_pb2
from steprail_daemon.engine.facade import Facade
from steprail_daemon.service.agents import AgentService
from steprail_daemon.service.calls import Calls
from steprail_daemon.service.handlers import ServiceHandlers
from steprail_daemon.service.health import Health
from steprail_daemon.service.listen import make_room, owner_only, socket_path
from steprail_daemon.service.request_ids import RequestIds
from steprail_daemon.service.runs import RunService
from steprail_daemon.service.sessions import SessionService
from steprail_daemon.service.verbs import Verbs

#: How long calls that are under way may take to finish when the server stops.
GRACE_SECONDS: Final = 5.0

_MIB: Final = 1024 * 1024
OPTIONS: Final[tuple[tuple[str, int], ...]] = (
    # A prompt has up to 16 MiB; what is sent stays under 1 MiB.
    ("grpc.max_receive_message_length", 20 * _MIB),
    ("grpc.max_send_message_length", 4 * _MIB),
    ("grpc.so_reuseport", 0),
    # Clients may ping every 10 s; core's own limit of 5 minutes ends their connections with "too many pings".
    ("grpc.http2.min_ping_interval_without_data_ms", 9_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    # Beyond core's own limit of about a thousand, some pending requests end as CANCELLED.
    ("grpc.server.max_pending_requests", 10_000),
    ("grpc.server.max_pending_requests_hard_limit", 20_000),
)

log: Final = logging.getLogger("steprail.server")


class ApiServer:
    """Serves a facade on unix sockets. To be used on the loop that it is made on."""

    def __init__(self, facade: Facade, addresses: Sequence[str]) -> None:
        self._addresses = tuple(addresses)
        self._calls = Calls(facade.limits().stalled_reader_ns)
        self._health = Health()
        request_ids = RequestIds(facade.now)
        verbs = Verbs(facade, request_ids)
        self._services: tuple[tuple[ServiceDescriptor, object], ...] = (
            (agents_pb2.DESCRIPTOR.services_by_name["AgentService"], AgentService(facade, self._calls)),
            (sessions_pb2.DESCRIPTOR.services_by_name["SessionService"], SessionService(facade, request_ids)),
            (runs_pb2.DESCRIPTOR.services_by_name["RunService"], RunService(facade, verbs, self._calls)),
            (health_pb2.DESCRIPTOR.services_by_name["Health"], self._health),
        )
        stalled_reader_ns = facade.limits().stalled_reader_ns
        self._server = grpc.aio.server(
            handlers=[
                ServiceHandlers(descriptor, implementation, self._calls, stalled_reader_ns)
                for descriptor, implementation in self._services
            ],
            options=OPTIONS,
        )
        names = [descriptor.full_name for descriptor, _ in self._services]
        reflection.enable_server_reflection([*names, reflection.SERVICE_NAME], self._server)

    async def watch_stalls(self) -> None:
        """End streams whose reader takes nothing for too long. To be run as long as the server serves."""
        await self._calls.watch_stalls()

    async def start(self) -> None:
        """Listen.

        Raises:
            OSError: an address is none that is served, or is taken; its text says which and what to do.
        """
        paths = [socket_path(address) for address in self._addresses]
        for path in paths:
            make_room(path)
        with owner_only():
            for path in paths:
                self._bind(path)
        await self._server.start()

    def _bind(self, path: Path) -> None:
        try:
            bound = self._server.add_insecure_port(f"unix:{path}")
        except RuntimeError as error:
            raise OSError(f"cannot listen on {path}: {error}") from None
        if not bound:
            raise OSError(f"cannot listen on {path}")

    def refuse_new(self) -> None:
        """Tell load balancers and probes to go elsewhere. Calls are still served."""
        self._calls.draining = True
        self._health.refuse()

    async def stop(self, grace: float = GRACE_SECONDS) -> None:
        """End streams with UNAVAILABLE, DRAINING, let other calls finish for `grace` seconds, and close the sockets."""
        self.refuse_new()
        self._calls.end_all()
        await self._server.stop(grace)
