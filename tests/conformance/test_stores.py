"""Every store does what `journal.store` says."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from steprail_daemon.journal.memory import MemoryStore
from steprail_daemon.journal.sqlite import SqliteStore
from steprail_daemon.journal.store import Store
from steprail_daemon.journal.verify import verify
from steprail_daemon.testing.store_kit import CHECKS, Check, MakeStore
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
