"""The daemon's worker with fail points: it kills itself before or after a given commit, or a given write to an agent.

Run in the place of `steprail_daemon.daemon`, so that the daemon itself has nothing of it. What it does is told by
the environment:

| variable | meaning |
|---|---|
| `STEPRAIL_FAILPOINTS` | points, one for each life, separated by commas; or `count`: pass them and never die |
| `STEPRAIL_FAILPOINT_DIRECTORY` | where it keeps `hits`, `writes` and `fired` |

A point is `commit:before:7`, `commit:after:7`, `write:before:3` or `write:after:3`; numbers count from the first commit
of the life that opens a session, that one included. `hits` has a line for each point that was passed, if they are only
counted; `fired` for each that was reached; `writes` has what agents were written.
"""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from steprail_daemon import daemon
from steprail_daemon.journal.sqlite import SqliteStore
from steprail_daemon.journal.store import Batch, RequestRow
from steprail_daemon.supervisor import ParentLink
from steprail_daemon.supervisor.link import START_LIMIT
from steprail_daemon.supervisor.process import AgentProcess
from steprail_daemon.supervisor.status import ProcessHandlers

POINTS = "STEPRAIL_FAILPOINTS"
DIRECTORY = "STEPRAIL_FAILPOINT_DIRECTORY"


class FailPoints:
    """Counts what passes, and ends the process where it was told to."""

    def __init__(self, points: str, directory: Path) -> None:
        self._directory = directory
        self._passed: Counter[str] = Counter()
        self._counts = points == "count"
        fired = directory / "fired"
        life = len(fired.read_text().splitlines()) if fired.exists() else 0
        self._point = points.split(",")[life] if life < len(points.split(",")) else ""
        self.begun = False

    @contextmanager
    def around(self, name: str) -> Iterator[None]:
        """Pass the points before and after something that is done."""
        if not self.begun:
            yield
            return
        self._passed[name] += 1
        number = self._passed[name]
        self._reach(f"{name}:before:{number}")
        yield
        self._reach(f"{name}:after:{number}")

    def _reach(self, point: str) -> None:
        if point == self._point:
            self.note("fired", point.encode())
            os.kill(os.getpid(), signal.SIGKILL)
        if self._counts:
            self.note("hits", point.encode())

    def note(self, name: str, line: bytes) -> None:
        """Write a line that outlives this process."""
        descriptor = os.open(self._directory / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, line + b"\n")
        finally:
            os.close(descriptor)


_points: FailPoints


class FailingStore(SqliteStore):
    """A store whose commits are points."""

    def append(self, batch: Batch) -> None:
        """See `Store.append`."""
        _points.begun = _points.begun or bool(batch.opens_session)
        with _points.around("commit"):
            super().append(batch)

    def delete_session(self, session_no: int, request: RequestRow | None = None) -> None:
        """See `Store.delete_session`."""
        with _points.around("commit"):
            super().delete_session(session_no, request)

    def remember(self, request: RequestRow) -> None:
        """See `Store.remember`."""
        with _points.around("commit"):
            super().remember(request)


class FailingLink(ParentLink):
    """A link whose agents' inputs are points."""

    async def spawn(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        cwd: str,
        handlers: ProcessHandlers,
        *,
        timeout: float = START_LIMIT,
        on_stderr: Callable[[bytes], None] | None = None,
    ) -> AgentProcess:
        """See `ParentLink.spawn`."""
        process = await super().spawn(argv, environment, cwd, handlers, timeout=timeout, on_stderr=on_stderr)
        write = process.write

        def noted(data: bytes) -> None:
            with _points.around("write"):
                write(data)
                _points.note("writes", data)

        setattr(process, "write", noted)  # noqa: B010 - a method, of this one process
        return process


def main() -> int:
    """Serve as `steprail_daemon.daemon` does, until the point is reached."""
    global _points  # noqa: PLW0603 - the classes above are made by the daemon, which hands them nothing of ours
    _points = FailPoints(os.environ[POINTS], Path(os.environ[DIRECTORY]))
    setattr(daemon, "SqliteStore", FailingStore)  # noqa: B010
    setattr(daemon, "ParentLink", FailingLink)  # noqa: B010
    return daemon.main()


if __name__ == "__main__":
    sys.exit(main())
