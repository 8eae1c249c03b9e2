"""Keys, checksums and frames, and what may come next in a session."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steprail_daemon.journal.framing import frame, framing_problem
from steprail_daemon.journal.layout import (
    LAST_SUB,
    MAX_SEQ,
    MAX_SESSION_NO,
    checksum,
    key_range,
    pack_key,
    unpack_key,
)
from steprail_daemon.journal.memory import MemoryStore
from steprail_daemon.journal.store import Batch, BatchRefused, SessionRow
from steprail_daemon.journal.tail import Tail
from steprail_daemon.testing.store_kit import make_batch, make_blob, refused

PARTS = st.tuples(st.integers(1, MAX_SESSION_NO), st.integers(1, MAX_SEQ + 1), st.integers(0, LAST_SUB))


@given(PARTS, PARTS)
def test_keys_sort_as_their_parts_and_give_them_back(one: tuple[int, int, int], other: tuple[int, int, int]) -> None:
    assert unpack_key(pack_key(*one)) == one
    assert (pack_key(*one) < pack_key(*other)) == (one < other)
    low, high = key_range(one[0])
    assert low <= pack_key(*one) <= high


def test_the_largest_key_fits_sqlite() -> None:
    assert pack_key(MAX_SESSION_NO, MAX_SEQ + 1, LAST_SUB) == 2**63 - 1


@given(st.integers(0, 2**62), st.binary(max_size=50), st.binary(max_size=50), st.integers(0, 61))
def test_the_checksum_notices_a_changed_bit_anywhere(at: int, records: bytes, events: bytes, bit: int) -> None:
    right = checksum(at, records or None, events)
    assert checksum(at ^ 1 << bit, records or None, events) != right
    for part in (records, events):
        if part:
            index = bit % len(part)
            changed = part[:index] + bytes([part[index] ^ 1]) + part[index + 1 :]
            changed_row = (changed, events) if part is records else (records, changed)
            assert checksum(at, changed_row[0], changed_row[1]) != right


@given(st.lists(st.binary(max_size=400), max_size=6))
def test_framed_events_have_no_problem_and_any_other_end_has_one(events: list[bytes]) -> None:
    batch = make_batch(1, 1, tuple(events))
    count = len(events)
    assert framing_problem(count, batch.kinds + batch.ends + batch.wire) == ""
    if count:
        assert framing_problem(count, batch.kinds + batch.ends + batch.wire + b"\x0a")
        assert framing_problem(count, batch.kinds + batch.ends + batch.wire[:-1])
        wrong_end = bytes([batch.ends[0] ^ 1]) + batch.ends[1:]
        assert framing_problem(count, batch.kinds + wrong_end + batch.wire)
        assert framing_problem(count, batch.kinds + batch.ends + b"\x12" + batch.wire[1:])
        assert framing_problem(count, batch.kinds)


def test_a_length_that_never_ends_is_a_problem() -> None:
    wire = b"\x0a" + b"\xff" * 20
    assert framing_problem(1, b"\x01" + len(wire).to_bytes(4, "little") + wire)


@pytest.mark.parametrize("size", [0, 1, 127, 128, 16_383, 16_384, 3_000_000])
def test_the_frame_has_the_length_as_a_varint(size: int) -> None:
    entry = frame(b"x" * size)
    ends = len(entry).to_bytes(4, "little")
    assert framing_problem(1, b"\x01" + ends + entry) == ""


CHANGES: dict[str, list[Any]] = {
    "first_seq": [4, 6, 0],
    "last_seq": [4, 5, 7, 3, MAX_SEQ + 1],
    "run_no": [0, 1, 2, 3],
    "kinds": [b"", b"\x01", b"\x01\x01\x01"],
    "ends": [b"", b"\x03\x00\x00\x00", b"\x03\x00\x00\x00\x07\x00\x00\x00"],
    "wire": [b"", frame(b"a")],
    "records": [b"", b"r"],
    "opens_run": ["", "run_x"],
    "ends_run": [False, True],
    "closes_session": [False, True],
    "blobs": [(), (make_blob(b"b"),)],
}


@given(
    st.sampled_from([make_batch(1, 5, (b"a", b"b"), run_no=2), make_batch(1, 5, run_no=2, records=b"r")]),
    st.fixed_dictionaries({}, optional={name: st.sampled_from(values) for name, values in CHANGES.items()}),
)
def test_a_store_takes_what_the_full_check_takes_and_nothing_else(plain: Batch, changes: dict[str, Any]) -> None:
    store = MemoryStore()
    store.append(make_batch(1, 1, (b"e",) * 3, opens_session="ses_a"))
    store.append(make_batch(1, 4, run_no=1, records=b"r", opens_run="run_a", ends_run=True))
    store.append(make_batch(1, 4, (b"e",), run_no=2, opens_run="run_b"))
    batch: Batch = msgspec.structs.replace(plain, **changes)
    tail = Tail(next_seq=5, last_run_no=2, open_runs=(2,))
    message = ""
    try:
        tail.check(batch)
    except BatchRefused as error:
        message = error.message
    if message:
        assert refused(store, batch) == message
        assert store.unpublished(1) == []
        return
    store.append(batch)
    tail.advance(batch)
    assert store.session("ses_a") == SessionRow(1, "ses_a", tail.next_seq - 1, tail.last_run_no, tail.closed)
    assert store.unpublished(1) == ([] if batch.kinds else [(batch.run_no, batch.at, batch.records)])


def test_the_last_event_of_a_full_session_is_taken_and_none_after_it() -> None:
    tail = Tail(next_seq=MAX_SEQ)
    batch = make_batch(1, MAX_SEQ, (b"last",))
    tail.check(batch)
    tail.advance(batch)
    beyond = make_batch(1, MAX_SEQ + 1, (b"beyond",))
    with pytest.raises(BatchRefused, match=f"at most {MAX_SEQ} events"):
        tail.check(beyond)
    tail.check(make_batch(1, MAX_SEQ + 1, records=b"end", closes_session=True))
