"""One running agent: its pipes on the event loop, its exit, and its way down the ladder."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from typing import Protocol

import anyio

from steprail_daemon.core.shutdown import Ladder, RungKind
from steprail_daemon.supervisor.status import ExitStatus, LinkLost, ProcessHandlers
from steprail_daemon.supervisor.stdin import StdinWriter

READ_SIZE = 1 << 16
#: What a read of stdout asks for at first, and at least unless `read_size` is less. A buffer is allocated for what is
#: asked for, and a large one costs far more than the small message that most reads bring.
LEAST_READ = 1 << 14
STDERR_TAIL = 1 << 14
DRAIN_LIMIT = 2.0
KILL_LIMIT = 10.0
EXIT_LIMIT = 30.0

_STDERR_READ = 1 << 14


class Commands(Protocol):
    """What a process asks of the parent. After its exit, and without a parent, these do nothing."""

    def close_stdin(self, process_id: int) -> None:
        """Close the parent's duplicate of stdin."""

    def send_signal(self, process_id: int, signum: int, scope: str) -> None:
        """Send a signal to the `process`, its `group` or its `tree`."""


class AgentProcess:
    """An agent that runs, or ran. Made by `ParentLink.spawn`; its methods are for the loop's thread.

    `read_size` is how many bytes one read of stdout takes at most; it may be changed at any time. Less is asked for
    while less comes. `drain_limit` is how many seconds stdout and stderr may stay open after the exit: something that
    the agent started may hold them.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        commands: Commands,
        process_id: int,
        *,
        pid: int,
        descriptors: tuple[int, int, int],
        handlers: ProcessHandlers,
        on_stderr: Callable[[bytes], None] | None = None,
        drain_limit: float = DRAIN_LIMIT,
    ) -> None:
        self.pid = pid
        self.read_size = READ_SIZE
        self._next_read = LEAST_READ
        self._loop = loop
        self._commands = commands
        self._id = process_id
        stdin, self._stdout, self._stderr = descriptors
        self._stdin = StdinWriter(loop, stdin, self._stdin_closed)
        #: Writes to stdin without waiting; what the pipe does not take is kept and written later. An agent that closed
        #: its stdin is no error here, its exit tells; `stdin_broken` notes it. `StdinOverflow` is raised if more than
        #: 64 MiB would wait; then nothing of the data was taken. (The writer's own method, as it is on the way to every
        #: answer.)
        self.write: Callable[[bytes], None] = self._stdin.write
        self._handlers = handlers
        self._on_stderr = on_stderr
        self._drain_limit = drain_limit
        self._drain: asyncio.TimerHandle | None = None
        self._tail = bytearray()
        self._paused = True
        self._status: ExitStatus | None = None
        self._ended = asyncio.Event()
        self._finished = asyncio.Event()

    @property
    def exit_status(self) -> ExitStatus | None:
        """How it ended; None while that is not known."""
        return self._status

    @property
    def stderr_tail(self) -> bytes:
        """The last 16 KiB of what it wrote to stderr."""
        return bytes(self._tail)

    @property
    def stdin_broken(self) -> bool:
        """Whether bytes were lost because it no longer reads, or can no longer be written to."""
        return self._stdin.broken

    @property
    def stdin_pending(self) -> int:
        """Bytes that wait until it reads."""
        return self._stdin.pending

    # Pipes

    def close_stdin(self) -> None:
        """Give the agent an EOF, after everything that was written."""
        self._stdin.close()

    def pause_reading(self) -> None:
        """Stop reading stdout, so that the agent feels it once the pipe is full. stderr is read always.

        After an exit the rest of stdout is kept, and `on_exit` held back, until reading is resumed.
        """
        if self._paused or self._stdout < 0:
            return
        self._paused = True
        self._loop.remove_reader(self._stdout)
        self._stop_drain()

    def resume_reading(self) -> None:
        """Read stdout again."""
        if not self._paused or self._stdout < 0:
            return
        self._paused = False
        self._loop.add_reader(self._stdout, self._read_stdout)
        self._start_drain()

    def start(self) -> None:
        """Begin to read. For the link, which does this when whoever spawned the agent is about to get it."""
        self._loop.add_reader(self._stderr, self._read_stderr)
        self.resume_reading()

    # The end

    async def exited(self, timeout: float = EXIT_LIMIT) -> ExitStatus:
        """Wait for the exit, for `timeout` seconds. stdout may still be in the course of being drained.

        Raises:
            TimeoutError: it still runs.
            LinkLost: the parent is gone; nobody knows.
        """
        with anyio.fail_after(timeout):
            await self._ended.wait()
        if self._status is None:
            raise LinkLost("the parent process is gone")
        return self._status

    async def shut_down(self, ladder: Ladder, end: Callable[[], None] | None = None) -> None:
        """End the agent: take the rungs in turn, each with its time, until it exits; its tree is killed in any case.

        `end` says goodbye in the agent's protocol; without it that rung is passed over. Cancellation waits until this
        is over, which the ladder bounds. Afterwards `exit_status` is set, unless even the kill was not confirmed in
        time. It may be called again meanwhile, with a harsher ladder. An error of `end` is raised when the agent is
        down.
        """
        failure: Exception | None = None
        with anyio.CancelScope(shield=True):
            # An agent that cannot write cannot end in order.
            self.resume_reading()
            for rung in ladder.rungs:
                if self._ended.is_set() or rung.kind is RungKind.KILL:
                    break
                if rung.kind is RungKind.END and end is None:
                    continue
                try:
                    self._take(rung.kind, end)
                except Exception as error:  # noqa: BLE001 -- a goodbye that fails must not save the agent's life
                    failure = failure or error
                    continue
                await _bounded(self._ended, rung.wait / 1e9)
            if not self._ended.is_set():
                self._commands.send_signal(self._id, signal.SIGKILL, "tree")
                await _bounded(self._ended, KILL_LIMIT)
            if self._status is not None:
                await _bounded(self._finished, self._drain_limit + 1)
        if failure is not None:
            raise failure

    def _take(self, kind: RungKind, end: Callable[[], None] | None) -> None:
        if kind is RungKind.END and end is not None:
            end()
        elif kind is RungKind.EOF:
            self.close_stdin()
        elif kind is RungKind.INT:
            self._commands.send_signal(self._id, signal.SIGINT, "group")
        elif kind is RungKind.TERM:
            self._commands.send_signal(self._id, signal.SIGTERM, "group")

    def exit_noticed(self, status: ExitStatus) -> None:
        """Take the exit from the parent. For the link."""
        self._status = status
        self._ended.set()
        self._stdin.abort()
        self._start_drain()
        self._finish_if_drained()

    def link_lost(self) -> None:
        """Note that nothing more will be heard of it. For the link."""
        self._ended.set()

    def discard(self) -> None:
        """Kill it and close its pipes without any callback: nobody will ever hold it. For the link, before `start`."""
        self._commands.send_signal(self._id, signal.SIGKILL, "tree")
        self._stdin.abort()
        for descriptor in (self._stdout, self._stderr):
            os.close(descriptor)
        self._stdout = self._stderr = -1
        self._status = ExitStatus(None, signal.SIGKILL)

    # Callbacks of the loop

    def _read_stdout(self) -> None:
        size = min(self._next_read, self.read_size)
        try:
            data = os.read(self._stdout, size)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            if len(data) == size:
                self._next_read = max(size * 2, LEAST_READ)
            elif size > LEAST_READ and len(data) < size // 4:
                self._next_read = size // 2
            self._handlers.on_stdout(data)
        else:
            self._end_stdout()

    def _read_stderr(self) -> None:
        try:
            data = os.read(self._stderr, _STDERR_READ)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._end_stderr()
            return
        self._tail += data
        del self._tail[:-STDERR_TAIL]
        if self._on_stderr is not None:
            self._on_stderr(data)

    def _end_stdout(self) -> None:
        self._loop.remove_reader(self._stdout)
        os.close(self._stdout)
        self._stdout = -1
        try:
            self._handlers.on_stdout_eof()
        finally:
            self._finish_if_drained()

    def _end_stderr(self) -> None:
        self._loop.remove_reader(self._stderr)
        os.close(self._stderr)
        self._stderr = -1
        self._finish_if_drained()

    def _stdin_closed(self) -> None:
        if self._status is None:
            self._commands.close_stdin(self._id)

    def _start_drain(self) -> None:
        if self._status is not None and not self._paused and self._drain is None and not self._finished.is_set():
            self._drain = self._loop.call_later(self._drain_limit, self._give_up_drain)

    def _stop_drain(self) -> None:
        if self._drain is not None:
            self._drain.cancel()
            self._drain = None

    def _give_up_drain(self) -> None:
        if self._stderr >= 0:
            self._end_stderr()
        if self._stdout >= 0:
            self._end_stdout()

    def _finish_if_drained(self) -> None:
        if self._status is None or self._stdout >= 0 or self._stderr >= 0 or self._finished.is_set():
            return
        self._stop_drain()
        self._finished.set()
        self._handlers.on_exit(self._status)


async def _bounded(event: asyncio.Event, seconds: float) -> None:
    with anyio.move_on_after(seconds):
        await event.wait()
