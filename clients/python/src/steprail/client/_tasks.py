"""Tasks with an owner, and callables of the user that may block."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import logging
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

T = TypeVar("T")

log = logging.getLogger("steprail.client")

#: Seconds that cancelled tasks have to end.
_END_SECONDS = 5.0


class Tasks:
    """Owns tasks: none outlives `close`. Unlike a task group it may be closed by another task than opened it.

    That is so because a blocking client enters and leaves what it uses by calls of its own.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a task, which is to catch its own errors and to be cancelled by nobody but its owner."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def close(self) -> None:
        """Cancel all and wait for their end."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            with shielded():
                _, late = await asyncio.wait(self._tasks, timeout=_END_SECONDS)
            for task in late:
                log.warning("%r did not end within %g s of its cancellation", task, _END_SECONDS)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("a task failed", exc_info=task.exception())


@contextlib.contextmanager
def shielded() -> Iterator[None]:
    """Keep off the cancellation of a scope of anyio, which else comes again at each await, where anyio is used."""
    if "anyio" not in sys.modules:
        yield
        return
    import anyio  # noqa: PLC0415 - only where the program has it

    with anyio.CancelScope(shield=True):
        yield


async def outlasting(task: asyncio.Task[None]) -> None:
    """Wait for the end of a task of bounded length, also if the waiting one is cancelled, which takes effect then."""
    cancellation: asyncio.CancelledError | None = None
    with shielded():
        while not task.done():
            try:
                await asyncio.wait({task})
            except asyncio.CancelledError as error:
                cancellation = error
    if cancellation is not None:
        raise cancellation


async def called(function: Callable[[Any], Any], argument: object) -> object:
    """Call a callable of the user: a coroutine function on the loop, any other one on a thread, so that it may block.

    A call on a thread cannot be cancelled: what it gives later is dropped.
    """
    if inspect.iscoroutinefunction(function):
        return await function(argument)
    context = contextvars.copy_context()
    given = await on_thread(lambda: context.run(function, argument), "steprail-callable")
    return await given if inspect.isawaitable(given) else given


async def on_thread(work: Callable[[], T], name: str) -> T:
    """Do what blocks on a thread of its own. Who is cancelled waits no more; the thread ends when it ends.

    It is not the loop's own pool, for which the end of `asyncio.run` would wait.
    """
    loop = asyncio.get_running_loop()
    result: asyncio.Future[T] = loop.create_future()

    def act() -> None:
        try:
            given = work()
        except StopIteration as error:
            # A future takes none.
            wrapped = RuntimeError("the callable raised StopIteration")
            wrapped.__cause__ = error
            settle(lambda: result.set_exception(wrapped))
        except BaseException as error:  # noqa: BLE001 - whatever it is, the waiting task is told
            failed = error
            settle(lambda: result.set_exception(failed))
        else:
            settle(lambda: result.set_result(given))

    def settle(outcome: Callable[[], None]) -> None:
        post(loop, lambda: None if result.done() else outcome())

    threading.Thread(target=act, name=name, daemon=True).start()
    return await result


def post(loop: asyncio.AbstractEventLoop, act: Callable[[], None]) -> None:
    """Let a loop do something, from another thread; not if it is closed by now, when nobody waits."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(act)
