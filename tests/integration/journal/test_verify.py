"""`verify` finds what is wrong in a file, says where, and finds nothing in a good one."""

import sqlite3
from pathlib import Path

import pytest
from tests.integration.journal.files import sweep

from steprail_daemon.core.model import RunState
from steprail_daemon.core.records import RunEnded, TurnStarted
from steprail_daemon.journal import verify as verify_module
from steprail_daemon.journal.layout import checksum
from steprail_daemon.journal.record import encode_records
from steprail_daemon.journal.sqlite import SqliteStore
from steprail_daemon.journal.store import JournalError
from steprail_daemon.journal.verify import Report, verify
from steprail_daemon.testing.store_kit import make_batch, make_blob

ENDED = encode_records([RunEnded(RunState.COMPLETED, None, None, 0, None, None)])
STARTED = encode_records([TurnStarted(prompt_synthesized=False)])


def fill(store: SqliteStore) -> None:
    store.append(make_batch(1, 1, (b"a", b"b"), opens_session="ses_a"))
    store.append(make_batch(1, 3, records=STARTED))
    store.append(make_batch(1, 3, (b"c",), run_no=1, opens_run="run_a", records=STARTED))
    store.append(make_batch(1, 4, (b"d",), run_no=1, blobs=(make_blob(b"content"),)))
    store.append(make_batch(1, 5, (b"e",), run_no=1, records=ENDED, ends_run=True))
    store.append(make_batch(1, 6, (b"f",), closes_session=True))
    store.append(make_batch(2, 1, (b"a",), opens_session="ses_b"))
    store.append(make_batch(2, 2, (b"b" * 20_000,), run_no=1, opens_run="run_b"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "journal.db"
    store = SqliteStore(path)
    fill(store)
    store.close()
    return path


def spoil(path: Path, *statements: str) -> list[tuple[str, str]]:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.create_function("checksum", 3, checksum)
    for statement in statements:
        connection.executescript(statement)
    connection.close()
    return [(problem.place, problem.message) for problem in verify(path).problems]


def test_a_good_file_has_no_problem_and_is_counted(path: Path) -> None:
    counts = {"sessions": 2, "runs": 2, "events": 8, "batches": 8, "wire_bytes": 7 * 3 + 20_004, "blobs": 1}
    report = verify(path)
    assert report == Report(**counts, problems=(), more_problems=0)
    assert report.ok


def test_nothing_is_written_or_left_behind(path: Path) -> None:
    before = path.read_bytes()
    verify(path)
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == ["journal.db"]


def test_an_empty_journal_is_good(tmp_path: Path) -> None:
    SqliteStore(tmp_path / "journal.db").close()
    assert verify(tmp_path / "journal.db").ok


def test_a_journal_in_use_is_checked_with_what_is_still_in_the_log(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "journal.db")
    fill(store)
    assert verify(tmp_path / "journal.db").events == 8
    store.append(make_batch(2, 3, (b"more",), run_no=1))
    report = verify(tmp_path / "journal.db")
    assert (report.events, report.problems) == (9, ())
    store.close()


@pytest.mark.parametrize(
    ("statement", "place", "message"),
    [
        ("UPDATE batches_1 SET at = at + 1 WHERE last_seq = 4", "session 1, batch at 4/255", "checksum"),
        ("UPDATE batches_1 SET events = zeroblob(8) WHERE last_seq = 4", "session 1, batch at 4/255", "checksum"),
        (
            "UPDATE batches_1 SET events = zeroblob(8), checksum = checksum(at, records, zeroblob(8))"
            " WHERE last_seq = 4",
            "session 1, batch at 4/255",
            "entry 1 of 1 begins at 0 and should end at 0",
        ),
        ("DELETE FROM batches_1 WHERE last_seq = 4", "session 1, batch at 5/255", "does not follow"),
        ("UPDATE batches_1 SET last_seq = 5 WHERE last_seq = 4", "session 1, batch at 5/255", "does not follow"),
        ("UPDATE batches_1 SET last_seq = 1 WHERE last_seq = 4", "session 1, batch at 4/255", "last_seq is 1"),
        ("UPDATE batches_1 SET key = key + 3 WHERE records IS NOT NULL AND last_seq = 2", "at 3/3", "sub 3, next is 0"),
        (
            "INSERT INTO batches_1 SELECT key + (1 << 39), 0, last_seq, at, checksum, records, events FROM batches_2"
            " WHERE last_seq = 1",
            "session 3",
            "table batches_1",
        ),
        (
            "UPDATE batches_1 SET records = x'01', checksum = checksum(at, x'01', events) WHERE last_seq = 3",
            "session 1, batch at 3/255",
            "do not match their checksum",
        ),
        ("UPDATE batches_1 SET run_no = 1 WHERE last_seq = 6", "session 1, run 1", "goes on to 6"),
        ("UPDATE batches_1 SET run_no = 0 WHERE last_seq = 5", "session 1, batch at 5/255", "belongs to none"),
        (
            "UPDATE batches_1 SET records = NULL, checksum = checksum(at, NULL, events) WHERE last_seq = 5",
            "session 1, run 1",
            "has 0 terminal records",
        ),
        ("UPDATE runs SET last_seq = NULL WHERE run_id = 'run_a'", "session 1, run 1", "is open by table runs"),
        ("UPDATE runs SET last_seq = 2 WHERE run_id = 'run_b'", "session 2, run 1", "has 0 terminal records"),
        ("UPDATE runs SET first_seq = 1 WHERE run_id = 'run_a'", "session 1, run 1", "begins at 3"),
        ("DELETE FROM runs WHERE run_id = 'run_a'", "session 1, run 1", "no row in table runs"),
        ("INSERT INTO runs VALUES (2, 2, 'run_c', 3, NULL)", "session 2, run 2", "has no batches"),
        ("INSERT INTO runs VALUES (9, 1, 'run_c', 3, NULL)", "session 9, run 1", "no row in table sessions"),
        ("DELETE FROM sessions WHERE session_no = 2", "session 2", "no row in table sessions"),
        ("UPDATE sessions SET last_seq = 5 WHERE session_no = 1", "session 1", "closed at 5, its batches end at 6"),
        ("INSERT INTO sessions VALUES (3, 'ses_c', NULL)", "session 3", "is open and has no batches"),
        ("UPDATE blobs SET data = x'00'", "blob sha256-", "digest"),
        ("DELETE FROM blob_sessions", "blob sha256-", "of no session"),
        ("INSERT INTO blob_sessions VALUES (1, 9, 1)", "blob 1 of session 9", "no row in table"),
        ("INSERT INTO blob_sessions VALUES (9, 1, 1)", "blob 9 of session 1", "no row in table"),
        ("DELETE FROM batches_1 WHERE last_seq < 6", "session 1, run 1", "has 0 terminal records that are kept"),
        ("INSERT INTO deleted_sessions VALUES (1, 0)", "session 1", "was deleted and has a row in table sessions"),
        (
            "DELETE FROM sessions WHERE session_no = 2; INSERT INTO deleted_sessions VALUES (2, 1)",
            "session 2",
            "no row in table sessions",
        ),
        ("INSERT INTO kept VALUES (9 << 39, 0, 1, 1, 1, x'01')", "kept records of session 9", "are of no session"),
        ("INSERT INTO kept VALUES ((1 << 39) + 511, 0, 1, 1, 1, x'01')", "kept records of", "not match their checksum"),
        (
            "INSERT INTO kept VALUES ((1 << 39) + 511, 0, 1, 1, 1, x'01')",
            "session 1",
            "kept records up to 1 and batches",
        ),
        ("INSERT INTO requests VALUES (1, 't', 'c', 'id', '', x'00', 'r', 1)", "request 1 ('id')", "lacks its"),
        ("DROP TABLE requests", "table requests", "cannot be read"),
        ("DROP TABLE batches_2", "table batches_2", "cannot be read"),
    ],
)
def test_what_is_wrong_is_found_and_placed(path: Path, statement: str, place: str, message: str) -> None:
    found = spoil(path, statement)
    assert any(place in where and message in what for where, what in found), found


def test_a_removed_prefix_is_no_problem(path: Path) -> None:
    store = SqliteStore(path)
    sweep(store, now=1 << 62, age=1)
    assert [store.earliest_seq(session_no) for session_no in (1, 2)] == [7, 2]
    store.close()
    assert verify(path).problems == ()


def test_a_deleted_session_whose_batches_are_still_there_is_no_problem(path: Path) -> None:
    store = SqliteStore(path)
    store.delete_session(1)
    store.close()
    assert verify(path).problems == ()
    store = SqliteStore(path)
    sweep(store, now=1, age=1)
    store.close()
    assert verify(path) == Report(
        sessions=1, runs=1, events=2, batches=2, wire_bytes=20_007, blobs=0, problems=(), more_problems=0
    )


def test_a_damaged_page_is_found(path: Path) -> None:
    connection = sqlite3.connect(path)
    (page,) = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'batches_1'").fetchone()
    connection.close()
    with path.open("r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(b"\xff" * 100)
    problems = verify(path).problems
    assert {"file", "table batches_1"} <= {problem.place for problem in problems}
    assert any(problem.place == "session 1" or "batches_1" in problem.place for problem in problems)


def test_problems_beyond_the_limit_are_counted(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify_module, "MAX_PROBLEMS", 2)
    spoil(path, "UPDATE batches_1 SET at = at + 1")
    report = verify(path)
    assert (len(report.problems), report.more_problems) == (2, 4)
    assert not report.ok


def test_a_file_that_is_not_there_is_an_error_and_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="No such file"):
        verify(tmp_path / "none.db")
    assert list(tmp_path.iterdir()) == []
