"""Brings committed events to those who follow a session: recorded ones first, then live, no gap, no duplicate.

A feed keeps the last batches in memory while somebody follows, as a shortcut; whoever is further behind reads the
journal. So a slow reader costs nobody anything, and nothing is kept for a session that nobody watches.
"""

from __future__ import annotations

import asyncio
from array import array
from collections import deque
from collections.abc import Callable

from steprail_daemon.core.errors import NotFound, OutOfRange, StepRailError
from steprail_daemon.engine.arrivals import Arrivals
from steprail_daemon.engine.facade import Respondent, Slice
from steprail_daemon.engine.ports import DEAF, Observe
from steprail_daemon.engine.refusals import journal_reads
from steprail_daemon.journal.store import Batch, Store

#: Memory that the live tail of one session may take, in bytes of wire form.
TAIL_BYTES = 2 * 1024 * 1024
#: So much of it is kept though everybody who follows has been given it: to look who has been costs something.
GIVEN_TAIL_BYTES = 32 * 1024
#: Wire form that one slice may have. A single batch may exceed it by one event.
SLICE_BYTES = 512 * 1024

_NO_LABELS: dict[str, str] = {}


class Feed:
    """What was committed in one session, for its subscriptions."""

    __slots__ = (
        "_followers",
        "_store",
        "_tail",
        "_tail_bytes",
        "_waiters",
        "arrivals",
        "asked_at_once",
        "closed",
        "deleted",
        "last_seq",
        "observe",
        "session_no",
    )

    def __init__(
        self,
        session_no: int,
        last_seq: int,
        store: Store,
        arrivals: Arrivals,
        *,
        closed: bool,
        observe: Observe = DEAF.observe,
    ) -> None:
        self.session_no = session_no
        self.last_seq = last_seq
        self.closed = closed
        #: Id of the session, once it is deleted.
        self.deleted = ""
        self.observe = observe
        self.arrivals = arrivals
        self._store = store
        self._tail: deque[Batch] = deque()
        self._tail_bytes = 0
        self._followers: set[FeedSubscription] = set()
        self._waiters: set[asyncio.Future[None]] = set()
        #: Those with a respondent.
        self.asked_at_once: list[FeedSubscription] = []

    def publish(self, batch: Batch) -> None:
        """Show a batch that is committed."""
        self.last_seq = batch.last_seq
        if batch.closes_session:
            self.closed = True
        if self._followers and batch.kinds:
            self._trim_tail()
            self._tail.append(batch)
            self._tail_bytes += len(batch.wire)
        self.wake()
        if self.arrivals.followers:
            self.arrivals.bump()

    def _trim_tail(self) -> None:
        """Let go of what everybody has been given, and of what is too much."""
        if self._tail_bytes <= GIVEN_TAIL_BYTES:
            return
        tail = self._tail
        given = min(follower.last_seq for follower in self._followers)
        while tail and (tail[0].last_seq <= given or self._tail_bytes > TAIL_BYTES):
            self._tail_bytes -= len(tail.popleft().wire)

    def close(self) -> None:
        """Let everybody come to an end: nothing more will come."""
        self.closed = True
        self.wake()

    def delete(self, session_id: str) -> None:
        """Let everybody come to an end, and whoever is behind hear that the session is gone."""
        self.deleted = session_id
        self.close()

    def earliest_seq(self) -> int:
        """Give the first event that is kept.

        Raises:
            Unavailable: JOURNAL_UNAVAILABLE.
        """
        with journal_reads():
            return self._store.earliest_seq(self.session_no)

    def missing(self, after_seq: int, epoch: str = "") -> StepRailError:
        """Give the error of a reader for whom what comes after `after_seq` is not there any more, or never was."""
        if self.deleted:
            return NotFound("SESSION_NOT_FOUND", "the session was deleted", session_id=self.deleted)
        earliest, current = self.earliest_seq(), self._store.epoch
        return OutOfRange(
            "CURSOR_INVALID",
            f"after_seq {after_seq} of epoch {epoch or current!r} is no place in this session: epoch {current!r},"
            f" events {earliest} to {self.last_seq}",
            earliest_seq=str(earliest),
            last_seq=str(self.last_seq),
            epoch=current,
        )

    def respondents(self, run_no: int) -> list[Respondent]:
        """Give those who can be asked about a run at once."""
        last_seq = self.last_seq
        return [
            respondent
            for subscription in self.asked_at_once
            if (respondent := subscription.respondent(run_no, last_seq)) is not None and respondent.can_be_asked()
        ]

    def wake(self) -> None:
        """Let everybody who waits look again."""
        waiters = self._waiters
        if waiters:
            self._waiters = set()
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    async def wait(self, timeout_ns: int) -> None:
        """Wait until something is published, at most so long."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        self._waiters.add(waiter)
        timer = loop.call_later(timeout_ns / 1e9, _release, waiter)
        try:
            await waiter
        finally:
            timer.cancel()
            self._waiters.discard(waiter)

    def follow(self, follower: FeedSubscription) -> None:
        """Take in somebody who follows."""
        self._followers.add(follower)
        self.observe("watchers", 1, _NO_LABELS)

    def unfollow(self, follower: FeedSubscription) -> None:
        """Let go of somebody; the tail goes with the last one."""
        self._followers.discard(follower)
        self.observe("watchers", -1, _NO_LABELS)
        if not self._followers:
            self._tail.clear()
            self._tail_bytes = 0

    def after(self, seq: int) -> list[Batch]:
        """Give batches that hold what comes after `seq`, about `SLICE_BYTES` of them; the first may begin before.

        Raises:
            Unavailable: JOURNAL_UNAVAILABLE.
        """
        tail = self._tail
        if not tail or tail[0].first_seq > seq + 1:
            with journal_reads():
                return self._store.read(self.session_no, seq, SLICE_BYTES)
        found: list[Batch] = []
        size = 0
        for batch in reversed(tail):
            if batch.last_seq <= seq:
                break
            found.append(batch)
        found.reverse()
        for count, batch in enumerate(found):
            size += len(batch.wire)
            if size > SLICE_BYTES and count:
                return found[:count]
        return found


def _release(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


class FeedSubscription:
    """One who follows a feed from a cursor; see `engine.facade.Subscription`."""

    __slots__ = ("_closed", "_end_seq", "_feed", "_respondent", "_run_no", "_seq")

    def __init__(self, feed: Feed, after_seq: int, run_no: int | None, end_seq: Callable[[], int | None]) -> None:
        self._feed = feed
        self._seq = after_seq
        self._run_no = run_no
        self._end_seq = end_seq
        self._closed = False
        self._respondent: Respondent | None = None
        feed.follow(self)

    @classmethod
    def of_session(cls, feed: Feed, after_seq: int) -> FeedSubscription:
        """Follow a whole session, to its end."""
        return cls(feed, after_seq, None, lambda: feed.last_seq if feed.closed else None)

    @property
    def last_seq(self) -> int:
        """Cursor: the last event given or passed over."""
        return self._seq

    @property
    def deleted(self) -> bool:
        """Whether the session is gone."""
        return bool(self._feed.deleted)

    async def next(self, timeout_ns: int) -> Slice | None:
        """Give what comes next; see `engine.facade.Subscription.next`."""
        found = self.take()
        if found is not None:
            return found
        if self.ended:
            raise StopAsyncIteration
        await self._feed.wait(timeout_ns)
        return self.take()

    def ask_at_once(self, respondent: Respondent) -> None:
        """See `engine.facade.Subscription.ask_at_once`."""
        self._respondent = respondent
        self._feed.asked_at_once.append(self)

    def respondent(self, run_no: int, last_seq: int) -> Respondent | None:
        """Give who is asked, unless it is about another run, or something before `last_seq` is still to be given."""
        return self._respondent if self._seq == last_seq and self._run_no in (None, run_no) else None

    def close(self) -> None:
        """Stop to follow. Harmless when done twice."""
        if not self._closed:
            self._closed = True
            if self._respondent is not None:
                self._feed.asked_at_once.remove(self)
            self._feed.unfollow(self)

    @property
    def ended(self) -> bool:
        """Whether all was given, and nothing more will come."""
        end = self._end_seq()
        return end is not None and self._seq >= end

    def take(self) -> Slice | None:
        """Give what is there, without waiting; None if nothing is.

        Raises:
            OutOfRange: CURSOR_INVALID, what comes next was removed.
            NotFound: SESSION_NOT_FOUND, with its session.
        """
        while self._seq < self._feed.last_seq and not self.ended:
            batches = self._feed.after(self._seq)
            if not batches or batches[0].first_seq > self._seq + 1:
                # Retention was faster than this reader.
                raise self._feed.missing(self._seq)
            after = self._seq
            self._seq = batches[-1].last_seq
            if self._run_no is not None:
                batches = [batch for batch in batches if batch.run_no == self._run_no]
            if batches:
                self._feed.observe("watcher_lag_events", self._feed.last_seq - self._seq, _NO_LABELS)
                return _slice(batches, after, self._seq)
        return None


def _slice(batches: list[Batch], after: int, last_seq: int) -> Slice:
    if batches[0].first_seq <= after:
        batches = [_cut(batches[0], after), *batches[1:]]
    if len(batches) == 1:
        only = batches[0]
        return Slice(only.wire, only.kinds, lambda: tuple(array("I", only.ends)), last_seq)
    wire = b"".join([batch.wire for batch in batches])
    kinds = b"".join([batch.kinds for batch in batches])
    return Slice(wire, kinds, lambda: _ends(batches), last_seq)


def _cut(batch: Batch, after: int) -> Batch:
    ends = array("I", batch.ends)
    drop = after - batch.first_seq + 1
    start = ends[drop - 1]
    return Batch(
        session_no=batch.session_no,
        run_no=batch.run_no,
        first_seq=after + 1,
        last_seq=batch.last_seq,
        at=batch.at,
        kinds=batch.kinds[drop:],
        ends=array("I", [end - start for end in ends[drop:]]).tobytes(),
        wire=batch.wire[start:],
    )


def _ends(batches: list[Batch]) -> tuple[int, ...]:
    ends: list[int] = []
    base = 0
    for batch in batches:
        ends.extend(base + end for end in array("I", batch.ends))
        base += len(batch.wire)
    return tuple(ends)
