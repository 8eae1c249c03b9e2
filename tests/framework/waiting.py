"""Waiting for what nothing announces, with a bound."""

from __future__ import annotations

from collections.abc import Callable

import anyio


async def until(condition: Callable[[], bool], timeout: float = 20.0) -> None:
    """Wait for what another process or thread does and no event of ours tells of."""
    with anyio.fail_after(timeout):
        while not condition():  # noqa: ASYNC110 - nothing announces it
            await anyio.sleep(0.02)
