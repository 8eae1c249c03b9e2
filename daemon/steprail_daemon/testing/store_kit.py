"""Conformance kit of stores: what every `Store` must do, as checks that a test runs over each of them.

    @pytest.mark.parametrize("check", CHECKS)
    def test_the_store_conforms(check, make_store): check(make_store)

A check takes a function that makes an empty store and raises AssertionError if the store does otherwise than
`journal.store` says. `store_model.py` beside this file judges random histories.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable
from itertools import accumulate

from steprail_daemon.journal.framing import frame
from steprail_daemon.journal.store import (
    Batch,
    BatchRefused,
    Blob,
    JournalError,
    RequestRow,
    RunRow,
    SessionRow,
    Store,
)

MakeStore = Callable[[], Store]
Check = Callable[[MakeStore], None]

CHECKS: list[Check] = []
"""Every check of this file."""


def _check(function: Check) -> Check:
    CHECKS.append(function)
    return function


def make_batch(
    session_no: int,
    first_seq: int,
    events: tuple[bytes, ...] = (),
    *,
    run_no: int = 0,
    records: bytes = b"",
    opens_session: str = "",
    opens_run: str = "",
    ends_run: bool = False,
    closes_session: bool = False,
    blobs: tuple[Blob, ...] = (),
    request: RequestRow | None = None,
    at: int | None = None,
) -> Batch:
    """Make a well-formed batch; the kind of an event is 1 more than its length, up to 255."""
    entries = [frame(event) for event in events]
    return Batch(
        session_no=session_no,
        run_no=run_no,
        first_seq=first_seq,
        last_seq=first_seq + len(entries) - 1,
        at=1_700_000_000_000_000_000 + first_seq if at is None else at,
        kinds=bytes(min(len(event) + 1, 255) for event in events),
        ends=array("I", accumulate(map(len, entries))).tobytes(),
        wire=b"".join(entries),
        records=records,
        opens_session=opens_session,
        opens_run=opens_run,
        ends_run=ends_run,
        closes_session=closes_session,
        blobs=blobs,
        request=request,
    )


def make_request(
    request_id: str, *, caller: str = "me", tenant: str = "team", at: int = 1, result: str = "r"
) -> RequestRow:
    """Make a request that was carried out."""
    return RequestRow(
        tenant=tenant, caller=caller, request_id=request_id, method="Start", digest=b"body", result=result, at=at
    )


def make_blob(data: bytes, mime_type: str = "text/plain") -> Blob:
    """Make a blob with the right id."""
    return Blob(f"sha256-{hashlib.sha256(data).hexdigest()}", mime_type, data)


def as_read(batch: Batch) -> Batch:
    """Give a batch as `read` gives it: events alone."""
    return Batch(
        session_no=batch.session_no,
        run_no=batch.run_no,
        first_seq=batch.first_seq,
        last_seq=batch.last_seq,
        at=batch.at,
        kinds=batch.kinds,
        ends=batch.ends,
        wire=batch.wire,
    )


def refused(store: Store, batch: Batch) -> str:
    """Append a batch that must be refused as the caller's fault; give the message."""
    try:
        store.append(batch)
    except BatchRefused as error:
        return error.message
    raise AssertionError(f"the store took {batch}")


def _filled(make: MakeStore) -> tuple[Store, list[Batch]]:
    """Make a store with a session of four batches: 1 to 3, records alone, 4 and 5, 6."""
    store = make()
    batches = [
        make_batch(1, 1, (b"one", b"two", b""), opens_session="ses_a"),
        make_batch(1, 4, records=b"alone"),
        make_batch(1, 4, (b"four", b"x" * 300), run_no=1, opens_run="run_a", records=b"opened"),
        make_batch(1, 6, (b"six",), run_no=1),
    ]
    for batch in batches:
        store.append(batch)
    return store, batches


@_check
def it_gives_back_what_was_appended(make: MakeStore) -> None:
    """Whole batches, in their order, without those that have no events."""
    store, batches = _filled(make)
    wanted = [as_read(batches[0]), as_read(batches[2]), as_read(batches[3])]
    assert store.read(1, 0, 1 << 20) == wanted


@_check
def a_cursor_inside_a_batch_gives_that_batch(make: MakeStore) -> None:
    """For every cursor the first batch is the one that holds the next event; behind the end there is none."""
    store, _ = _filled(make)
    firsts = [[batch.first_seq for batch in store.read(1, after, 1)] for after in range(8)]
    assert firsts == [[1], [1], [1], [4], [4], [6], [], []]


@_check
def a_read_ends_with_the_batch_that_reaches_the_limit(make: MakeStore) -> None:
    """At least one batch, none begun after `max_bytes`."""
    store, batches = _filled(make)
    first = len(batches[0].wire)
    assert len(store.read(1, 0, 0)) == 1
    assert len(store.read(1, 0, first)) == 1
    assert len(store.read(1, 0, first + 1)) == 2


@_check
def an_unknown_session_is_empty(make: MakeStore) -> None:
    """Reading it is no error."""
    store = make()
    assert store.read(7, 0, 1000) == []
    assert list(store.records(7)) == []
    assert store.runs(7) == []
    assert store.unpublished(7) == []
    assert store.earliest_seq(7) == 1
    assert store.session("ses_none") is None
    assert store.run("run_none") is None
    assert list(store.sessions()) == []


@_check
def records_come_with_their_run_in_order(make: MakeStore) -> None:
    """Those of batches without events included."""
    store, _ = _filled(make)
    assert list(store.records(1)) == [(0, b"alone"), (1, b"opened")]


@_check
def facts_are_found_whose_events_were_not_committed(make: MakeStore) -> None:
    """Those after the last batch with events, whatever run they are of; events, and nothing else, publish them."""
    store, _ = _filled(make)
    assert store.unpublished(1) == []
    facts = [
        make_batch(1, 7, run_no=1, records=b"step"),
        make_batch(1, 7, records=b"none"),
        make_batch(1, 7, records=b""),
    ]
    for batch in facts[:2]:
        store.append(batch)
    refused(store, facts[2])
    wanted = [(1, facts[0].at, b"step"), (0, facts[1].at, b"none")]
    assert store.unpublished(1) == wanted
    assert list(store.records(1))[-2:] == [(1, b"step"), (0, b"none")]
    assert store.session("ses_a") == SessionRow(1, "ses_a", 6, 1, closed=False)
    assert [batch.first_seq for batch in store.read(1, 0, 1 << 20)] == [1, 4, 6]
    store.append(make_batch(2, 1, records=b"made", opens_session="ses_b"))
    assert [records for _, _, records in store.unpublished(2)] == [b"made"]
    assert store.unpublished(1) == wanted
    store.append(make_batch(1, 7, (b"seven",), run_no=1))
    assert store.unpublished(1) == []
    store.append(make_batch(1, 8, run_no=1, records=b"end", ends_run=True))
    store.append(make_batch(1, 8, records=b"bye", closes_session=True))
    assert [(run_no, records) for run_no, _, records in store.unpublished(1)] == [(1, b"end"), (0, b"bye")]


@_check
def many_records_and_sessions_come_whole(make: MakeStore) -> None:
    """More than a store would fetch at once."""
    store = make()
    for number in range(1, 301):
        store.append(make_batch(number, 1, (b"e",), opens_session=f"ses_{number}"))
    wanted = []
    for seq in range(2, 702):
        store.append(make_batch(300, seq, (b"e",), records=b"%d" % seq))
        wanted.append((0, b"%d" % seq))
    assert list(store.records(300)) == wanted
    assert [row.session_no for row in store.sessions()] == list(range(1, 301))


@_check
def an_iteration_does_not_hold_up_appends(make: MakeStore) -> None:
    """A begun iteration goes on over appends."""
    store, _ = _filled(make)
    records, sessions = store.records(1), store.sessions()
    assert next(records) == (0, b"alone")
    assert next(sessions).session_no == 1
    store.append(make_batch(1, 7, (b"seven",), run_no=1))
    assert list(records) == [(1, b"opened")]


@_check
def sessions_and_runs_are_found(make: MakeStore) -> None:
    """By number and by public id, open and ended."""
    store, _ = _filled(make)
    assert store.session("ses_a") == SessionRow(1, "ses_a", 6, 1, closed=False)
    assert store.runs(1) == [RunRow("run_a", 1, 1, 4, None)]
    store.append(make_batch(1, 7, (b"end",), run_no=1, ends_run=True))
    store.append(make_batch(1, 8, (b"r2", b"r2"), run_no=2, opens_run="run_b", ends_run=True))
    store.append(make_batch(1, 10, (b"bye",), closes_session=True))
    store.append(make_batch(2, 1, (b"e",), opens_session="ses_b"))
    assert store.run("run_a") == RunRow("run_a", 1, 1, 4, 7)
    assert store.runs(1) == [RunRow("run_a", 1, 1, 4, 7), RunRow("run_b", 1, 2, 8, 9)]
    rows = [SessionRow(1, "ses_a", 10, 2, closed=True), SessionRow(2, "ses_b", 1, 0, closed=False)]
    assert list(store.sessions()) == rows
    assert store.session("ses_b") == rows[1]


@_check
def sessions_do_not_see_each_other(make: MakeStore) -> None:
    """Not even those whose numbers share a place in the store."""
    store = make()
    numbers = [1, 2, 65, 129]
    for number in numbers:
        store.append(make_batch(number, 1, (b"%d" % number,), opens_session=f"ses_{number}"))
    for number in reversed(numbers):
        store.append(make_batch(number, 2, (b"again",)))
    for number in numbers:
        batches = store.read(number, 0, 1 << 20)
        assert [batch.first_seq for batch in batches] == [1, 2]
        assert batches[0].wire == frame(b"%d" % number)


@_check
def a_gap_and_a_repetition_are_refused(make: MakeStore) -> None:
    """And the batch that was right is still taken."""
    store, _ = _filled(make)
    for first_seq in (6, 8, 1, 0):
        assert "first_seq" in refused(store, make_batch(1, first_seq, (b"e",), run_no=1))
    store.append(make_batch(1, 7, (b"e",), run_no=1))
    assert store.session("ses_a") == SessionRow(1, "ses_a", 7, 1, closed=False)


@_check
def a_malformed_batch_is_refused_with_the_field(make: MakeStore) -> None:
    """What does not fit together would break every reader."""
    for field, value in (
        ("kinds", b"\x01"),
        ("ends", b""),
        ("ends", b"\x01\x00\x00\x00\x02\x00\x00\x00"),
        ("wire", b"\x0a\x00"),
        ("last_seq", 9),
        ("last_seq", 5),
        ("run_no", 2),
    ):
        store, _ = _filled(make)
        batch = make_batch(1, 7, (b"a", b"b"), run_no=1)
        setattr(batch, field, value)
        message = refused(store, batch)
        # A wrong last_seq is told by what it does not fit.
        assert field in message or (field == "last_seq" and "kinds" in message) or "wire" in message, message
        store.append(make_batch(1, 7, (b"a", b"b"), run_no=1))


@_check
def malformed_facts_are_refused_with_the_field(make: MakeStore) -> None:
    """Something of an event in a batch without events, a wrong place, a run that is not open."""
    for field, value in (
        ("kinds", b"\x01"),
        ("ends", b"\x00\x00\x00\x00"),
        ("wire", b"\x0a\x00"),
        ("last_seq", 5),
        ("last_seq", 7),
        ("first_seq", 6),
        ("run_no", 2),
    ):
        store, _ = _filled(make)
        batch = make_batch(1, 7, run_no=1, records=b"step")
        setattr(batch, field, value)
        message = refused(store, batch)
        assert field in message or (field == "last_seq" and "kinds" in message), message
        assert store.unpublished(1) == []
        store.append(make_batch(1, 7, run_no=1, records=b"step"))


@_check
def a_failure_to_write_is_not_told_as_a_fault_of_the_batch(make: MakeStore) -> None:
    """Whoever gives a batch again must know which of the two it was."""
    store, _ = _filled(make)
    store.close()
    errors: list[type[JournalError]] = []
    for batch in (make_batch(1, 7, (b"e",), run_no=1), make_batch(1, 7, run_no=1, records=b"step")):
        try:
            store.append(batch)
        except JournalError as error:
            errors.append(type(error))
    assert errors == [JournalError, JournalError]


@_check
def a_batch_with_nothing_in_it_is_refused(make: MakeStore) -> None:
    """Neither events nor records."""
    store, _ = _filled(make)
    assert "neither events nor records" in refused(store, make_batch(1, 7, run_no=1))


@_check
def a_session_must_be_opened_once(make: MakeStore) -> None:
    """By its first batch, with a number and an id that are new."""
    store, _ = _filled(make)
    refused(store, make_batch(2, 1, (b"e",)))
    refused(store, make_batch(0, 1, (b"e",), opens_session="ses_b"))
    refused(store, make_batch(2, 2, (b"e",), opens_session="ses_b"))
    refused(store, make_batch(1, 7, (b"e",), opens_session="ses_b"))
    refused(store, make_batch(1, 1, (b"e",), opens_session="ses_b"))
    refused(store, make_batch(2, 1, (b"e",), opens_session="ses_a"))
    assert store.session("ses_b") is None
    store.append(make_batch(2, 1, (b"e",), opens_session="ses_b"))
    store.append(make_batch(1, 7, (b"e",), run_no=1))


@_check
def a_run_must_be_opened_once_and_ended_once(make: MakeStore) -> None:
    """And takes nothing after its end."""
    store, _ = _filled(make)
    refused(store, make_batch(1, 7, (b"e",), run_no=2))
    refused(store, make_batch(1, 7, (b"e",), run_no=1, opens_run="run_b"))
    refused(store, make_batch(1, 7, (b"e",), run_no=2, opens_run="run_a"))
    refused(store, make_batch(1, 7, (b"e",), ends_run=True))
    store.append(make_batch(1, 7, (b"e",), run_no=1, ends_run=True))
    refused(store, make_batch(1, 8, (b"e",), run_no=1))
    refused(store, make_batch(1, 8, run_no=1, records=b"r"))
    refused(store, make_batch(1, 8, (b"e",), run_no=1, ends_run=True))
    assert store.runs(1) == [RunRow("run_a", 1, 1, 4, 7)]


@_check
def a_closed_session_takes_nothing(make: MakeStore) -> None:
    """And is not closed over an open run."""
    store, _ = _filled(make)
    refused(store, make_batch(1, 7, (b"e",), closes_session=True))
    refused(store, make_batch(1, 7, (b"e",), run_no=2, opens_run="run_b", closes_session=True))
    store.append(make_batch(1, 7, (b"e",), run_no=1, ends_run=True, closes_session=True))
    assert "closed" in refused(store, make_batch(1, 8, (b"e",)))
    assert store.session("ses_a") == SessionRow(1, "ses_a", 7, 1, closed=True)


@_check
def batches_without_events_have_a_limit_that_an_event_lifts(make: MakeStore) -> None:
    """The limit is said, and the session goes on."""
    store = make()
    store.append(make_batch(1, 1, records=b"0", opens_session="ses_a"))
    for number in range(1, 255):
        store.append(make_batch(1, 1, records=b"%d" % number))
    assert "no events" in refused(store, make_batch(1, 1, records=b"255"))
    store.append(make_batch(1, 1, (b"e",)))
    store.append(make_batch(1, 2, records=b"255"))
    assert [records for _, records in store.records(1)] == [b"%d" % number for number in range(256)]
    assert [batch.first_seq for batch in store.read(1, 0, 1 << 20)] == [1]
    assert store.earliest_seq(1) == 1


@_check
def a_blob_is_read_in_parts(make: MakeStore) -> None:
    """With the size of the whole; behind its end there is nothing."""
    store, _ = _filled(make)
    blob = make_blob(bytes(range(256)) * 500, "image/png")
    store.append(make_batch(1, 7, (b"e",), run_no=1, blobs=(blob,)))
    size = len(blob.data)
    assert store.read_blob(blob.blob_id, 0, size) == (blob.data, size, "image/png")
    assert store.read_blob(blob.blob_id, 1000, 70_000) == (blob.data[1000:71_000], size, "image/png")
    assert store.read_blob(blob.blob_id, size - 1, 10) == (blob.data[-1:], size, "image/png")
    assert store.read_blob(blob.blob_id, size + 5, 10) == (b"", size, "image/png")
    assert store.read_blob("sha256-" + "0" * 64, 0, 10) is None


@_check
def a_blob_is_stored_once(make: MakeStore) -> None:
    """A second one with the same content is no error, one with an id of another form is."""
    store, _ = _filled(make)
    blob, empty = make_blob(b"content"), make_blob(b"")
    store.append(make_batch(1, 7, (b"e",), run_no=1, blobs=(blob, blob, empty)))
    store.append(make_batch(1, 8, (b"e",), run_no=1, blobs=(blob,)))
    assert store.read_blob(blob.blob_id, 0, 100) == (b"content", 7, "text/plain")
    assert store.read_blob(empty.blob_id, 0, 100) == (b"", 0, "text/plain")
    wrong = Blob("sha256-short", "text/plain", b"content")
    assert "blob_id" in refused(store, make_batch(1, 9, (b"e",), run_no=1, blobs=(wrong,)))


@_check
def the_sessions_of_a_blob_are_known(make: MakeStore) -> None:
    """Each that brought it, once."""
    store, _ = _filled(make)
    blob, other = make_blob(b"content"), make_blob(b"other")
    store.append(make_batch(1, 7, (b"e",), run_no=1, blobs=(blob, other)))
    store.append(make_batch(1, 8, (b"e",), run_no=1, blobs=(blob,)))
    store.append(make_batch(2, 1, (b"e",), opens_session="ses_b", blobs=(blob,)))
    assert store.blob_sessions(blob.blob_id) == {1, 2}
    assert store.blob_sessions(other.blob_id) == {1}
    assert store.blob_sessions("sha256-" + "0" * 64) == frozenset()


@_check
def a_refused_batch_leaves_nothing(make: MakeStore) -> None:
    """No session, run or blob of it."""
    store, batches = _filled(make)
    blob = make_blob(b"content")
    refused(store, make_batch(1, 9, (b"e",), run_no=2, opens_run="run_b", blobs=(blob,)))
    refused(store, make_batch(1, 7, (b"e",), run_no=2, opens_run="run_a", blobs=(blob,)))
    assert store.run("run_b") is None
    assert store.read_blob(blob.blob_id, 0, 10) is None
    assert store.blob_sessions(blob.blob_id) == frozenset()
    assert [batch.first_seq for batch in store.read(1, 0, 1 << 20)] == [1, 4, 6]
    assert list(store.records(1)) == [(0, batches[1].records), (1, batches[2].records)]


@_check
def a_deleted_session_is_gone(make: MakeStore) -> None:
    """With its runs and records, be it open or closed; the others stay."""
    store, _ = _filled(make)
    store.append(make_batch(2, 1, (b"e",), run_no=1, opens_session="ses_b", opens_run="run_b", records=b"r"))
    store.append(make_batch(2, 2, (b"e",), run_no=1, ends_run=True, closes_session=True))
    store.append(make_batch(66, 1, (b"e",), opens_session="ses_c"))
    for session_no in (1, 2):
        store.delete_session(session_no)
        assert store.read(session_no, 0, 1 << 20) == []
        assert list(store.records(session_no)) == []
        assert store.unpublished(session_no) == []
        assert store.runs(session_no) == []
        assert store.earliest_seq(session_no) == 1
    assert [row.session_id for row in store.sessions()] == ["ses_c"]
    assert store.session("ses_a") is None
    assert store.run("run_a") is None
    assert store.run("run_b") is None
    assert [batch.first_seq for batch in store.read(66, 0, 1 << 20)] == [1]


@_check
def a_deleted_number_is_never_used_again(make: MakeStore) -> None:
    """Nor is the highest one forgotten, and nothing is appended to what was deleted."""
    store, _ = _filled(make)
    assert store.last_session_no() == 1
    store.append(make_batch(7, 1, (b"e",), opens_session="ses_b"))
    store.delete_session(7)
    assert store.last_session_no() == 7
    assert "deleted" in refused(store, make_batch(7, 1, (b"e",), opens_session="ses_c"))
    assert "deleted" in refused(store, make_batch(7, 2, (b"e",)))
    store.append(make_batch(8, 1, (b"e",), run_no=1, opens_session="ses_b", opens_run="run_b"))
    store.append(make_batch(1, 7, (b"e",), run_no=1))
    try:
        store.delete_session(7)
    except BatchRefused:
        return
    raise AssertionError("the store deleted a session twice")


@_check
def a_blob_goes_with_its_last_session(make: MakeStore) -> None:
    """And comes back with the next one that brings it."""
    store, _ = _filled(make)
    blob, other = make_blob(b"content"), make_blob(b"other")
    store.append(make_batch(1, 7, (b"e",), run_no=1, blobs=(blob, other)))
    store.append(make_batch(2, 1, (b"e",), opens_session="ses_b", blobs=(blob,)))
    store.delete_session(1)
    assert store.blob_sessions(blob.blob_id) == {2}
    assert store.read_blob(blob.blob_id, 0, 100) == (b"content", 7, "text/plain")
    assert store.blob_sessions(other.blob_id) == frozenset()
    assert store.read_blob(other.blob_id, 0, 100) is None
    store.append(make_batch(2, 2, (b"e",), blobs=(other,)))
    assert store.blob_sessions(other.blob_id) == {2}
    assert store.read_blob(other.blob_id, 0, 100) == (b"other", 5, "text/plain")


@_check
def a_request_is_kept_with_what_it_did(make: MakeStore) -> None:
    """In a batch of whichever kind, with a deletion, or alone; in the order of commits."""
    store, _ = _filled(make)
    wanted = [make_request(name, at=number) for number, name in enumerate("abcd", start=1)]
    store.append(make_batch(1, 7, (b"e",), run_no=1, request=wanted[0]))
    store.append(make_batch(1, 8, run_no=1, records=b"fact", request=wanted[1]))
    store.remember(wanted[2])
    store.delete_session(1, wanted[3])
    assert list(store.requests(0)) == wanted
    assert list(store.requests(3)) == wanted[2:]


@_check
def a_request_is_kept_once_for_each_caller(make: MakeStore) -> None:
    """The latest of the same tenant, caller and id."""
    store, _ = _filled(make)
    first = make_request("id", at=1, result="first")
    others = [make_request("id", caller="you", at=2), make_request("id", tenant="other", at=3)]
    last = make_request("id", at=4, result="last")
    for request in (first, *others, last):
        store.remember(request)
    assert list(store.requests(0)) == [*others, last]


@_check
def a_refused_batch_keeps_no_request(make: MakeStore) -> None:
    """What was not done is not remembered."""
    store, _ = _filled(make)
    refused(store, make_batch(1, 9, (b"e",), run_no=1, request=make_request("id")))
    refused(store, make_batch(1, 7, (b"e",), run_no=2, opens_run="run_a", request=make_request("id")))
    try:
        store.delete_session(3, make_request("id"))
    except BatchRefused:
        assert list(store.requests(0)) == []
        return
    raise AssertionError("the store deleted a session that is not there")


@_check
def a_closed_store_says_so(make: MakeStore) -> None:
    """Whatever it is asked; to close it again is no error."""
    store, _ = _filled(make)
    epoch = store.epoch
    store.close()
    store.close()
    assert store.epoch == epoch != ""
    calls: list[Callable[[], object]] = [
        lambda: store.append(make_batch(1, 7, (b"e",), run_no=1)),
        lambda: store.append(make_batch(2, 1, (b"e",), opens_session="ses_b")),
        lambda: store.read(1, 0, 1),
        lambda: store.earliest_seq(1),
        store.sessions,
        lambda: store.session("ses_a"),
        lambda: store.run("run_a"),
        lambda: store.runs(1),
        lambda: store.records(1),
        lambda: store.unpublished(1),
        lambda: store.read_blob("sha256-" + "0" * 64, 0, 1),
        lambda: store.blob_sessions("sha256-" + "0" * 64),
        lambda: store.delete_session(1),
        lambda: store.remember(make_request("id")),
        lambda: store.requests(0),
        store.last_session_no,
    ]
    for call in calls:
        try:
            call()
        except JournalError:
            continue
        raise AssertionError("a closed store answered")
