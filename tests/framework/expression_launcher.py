"""Starts expression workers under asyncio alone, without the parent process, and keeps what it started."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Self

from steprail_daemon.core.shutdown import Ladder
from steprail_daemon.expressions.ports import WorkerHandlers

BOUND = 20.0


class Exited:
    """How a process ended."""

    def __init__(self, returncode: int) -> None:
        self.code = returncode if returncode >= 0 else None
        self.signal = -returncode if returncode < 0 else None


class Started:
    """One process and the task that reads from it."""

    def __init__(self, process: asyncio.subprocess.Process, handlers: WorkerHandlers, tasks: asyncio.TaskGroup) -> None:
        self.process = process
        self._handlers = handlers
        self._gone = asyncio.Event()
        tasks.create_task(self._read())

    @property
    def pid(self) -> int:
        """Process id of the worker, not of its evaluating child."""
        return self.process.pid

    def write(self, data: bytes) -> None:
        """Write without waiting."""
        assert self.process.stdin is not None
        self.process.stdin.write(data)

    async def shut_down(self, ladder: Ladder, end: Callable[[], None] | None = None) -> None:
        """Kill the worker and its child, whatever the ladder says."""
        self.kill()
        async with asyncio.timeout(BOUND):
            await self._gone.wait()

    def kill(self) -> None:
        """Kill the session that the worker leads."""
        if self.process.returncode is None:
            os.killpg(self.process.pid, signal.SIGKILL)

    async def _read(self) -> None:
        assert self.process.stdout is not None
        while data := await self.process.stdout.read(1 << 16):
            self._handlers.on_stdout(data)
        self._handlers.on_stdout_eof()
        self._handlers.on_exit(Exited(await self.process.wait()))
        self._gone.set()


class ExpressionLauncher:
    """A `WorkerLauncher`. On leaving, everything that it started is killed."""

    def __init__(self) -> None:
        self.started: list[Started] = []
        self._tasks = asyncio.TaskGroup()

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for started in self.started:
            started.kill()
        await self._tasks.__aexit__(kind, error, trace)

    async def spawn(
        self, argv: Sequence[str], environment: Mapping[str, str], cwd: str, handlers: WorkerHandlers
    ) -> Started:
        """Start a program in a session of its own."""
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=dict(environment),
            cwd=cwd,
            start_new_session=True,
        )
        started = Started(process, handlers, self._tasks)
        self.started.append(started)
        return started
