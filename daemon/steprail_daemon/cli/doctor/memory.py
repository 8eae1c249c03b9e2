"""What a process and what it started hold in memory, as the kernel tells it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from steprail_daemon.parent import procfs
from steprail_daemon.parent.family import children

_KIB = 1024


@dataclass(frozen=True)
class Memory:
    """Of a tree of processes, in bytes: the sum of their PSS, or of their RSS where the kernel does not tell the other.

    In PSS a page that several processes map counts in parts, in RSS it counts for each.
    """

    processes: int
    size: int
    measure: str


def tree(pid: int) -> list[int]:
    """Give a process and all that descend from it."""
    found, new = [pid], [pid]
    while new:
        new = [child for parent in new for child in children(parent)]
        found += new
    return found


def measure(pids: list[int]) -> Memory | None:
    """Add up; None if nothing is known of any of them."""
    for file, field, name in (("smaps_rollup", "Pss:", "PSS"), ("status", "VmRSS:", "RSS")):
        sizes = [size for pid in pids if (size := _field(pid, file, field)) is not None]
        alive = [pid for pid in pids if (process := procfs.read(pid)) is not None and process.is_alive]
        if sizes and len(sizes) == len(alive):
            return Memory(len(sizes), sum(sizes) * _KIB, name)
    return None


def _field(pid: int, file: str, field: str) -> int | None:
    try:
        lines = Path(f"/proc/{pid}/{file}").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith(field)), None)
