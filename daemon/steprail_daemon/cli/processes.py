"""Waiting until processes are gone that are no children of ours, by descriptors that stand for them."""

from __future__ import annotations

import os
import select
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress

import anyio


@contextmanager
def watched(pids: Iterable[int]) -> Iterator[Sequence[int]]:
    """Give a descriptor of each process that is there, which never stands for a later one with the same number.

    Some sandboxes have none of these: there, processes are not watched.
    """
    descriptors: list[int] = []
    try:
        for pid in pids:
            with suppress(OSError):
                descriptors.append(os.pidfd_open(pid))
        yield descriptors
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


async def left_after(descriptors: Sequence[int], seconds: float) -> int:
    """Wait until the processes of descriptors are gone, at most `seconds` in all; give how many are not."""
    with anyio.move_on_after(seconds):
        for descriptor in descriptors:
            await anyio.wait_readable(descriptor)
    ended = select.poll()
    for descriptor in descriptors:
        ended.register(descriptor, select.POLLIN)
    return len(descriptors) - len(ended.poll(0))
