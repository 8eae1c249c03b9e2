"""A call as the services see it, and the calls that are under way."""

from __future__ import annotations

import math
import time
from asyncio import CancelledError
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import anyio
import grpc
import grpc.aio
from google.protobuf.message import Message

from steprail_daemon.core.errors import Exhausted, StepRailError, Unavailable
from steprail_daemon.engine.facade import Caller

#: What a method answers with: a message, or one in its wire form.
Answer = Message | bytes


class Disconnected(Exception):
    """The client is gone; nothing can be sent any more."""


class Call:
    """One call. `caller` is who calls. A stream writes one message at a time."""

    __slots__ = (
        "_context",
        "_failure",
        "_refusal",
        "_scope",
        "_sending_since",
        "_stall_limit",
        "_stalled",
        "caller",
        "refine",
        "request",
    )

    def __init__(self, caller: Caller, context: grpc.aio.ServicerContext[Any, Any], stalled_reader_ns: int) -> None:
        self.caller = caller
        #: What it asks for, once that was read; of a stream of requests the first.
        self.request: Message | None = None
        #: Adds to the error of a reader that stalls what its stream knows.
        self.refine: Callable[[Exhausted], Exhausted] = _as_it_is
        self._context = context
        self._stall_limit = stalled_reader_ns / 1e9
        self._sending_since = math.inf
        self._stalled = False
        self._scope = anyio.CancelScope()
        self._refusal: StepRailError | None = None
        #: Why a message that nobody waits for could not be sent.
        self._failure: Exception | None = None

    async def send(self, answer: Answer) -> None:
        """Send a message of a stream, within `interruptible`; returns once the transport took it.

        If it takes nothing for too long the call ends with READER_STALLED. The message may still arrive.

        Raises:
            Disconnected: the client is gone.
        """
        # A timer for each message would cost more than most messages do: `Calls.watch_stalls` looks at all of them.
        self._sending_since = time.monotonic()
        try:
            await self._context.write(answer)
        except grpc.aio.BaseError:
            raise Disconnected from None
        finally:
            self._sending_since = math.inf

    def send_at_once(self, answer: Answer, sent: Callable[[], None]) -> None:
        """Begin to send a message of a stream on the caller's stack, without the turn of a task.

        It is on its way when this returns. `sent` is called when `send` would return; if that would raise, the call
        ends within `interruptible` by the same error. Until then nothing else may be sent.
        """
        self._sending_since = time.monotonic()

        def end(error: Exception | None) -> None:
            self._sending_since = math.inf
            if error is not None:
                self._failure = error
                self._scope.cancel()
            sent()

        _Errand(self._context.write(answer), end).go_on()

    def end_if_stalled(self, now: float) -> None:
        """End the call if the transport has taken nothing of a message for too long; `now` is the monotonic clock."""
        if now - self._sending_since > self._stall_limit:
            self._stalled = True
            self._scope.cancel()

    def time_remaining_ns(self) -> int | None:
        """Give the time until the client's deadline; None if it set none."""
        seconds: float | None = self._context.time_remaining()
        return None if seconds is None else max(0, int(seconds * 1e9))

    def end(self, refusal: StepRailError) -> None:
        """End the call from outside with an error, wherever it waits within `interruptible`. The first error holds."""
        if self._refusal is None:
            self._refusal = refusal
        self._scope.cancel()

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Mark what `end` can cut off.

        Raises:
            StepRailError: what `end` was given.
            Disconnected: the client is gone, which `send_at_once` found out.
            Exhausted: READER_STALLED; the transport took nothing for too long.
        """
        with self._scope:
            yield
        if self._refusal is not None:
            raise self._refusal
        if self._failure is not None:
            raise self._failure
        if self._stalled:
            message = f"the reader took nothing for {self._stall_limit:g} s; go on from after_seq"
            raise self.refine(Exhausted("READER_STALLED", message))


class _Errand:
    """A coroutine that is begun at once and goes on in callbacks: an eager task, which asyncio has from Python 3.12 on.

    `end` is called with the error, or with None.
    """

    __slots__ = ("_coroutine", "_end")

    def __init__(self, coroutine: Coroutine[Any, Any, None], end: Callable[[Exception | None], None]) -> None:
        self._coroutine = coroutine
        self._end = end

    def go_on(self, _done: object = None) -> None:
        """Carry the coroutine on until it waits again, or to its end."""
        error: Exception | None = None
        try:
            future = self._coroutine.send(None)
        except StopIteration:
            pass
        except (grpc.aio.BaseError, CancelledError):
            # Whoever cancels a write has given the call up; this is no task that could pass it on.
            error = Disconnected()
        except Exception as other:  # noqa: BLE001 - it is raised where the call is served
            error = other
        else:
            future.add_done_callback(self.go_on)
            return
        self._end(error)


class Calls:
    """The calls under way that wait for something, so that they can be ended: by a drain, or one that stalls."""

    def __init__(self, stalled_reader_ns: int) -> None:
        self._stall_limit = stalled_reader_ns / 1e9
        self._waiting: set[Call] = set()
        self.draining = False

    @contextmanager
    def waiting(self, call: Call) -> Iterator[None]:
        """Let `end_all` end what is done within.

        Raises:
            Unavailable: DRAINING.
        """
        self._waiting.add(call)
        try:
            with call.interruptible():
                yield
        finally:
            self._waiting.discard(call)

    async def watch_stalls(self) -> None:
        """End calls whose reader stalls, for ever; a stall is noticed at most an eighth of its bound late."""
        while True:
            await anyio.sleep(self._stall_limit / 8)
            now = time.monotonic()
            for call in tuple(self._waiting):
                call.end_if_stalled(now)

    def end_all(self) -> None:
        """End every call that waits."""
        self.draining = True
        for call in tuple(self._waiting):
            call.end(draining())


def _as_it_is(error: Exhausted) -> Exhausted:
    return error


def draining() -> Unavailable:
    """Give the error of calls that a daemon which goes down cannot serve to their end."""
    return Unavailable("DRAINING", "the daemon goes down; go on with the next one", retry_after_ns=1_000_000_000)
