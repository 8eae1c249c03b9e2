"""WatchEvents: one stream of the events of many sessions, and heartbeats that tell where it stands in each."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

from steprail.v1 import events_pb2, sessions_pb2
from steprail_daemon.core.errors import Exhausted
from steprail_daemon.engine.facade import Cursor, EventFilter, EventsSubscription, Facade, Slice
from steprail_daemon.service import checks
from steprail_daemon.service.bounds import NAME
from steprail_daemon.service.calls import Call
from steprail_daemon.service.fields import timestamp
from steprail_daemon.service.kinds import KIND_NUMBERS
from steprail_daemon.service.streams import check_cursor, parts

MAX_CURSORS: Final = 10_000
#: Cursors of one heartbeat, which with the longest ids stays well under 1 MiB. More come in another.
_CURSORS_AT_ONCE: Final = 4096


def selection(request: sessions_pb2.WatchEventsRequest) -> tuple[list[Cursor], EventFilter]:
    """Read where to go on, and what is wanted.

    Raises:
        Invalid: FIELD_INVALID.
    """
    cursors = [_cursor(f"cursors[{index}]", cursor) for index, cursor in enumerate(_bounded(request))]
    if len({cursor.session_id for cursor in cursors}) < len(cursors):
        raise checks.invalid("cursors", "has two cursors of one session; one for each is accepted")
    wanted = EventFilter(
        kinds=frozenset(_kind(f"kinds[{index}]", name) for index, name in enumerate(request.kinds)),
        agents=checks.agent_names(request.agents),
        labels=checks.labels("labels", request.labels),
    )
    return cursors, wanted


def _bounded(request: sessions_pb2.WatchEventsRequest) -> Iterator[events_pb2.SessionCursor]:
    if len(request.cursors) > MAX_CURSORS:
        raise checks.invalid("cursors", f"has {len(request.cursors)} entries; at most {MAX_CURSORS} are accepted")
    return iter(request.cursors)


def _cursor(path: str, cursor: events_pb2.SessionCursor) -> Cursor:
    check_cursor(cursor.after_seq, cursor.epoch, f"{path}.")
    return Cursor(checks.identifier(f"{path}.session_id", cursor.session_id), cursor.after_seq, cursor.epoch)


def _kind(path: str, name: str) -> int:
    number = KIND_NUMBERS.get(name)
    if number is None:
        raise checks.invalid(path, f"is {name[:NAME]!r}; accepted are {', '.join(KIND_NUMBERS)}")
    return number


class EventsWatch:
    """A stream of the events of all sessions that a subscription follows."""

    def __init__(self, facade: Facade, subscription: EventsSubscription) -> None:
        self._facade = facade
        self._subscription = subscription
        self._interval = facade.limits().heartbeat_ns / 1e9
        self._due = time.monotonic() + self._interval
        #: The place in each session as the last heartbeat told it.
        self._told: dict[str, int] = {}
        #: What is on its way.
        self._sending: Slice | None = None
        #: By session, once the watch is closed.
        self._epochs: dict[str, str] = {}

    def heartbeats(self) -> Iterator[events_pb2.Heartbeat]:
        """Give a sign of life, in several parts if many sessions moved since the last one."""
        moved = [
            cursor for cursor in self._subscription.cursors() if self._told.get(cursor.session_id) != cursor.after_seq
        ]
        self._told.update((cursor.session_id, cursor.after_seq) for cursor in moved)
        now = timestamp(self._facade.now())
        for start in range(0, max(1, len(moved)), _CURSORS_AT_ONCE):
            cursors = [
                events_pb2.SessionCursor(session_id=cursor.session_id, after_seq=cursor.after_seq, epoch=cursor.epoch)
                for cursor in moved[start : start + _CURSORS_AT_ONCE]
            ]
            yield events_pb2.Heartbeat(time=now, cursors=cursors)

    async def next(self) -> Slice | None:
        """Give what comes next of some session, or None when a heartbeat is due.

        Events do not put it off as in the watch of one session: places that only a filter moved are told nowhere else.
        """
        self._sending = None
        while (left := self._due - time.monotonic()) > 0:
            found = await self._subscription.next(int(left * 1e9))
            if found is not None:
                self._sending = found
                return found
        self._due = time.monotonic() + self._interval
        return None

    def close(self) -> None:
        """Stop to follow."""
        self._epochs = {place.session_id: place.epoch for place in self._subscription.cursors()}
        self._subscription.close()

    def stalled(self, error: Exhausted) -> Exhausted:
        """Give the error of a reader that takes nothing, with a cursor of the session whose events it left.

        To be asked once the watch is closed.
        """
        if self._sending is None:
            return error
        first = events_pb2.EventBatch.FromString(self._sending.wire).events[0]
        return Exhausted(
            error.reason,
            error.message,
            session_id=first.session_id,
            after_seq=str(first.seq - 1),
            epoch=self._epochs.get(first.session_id, ""),
        )


async def send_all(watch: EventsWatch, call: Call) -> None:
    """Send everything that a watch gives, for ever."""
    call.refine = watch.stalled
    try:
        await _send_heartbeats(watch, call)
        while True:
            found = await watch.next()
            if found is None:
                await _send_heartbeats(watch, call)
            else:
                for wire in parts(found):
                    await call.send(wire)
    finally:
        watch.close()


async def _send_heartbeats(watch: EventsWatch, call: Call) -> None:
    for heartbeat in watch.heartbeats():
        # Every answer of a watch has the field numbers of EventBatch.
        await call.send(events_pb2.EventBatch(heartbeat=heartbeat))
