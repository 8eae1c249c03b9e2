"""Commands that must leave nothing behind, however they are ended."""

from __future__ import annotations

import contextlib
import signal
import socket
from collections.abc import Awaitable, Callable

import anyio

from steprail_daemon.cli.call import run_async

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
#: What a shell adds to the number of a signal that ended a command.
_BY_SIGNAL = 128


def run_clean(do: Callable[[], Awaitable[None]]) -> int:
    """Run something to its end, or to the first signal that asks us to end, which cancels it; gives 0, or the status.

    It can only be left where it awaits, and cleans up undisturbed: further signals change nothing, not even afterwards,
    when Python ends.
    """
    status = 0
    woken, waker = socket.socketpair()
    waker.setblocking(False)

    def note(number: int, _frame: object) -> None:
        nonlocal status
        status = status or _BY_SIGNAL + number
        # Full is as good as written.
        with contextlib.suppress(BlockingIOError):
            waker.send(b"x")

    before = {number: signal.signal(number, note) for number in _SIGNALS}
    try:
        run_async(lambda: _until(woken, do))
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_IGN if status else handler)
        woken.close()
        waker.close()
    return status


async def _until(woken: socket.socket, do: Callable[[], Awaitable[None]]) -> None:
    """Run something until it ends, or until there is something to read."""
    async with anyio.create_task_group() as tasks:

        async def watch() -> None:
            await anyio.wait_readable(woken)
            tasks.cancel_scope.cancel()

        tasks.start_soon(watch)
        await do()
        tasks.cancel_scope.cancel()
