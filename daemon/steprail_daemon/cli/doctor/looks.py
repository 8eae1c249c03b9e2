"""Looks at files, bounded in time: a directory of a server that is gone never answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import anyio

from steprail_daemon.cli.doctor.findings import Finding, problem
from steprail_daemon.threads import run_apart

T = TypeVar("T")

#: Seconds.
LIMIT: Final = 20.0
SILENT_FILES: Final = "see whether a file system that the configuration names does not answer"


async def in_time(look: Callable[[], T]) -> T:
    """Take a look that may block. One that never ends is left behind, and does not hold the command.

    Raises:
        TimeoutError: it did not end.
    """
    with anyio.fail_after(LIMIT):
        return await run_apart(look)


async def found_in_time(about: str, look: Callable[[], T]) -> T | Finding:
    """Take a look that may block; one that does not end is a finding."""
    try:
        return await in_time(look)
    except TimeoutError:
        return problem(about, f"a look at its files did not end within {limit_words()}", SILENT_FILES)


def limit_words() -> str:
    """Give the bound of a look in words."""
    return f"{LIMIT:g} s"
