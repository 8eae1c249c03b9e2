"""Writing to a pipe whose reader takes its time, or none."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Iterator

import anyio
import pytest

from steprail_daemon.supervisor.status import StdinOverflow
from steprail_daemon.supervisor.stdin import StdinWriter


class Pipe:
    def __init__(self) -> None:
        self.read, self.write = os.pipe()
        fcntl.fcntl(self.write, fcntl.F_SETPIPE_SZ, 4096)
        os.set_blocking(self.read, False)
        os.set_blocking(self.write, False)
        self.closed = asyncio.Event()

    def writer(self, limit: int = 1 << 20) -> StdinWriter:
        return StdinWriter(asyncio.get_running_loop(), self.write, self.closed.set, limit)

    async def read_to_end(self) -> bytes:
        received = b""
        with anyio.fail_after(10):
            while True:
                await anyio.wait_readable(self.read)
                data = os.read(self.read, 1000)
                if not data:
                    return received
                received += data


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    pipe = Pipe()
    yield pipe
    os.close(pipe.read)


@pytest.mark.anyio
async def test_what_fits_is_written_at_once(pipe: Pipe) -> None:
    writer = pipe.writer()
    writer.write(b"hello")
    assert os.read(pipe.read, 10) == b"hello"
    assert writer.pending == 0
    writer.abort()


@pytest.mark.anyio
async def test_the_rest_is_written_in_order_and_the_pipe_closed_after_it(pipe: Pipe) -> None:
    writer = pipe.writer()
    data = bytes(range(256)) * 200
    writer.write(data[:20_000])
    writer.write(data[20_000:])
    assert writer.pending == len(data) - 4096
    writer.close()
    assert not pipe.closed.is_set()
    assert await pipe.read_to_end() == data
    assert pipe.closed.is_set()
    assert (writer.pending, writer.broken) == (0, False)


@pytest.mark.anyio
async def test_too_much_is_refused_whole(pipe: Pipe) -> None:
    writer = pipe.writer(limit=10_000)
    writer.write(b"a" * 10_000)
    with pytest.raises(StdinOverflow) as caught:
        writer.write(b"b" * 4097)
    assert (caught.value.pending, caught.value.size, caught.value.limit) == (10_000 - 4096, 4097, 10_000)
    writer.close()
    assert await pipe.read_to_end() == b"a" * 10_000


@pytest.mark.anyio
async def test_a_reader_that_leaves_is_noted_and_what_waits_is_dropped() -> None:
    pipe = Pipe()
    writer = pipe.writer()
    writer.write(b"x" * 10_000)
    os.close(pipe.read)
    with anyio.fail_after(10):
        await pipe.closed.wait()
    assert (writer.broken, writer.pending) == (True, 0)
    writer.write(b"more")
    assert writer.pending == 0


@pytest.mark.anyio
async def test_a_write_after_the_close_is_noted(pipe: Pipe) -> None:
    writer = pipe.writer()
    writer.close()
    before = writer.broken
    writer.write(b"late")
    assert (before, writer.broken) == (False, True)
    assert await pipe.read_to_end() == b""


@pytest.mark.anyio
async def test_an_abort_closes_at_once_and_tells_of_the_loss(pipe: Pipe) -> None:
    writer = pipe.writer()
    writer.write(b"x" * 10_000)
    writer.abort()
    assert pipe.closed.is_set()
    assert writer.broken
    assert len(await pipe.read_to_end()) == 4096
