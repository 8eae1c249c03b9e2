"""The gRPC server: puts the services together, listens, and goes down in order."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

import grpc
import grpc.aio
from google.protobuf.descriptor import ServiceDescriptor
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from steprail.v1 import admin_pb2, agents_pb2, runs_pb2, sessions_pb2
from steprail_daemon.engine.facade import Facade
from steprail_daemon.service.admin import AdminService
from steprail_daemon.service.agents import AgentService
from steprail_daemon.service.auth import Access
from steprail_daemon.service.calls import Calls
from steprail_daemon.service.finished import Observe, unobserved
from steprail_daemon.service.handlers import ServiceHandlers
from steprail_daemon.service.health import Health
from steprail_daemon.service.listen import UNIX, check_tcp, make_room, owner_only, socket_path
from steprail_daemon.service.reflection import Reflection
from steprail_daemon.service.request_ids import RequestIds
from steprail_daemon.service.runs import RunService
from steprail_daemon.service.sessions import SessionService
from steprail_daemon.service.tls import TlsFiles
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
    """Serves a facade on Unix sockets and TCP. To be used on the loop that it is made on.

    `access` says who is let in, by default only who comes over a Unix socket. With `tls` TCP is encrypted.
    """

    def __init__(
        self,
        facade: Facade,
        addresses: Sequence[str],
        *,
        access: Access | None = None,
        tls: TlsFiles | None = None,
        observe: Observe = unobserved,
    ) -> None:
        self._addresses = tuple(addresses)
        self._access = Access() if access is None else access
        self._tls = tls
        #: The port of each address of TCP, in their order, once the server listens.
        self.ports: tuple[int, ...] = ()
        self._calls = Calls(facade.limits().stalled_reader_ns)
        self._health = Health()
        request_ids = RequestIds(facade)
        verbs = Verbs(facade, request_ids)
        services: list[tuple[ServiceDescriptor, object]] = [
            (agents_pb2.DESCRIPTOR.services_by_name["AgentService"], AgentService(facade, self._calls)),
            (sessions_pb2.DESCRIPTOR.services_by_name["SessionService"], SessionService(facade, request_ids)),
            (runs_pb2.DESCRIPTOR.services_by_name["RunService"], RunService(facade, verbs, self._calls)),
            (admin_pb2.DESCRIPTOR.services_by_name["AdminService"], AdminService(facade, request_ids)),
            (health_pb2.DESCRIPTOR.services_by_name["Health"], self._health),
        ]
        names = [descriptor.full_name for descriptor, _ in services]
        services.append((reflection_pb2.DESCRIPTOR.services_by_name["ServerReflection"], Reflection(names)))
        stalled_reader_ns = facade.limits().stalled_reader_ns
        self._server = grpc.aio.server(
            handlers=[
                ServiceHandlers(
                    descriptor, implementation, self._access, self._calls, stalled_reader_ns, observe=observe
                )
                for descriptor, implementation in services
            ],
            options=OPTIONS,
        )

    async def watch_stalls(self) -> None:
        """End streams whose reader takes nothing for too long. To be run as long as the server serves."""
        await self._calls.watch_stalls()

    async def start(self) -> None:
        """Listen.

        Raises:
            OSError: an address is none that is served, or is taken; its text says which and what to do.
        """
        tcp = [address for address in self._addresses if not address.startswith(UNIX)]
        for address in tcp:
            check_tcp(address, provable=self._provable(), encrypted=self._tls is not None)
        paths = [socket_path(address) for address in self._addresses if address.startswith(UNIX)]
        for path in paths:
            make_room(path)
        with owner_only():
            for path in paths:
                self._bind(f"{UNIX}{path}", None)
        self.ports = tuple(self._bind(address, self._tls) for address in tcp)
        await self._server.start()

    def _provable(self) -> bool:
        """Whether anybody can prove over TCP who they are."""
        return self._access.by_token or (
            self._access.by_certificate and self._tls is not None and self._tls.asks_clients
        )

    def _bind(self, address: str, tls: TlsFiles | None) -> int:
        try:
            if tls is None:
                bound = self._server.add_insecure_port(address)
            else:
                bound = self._server.add_secure_port(address, tls.credentials())
        except RuntimeError as error:
            raise OSError(f"cannot listen on {address.removeprefix(UNIX)}: {error}") from None
        if not bound:
            raise OSError(f"cannot listen on {address.removeprefix(UNIX)}")
        return bound

    def refuse_new(self) -> None:
        """Tell load balancers and probes to go elsewhere. Calls are still served."""
        self._calls.draining = True
        self._health.refuse()

    async def stop(self, grace: float = GRACE_SECONDS) -> None:
        """End streams with UNAVAILABLE, DRAINING, let other calls finish for `grace` seconds, and close the sockets."""
        self.refuse_new()
        self._calls.end_all()
        await self._server.stop(grace)
