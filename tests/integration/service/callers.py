"""A server on TCP and on a socket, and those who call it: identities of two tenants with their tokens."""

from __future__ import annotations

from collections.abc import Awaitable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import grpc.aio
import pytest

from steprail import errors
from steprail.client import Client, Tls
from steprail_daemon.engine.facade import Caller, Role
from steprail_daemon.service.auth import Access, Identity
from steprail_daemon.service.server import ApiServer
from steprail_daemon.service.tls import TlsFiles

if TYPE_CHECKING:
    from tests.integration.service.conftest import Rig

CALLERS = {
    "looker": Caller("looker", "acme", Role.VIEWER),
    "payments": Caller("payments", "acme", Role.OPERATOR, {"team": "payments"}),
    "stranger": Caller("stranger", "other", Role.OPERATOR),
    "payments-of-other": Caller("payments", "other", Role.OPERATOR),
    "root": Caller("root", "default", Role.ADMIN),
}


def token_of(name: str) -> str:
    return f"token-of-{name}-0123456789"


class Clock:
    """Lets the time pass after which files are looked at again."""

    def __init__(self) -> None:
        self.at = 0.0

    def __call__(self) -> float:
        return self.at


class Site:
    """A server on TCP and on a socket, its files, and those who call."""

    def __init__(self, directory: Path, rig: Rig, stack: AsyncExitStack) -> None:
        self.directory = directory
        self.rig = rig
        self._stack = stack
        self.clock = Clock()
        for name in CALLERS:
            self.write_tokens(name, token_of(name))
        identities = [Identity(caller, directory / name) for name, caller in CALLERS.items()]
        self.access = Access(identities, clock=self.clock)
        self.port = 0

    def write_tokens(self, name: str, *tokens: str) -> Path:
        path = self.directory / name
        path.write_text("\n".join(tokens))
        path.chmod(0o600)
        return path

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def serve(self, tls: TlsFiles | None = None) -> None:
        server = ApiServer(self.rig.facade, [self.rig.address, "127.0.0.1:0"], access=self.access, tls=tls)
        await server.start()
        self._stack.push_async_callback(server.stop, 0.2)
        (self.port,) = server.ports

    async def client(self, name: str = "", *, tls: Tls | None = None) -> Client:
        token = token_of(name) if name else None
        return await self._stack.enter_async_context(Client(self.address, token=token, tls=tls, timeout=10))

    async def channel(self) -> grpc.aio.Channel:
        return await self._stack.enter_async_context(grpc.aio.insecure_channel(self.address))


async def refusal(call: Awaitable[object]) -> tuple[str, str]:
    with pytest.raises(errors.Refused) as caught:
        await call
    return caught.value.code.name, caught.value.reason
