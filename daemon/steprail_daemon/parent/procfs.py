"""What /proc tells of processes, and signals that reach exactly the process that was read."""

from __future__ import annotations

import errno
import os
import signal

from steprail_daemon.parent.wire import MARK

_MARK_PREFIX = MARK.encode() + b"="


class Process:
    """A process as it was read. `start` (clock ticks since boot) tells it from a later one with the same number.

    A zombie is not alive.
    """

    __slots__ = ("is_alive", "pid", "ppid", "session", "start")

    def __init__(self, pid: int, ppid: int, session: int, start: int, *, is_alive: bool) -> None:
        self.pid = pid
        self.ppid = ppid
        self.session = session
        self.start = start
        self.is_alive = is_alive

    @property
    def identity(self) -> tuple[int, int]:
        """Number and start time: never two processes with the same."""
        return (self.pid, self.start)


def read(pid: int) -> Process | None:
    """Read a process; None if there is none of this number."""
    content = _content(f"/proc/{pid}/stat")
    if not content:
        return None
    # The name, in parentheses, may hold anything, parentheses too.
    fields = content[content.rindex(b")") + 2 :].split()
    # A zombie with several threads has lost its first one only, and runs on.
    is_alive = fields[0] not in (b"Z", b"X", b"x") or int(fields[17]) > 1
    return Process(pid, int(fields[1]), int(fields[3]), int(fields[19]), is_alive=is_alive)


def scan() -> dict[int, Process]:
    """Read every process that can be seen, by number."""
    found = {}
    with os.scandir("/proc") as entries:
        numbers = [int(entry.name) for entry in entries if entry.name.isdigit()]
    for pid in numbers:
        process = read(pid)
        if process is not None:
            found[pid] = process
    return found


def mark(pid: int) -> str:
    """Give the mark in a process's environment; empty if it has none or it cannot be read."""
    content = _content(f"/proc/{pid}/environ")
    if content.startswith(_MARK_PREFIX):
        begin = 0
    else:
        begin = content.find(b"\0" + _MARK_PREFIX) + 1
        if begin == 0:
            return ""
    end = content.find(b"\0", begin)
    return os.fsdecode(content[begin + len(_MARK_PREFIX) : end if end >= 0 else None])


def send_signal(process: Process, signum: int) -> bool:
    """Send a signal, if the process is still the one that was read. Tells whether it was sent."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except OSError as error:
        # Some sandboxes have no pidfd; the window between check and signal is then short instead of none.
        return error.errno == errno.ENOSYS and _same(process) and _attempt(lambda: os.kill(process.pid, signum))
    try:
        return _same(process) and _attempt(lambda: signal.pidfd_send_signal(descriptor, signum))
    finally:
        os.close(descriptor)


TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


def _attempt(send: Callable[[], None]) -> bool:
    try:
        send()
    except OSError:
        return False
    return True


def _same(process: Process) -> bool:
    now = read(process.pid)
    return now is not None and now.start == process.start


def _content(path: str) -> bytes:
    """Read a file of /proc; empty if the process is gone or not ours to read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    chunks = []
    try:
        while chunk := os.read(descriptor, 1 << 16):
            chunks.append(chunk)
    except OSError:
        return b""
    finally:
        os.close(descriptor)
    return b"".join(chunks)
