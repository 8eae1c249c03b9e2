"""What the daemon's processes use and hold, as the kernel tells it: CPU time, memory, threads, descriptors."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

import msgspec

_PSS = re.compile(r"^Pss:\s+(\d+) kB$", re.MULTILINE)


class Footprint(msgspec.Struct, frozen=True):
    """What processes hold together. `memory` is their proportional set size in KiB: shared pages count in parts."""

    memory: int
    threads: int
    descriptors: int


def children(pid: int) -> list[int]:
    """Give the processes that a process started and has not buried."""
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_worker(pid: int) -> bool:
    """Tell the daemon's own children, of which there is a control socket, from agents."""
    return b"--control-fd" in Path(f"/proc/{pid}/cmdline").read_bytes()


def cpu_seconds(pid: int) -> float:
    """Give the CPU time that a process used, of threads that ended too, in ticks of 10 ms."""
    # After the name, which is in parentheses and may hold anything; utime and stime are fields 14 and 15.
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def fine_cpu_seconds(pid: int) -> float:
    """Give the CPU time of the threads that a process has now, to the nanosecond; a thread that ends takes its away."""
    return sum(int(path.read_text().split()[0]) for path in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9


def footprint(pids: Iterable[int]) -> Footprint:
    """Add up what processes hold."""
    memory = threads = descriptors = 0
    for pid in pids:
        process = Path(f"/proc/{pid}")
        found = _PSS.search((process / "smaps_rollup").read_text())
        if found is None:
            raise RuntimeError(f"the kernel tells no proportional set size of process {pid}")
        memory += int(found[1])
        threads += len(list((process / "task").iterdir()))
        descriptors += len(list((process / "fd").iterdir()))
    return Footprint(memory, threads, descriptors)
