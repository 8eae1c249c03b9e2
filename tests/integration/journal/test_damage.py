"""A session that is damaged in the file: the daemon comes up, shows it as broken, and runs the others."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import anyio
import pytest
from tests.framework.daemon import Daemon, short_directory
from tests.integration.journal.files import crash

from steprail.client import Client
from steprail.v1 import events_pb2
from steprail_daemon.journal.sqlite import SqliteStore
from steprail_daemon.journal.store import JournalUnusable
from steprail_daemon.journal.verify import verify
from steprail_daemon.testing.store_kit import make_batch

BROKEN, SUSPENDED = events_pb2.SESSION_STATE_BROKEN, events_pb2.SESSION_STATE_SUSPENDED
AGENTS = """
[agents.scripted]
home = "isolated"
permission_mode = "bypass"
"""


@pytest.mark.timeout(120)
def test_the_daemon_starts_with_a_damaged_session_and_says_which_it_is() -> None:
    with short_directory() as directory:
        daemon = Daemon(directory, ["true"], settings=AGENTS)
        anyio.run(_with_damage, daemon)
        problems = [f"{problem.place}: {problem.message}" for problem in verify(daemon.state / "journal.db").problems]
        assert any("session 1" in line and "checksum" in line for line in problems), problems


async def _with_damage(daemon: Daemon) -> None:
    await daemon.start()
    try:
        async with Client(daemon.address) as client:
            sessions = [(await client.create_session("scripted", str(daemon.workspace))).session_id for _ in range(2)]
            run = await client.start_run(sessions[0], "look around")
            await client.wait_run(run.run_id, timeout=60)
    finally:
        assert await anyio.to_thread.run_sync(daemon.stop) == 0
    connection = sqlite3.connect(daemon.state / "journal.db", isolation_level=None)
    connection.execute("UPDATE batches_1 SET records = x'010000000090' WHERE run_no = 1 AND records NOT NULL")
    connection.close()
    await daemon.start()
    try:
        async with Client(daemon.address) as client:
            states = {session.session_id: session for session in await client.list_sessions()}
            assert states[sessions[0]].state == BROKEN
            assert "checksum" in states[sessions[0]].broken_reason
            assert states[sessions[1]].state == SUSPENDED
            again = await client.start_run(sessions[1], "look around")
            ended = await client.wait_run(again.run_id, timeout=60)
            assert ended.state == events_pb2.RUN_STATE_COMPLETED
        assert f"session {sessions[0]} is broken" in daemon.log.read_text()
    finally:
        assert await anyio.to_thread.run_sync(daemon.stop) == 0


def test_a_session_whose_pages_are_damaged_is_still_listed(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    store = SqliteStore(path)
    store.append(make_batch(1, 1, (b"e",), opens_session="ses_1"))
    store.append(make_batch(1, 2, (b"e",), run_no=1, opens_run="run_1"))
    store.append(make_batch(2, 1, (b"e",), opens_session="ses_2"))
    (page,) = store._db.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'batches_1'").fetchone()
    store.close()
    with path.open("r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(b"\xff" * 100)
    store = SqliteStore(path)
    assert [(row.session_no, row.last_seq) for row in store.sessions()] == [(1, 2), (2, 1)]
    with pytest.raises(JournalUnusable, match="malformed"):
        list(store.records(1))
    store.delete_session(1)
    assert [row.session_no for row in store.sessions()] == [2]
    crash(store)
