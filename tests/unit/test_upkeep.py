"""The loops that keep the journal in order."""

from __future__ import annotations

import logging
from pathlib import Path

import anyio
import pytest

from steprail_daemon import upkeep
from steprail_daemon.journal.checkpoint import Checkpoint
from steprail_daemon.journal.retention import HOUR_NS, Keep
from steprail_daemon.journal.sqlite import SqliteStore
from steprail_daemon.testing.store_kit import make_batch

pytestmark = pytest.mark.anyio

NOW = 100 * HOUR_NS


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SqliteStore:
    for name in ("CHECKPOINT_SECONDS", "PLAN_SECONDS", "TURN_SECONDS"):
        monkeypatch.setattr(upkeep, name, 0.001)
    store = SqliteStore(tmp_path / "journal.db")
    store.append(make_batch(1, 1, (b"old",), opens_session="ses_1", at=HOUR_NS))
    return store


async def test_what_is_old_is_removed_whenever_it_becomes_so(store: SqliteStore) -> None:
    keep = Keep(10 * HOUR_NS, 1 << 40)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(upkeep.retention, store, keep, lambda: NOW)
        for seq in (2, 3):
            store.append(make_batch(1, seq, (b"more",), at=HOUR_NS))
            with anyio.fail_after(10):
                while store.earliest_seq(1) < seq:  # noqa: ASYNC110 - what a thread does is announced by nobody
                    await anyio.sleep(0.001)
        tasks.cancel_scope.cancel()
    store.close()


async def test_a_journal_that_is_too_large_with_nothing_to_remove_is_told_once_an_hour(
    store: SqliteStore, caplog: pytest.LogCaptureFixture
) -> None:
    now, calls = NOW, 0

    def clock() -> int:
        nonlocal calls
        calls += 1
        return now

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(upkeep.retention, store, Keep(1000 * HOUR_NS, 1), clock)
        for hour in (1, 2):
            with anyio.fail_after(10):
                before = calls
                while len(_warnings(caplog)) < hour or calls < before + 10:  # noqa: ASYNC110 - as above
                    await anyio.sleep(0.001)
            assert len(_warnings(caplog)) == hour
            now += HOUR_NS
        tasks.cancel_scope.cancel()
    assert "journal.retain.bytes is 1" in _warnings(caplog)[0]
    store.close()


async def test_a_store_that_refuses_ends_no_loop(store: SqliteStore, caplog: pytest.LogCaptureFixture) -> None:
    done: list[Checkpoint] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(upkeep.checkpoints, store, lambda: False, done.append)
        with anyio.fail_after(10):
            while not done:  # noqa: ASYNC110 - as above
                await anyio.sleep(0.001)
            await anyio.to_thread.run_sync(store.close)
            tasks.start_soon(upkeep.retention, store, Keep(1, 1), lambda: NOW)
            while not {"checkpointed:", "cleared"} <= {word for line in _warnings(caplog) for word in line.split()}:  # noqa: ASYNC110
                await anyio.sleep(0.001)
        tasks.cancel_scope.cancel()


def _warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [entry.getMessage() for entry in caplog.records if entry.levelno == logging.WARNING]
