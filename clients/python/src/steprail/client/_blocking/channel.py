"""gRPC's blocking channel in the form of its asynchronous one, on any event loop.

grpc.aio takes one event loop for the whole process (grpc/grpc#25364, grpc/grpc#42357). A blocking client runs on a loop
of its own, beside whatever loop the program has, so it stands on the blocking channel: its calls are waited for and
its streams are read on a thread each.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import grpc
import grpc.aio

from steprail.client._tasks import on_thread, post

#: Messages that are read ahead of the reader. More wait in the transport, so that a slow reader slows nobody else.
_AHEAD = 16


class ThreadChannel:
    """As much of `grpc.aio.Channel` as the client uses, over a `grpc.Channel`, which it closes."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._channel = channel

    def unary_unary(self, *arguments: Any, **options: Any) -> Callable[..., Coroutine[Any, Any, Any]]:
        """See `grpc.aio.Channel`."""
        method = self._channel.unary_unary(*arguments, **options)

        async def ask(request: Any, **how: Any) -> Any:
            call: Any = method.future(request, **_given(how))
            try:
                return await on_thread(call.result, "steprail-call")
            except asyncio.CancelledError:
                call.cancel()
                raise

        return ask

    def unary_stream(self, *arguments: Any, **options: Any) -> Callable[..., ThreadStream]:
        """See `grpc.aio.Channel`."""
        method = self._channel.unary_stream(*arguments, **options)
        return lambda request, **how: ThreadStream(lambda _: method(request, **_given(how)))

    def stream_unary(self, *_arguments: Any, **_options: Any) -> Callable[..., Any]:
        """See `grpc.aio.Channel`. The API has no such call."""

        def refuse(*_: Any, **__: Any) -> Any:
            raise NotImplementedError("no call of steprail sends a stream and gets one answer")

        return refuse

    def stream_stream(self, *arguments: Any, **options: Any) -> Callable[..., ThreadStream]:
        """See `grpc.aio.Channel`."""
        method = self._channel.stream_stream(*arguments, **options)
        return lambda **how: ThreadStream(lambda requests: method(requests, **_given(how)))

    async def close(self, _grace: float | None = None) -> None:
        """See `grpc.aio.Channel`."""
        self._channel.close()


class ThreadStream:
    """A call that streams, read on a thread of its own. `begin` makes it from the iterator of what is written."""

    def __init__(self, begin: Callable[[Iterator[Any]], Any]) -> None:
        self._loop = asyncio.get_running_loop()
        self._requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._replies: asyncio.Queue[Any] = asyncio.Queue()
        self._room = threading.Semaphore(_AHEAD)
        self._left = False
        self._end: Any = None
        self._call = begin(iter(self._requests.get, None))
        threading.Thread(target=self._read_on, name="steprail-stream", daemon=True).start()

    async def read(self) -> Any:
        """Give the next message, or `grpc.aio.EOF`."""
        if self._end is None:
            reply = await self._replies.get()
            self._room.release()
            if not isinstance(reply, grpc.RpcError) and reply is not grpc.aio.EOF:
                return reply
            self._end = reply
            self._requests.put(None)
        if isinstance(self._end, grpc.RpcError):
            raise self._end
        return self._end

    async def write(self, request: Any) -> None:
        """Send a message.

        Raises:
            asyncio.InvalidStateError: the call is over.
        """
        if self._left or self._end is not None:
            raise asyncio.InvalidStateError("the call is over")
        self._requests.put(request)

    def cancel(self) -> bool:
        """Leave the call."""
        first, self._left = not self._left, True
        self._requests.put(None)
        self._call.cancel()
        self._room.release(_AHEAD)
        return first

    def cancelled(self) -> bool:
        """Whether it was left."""
        return self._left

    def _read_on(self) -> None:
        try:
            for reply in self._call:
                self._room.acquire()
                if self._left:
                    return
                self._post(reply)
        except grpc.RpcError as error:
            self._post(error)
        else:
            self._post(grpc.aio.EOF)

    def _post(self, reply: Any) -> None:
        post(self._loop, lambda: self._replies.put_nowait(reply))


def _given(how: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in how.items() if value is not None}
