"""Many sessions in one stream: each in its order, taking turns, and new ones as they come."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import anyio.lowlevel

from steprail_daemon.core.errors import NotFound, OutOfRange
from steprail_daemon.engine.arrivals import Arrivals
from steprail_daemon.engine.broker import FeedSubscription
from steprail_daemon.engine.facade import Cursor, Slice
from steprail_daemon.engine.runner import SessionRunner


class FanIn:
    """Follows all sessions of a selection; see `engine.facade.EventsSubscription`.

    `select` gives the sessions that are wanted now, `places` where to begin in those that the caller knows. Sessions
    that are there when it is made and have no place are followed from now on, those that come later from their
    beginning.
    """

    def __init__(
        self,
        epoch: str,
        select: Callable[[], list[SessionRunner]],
        places: dict[str, int],
        kinds: frozenset[int],
        arrivals: Arrivals,
    ) -> None:
        self._epoch = epoch
        self._select = select
        self._kinds = kinds
        self._arrivals = arrivals
        self._followed: dict[str, FeedSubscription] = {}
        self._order: list[str] = []
        #: Whether the last look found something of which the filter left nothing.
        self._passed_over = False
        self._closed = False
        arrivals.followers += 1
        for runner in select():
            self._follow(runner, places.get(runner.view.session_id, runner.feed.last_seq))

    def _follow(self, runner: SessionRunner, after_seq: int) -> None:
        self._followed[runner.view.session_id] = FeedSubscription.of_session(runner.feed, after_seq)
        self._order.append(runner.view.session_id)

    async def next(self, timeout_ns: int) -> Slice | None:
        """Give what comes next of some session; None if nothing came in time."""
        arrivals = self._arrivals
        deadline = asyncio.get_running_loop().time() + timeout_ns / 1e9
        while True:
            seen = arrivals.count
            found = self._take()
            if found is not None:
                return found
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0:
                return None
            if self._passed_over:
                # More may be there already, and nothing need arrive for it.
                await anyio.lowlevel.checkpoint()
            elif not await arrivals.wait(seen, left):
                return self._take()

    def _take(self) -> Slice | None:
        self._passed_over = False
        for runner in self._select():
            if runner.view.session_id not in self._followed:
                self._follow(runner, runner.feed.earliest_seq() - 1)
        for session_id in list(self._order):
            subscription = self._followed[session_id]
            found = _next_of(session_id, subscription)
            if found is None and subscription.deleted:
                self._forget(session_id)
                continue
            if found is not None and self._kinds:
                found = found.only(self._kinds)
                self._passed_over = self._passed_over or found is None
            if subscription.ended:
                # Its place is still told; it need not be looked at again.
                subscription.close()
                self._order.remove(session_id)
            elif found is not None:
                # Whoever had a turn comes last next time.
                self._order.remove(session_id)
                self._order.append(session_id)
            if found is not None:
                return found
        return None

    def _forget(self, session_id: str) -> None:
        self._followed.pop(session_id).close()
        self._order.remove(session_id)

    def cursors(self) -> list[Cursor]:
        """Give the place in each session that is followed."""
        return [Cursor(session_id, one.last_seq, self._epoch) for session_id, one in self._followed.items()]

    def close(self) -> None:
        """Stop to follow. Harmless when done twice."""
        if self._closed:
            return
        self._closed = True
        self._arrivals.followers -= 1
        for subscription in self._followed.values():
            subscription.close()
        self._followed.clear()
        self._order.clear()


def of_session(error: OutOfRange, session_id: str) -> OutOfRange:
    """Give the error of a cursor among several with its session."""
    told = OutOfRange(error.reason, f"session {session_id}: {error.message}", session_id=session_id)
    told.metadata.update(error.metadata)
    return told


def _next_of(session_id: str, subscription: FeedSubscription) -> Slice | None:
    """Take what comes next of one session; nothing of one that was deleted before all of it was given."""
    try:
        return subscription.take()
    except NotFound:
        return None
    except OutOfRange as error:
        raise of_session(error, session_id) from None
