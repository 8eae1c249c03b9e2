"""The reflection service, `grpc.reflection.v1alpha.ServerReflection`, behind the same door as every other call."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from grpc_reflection.v1alpha import reflection, reflection_pb2

from steprail_daemon.service.calls import Call

_Receive = Callable[[], Awaitable[reflection_pb2.ServerReflectionRequest | None]]


class Reflection:
    """Implements `ServerReflection`; `services` are the full names of the services to tell of."""

    def __init__(self, services: Sequence[str]) -> None:
        self._servicer = reflection.aio.ReflectionServicer([*services, reflection.SERVICE_NAME])

    async def server_reflection_info(self, receive: _Receive, call: Call) -> None:
        """Answer questions about services, messages and files until no more are asked."""
        async for answer in self._servicer.ServerReflectionInfo(_messages(receive), None):
            await call.send(answer)


async def _messages(receive: _Receive) -> AsyncIterator[reflection_pb2.ServerReflectionRequest]:
    while (message := await receive()) is not None:
        yield message
