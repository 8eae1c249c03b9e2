import mmap
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from steprail_daemon.testing.bench.footprint import (
    cpu_seconds,
    fine_cpu_seconds,
    footprint,
)

ME = os.getpid()
KIB = 1024


@contextmanager
def one_more_thread() -> Iterator[None]:
    leave = threading.Event()
    thread = threading.Thread(target=leave.wait, args=(30,))
    thread.start()
    try:
        yield
    finally:
        leave.set()
        thread.join(30)


def test_memory_that_was_touched_is_counted_and_what_was_only_asked_for_is_not() -> None:
    before = footprint([ME]).memory
    with mmap.mmap(-1, 32 * KIB * KIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as area:
        reserved = footprint([ME]).memory
        # Page by page: one large string would be memory too, which the allocator may keep.
        for offset in range(0, 16 * KIB * KIB, mmap.PAGESIZE):
            area[offset] = 1
        touched = footprint([ME]).memory
    assert reserved - before < 4 * KIB
    assert touched - reserved == pytest.approx(16 * KIB, abs=20 * KIB / 8)


def test_what_two_processes_map_of_the_same_files_counts_once() -> None:
    alone, twice = footprint([ME]), footprint([ME, ME])
    assert alone.memory < twice.memory < 2 * alone.memory
    assert (twice.threads, twice.descriptors) == (2 * alone.threads, 2 * alone.descriptors)


def test_threads_and_descriptors_are_counted() -> None:
    before = footprint([ME])
    ends = os.pipe()
    try:
        with one_more_thread():
            after = footprint([ME])
    finally:
        for end in ends:
            os.close(end)
    assert (after.threads - before.threads, after.descriptors - before.descriptors) == (1, 2)


def test_both_clocks_of_cpu_time_go_on_by_what_was_used() -> None:
    coarse, fine = cpu_seconds(ME), fine_cpu_seconds(ME)
    begun = fine
    while fine_cpu_seconds(ME) - begun < 0.1:
        pass
    assert fine_cpu_seconds(ME) - fine >= 0.1
    assert cpu_seconds(ME) - coarse >= 0.05
