"""Checks of an abort at each point of a turn, and of a session's usefulness after it."""

from __future__ import annotations

from steprail_daemon.core.model import PermissionMode, RunState
from steprail_daemon.core.views import RunView
from steprail_daemon.engine.facade import LOCAL, DeciderRequest, SessionChange
from steprail_daemon.testing.driver_checks.asking import ASK, AWAITING
from steprail_daemon.testing.driver_checks.gating import AWAITING_DECISION, QUIET_S
from steprail_daemon.testing.driver_checks.registry import check
from steprail_daemon.testing.driver_rig import Work
from steprail_daemon.testing.driver_stage import Stage

ABORTED, COMPLETED = RunState.ABORTED, RunState.COMPLETED


async def _aborted(stage: Stage, run_id: str) -> RunView:
    stage.facade.abort_run(LOCAL, run_id, reason="no more of this")
    run = await stage.ended(run_id)
    assert (run.state, run.failure, run.text) == (ABORTED, None, ""), run
    return run


@check()
async def a_run_is_aborted_while_its_agent_starts(stage: Stage) -> None:
    session_id = await stage.new_session()
    run = await _aborted(stage, await stage.start(session_id, Work()))
    assert run.step_count == 0
    assert stage.rig.requests() == 0
    await stage.usable(session_id)


@check()
async def a_run_is_aborted_before_its_prompt_is_confirmed(stage: Stage) -> None:
    session_id = await stage.session()
    stage.tap.hold()
    run_id = await stage.start(session_id, Work(slow_model=True))
    stage.facade.abort_run(LOCAL, run_id, reason="too early")
    assert stage.get(run_id).state is RunState.ABORTING
    stage.tap.release()
    run = await stage.ended(run_id)
    assert (run.state, run.failure) == (ABORTED, None), run
    pid = stage.tap.pid
    await stage.usable(session_id)
    assert stage.tap.pid == pid


@check()
async def a_run_is_aborted_while_the_model_is_asked(stage: Stage) -> None:
    session_id = await stage.session()
    run_id = await stage.start(session_id, Work(slow_model=True))
    await stage.requested(1)
    await stage.until(run_id, "turn_start")
    await _aborted(stage, run_id)
    await stage.quiet(QUIET_S)
    await stage.usable(session_id)


@check()
async def a_run_is_aborted_while_a_tool_runs(stage: Stage) -> None:
    session_id = await stage.session()
    run_id = await stage.start(session_id, Work(slow_tool=True))
    await stage.until(run_id, "tool_start")
    run = await _aborted(stage, run_id)
    assert (run.step_count, stage.rig.requests()) == (0, 1)
    await stage.quiet(QUIET_S)
    await stage.usable(session_id)


@check("max_decision_hold_ns", covers=("abort_keeps_results", "step_gate"))
async def a_run_is_aborted_at_the_gate(stage: Stage) -> None:
    session_id = await stage.session()
    run_id = await stage.start(session_id, Work(steps=3, calls=2), decider=DeciderRequest())
    await stage.asked(run_id, AWAITING_DECISION)
    run = await _aborted(stage, run_id)
    assert (run.step_count, stage.rig.requests()) == (1, 1)
    await stage.quiet(QUIET_S)
    await stage.usable(session_id)
    if stage.capabilities.abort_keeps_results:
        assert stage.rig.carried() == 3


@check("permissions")
async def a_run_is_aborted_while_it_asks_for_leave(stage: Stage) -> None:
    session_id = await stage.session(permission_mode=ASK)
    run_id = await stage.start(session_id, Work(asks=True, calls=2))
    await stage.asked(run_id, AWAITING)
    await _aborted(stage, run_id)
    assert stage.rig.requests() == 1
    assert stage.rig.changes() in (None, 0)
    stage.facade.update_session(LOCAL, session_id, SessionChange(permission_mode=PermissionMode.BYPASS))
    await stage.usable(session_id)


@check()
async def an_abort_of_a_run_that_has_just_completed_changes_nothing(stage: Stage) -> None:
    session_id = await stage.session()
    run = await stage.run(session_id, Work(text="Done before you said so."))
    assert stage.facade.abort_run(LOCAL, run.run_id, reason="too late").state is COMPLETED
    await stage.usable(session_id)


@check()
async def an_abort_that_the_end_of_the_turn_overtook_leaves_the_run_completed(stage: Stage) -> None:
    session_id = await stage.session()
    run_id = await stage.start(session_id, Work(steps=0, text="I was faster."))
    await stage.until(run_id, "turn_start")
    stage.facade.abort_run(LOCAL, run_id, reason="perhaps too late")
    run = await stage.ended(run_id)
    assert run.state in (ABORTED, COMPLETED), run
    assert run.failure is None
    await stage.usable(session_id)


@check()
async def one_abort_after_another_leaves_the_session_usable(stage: Stage) -> None:
    session_id = await stage.session()
    for number in range(5):
        run_id = await stage.start(session_id, Work(slow_model=True))
        # Else it may be made while the next one is counted.
        await stage.requested(number + 1)
        await _aborted(stage, run_id)
    await stage.usable(session_id)


@check()
async def a_session_that_is_closed_by_force_leaves_no_process(stage: Stage) -> None:
    for work in (Work(slow_model=True), Work(slow_tool=True)):
        session_id = await stage.session()
        run_id = await stage.start(session_id, work)
        await stage.until(run_id, "tool_start" if work.slow_tool else "turn_start")
        assert stage.parents.agents() != set()
        await stage.facade.close_session(LOCAL, session_id, force=True)
        assert stage.parents.agents() == set()
        assert stage.get(run_id).state is ABORTED


@check()
async def an_agent_that_is_at_rest_ends_by_itself_when_its_session_is_closed(stage: Stage) -> None:
    session_id = await stage.session()
    await stage.usable(session_id)
    await stage.facade.close_session(LOCAL, session_id, force=False)
    assert stage.parents.agents() == set()
    assert stage.exit_of_agent() == (0, None)
