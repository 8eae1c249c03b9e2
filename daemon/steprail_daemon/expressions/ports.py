"""What the engine needs of the world: somebody who starts its process. The supervisor's `ParentLink` is one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from steprail_daemon.core.shutdown import Ladder


class ExitStatus(Protocol):
    """How a process ended: exactly one of both is set."""

    @property
    def code(self) -> int | None:
        """Exit code."""

    @property
    def signal(self) -> int | None:
        """Number of the signal that killed it."""


class WorkerHandlers(Protocol):
    """What a process calls, always on the loop's thread."""

    def on_stdout(self, data: bytes) -> None:
        """Take bytes of stdout, cut anywhere."""

    def on_stdout_eof(self) -> None:
        """Take the end of stdout."""

    def on_exit(self, status: ExitStatus) -> None:
        """Take the exit, after stdout was drained or given up."""


class WorkerProcess(Protocol):
    """A running worker."""

    def write(self, data: bytes) -> None:
        """Write to stdin without waiting; what does not fit is kept and written later."""

    async def shut_down(self, ladder: Ladder, end: Callable[[], None] | None = None) -> None:
        """End the process; returns once it is gone or the ladder's last rung was tried."""


class WorkerLauncher(Protocol):
    """Starts a worker."""

    async def spawn(
        self, argv: Sequence[str], environment: Mapping[str, str], cwd: str, handlers: WorkerHandlers
    ) -> WorkerProcess:
        """Start a program.

        Raises:
            OSError: it could not be started.
            TimeoutError: there was no answer in time.
        """
