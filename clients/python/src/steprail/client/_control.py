"""An open conversation about one run: what happens comes, decisions go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any

import grpc
import grpc.aio

from steprail.client._channel import new_request_id
from steprail.errors import CallTimeout, StepRailError, from_rpc
from steprail.v1 import decisions_pb2, runs_pb2


class Control:
    """A ControlRun stream. Use it with `async with`; iterate over it for what the daemon sends, `finished` last.

    Losing or leaving it never ends the run. A message that the daemon refuses comes back as `rejected`.
    """

    def __init__(
        self,
        call: grpc.aio.StreamStreamCall[Any, Any],
        first: runs_pb2.ControlRunRequest,
        address: str,
        timeout: float,
    ) -> None:
        self._call = call
        self._first = first
        self._address = address
        self._timeout = timeout
        self._writing = asyncio.Lock()
        self.opened: runs_pb2.ControlOpened = runs_pb2.ControlOpened()

    @property
    def run_id(self) -> str:
        """The run that this is about."""
        return self.opened.run.run_id

    async def __aenter__(self) -> Control:
        """Open the conversation.

        Raises:
            StepRailError: it was refused, or not answered in time.
        """
        try:
            async with asyncio.timeout(self._timeout):
                await self._open()
        except TimeoutError:
            self._call.cancel()
            raise CallTimeout(f"the daemon at {self._address} did not answer in {self._timeout:g} s") from None
        except BaseException:
            self._call.cancel()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave. The call is cancelled, for one that is only dropped is never collected (grpc/grpc#43462)."""
        self._call.cancel()

    async def __aiter__(self) -> AsyncIterator[runs_pb2.ControlRunResponse]:
        """Give what the daemon sends until the run has ended.

        Raises:
            StepRailError: the stream was lost; the run goes on, and `attach` takes it up again.
        """
        while (message := await self._receive()) is not None:
            yield message

    async def decide(
        self,
        step_id: str,
        action: decisions_pb2.DecisionAction.ValueType = decisions_pb2.DECISION_ACTION_UNSPECIFIED,
        *,
        reason: str = "",
        error: str = "",
    ) -> None:
        """Send a decision about a step, or with `error` alone that none could be made."""
        await self._send(
            runs_pb2.ControlRunRequest(
                decision=runs_pb2.SubmitDecisionRequest(step_id=step_id, action=action, reason=reason, error=error)
            )
        )

    async def stop(self, reason: str = "") -> None:
        """Ask for a stop at the next boundary."""
        await self._send(runs_pb2.ControlRunRequest(stop=runs_pb2.StopRunRequest(reason=reason)))

    async def abort(self, reason: str = "") -> None:
        """Cut the run off."""
        await self._send(runs_pb2.ControlRunRequest(abort=runs_pb2.AbortRunRequest(reason=reason)))

    async def _open(self) -> None:
        await self._send(self._first)
        message = await self._receive()
        if message is None or message.WhichOneof("body") != "opened":
            raise StepRailError(f"the daemon at {self._address} did not open the conversation")
        self.opened = message.opened

    async def _receive(self) -> runs_pb2.ControlRunResponse | None:
        try:
            message = await self._call.read()
        except grpc.aio.AioRpcError as error:
            raise from_rpc(error, self._address) from None
        return message if isinstance(message, runs_pb2.ControlRunResponse) else None

    async def _send(self, request: runs_pb2.ControlRunRequest) -> None:
        if not request.request_id:
            request.request_id = new_request_id()
        try:
            async with self._writing:
                await self._call.write(request)
        except grpc.aio.AioRpcError as error:
            raise from_rpc(error, self._address) from None
        except asyncio.InvalidStateError:
            raise StepRailError("the conversation has ended; nothing can be sent any more") from None
