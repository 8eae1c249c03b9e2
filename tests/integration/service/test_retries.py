"""What the client tries again by itself when a daemon is not there."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import grpc.aio
import pytest

from steprail import StepRailError
from steprail.client import Client

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("one_loop")]


class Absent(grpc.GenericRpcHandler):
    """Answers every call with UNAVAILABLE and counts it."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()

    def service(self, details: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler[bytes, bytes]":
        self.calls[details.method.rpartition("/")[2]] += 1

        async def refuse(_: bytes, context: "grpc.aio.ServicerContext[bytes, bytes]") -> bytes:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "not there")

        return grpc.unary_unary_rpc_method_handler(refuse)


@asynccontextmanager
async def absent(socket: Path) -> AsyncIterator[tuple[Client, Absent]]:
    socket.parent.mkdir()
    handler = Absent()
    server = grpc.aio.server(handlers=[handler])
    server.add_insecure_port(f"unix:{socket}")
    await server.start()
    try:
        async with Client(f"unix:{socket}", timeout=10) as client:
            yield client, handler
    finally:
        await server.stop(0.2)


async def test_what_makes_a_session_or_a_run_is_asked_for_once(socket: Path) -> None:
    async with absent(socket) as (client, handler):
        with pytest.raises(StepRailError):
            await client.create_session("claude", "/work")
        with pytest.raises(StepRailError):
            await client.start_run("session", "go")
        with pytest.raises(StepRailError):
            await client.continue_run("run")
        with pytest.raises(StepRailError):
            async with client.control(attach="run"):
                pass

    assert handler.calls == {"CreateSession": 1, "StartRun": 1, "ContinueRun": 1, "ControlRun": 1}


async def test_other_calls_are_tried_again(socket: Path) -> None:
    async with absent(socket) as (client, handler):
        with pytest.raises(StepRailError):
            await client.get_run("run")
        with pytest.raises(StepRailError):
            await client.stop_run("run")

    assert handler.calls == {"GetRun": 4, "StopRun": 4}
