"""Tells those who follow many sessions that something was published in one of them, or that one was added."""

from __future__ import annotations

import asyncio


class Arrivals:
    """Counts what arrives while somebody follows. All methods are called on the loop's thread."""

    __slots__ = ("_waiters", "count", "followers")

    def __init__(self) -> None:
        self.count = 0
        #: Those who follow; without any, nobody needs to be told.
        self.followers = 0
        self._waiters: set[asyncio.Future[None]] = set()

    def bump(self) -> None:
        """Something arrived."""
        self.count += 1
        waiters, self._waiters = self._waiters, set()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self, seen: int, seconds: float) -> bool:
        """Wait until more than `seen` has arrived, at most so long; whether it has."""
        if self.count != seen:
            return True
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            await asyncio.wait((waiter,), timeout=seconds)
        finally:
            self._waiters.discard(waiter)
        return self.count != seen
