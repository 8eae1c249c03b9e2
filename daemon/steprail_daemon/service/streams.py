"""Streams of events: batches as they were committed, heartbeats in silence, and an end for readers that stall."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Final

from steprail.v1 import events_pb2
from steprail_daemon.core.errors import Exhausted
from steprail_daemon.core.views import SessionView
from steprail_daemon.engine.facade import Caller, Facade, Respondent, Slice, Subscription
from steprail_daemon.service import checks
from steprail_daemon.service.bounds import ID
from steprail_daemon.service.calls import Call
from steprail_daemon.service.fields import timestamp

#: The largest message of events, well under what the API promises.
BATCH_BYTES: Final = 900 * 1024


class Watch:
    """A stream of the events of one session or run."""

    def __init__(
        self, facade: Facade, caller: Caller, session: SessionView, subscription: Subscription, run_id: str = ""
    ) -> None:
        self._facade = facade
        self._caller = caller
        self._session = session
        self._subscription = subscription
        self._run_id = run_id
        self._heartbeat = facade.limits().heartbeat_ns / 1e9
        self._due = time.monotonic() + self._heartbeat
        self._sent_seq = subscription.last_seq

    def heartbeat(self) -> events_pb2.Heartbeat:
        """Give a sign of life."""
        session = self._facade.get_session(self._caller, self._session.session_id)
        state = self._facade.get_run(self._caller, self._run_id).state if self._run_id else 0
        return events_pb2.Heartbeat(
            last_seq=session.last_seq,
            epoch=session.epoch,
            session_state=events_pb2.SessionState.ValueType(session.state),
            run_state=events_pb2.RunState.ValueType(state),
            time=timestamp(self._facade.now()),
        )

    async def next(self) -> Slice | None:
        """Give what comes next, or None when a heartbeat is due.

        What was given counts as sent once the next one is asked for.

        Raises:
            StopAsyncIteration: the run has ended, or the session is closed, and all was given.
        """
        clock = time.monotonic
        subscription = self._subscription
        self._sent_seq = subscription.last_seq
        while True:
            found = await subscription.next(max(0, int((self._due - clock()) * 1e9)))
            now = clock()
            if found is not None or now >= self._due:
                self._due = now + self._heartbeat
                return found

    async def poll(self) -> Slice | None:
        """Give what is there already, or None; see `next`."""
        self._sent_seq = self._subscription.last_seq
        return await self._subscription.next(0)

    def stalled(self, error: Exhausted) -> Exhausted:
        """Give the error of a reader that takes nothing, with the cursor to go on from."""
        return Exhausted(
            error.reason,
            error.message,
            session_id=self._session.session_id,
            after_seq=str(self._sent_seq),
            epoch=self._facade.get_session(self._caller, self._session.session_id).epoch,
        )

    def ask_at_once(self, respondent: Respondent) -> None:
        """See `engine.facade.Subscription.ask_at_once`."""
        self._subscription.ask_at_once(respondent)

    @property
    def cursor(self) -> int:
        """The last event that was given, or passed over."""
        return self._subscription.last_seq

    def close(self) -> None:
        """Stop to follow."""
        self._subscription.close()


async def send_all(watch: Watch, call: Call) -> None:
    """Send everything that a watch gives, in the form that the answers of all watches share."""
    call.refine = watch.stalled
    try:
        await call.send(_heartbeat(watch))
        while True:
            try:
                found = await watch.next()
            except StopAsyncIteration:
                return
            if found is None:
                await call.send(_heartbeat(watch))
            else:
                for wire in parts(found):
                    await call.send(wire)
    finally:
        watch.close()


def _heartbeat(watch: Watch) -> events_pb2.EventBatch:
    # Every answer of a watch has the field numbers of EventBatch.
    return events_pb2.EventBatch(heartbeat=watch.heartbeat())


def parts(found: Slice, wanted: Callable[[int], bool] | None = None) -> Iterator[bytes]:
    """Give the entries of a slice, those of `wanted` kinds or all, in messages under `BATCH_BYTES`."""
    if wanted is None and len(found.wire) <= BATCH_BYTES:
        yield found.wire
        return
    entries: list[bytes] = []
    size = start = 0
    for kind, end in zip(found.kinds, found.ends, strict=True):
        if wanted is None or wanted(kind):
            if size + end - start > BATCH_BYTES and entries:
                yield b"".join(entries)
                entries, size = [], 0
            entries.append(found.wire[start:end])
            size += end - start
        start = end
    if entries:
        yield b"".join(entries)


def check_cursor(after_seq: int, epoch: str, path: str = "") -> None:
    """Check the form of a cursor. `path` is what stands before the names of its fields.

    Raises:
        Invalid: FIELD_INVALID.
    """
    if after_seq < 0:
        raise checks.invalid(f"{path}after_seq", f"is {after_seq}; accepted are 0 and more")
    if after_seq and not epoch:
        raise checks.invalid(f"{path}epoch", "is required where after_seq is set")
    checks.text(f"{path}epoch", epoch, ID)
