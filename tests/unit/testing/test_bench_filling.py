from array import array
from pathlib import Path

import pytest

from steprail.v1 import sessions_pb2
from steprail_daemon.journal.sqlite import SqliteStore
from steprail_daemon.journal.store import Batch
from steprail_daemon.journal.verify import verify
from steprail_daemon.service.translate import KINDS
from steprail_daemon.testing.bench.filling import BLOCK, Rows, fill

SESSION_NO = 7
SESSION_ID = "ses_0000000000000000000000000A"


def made(path: Path, last_seq: int) -> None:
    """Make a journal whose one session has a first batch."""
    store = SqliteStore(path)
    rows = Rows(SESSION_NO, SESSION_ID, 0)
    (row,) = rows.next(1)
    events = row[6]
    ends = array("I", events[BLOCK - 1 : 5 * (BLOCK - 1)])
    store.append(
        Batch(
            session_no=SESSION_NO,
            run_no=0,
            first_seq=1,
            last_seq=last_seq,
            at=1,
            kinds=events[:last_seq],
            ends=ends[:last_seq].tobytes(),
            wire=events[5 * (BLOCK - 1) :][: ends[last_seq - 1]],
            opens_session=SESSION_ID,
        )
    )
    store.close()


def seqs(path: Path, after_seq: int) -> list[int]:
    """Read and decode the events of a journal after a cursor, as a client does."""
    store = SqliteStore(path)
    batches = store.read(SESSION_NO, after_seq, 1 << 24)
    store.close()
    wire = b"".join(batch.wire for batch in batches)
    found = sessions_pb2.WatchSessionResponse.FromString(wire).events
    assert {event.session_id for event in found} == {SESSION_ID}
    assert {event.WhichOneof("body") for event in found} == {"message_delta"}
    return [event.seq for event in found]


def test_a_journal_that_was_filled_is_whole_and_has_every_event_once(tmp_path: Path) -> None:
    journal = tmp_path / "journal.db"
    made(journal, 5)
    assert fill(journal, 20_000, 60) == (SESSION_ID, 20_095)
    report = verify(journal)
    assert (report.ok, report.events, report.problems) == (True, 20_095, ())
    assert seqs(journal, 0) == list(range(1, 20_096))


def test_a_session_goes_on_after_what_was_filled(tmp_path: Path) -> None:
    journal = tmp_path / "journal.db"
    made(journal, 5)
    _, last_seq = fill(journal, 1000, 60)
    store = SqliteStore(journal)
    store.append(
        Batch(
            session_no=SESSION_NO,
            run_no=0,
            first_seq=last_seq + 1,
            last_seq=last_seq + 1,
            at=2,
            kinds=bytes((min(KINDS.values()),)),
            ends=array("I", [2]).tobytes(),
            wire=b"\x0a\x00",
        )
    )
    assert [batch.first_seq for batch in store.read(SESSION_NO, last_seq, 1 << 20)] == [last_seq + 1]
    store.close()


def test_filling_ends_when_its_time_is_over(tmp_path: Path) -> None:
    journal = tmp_path / "journal.db"
    made(journal, 5)
    assert fill(journal, 1 << 30, 0) == (SESSION_ID, 5)


@pytest.mark.parametrize("beyond", [BLOCK, 128 * BLOCK, 16_384 * BLOCK])
def test_numbers_stay_right_where_they_become_longer(beyond: int) -> None:
    rows = Rows(SESSION_NO, SESSION_ID, beyond - 2 * BLOCK - 1 if beyond > BLOCK else 0)
    first = rows.last_seq + 1
    found: list[int] = []
    for row in rows.next(beyond + 2 * BLOCK - 1):
        count = row[2] - (row[0] >> 8 & 0x7FFFFFFF) + 1
        found += [event.seq for event in sessions_pb2.WatchSessionResponse.FromString(row[6][5 * count :]).events]
    assert found == list(range(first, beyond + 2 * BLOCK))
