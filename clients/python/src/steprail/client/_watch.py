"""Streams of events that outlive the connection."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Protocol

import grpc
import grpc.aio

from steprail.errors import ConnectionFailed, ResourceExhausted, StepRailError, Unavailable, from_rpc
from steprail.v1 import events_pb2, runs_pb2, sessions_pb2

#: Seconds for which a watch tries to come back to a daemon that went away before it gives up.
PATIENCE_SECONDS = 60.0
#: Seconds of silence after which a stream counts as lost: three heartbeats, which come every 10 s.
SILENCE_SECONDS = 30.0
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 2.0

Message = runs_pb2.WatchRunResponse | sessions_pb2.WatchSessionResponse


class Stream(Protocol):
    """What is needed of a call that streams events."""

    async def read(self) -> object:
        """Give the next message, or `grpc.aio.EOF`."""

    def cancel(self) -> bool:
        """Leave the call."""


class Watch:
    """Follows a run or a session over as many calls as it takes, and knows where it stands.

    Args:
        open_stream: Makes the call that begins after a sequence number of an epoch.
        address: Of the daemon, for errors.
        after_seq: Where to begin.
        epoch: Epoch in which `after_seq` was seen.
        patience: Seconds to try for without an answer.
        silence: Seconds of silence that a stream may have.
    """

    def __init__(
        self,
        open_stream: Callable[[int, str], Stream],
        address: str,
        *,
        after_seq: int = 0,
        epoch: str = "",
        patience: float = PATIENCE_SECONDS,
        silence: float = SILENCE_SECONDS,
    ) -> None:
        self._open_stream = open_stream
        self._address = address
        self._patience = patience
        self._silence = silence
        self._pause = _FIRST_PAUSE
        self._give_up = 0.0
        self.after_seq = after_seq
        self.epoch = epoch

    async def events(self) -> AsyncIterator[events_pb2.Event]:
        """Give every event, in order, none twice, until the end.

        Raises:
            StepRailError: the watch was refused, or the daemon did not come back.
        """
        self._answered()
        while True:
            call = self._open_stream(self.after_seq, self.epoch if self.after_seq else "")
            try:
                while (message := await self._next(call)) is not None:
                    self._answered()
                    if message.HasField("heartbeat"):
                        self.epoch = message.heartbeat.epoch
                    for event in message.events:
                        self.after_seq = event.seq
                        yield event
                return
            except _Lost as lost:
                if time.monotonic() > self._give_up:
                    raise lost.error from None
            finally:
                # A call that is only dropped is never collected (grpc/grpc#43462).
                call.cancel()
            await asyncio.sleep(self._pause)
            self._pause = min(self._pause * 2, _LONGEST_PAUSE)

    async def _next(self, call: Stream) -> Message | None:
        try:
            async with asyncio.timeout(self._silence):
                message = await call.read()
        except TimeoutError:
            raise _Lost(ConnectionFailed(self._address, f"silent for {self._silence:g} s")) from None
        except grpc.aio.AioRpcError as error:
            raised = from_rpc(error, self._address)
            if _comes_back(raised):
                raise _Lost(raised) from None
            raise raised from None
        return message if isinstance(message, Message) else None

    def _answered(self) -> None:
        self._pause = _FIRST_PAUSE
        self._give_up = time.monotonic() + self._patience


class _Lost(Exception):
    """The stream is lost, and another one may go on where it ended."""

    def __init__(self, error: StepRailError) -> None:
        super().__init__(str(error))
        self.error = error


def _comes_back(error: StepRailError) -> bool:
    stalled = isinstance(error, ResourceExhausted) and error.reason == "READER_STALLED"
    return stalled or isinstance(error, ConnectionFailed | Unavailable)
