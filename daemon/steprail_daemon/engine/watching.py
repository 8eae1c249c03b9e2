"""Following sessions and runs, and reading what is too large for events."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio.lowlevel

from steprail_daemon.core.errors import Invalid, NotFound, OutOfRange
from steprail_daemon.engine.broker import FeedSubscription
from steprail_daemon.engine.facade import Caller, Cursor, EventFilter, EventsSubscription, Subscription
from steprail_daemon.engine.fan_in import FanIn, of_session
from steprail_daemon.engine.refusals import journal_reads
from steprail_daemon.engine.registry import Registry
from steprail_daemon.engine.runner import SessionRunner

_BLOB_PART = 256 * 1024


class Watching(Registry):
    """Streams; see `engine.facade.Facade`."""

    def watch_run(self, caller: Caller, run_id: str, after_seq: int, epoch: str) -> Subscription:
        """See `Facade`."""
        runner = self._runner_of_run(caller, run_id)
        place = runner.places[run_id]
        earliest = self._check_cursor(runner, after_seq, epoch)
        if place.last_seq is not None and place.last_seq < earliest:
            # An empty stream would look like a run without events.
            raise runner.feed.missing(after_seq, epoch)
        start = max(after_seq, place.first_seq - 1, earliest - 1)
        return FeedSubscription(runner.feed, start, place.run_no, lambda: place.last_seq)

    def watch_session(self, caller: Caller, session_id: str, after_seq: int, epoch: str) -> Subscription:
        """See `Facade`."""
        runner = self._runner(caller, session_id)
        earliest = self._check_cursor(runner, after_seq, epoch)
        return FeedSubscription.of_session(runner.feed, max(after_seq, earliest - 1))

    def watch_events(self, caller: Caller, cursors: list[Cursor], wanted: EventFilter) -> EventsSubscription:
        """See `Facade`."""
        places: dict[str, int] = {}
        for cursor in cursors:
            runner = self._runner(caller, cursor.session_id)
            try:
                earliest = self._check_cursor(runner, cursor.after_seq, cursor.epoch)
            except OutOfRange as error:
                raise of_session(error, cursor.session_id) from None
            places[cursor.session_id] = max(cursor.after_seq, earliest - 1)
        return FanIn(
            self._world.store.epoch,
            lambda: self._wanted(caller, wanted),
            places,
            wanted.kinds,
            self._world.arrivals,
        )

    def _wanted(self, caller: Caller, wanted: EventFilter) -> list[SessionRunner]:
        """Give the sessions whose events a caller sees and wants."""
        return [
            runner
            for runner in self._visible(caller)
            if (not wanted.agents or runner.view.agent in wanted.agents)
            and wanted.labels.items() <= runner.view.labels.items()
        ]

    def _check_cursor(self, runner: SessionRunner, after_seq: int, epoch: str) -> int:
        """See that a cursor can be gone on from; gives the first event that is kept. 0 is from there on."""
        current, earliest = self._world.store.epoch, runner.feed.earliest_seq()
        if after_seq == 0 and epoch in ("", current):
            return earliest
        if epoch == current and earliest - 1 <= after_seq <= runner.view.last_seq:
            return earliest
        raise runner.feed.missing(after_seq, epoch)

    def _require_blob(self, caller: Caller, blob_id: str) -> None:
        """See that a session which the caller sees has the blob; contents that are equal are one blob."""
        with journal_reads():
            sessions = self._world.store.blob_sessions(blob_id)
        if not any(runner.session_no in sessions for runner in self._visible(caller)):
            raise _no_blob(blob_id)

    async def read_blob(self, caller: Caller, blob_id: str, offset: int) -> AsyncIterator[tuple[bytes, int, int, str]]:
        """See `Facade`."""
        self._require_blob(caller, blob_id)
        while True:
            with journal_reads():
                part = self._world.store.read_blob(blob_id, offset, _BLOB_PART)
            if part is None:
                raise _no_blob(blob_id)
            data, size, mime_type = part
            if not 0 <= offset <= size:
                raise Invalid("FIELD_INVALID", f"offset must be between 0 and {size}, not {offset}", field="offset")
            yield data, offset, size, mime_type
            offset += len(data)
            if offset >= size or not data:
                return
            await anyio.lowlevel.checkpoint()


def _no_blob(blob_id: str) -> NotFound:
    return NotFound("BLOB_NOT_FOUND", f"there is no blob {blob_id!r}", blob_id=blob_id)
