"""How an agent ended, why one could not be started, and who is told."""

from __future__ import annotations

import signal
from typing import Protocol

import msgspec


class ExitStatus(msgspec.Struct, frozen=True):
    """How a process ended: exactly one of exit code and signal number is set."""

    code: int | None
    signal: int | None

    def __str__(self) -> str:
        if self.signal is None:
            return f"exit code {self.code}"
        try:
            return f"signal {signal.Signals(self.signal).name}"
        except ValueError:
            return f"signal {self.signal}"


class SpawnFailed(OSError):
    """An agent could not be started. `errno` is the kernel's number, `message` (and `strerror`) says what was wrong."""

    def __init__(self, errno: int, message: str) -> None:
        super().__init__(errno, message)
        self.message = message


class LinkLost(ConnectionError):
    """The parent process is gone, so nobody can tell how a process ended. The worker must exit."""


class StdinOverflow(BufferError):
    """An agent does not read its stdin, and too much would wait for it. Nothing of the write was taken."""

    def __init__(self, pending: int, size: int, limit: int) -> None:
        super().__init__(f"stdin has {pending} bytes waiting, {size} more would exceed the limit of {limit}")
        self.pending = pending
        self.size = size
        self.limit = limit


class ProcessHandlers(Protocol):
    """What a process calls, on the loop's thread: `on_stdout` any number of times, then each other one once."""

    def on_stdout(self, data: bytes) -> None:
        """Take bytes of stdout, cut anywhere."""

    def on_stdout_eof(self) -> None:
        """Take the end of stdout."""

    def on_exit(self, status: ExitStatus) -> None:
        """Take the exit, after stdout and stderr were drained or given up."""
