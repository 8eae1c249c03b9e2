"""The file of the SQLite store: who may read it, which files are refused, epochs, locks, full disks, checkpoints."""

import sqlite3
import stat
import threading
from pathlib import Path

import pytest
from tests.integration.journal.files import crash, seqs

from steprail_daemon.journal import checkpoint as checkpoint_module
from steprail_daemon.journal.schema import APPLICATION_ID, SCHEMA_VERSION
from steprail_daemon.journal.sqlite import SqliteStore
from steprail_daemon.journal.store import JournalError, JournalUnusable
from steprail_daemon.journal.verify import verify
from steprail_daemon.testing.store_kit import make_batch, make_blob

WHOLE = 1 << 30


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


def opened(path: Path, **options: object) -> SqliteStore:
    store = SqliteStore(path, **options)  # type: ignore[arg-type]  # passed through
    if store.session("ses_a") is None:
        store.append(make_batch(1, 1, (b"first",), opens_session="ses_a"))
    return store


def test_the_file_and_its_side_files_are_for_their_owner_alone(path: Path) -> None:
    store = opened(path)
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    store.close()
    assert modes == {"journal.db": 0o600, "journal.db-wal": 0o600, "journal.db-shm": 0o600}


def test_a_clean_close_leaves_one_file(path: Path) -> None:
    opened(path).close()
    assert [file.name for file in path.parent.iterdir()] == ["journal.db"]


def test_the_file_names_its_format(path: Path) -> None:
    opened(path).close()
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
        assert connection.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)
    connection.close()


def test_a_file_of_version_1_learns_which_sessions_have_a_blob(path: Path) -> None:
    store, blob, lone = opened(path), make_blob(b"b" * 100), make_blob(b"lone")
    event = b"event of " + blob.blob_id.encode()
    for session_no in (2, 66):
        session_id = f"ses_{session_no}"
        store.append(make_batch(session_no, 1, (event,), opens_session=session_id, blobs=(blob, lone)))
    store.append(make_batch(3, 1, (b"no blob",), opens_session="ses_3"))
    store.close()
    connection = sqlite3.connect(path)
    for table in ("blob_sessions", "kept", "requests", "deleted_sessions"):
        connection.execute(f"DROP TABLE {table}")
    connection.execute("PRAGMA user_version = 1")
    connection.close()

    for _ in range(2):
        store = SqliteStore(path)
        assert store.blob_sessions(blob.blob_id) == {2, 66}
        assert store.blob_sessions(lone.blob_id) == {1, 2, 3, 66}
        store.close()


def test_a_file_of_a_newer_version_is_refused_and_left_alone(path: Path) -> None:
    opened(path).close()
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    connection.close()
    before = path.read_bytes()
    words = f"version {SCHEMA_VERSION + 1}, this program knows versions up to {SCHEMA_VERSION}"
    with pytest.raises(JournalError, match=words):
        SqliteStore(path)
    with pytest.raises(JournalError, match="version"):
        verify(path)
    assert path.read_bytes() == before


def test_another_program_s_database_is_refused_and_left_alone(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE other (x)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(JournalError, match="not a journal of steprail"):
        SqliteStore(path)
    assert path.read_bytes() == before


def test_a_file_that_is_no_database_is_refused(path: Path) -> None:
    path.write_bytes(b"#!/bin/sh\n" * 1000)
    with pytest.raises(JournalError, match="not a database"):
        SqliteStore(path)


def test_a_directory_that_is_not_there_is_told(path: Path) -> None:
    with pytest.raises(JournalError, match="No such file or directory"):
        SqliteStore(path.parent / "none" / "journal.db")


def test_a_creation_that_was_cut_off_is_begun_anew(path: Path) -> None:
    path.touch()
    opened(path).close()
    assert verify(path).ok


@pytest.mark.parametrize(
    ("synchronous", "clean", "boot_id", "kept"),
    [
        ("normal", True, "boot-2", True),
        ("normal", False, "boot-1", True),
        ("normal", False, "boot-2", False),
        ("normal", False, "", False),
        ("full", False, "boot-2", True),
    ],
)
def test_the_epoch_changes_only_if_commits_may_have_been_lost(
    path: Path, synchronous: str, clean: bool, boot_id: str, kept: bool
) -> None:
    store = opened(path, synchronous=synchronous, boot_id="boot-1")
    epoch = store.epoch
    if clean:
        store.close()
    else:
        crash(store)
    again = opened(path, boot_id=boot_id)
    assert (again.epoch == epoch) is kept
    assert seqs(again) == [1]
    again.close()


def test_an_unknown_boot_counts_as_another_one(path: Path) -> None:
    store = opened(path, boot_id="")
    crash(store)
    again = opened(path, boot_id="")
    assert again.epoch != store.epoch
    again.close()


def test_two_files_have_two_epochs(path: Path) -> None:
    one, other = opened(path), opened(path.with_name("other.db"))
    assert one.epoch != other.epoch
    one.close()
    other.close()


def test_a_lock_held_too_long_is_an_error_and_the_batch_is_taken_after_it(path: Path) -> None:
    store = opened(path, busy_wait=0.02)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    plain = make_batch(1, 2, (b"plain",))
    edge = make_batch(1, 3, (b"edge",), run_no=1, opens_run="run_a")
    with pytest.raises(JournalError, match="database is locked"):
        store.append(plain)
    other.execute("ROLLBACK")
    store.append(plain)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(JournalError, match="database is locked"):
        store.append(edge)
    other.close()
    store.append(edge)
    assert seqs(store) == [1, 2, 3]
    store.close()
    assert verify(path).ok


def test_a_lock_held_for_a_moment_is_waited_for(path: Path) -> None:
    store = opened(path, busy_wait=20)
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    release = threading.Timer(0.05, other.execute, ("ROLLBACK",))
    release.start()
    store.append(make_batch(1, 2, (b"e",)))
    release.join()
    assert store._db.execute("PRAGMA busy_timeout").fetchone() == (0,)
    other.close()
    store.close()


def test_a_second_writer_is_noticed_by_the_key(path: Path) -> None:
    store, other = opened(path), opened(path)
    store.append(make_batch(1, 2, (b"e",)))
    other.append(make_batch(1, 3, (b"e",)))
    with pytest.raises(JournalError, match="UNIQUE constraint failed"):
        store.append(make_batch(1, 3, (b"f",)))
    other.close()
    store.close()


@pytest.mark.parametrize("edge", [False, True])
def test_a_full_disk_is_an_error_and_the_same_batch_is_taken_once_there_is_room(path: Path, edge: bool) -> None:
    store = opened(path)
    (pages,) = store._db.execute("PRAGMA page_count").fetchone()
    store._db.execute(f"PRAGMA max_page_count = {pages + 2}")
    blob = make_blob(b"b" * 60_000)
    options: dict[str, object] = {"run_no": 1, "opens_run": "run_a", "blobs": (blob,)} if edge else {}
    batch = make_batch(1, 2, (b"x" * 60_000,), **options)  # type: ignore[arg-type]  # passed through
    with pytest.raises(JournalError, match=r"disk is full \(SQLITE_FULL\)"):
        store.append(batch)
    assert seqs(store) == [1]
    assert store.run("run_a") is None
    assert store.read_blob(blob.blob_id, 0, 1) is None
    store._db.execute("PRAGMA max_page_count = 1000000")
    store.append(batch)
    assert seqs(store) == [1, 2]
    store.close()
    assert [problem.message for problem in verify(path).problems if "terminal" not in problem.message] == []


@pytest.mark.parametrize("edge", [False, True])
def test_a_read_only_file_is_an_error(path: Path, edge: bool) -> None:
    store = opened(path)
    store._db.execute("PRAGMA query_only = ON")
    batch = make_batch(1, 2, (b"e",), run_no=int(edge), opens_run="run_a" if edge else "")
    with pytest.raises(JournalError, match="readonly"):
        store.append(batch)
    store._db.execute("PRAGMA query_only = OFF")
    store.append(batch)
    store.close()


def test_a_damaged_page_is_an_error_in_the_store_s_words(path: Path) -> None:
    store = opened(path)
    for seq in range(2, 200):
        store.append(make_batch(1, seq, (b"x" * 500,)))
    store.close()
    with path.open("r+b") as file:
        (size,) = [path.stat().st_size]
        for page in range(size // 4096 - 20, size // 4096):
            file.seek(page * 4096)
            file.write(b"\xff" * 16)
    again = SqliteStore(path)
    with pytest.raises(JournalError, match="malformed"):
        again.read(1, 0, WHOLE)
    again.close()
    assert any("file" in problem.place for problem in verify(path).problems)


def test_what_was_appended_is_there_after_opening_again_and_goes_on(path: Path) -> None:
    store = opened(path)
    store.append(make_batch(1, 2, records=b"r"))
    store.append(make_batch(1, 2, (b"e",), run_no=1, opens_run="run_a"))
    store.append(make_batch(1, 3, run_no=1, records=b"s"))
    crash(store)
    again = SqliteStore(path)
    with pytest.raises(JournalError, match="first_seq is 4, next is 3"):
        again.append(make_batch(1, 4, (b"e",), run_no=1))
    again.append(make_batch(1, 3, run_no=1, records=b"t"))
    again.append(make_batch(1, 3, (b"e",), run_no=1, ends_run=True, closes_session=True))
    again.close()
    last = SqliteStore(path)
    with pytest.raises(JournalError, match="the session is closed"):
        last.append(make_batch(1, 4, (b"e",)))
    assert [records for _, records in last.records(1)] == [b"r", b"s", b"t"]
    last.close()


def test_a_removed_prefix_moves_the_earliest_sequence_number(path: Path) -> None:
    store = opened(path)
    for seq in (2, 4, 6):
        store.append(make_batch(1, seq, (b"a", b"b")))
    for keep_from in (4, 6):
        store._db.execute("DELETE FROM batches_1 WHERE last_seq < ?", (keep_from,))
        assert store.earliest_seq(1) == keep_from
        assert seqs(store)[0] == keep_from
    store.append(make_batch(1, 8, (b"e",), closes_session=True))
    store._db.execute("DELETE FROM batches_1")
    assert store.earliest_seq(1) == 9
    assert store.read(1, 0, WHOLE) == []
    store.close()
    assert verify(path).ok


def test_a_checkpoint_moves_the_log_and_cuts_it_when_idle(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_module, "TRUNCATE_ABOVE", 10_000)
    store = opened(path)
    for seq in range(2, 50):
        store.append(make_batch(1, seq, (b"x" * 1000,)))
    passive = store.checkpoint()
    assert passive.moved == passive.frames > 50
    assert not passive.begun_anew
    assert passive.wal_bytes > 10_000
    assert passive.file_bytes > 50_000
    idle = store.checkpoint(idle=True)
    assert (idle.begun_anew, idle.wal_bytes) == (True, 0)
    store.append(make_batch(1, 50, (b"e",)))
    assert seqs(store) == list(range(1, 51))
    store.close()


def test_a_log_that_grows_under_load_is_begun_anew(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_module, "RESTART_ABOVE", 50_000)
    store = opened(path)
    ends: list[int] = []
    for seq in range(2, 500):
        store.append(make_batch(1, seq, (b"x" * 1000,)))
        if seq % 50 == 0:
            ends.append(store.checkpoint().wal_bytes)
    assert max(ends) < 1_000_000
    assert seqs(store) == list(range(1, 500))
    store.close()
    assert verify(path).ok


def test_appends_go_on_beside_checkpoints_of_another_thread(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_module, "RESTART_ABOVE", 100_000)
    store = opened(path, busy_wait=20)
    done = threading.Event()
    begun_anew: list[bool] = []

    def checkpoints() -> None:
        while not done.is_set():
            begun_anew.append(store.checkpoint().begun_anew)

    thread = threading.Thread(target=checkpoints)
    thread.start()
    try:
        for seq in range(2, 3000):
            store.append(make_batch(1, seq, (b"x" * 500,)))
    finally:
        done.set()
        thread.join(timeout=30)
    assert any(begun_anew)
    assert seqs(store) == list(range(1, 3000))
    store.close()
    assert verify(path).ok


def test_a_reader_in_the_log_keeps_it_but_is_no_error(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_module, "TRUNCATE_ABOVE", 0)
    store = opened(path)
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM batches_1").fetchone()
    store.append(make_batch(1, 2, (b"e",)))
    held = store.checkpoint(idle=True)
    assert held.moved < held.frames
    assert not held.begun_anew
    reader.close()
    assert store.checkpoint(idle=True).begun_anew
    store.close()


def test_a_checkpoint_of_a_closed_store_is_an_error(path: Path) -> None:
    store = opened(path)
    store.close()
    with pytest.raises(JournalError, match="closed"):
        store.checkpoint()


def test_a_file_that_is_wrong_and_a_machine_that_refuses_are_told_apart(tmp_path: Path) -> None:
    garbage = tmp_path / "garbage.db"
    garbage.write_bytes(b"not a database" * 1000)
    with pytest.raises(JournalUnusable):
        SqliteStore(garbage)
    with pytest.raises(JournalError) as error:
        SqliteStore(tmp_path / "missing" / "journal.db")
    assert not isinstance(error.value, JournalUnusable)
