"""Whom a parent process has below it, as anybody may look who is not it: `steprail doctor` and the bench do."""

from __future__ import annotations

from pathlib import Path

from steprail_daemon.parent.wire import CONTROL_OPTION

_CONTROL_OPTION = CONTROL_OPTION.encode()


def children(pid: int) -> list[int]:
    """Give the children of a process, those of any of its threads; none if it is gone."""
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += map(int, path.read_text().split())
        except OSError:
            continue
    return found


def workers(parent: int) -> list[int]:
    """Give the worker of a parent process: one, or none between two lives."""
    return [pid for pid in children(parent) if _CONTROL_OPTION in _argv(pid)]


def agents(parent: int) -> list[int]:
    """Give what a parent process runs for its worker."""
    return [pid for pid in children(parent) if (argv := _argv(pid)) and _CONTROL_OPTION not in argv]


def _argv(pid: int) -> list[bytes]:
    """Give the command line of a process; empty if it is gone or a zombie."""
    try:
        content = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return []
    return content.split(b"\0") if content else []
