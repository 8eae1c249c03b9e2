"""Subscriptions see every event once and in order, from any cursor, live or recorded."""

from __future__ import annotations

from array import array

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steprail_daemon.core.model import PendingDecision
from steprail_daemon.engine.arrivals import Arrivals
from steprail_daemon.engine.broker import GIVEN_TAIL_BYTES, SLICE_BYTES, TAIL_BYTES, Feed, FeedSubscription
from steprail_daemon.journal.memory import MemoryStore
from steprail_daemon.journal.store import Batch

WAIT_NS = 50_000_000


class Author:
    """Writes batches of numbered entries: event n is the text `n;`, so that what arrives can be read."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.feed = Feed(1, 0, self.store, Arrivals(), closed=False)
        self.run_ends: dict[int, int] = {}
        self._opened: set[int] = set()

    def write(self, count: int, run_no: int = 0, size: int = 1, *, ends_run: bool = False) -> None:
        """Commit and publish a batch of `count` events."""
        first = self.feed.last_seq + 1
        entries = [f"{seq:>{size}};".encode() for seq in range(first, first + count)]
        ends = array("I")
        total = 0
        for entry in entries:
            total += len(entry)
            ends.append(total)
        batch = Batch(
            session_no=1,
            run_no=run_no,
            first_seq=first,
            last_seq=first + count - 1,
            at=1,
            kinds=bytes([10]) * count,
            ends=ends.tobytes(),
            wire=b"".join(entries),
            records=b"" if count else b"r",
            opens_session="ses_1" if first == 1 and not self._opened and not self.feed.last_seq else "",
            opens_run=f"run_{run_no}" if run_no and run_no not in self._opened else "",
            ends_run=ends_run,
        )
        self._opened.add(run_no)
        if ends_run:
            self.run_ends[run_no] = batch.last_seq
        self.store.append(batch)
        self.feed.publish(batch)

    def follow(self, after: int, run_no: int | None = None) -> FeedSubscription:
        """Follow the session, or one run of it."""
        return FeedSubscription(self.feed, after, run_no, lambda: None if run_no is None else self.run_ends.get(run_no))


async def read(subscription: FeedSubscription) -> list[int]:
    """Give the numbers of everything that is there now."""
    seen: list[int] = []
    try:
        while (part := await subscription.next(1_000_000)) is not None:
            assert len(part.ends) == len(part.kinds)
            assert not part.ends or part.ends[-1] == len(part.wire)
            seen += [int(text) for text in part.wire.split(b";")[:-1]]
    except StopAsyncIteration:
        pass
    return seen


@given(
    counts=st.lists(st.integers(1, 7), min_size=1, max_size=12),
    start=st.integers(0, 40),
    join=st.integers(0, 11),
    reads=st.sets(st.integers(0, 11)),
)
def test_whoever_joins_wherever_sees_each_event_after_the_cursor_once_in_order(
    counts: list[int], start: int, join: int, reads: set[int]
) -> None:
    async def play() -> None:
        author = Author()
        author.write(1)
        subscription: FeedSubscription | None = None
        seen: list[int] = []
        cursor = 0
        for step, count in enumerate(counts):
            if step == min(join, len(counts) - 1):
                cursor = min(start, author.feed.last_seq)
                subscription = author.follow(cursor)
            author.write(count)
            if subscription is not None and step in reads:
                seen += await read(subscription)
        assert subscription is not None
        seen += await read(subscription)
        assert seen == list(range(cursor + 1, author.feed.last_seq + 1))

    anyio.run(play)


@pytest.mark.anyio
async def test_a_reader_that_fell_behind_the_tail_is_served_from_the_store() -> None:
    author = Author()
    author.write(1)
    reader = author.follow(1)
    size = 64 * 1024
    for _ in range(2 * TAIL_BYTES // size):
        author.write(1, size=size)
    assert await read(reader) == list(range(2, author.feed.last_seq + 1))


@pytest.mark.anyio
async def test_a_slice_is_bounded() -> None:
    author = Author()
    author.write(1)
    reader = author.follow(0)
    for _ in range(40):
        author.write(4, size=16 * 1024)
    part = await reader.next(WAIT_NS)
    assert part is not None
    assert len(part.wire) <= SLICE_BYTES + 4 * 16 * 1024 + 8


@pytest.mark.anyio
async def test_a_reader_of_a_run_sees_only_it_and_ends_with_it_also_when_late() -> None:
    author = Author()
    author.write(1)
    author.write(2, run_no=1)
    author.write(1)
    author.write(2, run_no=1, ends_run=True)
    author.write(3)
    reader = author.follow(1, run_no=1)
    assert await read(reader) == [2, 3, 5, 6]
    with pytest.raises(StopAsyncIteration):
        await reader.next(WAIT_NS)


@pytest.mark.anyio
async def test_a_batch_without_events_wakes_nobody_up_for_nothing() -> None:
    author = Author()
    author.write(1)
    reader = author.follow(1)
    author.write(0)
    assert await reader.next(1_000_000) is None
    author.write(1)
    assert await read(reader) == [2]


@pytest.mark.anyio
async def test_nothing_is_kept_for_a_session_that_nobody_follows() -> None:
    author = Author()
    author.write(1)
    reader = author.follow(1)
    author.write(1)
    assert len(author.feed._tail) == 1
    reader.close()
    reader.close()
    author.write(1)
    assert not author.feed._tail


@pytest.mark.anyio
async def test_what_everybody_has_been_given_is_not_kept_in_memory() -> None:
    author = Author()
    author.write(1)
    ahead, behind = author.follow(1), author.follow(1)
    size = 16 * 1024
    for _ in range(TAIL_BYTES // size):
        author.write(1, size=size)
        await read(ahead)
    assert author.feed._tail_bytes > TAIL_BYTES // 2
    assert await read(behind) == list(range(2, author.feed.last_seq + 1))
    author.write(1, size=size)
    assert author.feed._tail_bytes <= GIVEN_TAIL_BYTES + size
    assert await read(ahead) == await read(behind) == [author.feed.last_seq]


@pytest.mark.anyio
async def test_a_waiting_reader_is_woken_by_the_next_event() -> None:
    author = Author()
    author.write(1)
    reader = author.follow(1)
    got: list[bytes] = []
    async with anyio.create_task_group() as tasks:

        async def wait() -> None:
            part = await reader.next(5_000_000_000)
            assert part is not None
            got.append(part.wire)

        tasks.start_soon(wait)
        await anyio.lowlevel.checkpoint()
        author.write(1)
    assert got == [b"2;"]


class Free:
    """One who can always be asked."""

    def can_be_asked(self) -> bool:
        return True

    def ask(self, pending: PendingDecision, step: bytes) -> None:
        raise AssertionError(f"nobody asks about {pending} here: {step!r}")


@pytest.mark.anyio
async def test_who_is_asked_at_once_has_been_given_everything_of_this_run_and_has_not_left() -> None:
    author = Author()
    author.write(1, run_no=1)
    author.follow(0).ask_at_once(Free())
    reader, free = author.follow(0, run_no=1), Free()
    reader.ask_at_once(free)
    assert author.feed.respondents(1) == []
    await read(reader)
    assert author.feed.respondents(1) == [free]
    assert author.feed.respondents(2) == []
    author.write(1, run_no=1)
    assert author.feed.respondents(1) == []
    await read(reader)
    reader.close()
    assert author.feed.respondents(1) == []
