"""A thread for what may never come back, such as a look at a file of a server that is gone."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

import anyio
import anyio.from_thread
import anyio.lowlevel

T = TypeVar("T")


async def run_apart(function: Callable[[], T]) -> T:
    """Run a function on a thread of its own; gives what it gives, and raises what it raises.

    Whoever is cancelled meanwhile leaves the thread behind, and the interpreter does not wait for it when it ends: it
    would for a worker thread of anyio. Each call costs a new thread, so this is for what is done seldom.
    """
    results: list[T] = []
    errors: list[BaseException] = []
    done = anyio.Event()
    token = anyio.lowlevel.current_token()

    def work() -> None:
        try:
            results.append(function())
        except BaseException as error:  # noqa: BLE001 - it is raised where the function is waited for
            errors.append(error)
        # The loop may have ended without us, or do so now.
        with suppress(RuntimeError):
            anyio.from_thread.run_sync(done.set, token=token)

    threading.Thread(target=work, name=f"apart: {function}", daemon=True).start()
    await done.wait()
    if errors:
        raise errors[0]
    return results[0]
