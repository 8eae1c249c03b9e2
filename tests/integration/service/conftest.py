"""A server on a unix socket before a facade in memory, and the real client."""

import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import anyio.abc
import anyio.lowlevel
import grpc.aio
import msgspec
import pytest
from tests.integration.service.callers import Site
from tests.integration.service.stubs import Stubs

from steprail.client import Client
from steprail_daemon.engine.facade import LimitsView
from steprail_daemon.service.server import ApiServer
from steprail_daemon.testing.fake_facade import LIMITS, FakeFacade


@pytest.fixture
def socket() -> Iterator[Path]:
    # Not tmp_path: a socket's path has at most 107 bytes.
    with tempfile.TemporaryDirectory(prefix="steprail-") as directory:
        yield Path(directory) / "run" / "steprail.sock"


class Rig:
    """A running server and who stands around it."""

    def __init__(self, socket: Path, facade: FakeFacade, stack: AsyncExitStack, tasks: anyio.abc.TaskGroup) -> None:
        self._tasks = tasks
        self.socket = socket
        self.facade = facade
        self._stack = stack

    @property
    def address(self) -> str:
        return f"unix:{self.socket}"

    async def serve(self) -> ApiServer:
        server = ApiServer(self.facade, [self.address])
        await server.start()
        self._tasks.start_soon(server.watch_stalls)
        self._stack.push_async_callback(server.stop, 0.2)
        return server

    async def client(self) -> Client:
        # The core gives a handshake up that a busy machine takes too long over; a channel that waits tries again.
        return await self._stack.enter_async_context(Client(self.address, timeout=10, wait_for_ready=60))

    async def channel(self) -> grpc.aio.Channel:
        channel = await self._stack.enter_async_context(grpc.aio.insecure_channel(self.address))
        with anyio.fail_after(60):
            await channel.channel_ready()
        return channel

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for what the loop has yet to do; a bound turns a hang into a failure."""
        with anyio.fail_after(10):
            while not condition():
                await anyio.lowlevel.checkpoint()


RigFactory = Callable[..., Awaitable[Rig]]


@pytest.fixture
async def make_rig(socket: Path) -> AsyncIterator[RigFactory]:
    async with anyio.create_task_group() as tasks, AsyncExitStack() as stack:
        stack.callback(tasks.cancel_scope.cancel)

        async def make(**limits: int) -> Rig:
            changed: LimitsView = msgspec.structs.replace(LIMITS, **limits)
            return Rig(socket, FakeFacade(changed), stack, tasks)

        yield make


@pytest.fixture
async def rig(make_rig: RigFactory) -> Rig:
    rig = await make_rig()
    await rig.serve()
    return rig


@pytest.fixture
async def client(rig: Rig) -> Client:
    return await rig.client()


@pytest.fixture
async def stubs(rig: Rig) -> Stubs:
    return Stubs(await rig.channel())


@pytest.fixture
async def session_id(client: Client) -> str:
    return (await client.create_session("claude", "/work")).session_id


@pytest.fixture
async def site(tmp_path: Path, make_rig: RigFactory, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Site]:
    for name in ("TOKEN_FILE", "TLS_ROOTS", "TLS_CERTIFICATE", "TLS_KEY"):
        monkeypatch.delenv(f"STEPRAIL_{name}", raising=False)
    async with AsyncExitStack() as stack:
        yield Site(tmp_path, await make_rig(), stack)


@pytest.fixture
async def open_site(site: Site) -> Site:
    await site.serve()
    return site
