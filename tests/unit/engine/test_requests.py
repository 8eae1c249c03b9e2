"""A request is remembered with what it did, from its commit on and over a restart."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from tests.unit.engine.stage import Stage, WatchedStore, engine_stage

from steprail_daemon.core.errors import StepRailError, Unavailable
from steprail_daemon.core.model import DecisionAction
from steprail_daemon.engine import requests
from steprail_daemon.engine.facade import (
    LOCAL,
    REQUEST_RETENTION_NS,
    Caller,
    CreateSession,
    DeciderRequest,
    RequestKey,
    SessionChange,
    StartRun,
)
from steprail_daemon.engine.requests import Requests
from steprail_daemon.testing.store_kit import make_request

pytestmark = pytest.mark.anyio


def asking(request_id: str) -> Caller:
    return msgspec.structs.replace(LOCAL, request=RequestKey(request_id, f"method of {request_id}", b"digest"))


def results(stage: Stage) -> dict[str, str]:
    """Give what the journal has of requests."""
    assert all(row.method == f"method of {row.request_id}" for row in stage.store.requests(0))
    return {row.request_id: row.result for row in stage.store.requests(0)}


async def test_every_verb_s_request_is_in_the_journal_and_known_after_a_restart(tmp_path: Path) -> None:
    store = WatchedStore([])
    async with engine_stage(tmp_path, store) as stage:
        engine = stage.engine
        session = await engine.create_session(asking("create"), CreateSession(agent="claude", cwd=str(tmp_path)))
        session_id = session.session_id
        process = await stage.launcher.next_process()
        process.handshake()
        engine.update_session(asking("update"), session_id, SessionChange(labels={"a": "b"}))
        run = await engine.start_run(
            asking("start"), StartRun(session_id=session_id, prompt="go", decider=DeciderRequest())
        )
        process.take_prompt()
        process.step("a", "gate-1")
        step_id = run.steps[0].step_id
        engine.submit_decision(asking("decide"), run.run_id, step_id, DecisionAction.CONTINUE, reason="", error="")
        engine.stop_run(asking("stop"), run.run_id, reason="")
        engine.abort_run(asking("abort"), run.run_id, reason="")
        process.end_turn("aborted_streaming")
        await engine.close_session(asking("close"), session_id, force=True)
        other = await stage.session()
        process = stage.launcher.processes[-1]
        await engine.close_session(LOCAL, other[0], force=True)
        engine.delete_session(asking("delete"), other[0])
        wanted = {
            "create": session_id,
            "update": session_id,
            "start": run.run_id,
            "decide": step_id,
            "stop": run.run_id,
            "abort": run.run_id,
            "close": session_id,
            "delete": other[0],
        }
        assert results(stage) == wanted
        async with engine_stage(tmp_path, store) as after:
            after.recover()
            for request_id, result in wanted.items():
                row = after.engine.remembered(LOCAL, request_id)
                assert row is not None
                assert row.result == result
            assert after.engine.remembered(Caller("another"), "start") is None


async def test_what_is_refused_is_not_remembered(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        session_id, run_id, process = await stage.running(decider=DeciderRequest())
        with pytest.raises(StepRailError, match="DECISION_NOT_PENDING"):
            stage.engine.submit_decision(asking("early"), run_id, "x", DecisionAction.STOP, reason="", error="")
        with pytest.raises(StepRailError, match="SESSION_BUSY"):
            await stage.engine.start_run(asking("busy"), StartRun(session_id=session_id, prompt="go"))
        stage.store.broken = True
        with pytest.raises(Unavailable):
            stage.engine.update_session(asking("refused"), session_id, SessionChange(labels={"a": "b"}))
        stage.store.broken = False
        process.end_turn("completed", "done")
        assert results(stage) == {}
        assert stage.engine.remembered(LOCAL, "refused") is None


async def test_a_request_that_changed_nothing_is_remembered_alone(tmp_path: Path) -> None:
    store = WatchedStore([])
    async with engine_stage(tmp_path, store) as stage:
        _, run_id, process = await stage.running()
        process.end_turn("completed", "done")
        stage.engine.stop_run(asking("late"), run_id, reason="")
        assert results(stage) == {}
        stage.engine.remember(asking("late"), run_id)
        stage.engine.remember(asking("late"), "another result")
        assert results(stage) == {"late": run_id}


async def test_a_request_whose_commit_waits_for_the_journal_is_remembered_with_it(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        _, run_id, process = await stage.running(decider=DeciderRequest())
        process.step("a", "gate-1")
        step_id = stage.engine.get_run(LOCAL, run_id).steps[0].step_id
        stage.store.broken = True
        with pytest.raises(Unavailable):
            stage.engine.submit_decision(asking("decide"), run_id, step_id, DecisionAction.STOP, reason="", error="")
        assert stage.engine.remembered(LOCAL, "decide") is None
        stage.store.broken = False
        await stage.until(lambda: stage.engine.remembered(LOCAL, "decide") is not None)
        assert results(stage) == {"decide": step_id}


async def test_a_deleted_session_s_number_is_not_given_again_after_a_restart(tmp_path: Path) -> None:
    store = WatchedStore([])
    async with engine_stage(tmp_path, store) as stage:
        session_id, _ = await stage.session()
        await stage.engine.close_session(LOCAL, session_id, force=True)
        stage.engine.delete_session(LOCAL, session_id)
        async with engine_stage(tmp_path, store) as after:
            after.recover()
            assert after.engine.list_sessions(LOCAL) == []
            again, _ = await after.session()
            assert after.runner(again).session_no == 2


def test_an_id_counts_for_a_day_and_no_longer() -> None:
    index, me = Requests(), Caller("me", "team")
    index.load([make_request("id", at=100)])
    assert index.find(me, "id", 100 + REQUEST_RETENTION_NS) == make_request("id", at=100)
    assert index.find(me, "id", 101 + REQUEST_RETENTION_NS) is None


def test_the_oldest_are_forgotten_where_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "MAX_REQUESTS", 2)
    index, me = Requests(), Caller("me", "team")
    for request_id in ("a", "b", "a", "c"):
        index.add(make_request(request_id))
    assert [index.find(me, request_id, 1) is not None for request_id in "abc"] == [True, False, True]
