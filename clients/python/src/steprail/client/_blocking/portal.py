"""A loop on a thread of its own, and the way to it from blocking code."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from typing import Any, Generic, TypeVar

T = TypeVar("T")

#: Seconds that the thread has to end.
_END_SECONDS = 10.0


class Portal:
    """Runs coroutines on its thread for whoever calls `wait`, from any other thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="steprail-client", daemon=True)
        self._thread.start()

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and give what it gives. An interrupt of the waiting thread cancels it.

        Raises:
            RuntimeError: called on the portal's own thread, which would wait for itself, or after `close`.
        """
        if threading.current_thread() is self._thread or not self._thread.is_alive():
            work.close()
            reason = "a coroutine function that a SyncClient calls" if self._thread.is_alive() else "a closed client"
            raise RuntimeError(f"a blocking method was called in {reason}")
        waited = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return waited.result()
        except BaseException:
            waited.cancel()
            raise

    def iterate(self, items: AsyncIterator[T]) -> Iterator[T]:
        """Iterate over what is asynchronous; leaving the loop leaves the iteration there too."""
        try:
            while True:
                try:
                    item = self.wait(_next(items))
                except StopAsyncIteration:
                    return
                yield item
        finally:
            if self._thread.is_alive() and threading.current_thread() is not self._thread:
                self.wait(_close(items))

    def close(self) -> None:
        """End the thread."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_END_SECONDS)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            left = asyncio.all_tasks(self._loop)
            for task in left:
                task.cancel()
            if left:
                self._loop.run_until_complete(asyncio.wait(left, timeout=_END_SECONDS))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()


class Blocking(Generic[T]):
    """The base of what blocks: it has what it stands for, `_calls`, and the way to it, `_portal`."""

    _calls: T
    _portal: Portal

    def __init__(self, calls: T, portal: Portal) -> None:
        self._calls = calls
        self._portal = portal


async def _next(items: AsyncIterator[T]) -> T:
    return await anext(items)


async def _close(items: Any) -> None:
    close = getattr(items, "aclose", None)
    if close is not None:
        await close()
