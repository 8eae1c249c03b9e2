"""Runs in line: whose turn it is, what holds the queue, and what survives a restart."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import anyio
import pytest
from tests.unit.engine.stage import WatchedStore, engine_stage

from steprail_daemon.core.errors import Exhausted, StepRailError, WrongState
from steprail_daemon.core.model import SECOND, QueueMode, RunState, StepCountRule, StopRule
from steprail_daemon.core.records import AbortAsked
from steprail_daemon.engine.facade import LOCAL, ContinueRun, CreateSession, LimitsRequest

pytestmark = pytest.mark.anyio
QUEUE = QueueMode.QUEUE
ONE_STEP = (StopRule("one", StepCountRule(1)),)


async def test_a_queued_run_gets_its_turn_when_the_one_before_is_completed(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        session_id, first, process = await stage.running()
        second = await stage.start(session_id, "second", queue=QUEUE)
        third = await stage.start(session_id, "third", queue=QUEUE)
        session = stage.engine.get_session(LOCAL, session_id)
        assert (session.active_run_id, session.queued_run_ids) == (first, [second.run_id, third.run_id])
        assert process.prompts() == ["go"]

        process.end_turn("completed", "done")
        await stage.until(lambda: process.prompts() == ["go", "second"])
        process.take_prompt()
        assert second.state is RunState.RUNNING
        assert third.state is RunState.QUEUED
        process.end_turn("completed", "done")
        await stage.until(lambda: process.prompts() == ["go", "second", "third"])


async def test_each_run_has_its_own_events_although_they_interleave(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        session_id, first, process = await stage.running()
        second = await stage.start(session_id, "second", queue=QUEUE)
        process.step("a", "gate-1")
        stage.engine.abort_run(LOCAL, second.run_id, reason="not needed")
        process.end_turn("completed", "done")

        by_run: dict[str, list[str | None]] = {first: [], second.run_id: []}
        for event in stage.events(session_id):
            if event.run_id:
                by_run[event.run_id].append(event.WhichOneof("body"))
        assert by_run[second.run_id] == ["run_state_changed", "run_state_changed", "agent_end"]
        assert by_run[first][-1] == "agent_end"
        watch = stage.engine.watch_run(LOCAL, second.run_id, 0, "")
        found = await watch.next(0)
        assert found is not None
        kinds = found.kinds
        with contextlib.suppress(StopAsyncIteration):
            while (found := await watch.next(0)) is not None:
                kinds += found.kinds
        assert list(kinds) == [21, 21, 24]


@pytest.mark.parametrize("stopped", [True, False])
async def test_after_a_stop_or_a_failure_the_queue_is_held_until_it_is_released(
    tmp_path: Path, *, stopped: bool
) -> None:
    async with engine_stage(tmp_path) as stage:
        session_id, _, process = await stage.running(stop_rules=ONE_STEP if stopped else ())
        second = await stage.start(session_id, "second", queue=QUEUE)
        if stopped:
            process.step("a", "gate-1")
            process.end_turn("hook_stopped")
        else:
            process.exit(code=1)
        session = stage.engine.get_session(LOCAL, session_id)
        assert session.queue_held
        with pytest.raises(WrongState, match="SESSION_BUSY"):
            await stage.start(session_id, "at once")

        assert not stage.engine.release_queue(LOCAL, session_id).queue_held
        if not stopped:
            (await stage.launcher.next_process()).handshake()
            process = stage.launcher.processes[-1]
        await stage.until(lambda: "second" in process.prompts())
        process.take_prompt()
        assert second.state is RunState.RUNNING


async def test_a_continued_run_goes_to_the_head_of_a_held_queue(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        session_id, first, process = await stage.running(stop_rules=ONE_STEP)
        second = await stage.start(session_id, "second", queue=QUEUE)
        process.step("a", "gate-1")
        process.end_turn("hook_stopped")

        again = await stage.engine.continue_run(LOCAL, ContinueRun(run_id=first, stop_rules=()))
        await stage.until(lambda: process.prompts() == ["go", "Continue."])
        process.take_prompt()
        assert again.state is RunState.RUNNING
        process.end_turn("completed", "done")
        await stage.until(lambda: process.prompts()[-1] == "second")
        assert second.turn_came


async def test_aborting_what_waits_ends_the_hold(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        session_id, _, process = await stage.running(stop_rules=ONE_STEP)
        second = await stage.start(session_id, "second", queue=QUEUE)
        process.step("a", "gate-1")
        process.end_turn("hook_stopped")
        stage.engine.abort_run(LOCAL, second.run_id, reason="")

        assert second.state is RunState.ABORTED
        assert not stage.engine.get_session(LOCAL, session_id).queue_held
        assert (await stage.start(session_id, "third")).state is RunState.QUEUED


async def test_a_queue_has_a_length_and_a_time(tmp_path: Path) -> None:
    async with engine_stage(tmp_path, queue_length=1) as stage:
        session_id, _, _ = await stage.running()
        waiting = await stage.start(
            session_id, "second", queue=QUEUE, limits=LimitsRequest(queue_timeout_ns=SECOND // 50)
        )
        with pytest.raises(Exhausted, match="QUEUE_FULL"):
            await stage.start(session_id, "third", queue=QUEUE)

        await stage.until(lambda: waiting.ended)
        assert waiting.state is RunState.FAILED
        assert waiting.failure is not None
        assert waiting.failure.reason == "QUEUE_TIMEOUT"


async def test_queued_runs_survive_a_restart_and_the_live_one_does_not(tmp_path: Path) -> None:
    store = WatchedStore([])
    async with engine_stage(tmp_path, store) as before:
        session_id, first, process = await before.running()
        second = (await before.start(session_id, "second", queue=QUEUE)).run_id
        third = (await before.start(session_id, "third", queue=QUEUE)).run_id
        process.say()

    async with engine_stage(tmp_path, store) as after:
        after.recover()
        assert after.engine.get_run(LOCAL, first).state is RunState.FAILED
        session = after.engine.get_session(LOCAL, session_id)
        assert session.queue_held
        assert session.queued_run_ids == [second, third]
        after.engine.release_queue(LOCAL, session_id)
        process = await after.launcher.next_process()
        process.handshake()
        assert process.prompts() == ["second"]


async def test_a_run_whose_turn_had_come_but_whose_prompt_was_not_given_begins_after_a_restart(tmp_path: Path) -> None:
    store = WatchedStore([])
    async with engine_stage(tmp_path, store) as before:
        session_id, _ = await before.session()
        before.runner(session_id).host.end()
        run_id = (await before.start(session_id, "go")).run_id
        assert before.engine.get_session(LOCAL, session_id).active_run_id == run_id

    async with engine_stage(tmp_path, store) as after:
        after.recover()
        process = await after.launcher.next_process()
        process.handshake()
        process.take_prompt()
        assert after.engine.get_run(LOCAL, run_id).state is RunState.RUNNING


async def test_a_drain_leaves_what_is_queued(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        session_id, _, process = await stage.running()
        second = await stage.start(session_id, "second", queue=QUEUE)
        stage.drain.begin(reason="upgrade")
        status = stage.engine.drain_status()
        assert (status.live_runs, status.queued_runs, status.reason) == (2, 1, "upgrade")
        process.end_turn("completed", "done")
        with pytest.raises(StepRailError, match="DRAINING"):
            await stage.start(session_id, "third", queue=QUEUE)
        await stage.until(lambda: stage.runner(session_id).run is None)
        assert second.state is RunState.QUEUED
        assert process.prompts() == ["go"]


async def test_a_drain_gives_no_prompt_to_a_run_whose_agent_is_still_starting(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        view = await stage.engine.create_session(LOCAL, CreateSession(agent="claude", cwd=str(stage.directory)))
        process = await stage.launcher.next_process()
        run = await stage.start(view.session_id)
        stage.drain.begin(reason="upgrade")
        process.handshake()
        assert process.prompts() == []
        status = stage.engine.drain_status()
        assert (status.live_runs, status.queued_runs) == (1, 1)
        with anyio.fail_after(10):
            await stage.drain.run(longest_end_ns=SECOND, hurry=asyncio.Event())
        assert (run.state, run.stop_requested) == (RunState.QUEUED, None)
        assert stage.engine.drain_status().processes == 0


async def test_a_drain_waits_for_no_run_whose_agent_does_not_start(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        view = await stage.engine.create_session(LOCAL, CreateSession(agent="claude", cwd=str(stage.directory)))
        await stage.launcher.next_process()
        run = await stage.start(view.session_id)
        stage.drain.begin(reason="upgrade", window_ns=3600 * SECOND)
        with anyio.fail_after(10):
            await stage.drain.run(longest_end_ns=SECOND, hurry=asyncio.Event())
        assert run.state is RunState.QUEUED
        assert stage.engine.drain_status().processes == 0
        assert len(stage.launcher.processes) == 1


async def test_a_closed_session_takes_its_queue_along(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        session_id, first, _ = await stage.running()
        second = await stage.start(session_id, "second", queue=QUEUE)
        with pytest.raises(WrongState, match="SESSION_BUSY"):
            await stage.engine.close_session(LOCAL, session_id, force=False)
        view = await stage.engine.close_session(LOCAL, session_id, force=True, reason="enough")
        assert view.state_reason == "enough"
        assert second.state is RunState.ABORTED
        assert second.abort_asked == AbortAsked(LOCAL.name, "enough")
        assert stage.engine.get_run(LOCAL, first).state is RunState.ABORTED


async def test_a_run_that_waits_for_a_process_begins_when_there_is_room(tmp_path: Path) -> None:
    async with engine_stage(tmp_path, max_processes=1) as stage:
        one, _, first_process = await stage.running(stop_rules=ONE_STEP)
        await stage.start(one, "later", queue=QUEUE)
        first_process.exit(code=1)
        # The queue of the first session is held, its process gone: the second session takes the place.
        other, process = await stage.session()
        run = await stage.start(other, "other")
        process.take_prompt()
        stage.engine.release_queue(LOCAL, one)
        assert len(stage.launcher.processes) == 2
        process.end_turn("completed", "done")
        assert run.state is RunState.COMPLETED
        await stage.until(lambda: len(stage.launcher.processes) == 3)
