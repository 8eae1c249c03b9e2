"""Every store does what `journal.store` says."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from steprail_daemon.core.model import RunState
from steprail_daemon.core.records import RunEnded
from steprail_daemon.journal.memory import MemoryStore
from steprail_daemon.journal.record import encode_records
from steprail_daemon.journal.sqlite import SqliteStore
from steprail_daemon.journal.store import Store
from steprail_daemon.journal.verify import verify
from steprail_daemon.testing.store_kit import CHECKS, Check, MakeStore, make_batch
from steprail_daemon.testing.store_model import StoreHistory

OPEN: dict[str, Callable[[Path], Store]] = {
    "memory": lambda _: MemoryStore(),
    "sqlite": SqliteStore,
    "sqlite-full": lambda path: SqliteStore(path, synchronous="full"),
}


@pytest.fixture(params=OPEN)
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakeStore]:
    made: list[Store] = []

    def make() -> Store:
        store = OPEN[request.param](tmp_path / f"{len(made)}.db")
        made.append(store)
        return store

    yield make
    for store in made:
        store.close()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_store_conforms(check: Check, make_store: MakeStore) -> None:
    check(make_store)


def test_a_journal_that_a_crash_left_between_facts_and_their_events_is_whole(tmp_path: Path) -> None:
    ended = encode_records([RunEnded(RunState.FAILED, None, None, 0, None, None)])
    path = tmp_path / "journal.db"
    store = SqliteStore(path)
    store.append(make_batch(1, 1, (b"made",), opens_session="ses_a"))
    store.append(make_batch(1, 2, (b"run",), run_no=1, opens_run="run_a"))
    store.append(make_batch(1, 3, run_no=1, records=ended))
    store.close()
    assert verify(path).problems == ()
    store = SqliteStore(path)
    assert store.unpublished(1) == [(1, make_batch(1, 3).at, ended)]
    store.append(make_batch(1, 3, (b"agent_end",), run_no=1, ends_run=True))
    store.close()
    assert verify(path).problems == ()


def test_a_run_that_goes_on_after_its_terminal_record_is_a_problem(tmp_path: Path) -> None:
    ended = encode_records([RunEnded(RunState.FAILED, None, None, 0, None, None)])
    path = tmp_path / "journal.db"
    store = SqliteStore(path)
    store.append(make_batch(1, 1, (b"run",), run_no=1, opens_session="ses_a", opens_run="run_a"))
    store.append(make_batch(1, 2, run_no=1, records=ended))
    store.append(make_batch(1, 2, (b"more",), run_no=1))
    store.close()
    assert [problem.message for problem in verify(path).problems] == [
        "has its terminal record but is open by table runs"
    ]


class MemoryHistory(StoreHistory):
    def make(self) -> Store:
        return MemoryStore()


class SqliteHistory(StoreHistory):
    def make(self) -> Store:
        self.directory = tempfile.TemporaryDirectory()
        self.path = Path(self.directory.name) / "journal.db"
        return SqliteStore(self.path)

    def reopen(self) -> Store:
        self.store.close()
        return SqliteStore(self.path)

    def teardown(self) -> None:
        super().teardown()
        problems = [problem.message for problem in verify(self.path).problems]
        self.directory.cleanup()
        # Records and ends of runs are invented here: they are no records, and no RunEnded is among them.
        assert [text for text in problems if "terminal record" not in text and "ecord" not in text] == []


MemoryHistory.TestCase.settings = settings(stateful_step_count=30)
# Each example makes a file and opens it several times.
SqliteHistory.TestCase.settings = settings(stateful_step_count=30, max_examples=settings().max_examples // 5)
TestMemoryHistory = MemoryHistory.TestCase
TestSqliteHistory = SqliteHistory.TestCase
