"""gRPC handlers made from the descriptors of the protobuf services.

The implementation of a call is the method of the same name in snake case; a call without one is UNIMPLEMENTED. Around
each stands the same: who calls is let in or refused, the request is parsed, an error becomes a status, and one line is
logged.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final, TypeAlias

import anyio
import grpc
import grpc.aio
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from google.rpc import status_pb2

from steprail_daemon.core.errors import Invalid, StepRailError
from steprail_daemon.service.auth import Access
from steprail_daemon.service.calls import Answer, Call, Calls, Disconnected
from steprail_daemon.service.errors import INTERNAL, PlainStatus, code_of, grpc_status, status_of
from steprail_daemon.service.finished import FinishedCalls, Observe, unobserved

_Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
_RpcHandler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
_Parse: TypeAlias = Callable[[bytes], Message]
_Handler: TypeAlias = Callable[[Any, _Context], Awaitable[Any]]

log: Final = logging.getLogger("steprail.calls")


class ServiceHandlers(grpc.GenericRpcHandler):
    """The handlers of one service."""

    def __init__(
        self,
        descriptor: ServiceDescriptor,
        implementation: object,
        access: Access,
        calls: Calls,
        stalled_reader_ns: int,
        *,
        observe: Observe = unobserved,
    ) -> None:
        self._access = access
        self._finished = FinishedCalls(observe)
        self._calls = calls
        self._stalled_reader_ns = stalled_reader_ns
        self._handlers: dict[str, _RpcHandler] = {}
        for method in descriptor.methods:
            behaviour = getattr(implementation, snake_case(method.name), None)
            if behaviour is not None:
                self._handlers[f"/{descriptor.full_name}/{method.name}"] = self._handler(method, behaviour)

    def service(self, details: grpc.HandlerCallDetails) -> _RpcHandler | None:
        """Find the handler of a call."""
        return self._handlers.get(details.method)

    @property
    def methods(self) -> frozenset[str]:
        """Full names of the calls that are implemented."""
        return frozenset(self._handlers)

    def _handler(self, method: MethodDescriptor, behaviour: Callable[..., Any]) -> _RpcHandler:
        name = method.full_name
        parse = _parser(method)
        if method.client_streaming:
            return grpc.stream_stream_rpc_method_handler(
                self._conversation(name, parse, behaviour), response_serializer=to_bytes
            )
        if method.server_streaming:
            return grpc.unary_stream_rpc_method_handler(
                self._stream(name, parse, behaviour), response_serializer=to_bytes
            )
        return grpc.unary_unary_rpc_method_handler(self._unary(name, parse, behaviour), response_serializer=to_bytes)

    def _unary(self, name: str, parse: _Parse, behaviour: Callable[..., Awaitable[Answer]]) -> _Handler:
        async def handle(data: bytes, context: _Context) -> Answer:
            async def work(call: Call) -> Answer:
                call.request = request = parse(data)
                return await behaviour(request, call)

            return await self._run(name, context, work) or b""

        return handle

    def _stream(self, name: str, parse: _Parse, behaviour: Callable[..., Awaitable[None]]) -> _Handler:
        async def handle(data: bytes, context: _Context) -> None:
            async def work(call: Call) -> None:
                with self._calls.waiting(call):
                    call.request = request = parse(data)
                    await behaviour(request, call)

            await self._run(name, context, work)

        return handle

    def _conversation(self, name: str, parse: _Parse, behaviour: Callable[..., Awaitable[None]]) -> _Handler:
        async def handle(_: AsyncIterator[bytes], context: _Context) -> None:
            async def work(call: Call) -> None:
                # The iterator that is handed in does the same in two steps more.
                async def receive() -> Message | None:
                    data = await context.read()
                    if data is grpc.aio.EOF:
                        return None
                    request = parse(data)
                    call.request = call.request or request
                    return request

                with self._calls.waiting(call):
                    await behaviour(receive, call)

            await self._run(name, context, work)

        return handle

    async def _run(
        self, name: str, context: _Context, work: Callable[[Call], Awaitable[Answer | None]]
    ) -> Answer | None:
        """Do the work of a call; if it is refused, end the call with the status."""
        started = time.monotonic()
        code, reason = "CANCELLED", ""
        refused = INTERNAL
        call: Call | None = None
        answer: Answer | None = None
        try:
            caller = self._access.admit(name, context)
            call = Call(caller, context, self._stalled_reader_ns)
            answer = await work(call)
            code = "OK"
            return answer
        except StepRailError as error:
            refused = status_of(error)
            code, reason = code_of(error).name, error.reason
        except PlainStatus as error:
            refused = status_pb2.Status(code=error.code.value[0], message=error.message)
            code = error.code.name
        except Disconnected:
            return None
        except Exception:
            log.exception("call failed", extra={"method": name})
            code = "INTERNAL"
        finally:
            self._finished.tell(name, call, answer, code=code, reason=reason, seconds=time.monotonic() - started)
        await self._refuse(context, refused)
        return None

    async def _refuse(self, context: _Context, status: status_pb2.Status) -> None:
        # The status waits behind what a stalled reader has not taken yet, so that this wait needs a bound too.
        with anyio.move_on_after(self._stalled_reader_ns / 1e9):
            try:
                await context.abort_with_status(grpc_status(status))
            except grpc.aio.AbortError:
                raise
            except grpc.aio.BaseError:
                # The call is over already: the client left, or the server's grace ran out.
                return


def to_bytes(answer: Answer) -> bytes:
    """Serialize a message; one in its wire form passes as it is."""
    return answer if isinstance(answer, bytes) else answer.SerializeToString()


def snake_case(name: str) -> str:
    """Give the name of the method that implements a call: `GetRun` is `get_run`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def _parser(method: MethodDescriptor) -> Callable[[bytes], Message]:
    message_class = GetMessageClass(method.input_type)

    def parse(data: bytes) -> Message:
        try:
            return message_class.FromString(data)
        except DecodeError:
            raise Invalid("FIELD_INVALID", f"the request is not a well-formed {method.input_type.full_name}") from None

    return parse
