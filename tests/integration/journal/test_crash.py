"""What was committed is there, whenever the process dies, and a disk that refuses loses nothing."""

import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from steprail_daemon.journal.sqlite import SqliteStore
from steprail_daemon.journal.verify import verify

APPENDER = Path(__file__).parent / "appender.py"
LIVES = 20
WHOLE = 1 << 30


@contextmanager
def appender(path: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, str(APPENDER), str(path), *options], stdout=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        process.wait(timeout=20)
        assert process.stdout is not None
        process.stdout.close()


def lines(process: subprocess.Popen[bytes]) -> Iterator[bytes]:
    assert process.stdout is not None
    for line in process.stdout:
        # The kill may have cut the last line.
        if line.endswith(b"\n"):
            yield line


def seqs_of(store: SqliteStore, session_no: int) -> list[int]:
    batches = store.read(session_no, 0, WHOLE)
    return [seq for batch in batches for seq in range(batch.first_seq, batch.last_seq + 1)]


def test_every_reported_commit_survives_a_kill_at_any_moment(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    chance = random.Random(20)
    reported: dict[int, int] = {}
    epochs = set()
    for _ in range(LIVES):
        with appender(path) as process:
            wanted = chance.randrange(1, 200)
            for number, line in enumerate(lines(process)):
                session_no, last_seq = map(int, line.split())
                reported[session_no] = last_seq
                if number == wanted:
                    process.kill()
        report = verify(path)
        assert report.problems == ()
        store = SqliteStore(path)
        epochs.add(store.epoch)
        for session_no, last_seq in reported.items():
            seqs = seqs_of(store, session_no)
            assert seqs == list(range(1, len(seqs) + 1))
            assert len(seqs) >= last_seq
        # A store that is only looked at and closed is one of the cases between two kills.
        store.close()
    assert len(epochs) == 1
    assert min(reported.values()) > 300


def test_a_file_that_may_not_grow_is_an_error_and_the_same_batch_is_taken_afterwards(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    failures: list[bytes] = []
    last_seqs: dict[int, int] = {}
    with appender(path, "limited") as process:
        after = 0
        for line in lines(process):
            if line.startswith(b"failed"):
                failures.append(line)
                continue
            session_no, last_seq = map(int, line.split())
            last_seqs[session_no] = last_seq
            after += bool(failures)
            if after == 50:
                process.kill()
    assert len(failures) == 1
    assert b"SQLITE_" in failures[0]
    assert verify(path).problems == ()
    store = SqliteStore(path)
    for session_no, last_seq in last_seqs.items():
        assert seqs_of(store, session_no)[:last_seq] == list(range(1, last_seq + 1))
    store.close()
