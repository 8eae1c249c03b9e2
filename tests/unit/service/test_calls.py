"""Messages that are sent on the caller's stack."""

from __future__ import annotations

import asyncio
import math
import time
from typing import Any, cast

import anyio
import grpc.aio
import pytest

from steprail_daemon.core.errors import Exhausted
from steprail_daemon.engine.facade import LOCAL
from steprail_daemon.service.calls import Call, Disconnected

pytestmark = pytest.mark.anyio
STALL_NS = 1_000_000_000


class Transport:
    """Takes messages when a test lets it, or fails."""

    def __init__(self, error: Exception | None = None, *, at_once: bool = False) -> None:
        self.error = error
        self.at_once = at_once
        self.begun: list[bytes] = []
        self.taken: list[bytes] = []
        self.room: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def write(self, message: bytes) -> None:
        """Begin at once, and end when there is room."""
        self.begun.append(message)
        if not self.at_once:
            await self.room
        if self.error is not None:
            raise self.error
        self.taken.append(message)


async def wait_within(call: Call) -> None:
    """Wait as a stream does that has nothing to say."""
    with anyio.fail_after(5), call.interruptible():
        await anyio.sleep(math.inf)


def call_over(transport: Transport) -> Call:
    return Call(LOCAL, cast("grpc.aio.ServicerContext[Any, Any]", transport), STALL_NS)


async def test_a_message_is_on_its_way_when_the_call_returns_and_its_end_is_told() -> None:
    transport = Transport()
    call = call_over(transport)
    sent = anyio.Event()
    with call.interruptible():
        call.send_at_once(b"x", sent.set)
        assert transport.begun == [b"x"]
        assert not sent.is_set()
        transport.room.set_result(None)
        with anyio.fail_after(5):
            await sent.wait()
        assert transport.taken == [b"x"]
        await call.send(b"y")
    assert transport.taken == [b"x", b"y"]


async def test_one_that_need_not_wait_has_ended_when_the_call_returns() -> None:
    transport = Transport(at_once=True)
    ended: list[bool] = []
    call_over(transport).send_at_once(b"x", lambda: ended.append(True))
    assert transport.taken == [b"x"]
    assert ended == [True]


@pytest.mark.parametrize("at_once", [True, False], ids=["at once", "later"])
async def test_a_client_that_is_gone_ends_the_call(at_once: bool) -> None:
    transport = Transport(grpc.aio.BaseError("gone"), at_once=at_once)
    call = call_over(transport)
    ended: list[bool] = []
    call.send_at_once(b"x", lambda: ended.append(True))
    if not at_once:
        transport.room.set_result(None)
    with pytest.raises(Disconnected):
        await wait_within(call)
    assert ended == [True]


async def test_what_else_goes_wrong_is_raised_where_the_call_is_served() -> None:
    transport = Transport(ZeroDivisionError("a bug"))
    call = call_over(transport)
    call.send_at_once(b"x", lambda: None)
    transport.room.set_result(None)
    with pytest.raises(ZeroDivisionError):
        await wait_within(call)


async def test_a_reader_that_takes_nothing_of_such_a_message_stalls_the_call() -> None:
    transport = Transport()
    call = call_over(transport)
    call.send_at_once(b"x", lambda: None)
    call.end_if_stalled(time.monotonic() + 2 * STALL_NS / 1e9)
    with pytest.raises(Exhausted, match="READER_STALLED"):
        await wait_within(call)
