"""Streams of events that outlive the connection."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any, Protocol

import grpc
import grpc.aio
from google.protobuf.message import Message

from steprail.client._backoff import Comeback
from steprail.errors import ConnectionFailed, NotFound, StepRailError, from_rpc
from steprail.v1 import events_pb2, sessions_pb2

#: Seconds of silence after which a stream counts as lost: three heartbeats, which come every 10 s.
SILENCE_SECONDS = 30.0
#: Sessions that one WatchEvents may be told the places of.
MAX_CURSORS = 10_000


class Stream(Protocol):
    """What is needed of a call that streams."""

    async def read(self) -> object:
        """Give the next message, or `grpc.aio.EOF`."""

    def cancel(self) -> bool:
        """Leave the call."""


async def read(call: Stream, address: str, silence: float | None) -> Any:
    """Give the next message of a stream, None at its end. `silence` bounds the wait, in seconds.

    Raises:
        StepRailError: the stream was lost or refused, or was silent for too long.
    """
    try:
        async with asyncio.timeout(silence):
            message = await call.read()
    except TimeoutError:
        raise ConnectionFailed(address, f"silent for {silence:g} s") from None
    except grpc.RpcError as error:
        raise from_rpc(error, address) from None
    return message if isinstance(message, Message) else None


class Follower(ABC):
    """Follows something over as many calls as it takes, and knows where it stands. Subclasses keep the place.

    Args:
        address: Of the daemon, for errors.
        comeback: Its patience with the daemon.
        silence: Seconds of silence that a stream may have.
    """

    def __init__(self, address: str, comeback: Comeback, silence: float = SILENCE_SECONDS) -> None:
        self._address = address
        self._comeback = comeback
        self._silence = silence

    async def events(self) -> AsyncIterator[events_pb2.Event]:
        """Give every event, in order, none twice, until the end.

        Raises:
            StepRailError: it was refused, CursorInvalid if the place is no more, or the daemon did not come back.
        """
        self._comeback.answered()
        while True:
            call: Stream | None = None
            try:
                call = await self._open()
                while (message := await read(call, self._address, self._silence)) is not None:
                    self._comeback.answered()
                    for event in await self._take(message):
                        if self._is_new(event):
                            yield event
                return
            except StepRailError as error:
                lost = error
            finally:
                if call is not None:
                    # A call that is only dropped is never collected (grpc/grpc#43462).
                    call.cancel()
            await self._recover(lost)

    @abstractmethod
    async def _open(self) -> Stream:
        """Make the call that begins where this one stands."""

    @abstractmethod
    async def _take(self, message: Any) -> Iterable[events_pb2.Event]:
        """Note what a message says of the place, and give its events."""

    @abstractmethod
    def _is_new(self, event: events_pb2.Event) -> bool:
        """Move the place to an event; false if it was there already."""

    async def _recover(self, error: StepRailError) -> None:
        """Wait before the next call; see `Comeback.after`."""
        await self._comeback.after(error)


class Watch(Follower):
    """Follows a run or a session.

    Args:
        open_stream: Makes the call that begins after a sequence number of an epoch.
        address: Of the daemon, for errors.
        comeback: Its patience with the daemon.
        after_seq: Where to begin.
        epoch: Epoch in which `after_seq` was seen.
        silence: Seconds of silence that a stream may have.
    """

    def __init__(
        self,
        open_stream: Callable[[int, str], Stream],
        address: str,
        comeback: Comeback,
        *,
        after_seq: int = 0,
        epoch: str = "",
        silence: float = SILENCE_SECONDS,
    ) -> None:
        super().__init__(address, comeback, silence)
        self._open_stream = open_stream
        self.after_seq = after_seq
        self.epoch = epoch

    async def _open(self) -> Stream:
        return self._open_stream(self.after_seq, self.epoch if self.after_seq else "")

    async def _take(self, message: Any) -> Iterable[events_pb2.Event]:
        if message.HasField("heartbeat"):
            self.epoch = message.heartbeat.epoch
        events: Iterable[events_pb2.Event] = message.events
        return events

    def _is_new(self, event: events_pb2.Event) -> bool:
        if event.seq <= self.after_seq:
            return False
        self.after_seq = event.seq
        return True


class EventsWatch(Follower):
    """Follows all sessions that the caller may see.

    A stream tells where it stands by heartbeats; what came since the last one is known from the events. The epoch of a
    session that began in between is asked for when its first event comes, while the event's own epoch still lasts. A
    session that was made while there was no stream has no place here and is followed from its beginning; more than
    10,000 cannot be told to the daemon, so the ones that moved last are.

    Args:
        open_stream: Makes the call that begins at these cursors.
        epoch_of: Gives the epoch of a session.
        sessions: Gives the ids of all sessions that are followed.
        address: Of the daemon, for errors.
        comeback: Its patience with the daemon.
        cursors: Where to begin; other sessions from now on.
        silence: Seconds of silence that a stream may have.
    """

    def __init__(
        self,
        open_stream: Callable[[list[events_pb2.SessionCursor]], Stream],
        epoch_of: Callable[[str], Awaitable[str]],
        sessions: Callable[[], Awaitable[list[str]]],
        address: str,
        comeback: Comeback,
        *,
        cursors: Iterable[events_pb2.SessionCursor] = (),
        silence: float = SILENCE_SECONDS,
    ) -> None:
        super().__init__(address, comeback, silence)
        self._open_stream = open_stream
        self._epoch_of = epoch_of
        self._sessions = sessions
        self._places = {cursor.session_id: (cursor.after_seq, cursor.epoch) for cursor in cursors}
        #: Whether a stream has told where it stands, so that an unknown session is a new one.
        self._told = False

    @property
    def cursors(self) -> list[events_pb2.SessionCursor]:
        """Where it stands, for a watch that is to go on from here."""
        return [
            events_pb2.SessionCursor(session_id=session_id, after_seq=seq, epoch=epoch if seq else "")
            for session_id, (seq, epoch) in list(self._places.items())[-MAX_CURSORS:]
        ]

    async def _open(self) -> Stream:
        if self._told:
            for session_id in await self._sessions():
                self._places.setdefault(session_id, (0, ""))
        return self._open_stream(self.cursors)

    async def _take(self, message: sessions_pb2.WatchEventsResponse) -> Iterable[events_pb2.Event]:
        if message.HasField("heartbeat"):
            self._told = True
            for cursor in message.heartbeat.cursors:
                self._move(cursor.session_id, cursor.after_seq, cursor.epoch)
        for session_id in {event.session_id for event in message.events}:
            seq, epoch = self._places.get(session_id, (0, ""))
            if not epoch:
                self._places[session_id] = (seq, await self._epoch(session_id))
        return message.events

    def _is_new(self, event: events_pb2.Event) -> bool:
        seq, epoch = self._places.get(event.session_id, (0, ""))
        if event.seq <= seq:
            return False
        self._move(event.session_id, event.seq, epoch)
        return True

    async def _recover(self, error: StepRailError) -> None:
        gone = error.metadata.get("session_id", "") if isinstance(error, NotFound) else ""
        if gone and self._places.pop(gone, None) is not None:
            # It was deleted; the others go on.
            return
        await super()._recover(error)

    def _move(self, session_id: str, seq: int, epoch: str) -> None:
        # The last to move is the last of the table.
        self._places.pop(session_id, None)
        self._places[session_id] = (seq, epoch)

    async def _epoch(self, session_id: str) -> str:
        try:
            return await self._epoch_of(session_id)
        except NotFound:
            # Deleted meanwhile: nothing of it comes again.
            return ""
