"""A new life of the daemon on the journal of the last one, and the orderly end."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from tests.unit.engine.stage import WatchedStore, engine_stage

from steprail_daemon.core.errors import StepRailError
from steprail_daemon.core.model import SECOND, DecisionSource, RunState, SessionState
from steprail_daemon.engine.facade import LOCAL, ContinueRun, DeciderRequest, StartRun

pytestmark = pytest.mark.anyio


async def test_a_live_run_ends_as_daemon_restarted_and_its_session_resumes_with_the_next_one(tmp_path: Path) -> None:
    store = WatchedStore([])
    async with engine_stage(tmp_path, store) as before:
        session_id, run_id, process = await before.running(decider=DeciderRequest())
        process.step("a", "gate-1")
        seen = len(before.events(session_id))
        written = len(process.sent)
        # The life ends here as by SIGKILL: nobody says goodbye.
        async with engine_stage(tmp_path, store) as after:
            after.recover()
            assert len(process.sent) == written
            view = after.engine.get_run(LOCAL, run_id)
            assert view.state is RunState.FAILED
            assert view.failure is not None
            assert view.failure.reason == "DAEMON_RESTARTED"
            assert view.failure.resumable_at_step == 1
            decision = view.decisions[view.steps[0].step_id]
            assert decision.source is DecisionSource.RESTART
            assert not decision.delivered
            assert after.engine.get_session(LOCAL, session_id).state is SessionState.SUSPENDED
            events = after.events(session_id)
            assert [event.seq for event in events] == list(range(1, len(events) + 1))
            assert len(events) > seen
            assert sum(event.HasField("agent_end") for event in events) == 1
            assert after.launcher.processes == []

            again = await after.engine.continue_run(LOCAL, ContinueRun(run_id=run_id))
            resumed = await after.launcher.next_process()
            assert any(part.startswith("--resume=") for part in resumed.argv)
            resumed.handshake()
            assert resumed.prompts() == ["Continue."]
            resumed.take_prompt()
            assert again.state is RunState.RUNNING


async def test_recovering_twice_changes_nothing_the_second_time(tmp_path: Path) -> None:
    store = WatchedStore([])
    async with engine_stage(tmp_path, store) as stage:
        session_id, run_id, process = await stage.running()
        process.step("a", "gate-1")
        async with engine_stage(tmp_path, store) as second:
            second.recover()
            count = len(second.events(session_id))
            async with engine_stage(tmp_path, store) as third:
                third.recover()
                assert len(third.events(session_id)) == count
                assert third.engine.get_run(LOCAL, run_id) == second.engine.get_run(LOCAL, run_id)


async def test_an_ended_run_and_its_steps_are_the_same_after_a_restart(tmp_path: Path) -> None:
    store = WatchedStore([])
    async with engine_stage(tmp_path, store) as before:
        session_id, run_id, process = await before.running()
        process.step("a", "gate-1")
        process.step("b", "gate-2")
        process.end_turn("completed", "done")
        view, steps = before.engine.get_run(LOCAL, run_id), before.engine.steps(LOCAL, run_id, 0, 10)
        async with engine_stage(tmp_path, store) as after:
            after.recover()
            assert after.engine.get_run(LOCAL, run_id) == view
            assert after.engine.steps(LOCAL, run_id, 0, 10) == steps
            assert [step.number for step in after.engine.steps(LOCAL, run_id, 1, 10)] == [2]
            assert len(after.engine.steps(LOCAL, run_id, 0, 1)) == 1
            assert after.engine.get_session(LOCAL, session_id).steps_before == 2


async def test_a_drain_stops_held_runs_refuses_new_ones_and_ends_every_process(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        session_id, run_id, process = await stage.running(decider=DeciderRequest())
        process.step("a", "gate-1")
        view = stage.engine.get_run(LOCAL, run_id)
        async with anyio.create_task_group() as tasks:

            async def end() -> None:
                await stage.end(window_ns=5 * SECOND, stop_budget_ns=5 * SECOND, longest_end_ns=5 * SECOND)

            tasks.start_soon(end)
            await stage.until(lambda: "gate-1" in process.answers())
            assert view.state is RunState.STOPPING
            with pytest.raises(StepRailError, match="DRAINING"):
                await stage.engine.start_run(LOCAL, StartRun(session_id=session_id, prompt="x"))
            process.end_turn("hook_stopped")
        assert view.state is RunState.STOPPED
        assert view.stop_reason is not None
        assert view.stop_reason.source is DecisionSource.DRAIN
        assert process.exited


async def test_a_drain_aborts_what_does_not_reach_a_boundary_in_its_window(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        _, run_id, process = await stage.running()
        view = stage.engine.get_run(LOCAL, run_id)
        async with anyio.create_task_group() as tasks:

            async def end() -> None:
                await stage.end(window_ns=SECOND // 100, longest_end_ns=5 * SECOND)

            tasks.start_soon(end)
            await stage.until(lambda: view.state is RunState.ABORTING)
            process.end_turn("aborted_streaming")
        assert view.state is RunState.ABORTED
        assert process.exited
