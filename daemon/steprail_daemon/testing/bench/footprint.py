"""What the daemon's processes use and hold, as the kernel tells it: CPU time, memory, threads, descriptors."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

#: The first line of a mapping in `smaps`: addresses, rights, offset, device, inode, and the file if there is one.
_MAPPING = re.compile(r"[0-9a-f]+-[0-9a-f]+ \S+ \S+ \S+ \d+\s*(.*)")


class Footprint(msgspec.Struct, frozen=True):
    """What processes hold together.

    `memory` is in KiB what the sum of their proportional set sizes (PSS) would be if nobody else mapped the same files:
    a page that they share counts once. Their real PSS depends on what else runs, the bench itself not the least.
    """

    memory: int
    threads: int
    descriptors: int


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
    shared: dict[str, int] = {}
    for pid in pids:
        of_files: dict[str, int] = {}
        for file, resident, anonymous in _mappings(pid):
            memory += anonymous
            of_files[file] = of_files.get(file, 0) + resident - anonymous
        for file, size in of_files.items():
            shared[file] = max(shared.get(file, 0), size)
        process = Path(f"/proc/{pid}")
        threads += len(list((process / "task").iterdir()))
        descriptors += len(list((process / "fd").iterdir()))
    return Footprint(memory + sum(shared.values()), threads, descriptors)


def _mappings(pid: int) -> Iterator[tuple[str, int, int]]:
    """Give the file of each mapping, empty for none, its resident pages and those of them that are not the file's."""
    file, resident = "", 0
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        found = _MAPPING.fullmatch(line)
        if found:
            file = found[1]
        elif line.startswith("Rss:"):
            resident = int(line.split()[1])
        elif line.startswith("Anonymous:"):
            yield file, resident, int(line.split()[1])
