"""What retention removes, what it keeps, and that everything else goes on meanwhile."""

import sqlite3
import threading
from pathlib import Path

import pytest
from tests.integration.journal.files import SECONDS, crash, seqs, sweep, turns

from steprail_daemon.core.model import FinishReason, RunState, Step, StepBoundary
from steprail_daemon.core.records import QueueHeld, RunEnded, StepEnded
from steprail_daemon.core.replay import summarise
from steprail_daemon.journal import retention
from steprail_daemon.journal.record import decode_records, encode_records
from steprail_daemon.journal.retention import HOUR_NS, Keep
from steprail_daemon.journal.sqlite import SqliteStore
from steprail_daemon.journal.store import JournalError
from steprail_daemon.journal.verify import verify
from steprail_daemon.testing.store_kit import make_batch, make_blob, make_request

DAY = 24 * HOUR_NS
ENDED = encode_records([RunEnded(RunState.COMPLETED, None, None, 0, None, None)])
HELD = encode_records([QueueHeld(held=True)])
STEP = Step(
    1, "stp_1", "what was said", "", (), (), FinishReason.TOOL_CALLS, "", None, None, "m", 1, 1, StepBoundary.OBSERVED
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


def fill(store: SqliteStore, session_no: int = 1, *, runs: int = 3, size: int = 10, start: int = 0) -> None:
    """Make a session with one run a day, of four events and a step as a whole; the first event is of no run."""
    seq = 1
    store.append(
        make_batch(session_no, seq, (b"made",), opens_session=f"ses_{session_no}", records=HELD, at=start * DAY + 1)
    )
    kept = encode_records([StepEnded(STEP, ())])
    for run_no in range(1, runs + 1):
        at = (start + run_no - 1) * DAY + 2
        run_id = f"run_{session_no}_{run_no}"
        seq += 1
        store.append(make_batch(session_no, seq, (b"begin",), run_no=run_no, opens_run=run_id, records=HELD, at=at))
        store.append(make_batch(session_no, seq + 1, run_no=run_no, records=kept, at=at))
        store.append(make_batch(session_no, seq + 1, (b"x" * size, b"y" * size), run_no=run_no, at=at))
        seq += 3
        store.append(make_batch(session_no, seq, (b"end",), run_no=run_no, records=ENDED, ends_run=True, at=at))
    store.append(make_batch(session_no, seq + 1, (b"idle",), at=(start + runs) * DAY))


def test_what_is_old_goes_up_to_the_end_of_a_run(path: Path) -> None:
    store = SqliteStore(path)
    fill(store)
    records = list(store.records(1))
    sweep(store, now=3 * DAY + 1, age=2 * DAY)

    assert store.earliest_seq(1) == 6
    assert seqs(store) == list(range(6, 15))
    assert [run.run_id for run in store.runs(1)] == ["run_1_1", "run_1_2", "run_1_3"]
    left = list(store.records(1))
    assert len(left) == len(records)
    assert decode_records(left[2][1]) == [summarise(STEP)]
    assert left[:2] + left[3:] == records[:2] + records[3:]
    assert b"what was said" not in left[2][1]
    assert store.session("ses_1") is not None
    store.append(make_batch(1, 15, (b"more",)))
    store.close()
    assert verify(path).problems == ()


def test_nothing_goes_that_is_young_enough(path: Path) -> None:
    store = SqliteStore(path)
    fill(store)
    assert turns(store, now=3 * DAY, age=4 * DAY) == 1
    assert seqs(store) == list(range(1, 15))
    store.close()


def test_a_session_that_is_open_keeps_its_last_batch_and_one_that_is_closed_keeps_none(path: Path) -> None:
    store = SqliteStore(path)
    fill(store, 1)
    fill(store, 2)
    store.append(make_batch(2, 15, (b"bye",), closes_session=True, at=3 * DAY))
    store.append(make_batch(3, 1, (b"made",), opens_session="ses_3", at=1))
    store.append(make_batch(3, 2, records=HELD, at=1))
    sweep(store, now=90 * DAY, age=DAY)

    assert [seqs(store, number) for number in (1, 2, 3)] == [[14], [], []]
    assert [store.earliest_seq(number) for number in (1, 2, 3)] == [14, 16, 2]
    assert [records for _, _, records in store.unpublished(3)] == [HELD]
    store.close()
    again = SqliteStore(path)
    again.append(make_batch(1, 15, (b"more",)))
    again.append(make_batch(3, 2, (b"more",)))
    assert [row.last_seq for row in again.sessions()] == [15, 15, 2]
    with pytest.raises(JournalError, match="closed"):
        again.append(make_batch(2, 16, (b"more",)))
    again.close()
    assert verify(path).problems == ()


def test_a_run_that_has_not_ended_stays_and_so_do_those_that_overlap_it(path: Path) -> None:
    store = SqliteStore(path)
    fill(store, runs=1)
    store.append(make_batch(1, 7, (b"a",), run_no=2, opens_run="run_a", at=1))
    store.append(make_batch(1, 8, (b"queued",), run_no=3, opens_run="run_b", at=1))
    store.append(make_batch(1, 9, (b"a",), run_no=2, records=ENDED, ends_run=True, at=1))
    store.append(make_batch(1, 10, (b"idle",), at=1))
    sweep(store, now=90 * DAY, age=DAY)
    assert store.earliest_seq(1) == 7

    store.append(make_batch(1, 11, (b"b",), run_no=3, records=ENDED, ends_run=True, at=1))
    store.append(make_batch(1, 12, (b"idle",), at=1))
    sweep(store, now=90 * DAY, age=DAY)
    assert store.earliest_seq(1) == 12
    store.close()
    assert verify(path).problems == ()


def test_blobs_go_with_the_prefix_that_brought_them_unless_another_needs_them(path: Path) -> None:
    store = SqliteStore(path)
    old, shared, again = make_blob(b"old"), make_blob(b"shared"), make_blob(b"again")
    store.append(make_batch(1, 1, (b"e",), opens_session="ses_1", blobs=(old, shared, again), at=1))
    store.append(make_batch(1, 2, (b"e",), blobs=(again,), at=9 * DAY))
    store.append(make_batch(1, 3, (b"e",), at=9 * DAY))
    store.append(make_batch(2, 1, (b"e",), opens_session="ses_2", blobs=(shared,), at=9 * DAY))
    sweep(store, now=10 * DAY, age=2 * DAY)

    assert store.earliest_seq(1) == 2
    assert store.read_blob(old.blob_id, 0, 9) is None
    assert store.blob_sessions(shared.blob_id) == {2}
    assert store.blob_sessions(again.blob_id) == {1}
    store.close()
    assert verify(path).problems == ()


def test_a_file_that_is_too_large_loses_the_oldest_first_and_uses_its_pages_again(path: Path) -> None:
    store = SqliteStore(path)
    for session_no, start in ((1, 0), (2, 10), (3, 20)):
        fill(store, session_no, runs=20, size=20_000, start=start)
    bound = 1_500_000
    sweep(store, now=41 * DAY, age=100 * DAY, max_bytes=bound)
    earliest = [store.earliest_seq(number) for number in (1, 2, 3)]
    assert earliest[0] > earliest[1] > earliest[2]
    left = [seqs(store, number)[-1] for number in (1, 2, 3)]
    assert left == [82, 82, 82]
    store.checkpoint(idle=True)
    size = path.stat().st_size
    for round_no in range(4, 10):
        fill(store, round_no, runs=10, size=20_000, start=30 + round_no)
        sweep(store, now=80 * DAY, age=100 * DAY, max_bytes=bound)
        store.checkpoint(idle=True)
    assert path.stat().st_size <= size * 1.2
    store.close()
    assert verify(path).problems == ()


def test_a_file_that_is_too_large_with_nothing_to_remove_is_told(path: Path) -> None:
    store = SqliteStore(path)
    store.append(make_batch(1, 1, (b"x" * 100_000,), run_no=1, opens_session="ses_1", opens_run="run_1", at=1))
    done = store.retain(Keep(DAY, 10_000), 90 * DAY)
    assert done.used_bytes is not None
    assert done.used_bytes > 100_000
    assert (done.stuck, done.more) == (True, False)
    store.close()


def test_a_turn_is_bounded_and_a_kill_between_two_harms_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "TURN_ROWS", 3)
    store = SqliteStore(path)
    fill(store, runs=10)
    done = [store.retain(Keep(DAY, 1 << 40), 90 * DAY) for _ in range(4)]
    assert [one.batches for one in done] == [0, 3, 3, 3]
    crash(store)
    assert verify(path).problems == ()
    store = SqliteStore(path)
    assert 1 < store.earliest_seq(1) < 42
    sweep(store, now=90 * DAY, age=DAY)
    assert store.earliest_seq(1) == 42
    store.close()
    assert verify(path).problems == ()


def test_a_deleted_session_is_removed_in_turns(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "TURN_ROWS", 3)
    store = SqliteStore(path)
    fill(store, runs=3)
    sweep(store, now=3 * DAY + 1, age=2 * DAY)
    blob, shared = make_blob(b"mine"), make_blob(b"shared")
    store.append(make_batch(1, 15, (b"e",), blobs=(blob, shared)))
    store.append(make_batch(2, 1, (b"e",), opens_session="ses_2", blobs=(shared,)))
    store.delete_session(1)
    store.retain(Keep(DAY, 1 << 40), 1)
    store.retain(Keep(DAY, 1 << 40), 1)
    crash(store)
    assert verify(path).problems == ()

    store = SqliteStore(path)
    assert store.read(1, 0, 1 << 20) == []
    assert store.read_blob(blob.blob_id, 0, 9) is None
    sweep(store, now=1, age=DAY)
    assert store.last_session_no() == 2
    with pytest.raises(JournalError, match="deleted"):
        store.append(make_batch(1, 1, (b"e",), opens_session="ses_3"))
    assert store.blob_sessions(shared.blob_id) == {2}
    counts = [
        store._db.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
        for table in ("batches_1", "kept", "blobs", "blob_sessions", "runs")
    ]
    assert counts == [0, 0, 1, 1, 0]
    store.close()
    assert verify(path).problems == ()


def test_request_ids_are_forgotten_when_they_are_old_or_too_many(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SqliteStore(path)
    for number in range(10):
        store.remember(make_request(f"id {number}", at=number * HOUR_NS + 1))
    sweep(store, now=27 * HOUR_NS, age=DAY)
    assert [request.request_id for request in store.requests(0)] == [f"id {number}" for number in range(2, 10)]
    monkeypatch.setattr(retention, "MAX_REQUESTS", 3)
    sweep(store, now=27 * HOUR_NS, age=DAY)
    assert [request.request_id for request in store.requests(0)] == ["id 7", "id 8", "id 9"]
    store.close()


def test_a_damaged_session_is_left_alone_and_the_others_have_their_turn(path: Path) -> None:
    store = SqliteStore(path)
    fill(store, 1)
    fill(store, 2)
    (page,) = store._db.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'batches_1'").fetchone()
    store.close()
    with path.open("r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(b"\xff" * 100)
    store = SqliteStore(path)
    sweep(store, now=90 * DAY, age=DAY)
    assert store.earliest_seq(2) == 14
    store.close()


def test_commits_go_on_beside_the_turns(path: Path) -> None:
    taken: list[int] = []
    store = SqliteStore(path, busy_wait=SECONDS, note_commit=taken.append)
    fill(store, 1, runs=300, size=3_000)
    store.append(make_batch(2, 1, (b"made",), opens_session="ses_2"))
    done = threading.Event()

    def retain() -> None:
        while store.retain(Keep(DAY, 1 << 40), 1000 * DAY).more:
            pass
        done.set()

    thread = threading.Thread(target=retain)
    thread.start()
    seq = 1
    while not done.is_set():
        seq += 1
        store.append(make_batch(2, seq, (b"x" * 500,)))
    thread.join(SECONDS)
    assert seqs(store, 2) == list(range(1, seq + 1))
    assert len(seqs(store)) == 1
    store.close()
    assert verify(path).problems == ()


def test_a_closed_store_retains_nothing_more(path: Path) -> None:
    store = SqliteStore(path)
    store.close()
    with pytest.raises(JournalError, match="closed"):
        store.retain(Keep(DAY, 1), 1)


def test_a_file_of_version_2_is_brought_up_to_date(path: Path) -> None:
    store = SqliteStore(path)
    blob = make_blob(b"content")
    fill(store)
    store.append(make_batch(1, 15, (b"e",), blobs=(blob,), at=3 * DAY))
    store.close()
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in (
        "DROP INDEX blobs_of_session",
        "ALTER TABLE blob_sessions DROP COLUMN last_seq",
        "DROP TABLE kept",
        "DROP TABLE requests",
        "DROP TABLE deleted_sessions",
        "PRAGMA user_version = 2",
    ):
        connection.execute(statement)
    connection.close()
    assert verify(path).problems == ()

    store = SqliteStore(path)
    store.append(make_batch(1, 16, (b"e",), at=3 * DAY, request=make_request("id")))
    sweep(store, now=90 * DAY, age=DAY)
    assert store.earliest_seq(1) == 16
    assert store.blob_sessions(blob.blob_id) == {1}
    store.append(make_batch(1, 17, (b"e",), closes_session=True, at=3 * DAY))
    sweep(store, now=90 * DAY, age=DAY)
    assert store.read_blob(blob.blob_id, 0, 9) is None
    store.close()
    assert verify(path).problems == ()
