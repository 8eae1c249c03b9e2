"""What the kernel says of processes: who is there, by mark or number, and waiting until they are gone, with a bound."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Iterable
from pathlib import Path

MARK = b"STEPRAIL_PROCESS="


def marked(prefix: str) -> set[int]:
    """Give the living processes whose environment carries a mark that begins with `prefix`."""
    wanted = MARK + prefix.encode()
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and is_alive(int(entry.name)):
            variables = _content(entry / "environ").split(b"\0")
            if any(variable.startswith(wanted) for variable in variables):
                found.add(int(entry.name))
    return found


def is_alive(pid: int) -> bool:
    """Tell whether a process is there and no zombie."""
    content = _content(Path(f"/proc/{pid}/stat"))
    return bool(content) and content[content.rindex(b")") + 2 :].split()[0] not in (b"Z", b"X")


def zombies_of(parent: int) -> int:
    """Count the zombie children of a process."""
    count = 0
    for entry in Path("/proc").iterdir():
        content = _content(entry / "stat") if entry.name.isdigit() else b""
        if content:
            state, ppid = content[content.rindex(b")") + 2 :].split()[:2]
            count += state == b"Z" and int(ppid) == parent
    return count


def wait_gone(pids: Iterable[int], seconds: float) -> set[int]:
    """Wait until processes are gone, at most `seconds` in all; give those that live on."""
    deadline = time.monotonic() + seconds
    left = set()
    for pid in pids:
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            ready = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))[0]
            if not ready and is_alive(pid):
                left.add(pid)
        finally:
            os.close(descriptor)
    return left


def wait_none_marked(prefix: str, seconds: float) -> set[int]:
    """Wait until no process carries such a mark, at most `seconds`; give those that still do."""
    deadline = time.monotonic() + seconds
    while found := marked(prefix):
        if time.monotonic() >= deadline:
            return found
        wait_gone(found, deadline - time.monotonic())
    return set()


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
