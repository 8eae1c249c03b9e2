"""How much of stdout is asked for at a time."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator, Callable

import anyio
import anyio.lowlevel
import pytest

from steprail_daemon.supervisor.process import LEAST_READ, READ_SIZE, AgentProcess
from steprail_daemon.supervisor.status import ExitStatus

pytestmark = pytest.mark.anyio


class Parent:
    def close_stdin(self, process_id: int) -> None:
        pass

    def send_signal(self, process_id: int, signum: int, scope: str) -> None:
        pass


class Reads:
    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.exited = anyio.Event()

    def on_stdout(self, data: bytes) -> None:
        self.sizes.append(len(data))

    def on_stdout_eof(self) -> None:
        pass

    def on_exit(self, status: ExitStatus) -> None:
        self.exited.set()


class Stage:
    """A process that is only its pipes."""

    def __init__(self) -> None:
        stdin, self._stdin = os.pipe()
        stdout, self.stdout = os.pipe()
        stderr, self._stderr = os.pipe()
        fcntl.fcntl(self.stdout, fcntl.F_SETPIPE_SZ, 1 << 20)
        for descriptor in (self._stdin, stdout, stderr):
            os.set_blocking(descriptor, False)
        self.reads = Reads()
        self.process = AgentProcess(
            asyncio.get_running_loop(),
            Parent(),
            1,
            pid=1,
            descriptors=(self._stdin, stdout, stderr),
            handlers=self.reads,
        )
        self._read_end = stdin

    async def read(self, *sizes: int) -> list[int]:
        """Let it write so much at a time, and give how it was read."""
        self.reads.sizes.clear()
        for size in sizes:
            before = sum(self.reads.sizes)
            os.write(self.stdout, bytes(size))
            await self.until(lambda wanted=before + size: sum(self.reads.sizes) == wanted)  # type: ignore[misc]
        return self.reads.sizes

    async def until(self, condition: Callable[[], bool]) -> None:
        with anyio.fail_after(10):
            while not condition():
                await anyio.lowlevel.checkpoint()

    async def end(self) -> None:
        for descriptor in (self.stdout, self._stderr, self._read_end):
            os.close(descriptor)
        self.process.exit_noticed(ExitStatus(0, None))
        with anyio.fail_after(10):
            await self.reads.exited.wait()


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    stage = Stage()
    stage.process.start()
    yield stage
    await stage.end()


async def test_reads_grow_up_to_the_ceiling_while_they_are_filled(stage: Stage) -> None:
    sizes = await stage.read(1 << 20)

    assert sizes[:3] == [LEAST_READ, LEAST_READ * 2, READ_SIZE]
    assert max(sizes) == READ_SIZE


async def test_reads_shrink_again_while_little_comes(stage: Stage) -> None:
    await stage.read(1 << 20)
    await stage.read(*[100] * 8)

    assert (await stage.read(1 << 18))[0] == LEAST_READ


async def test_a_lower_ceiling_holds_at_once_and_a_higher_one_when_reads_are_filled(stage: Stage) -> None:
    stage.process.read_size = 4096
    assert set(await stage.read(1 << 16)) == {4096}

    stage.process.read_size = 1 << 17
    assert max(await stage.read(1 << 20)) == 1 << 17
