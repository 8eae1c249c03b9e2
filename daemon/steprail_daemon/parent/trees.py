"""A tree: one process that the parent started, and all that came of it."""

from __future__ import annotations

import os

from steprail_daemon.parent import procfs

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess

    from steprail_daemon.parent.procfs import Process

Identity = tuple[int, int]


class Tree:
    """A started process (`root`) and what is known to descend from it.

    `number` is unique in the parent's life and ends the mark. `request_id` is the worker's name for it, None for the
    worker itself. `stdin` is the duplicate of the write end, -1 once closed. `status` is the wait status, None while
    it runs.
    """

    def __init__(
        self, number: int, popen: subprocess.Popen[bytes], mark: str, request_id: int | None = None, stdin: int = -1
    ) -> None:
        root = procfs.read(popen.pid)
        assert root is not None, "a child that nobody waited for is still there, if only as a zombie"
        self.number = number
        self.mark = mark
        self.request_id = request_id
        self.stdin = stdin
        self.pid = popen.pid
        self.status: int | None = None
        self.is_doomed = False
        self.members: set[Identity] = {root.identity}
        self.killed: set[Identity] = set()
        self.session_open = True
        self.deadline: float | None = None
        self.scans_without_find = 0
        self._root = root.identity
        self._popen = popen

    @property
    def is_over(self) -> bool:
        """Whether the root exited and was reaped."""
        return self.status is not None

    @property
    def leftovers_killed(self) -> int:
        """How many processes beside the root were killed."""
        return len(self.killed - {self._root})

    def doom(self) -> None:
        """Make every pass kill what it finds of this tree."""
        self.is_doomed = True

    def reaped(self, status: int) -> None:
        """Note the wait status of the root; what it left is doomed."""
        self.status = status
        self.is_doomed = True
        self.close_stdin()
        # Popen must never wait for this number again: it may soon be another process.
        self._popen.returncode = os.waitstatus_to_exitcode(status)

    def close_stdin(self) -> None:
        """Close the duplicate; harmless if it is closed."""
        if self.stdin >= 0:
            os.close(self.stdin)
            self.stdin = -1

    def note(self, present: list[Process]) -> list[Process]:
        """Take what a scan found of this tree; give those of it that live."""
        living = [process for process in present if process.is_alive]
        self.members = {process.identity for process in present}
        # The number of a session is free for others once nobody is in it and its leader was reaped.
        self.session_open = not self.is_over or any(process.session == self.pid for process in living)
        return living
