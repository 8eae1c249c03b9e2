"""Checks of an agent whose process ends when it should not, and of taking its conversation up again."""

from __future__ import annotations

import uuid

from steprail_daemon.core.model import PermissionMode, RunState, SessionState
from steprail_daemon.core.views import RunView
from steprail_daemon.engine.facade import LOCAL, DeciderRequest, SessionChange
from steprail_daemon.testing.driver_checks.asking import ASK, AWAITING
from steprail_daemon.testing.driver_checks.gating import AWAITING_DECISION
from steprail_daemon.testing.driver_checks.registry import check
from steprail_daemon.testing.driver_rig import Work
from steprail_daemon.testing.driver_stage import Stage, refusal, steps_rule


async def _lost(stage: Stage, run_id: str) -> RunView:
    """Kill the agent and see what becomes of its run."""
    stage.kill()
    run = await stage.ended(run_id)
    assert run.state is RunState.FAILED, run
    assert run.failure is not None
    assert run.failure.reason == "AGENT_EXITED", run.failure
    await stage.until_session(run.session_id, SessionState.SUSPENDED)
    assert stage.parents.agents() == set()
    return run


@check("resume")
async def an_agent_that_ends_before_it_confirms_the_prompt_fails_the_run(stage: Stage) -> None:
    session_id = await stage.session()
    stage.tap.hold()
    run_id = await stage.start(session_id, Work(slow_model=True))
    await _lost(stage, run_id)
    stage.tap.release()
    await stage.usable(session_id)


@check("resume")
async def an_agent_that_ends_before_its_confirmation_is_heard_is_not_begun_anew_over_what_it_stored(
    stage: Stage,
) -> None:
    session_id = await stage.session()
    stage.tap.hold()
    run_id = await stage.start(session_id, Work(slow_model=True))
    await stage.requested(1)
    await _lost(stage, run_id)
    stage.tap.release()
    await stage.usable(session_id)


@check("resume")
async def an_agent_that_ends_while_the_model_is_asked_fails_the_run_and_resumes(stage: Stage) -> None:
    session_id = await stage.session()
    await stage.usable(session_id)
    run_id = await stage.start(session_id, Work(slow_model=True))
    await stage.requested(3)
    await stage.until(run_id, "turn_start")
    await _lost(stage, run_id)
    await stage.usable(session_id)
    assert stage.rig.carried() == 2


@check("resume")
async def an_agent_that_ends_while_a_tool_runs_fails_the_run_and_resumes(stage: Stage) -> None:
    session_id = await stage.session()
    await stage.usable(session_id)
    run_id = await stage.start(session_id, Work(slow_tool=True))
    await stage.until(run_id, "tool_start")
    await _lost(stage, run_id)
    await stage.usable(session_id)
    assert stage.rig.carried() >= 2


@check("resume", "max_decision_hold_ns", covers=("step_gate",))
async def an_agent_that_ends_at_the_gate_has_kept_every_result(stage: Stage) -> None:
    session_id = await stage.session()
    run_id = await stage.start(session_id, Work(steps=3, calls=2), decider=DeciderRequest())
    await stage.asked(run_id, AWAITING_DECISION)
    run = await _lost(stage, run_id)
    assert run.failure is not None
    assert run.failure.resumable_at_step == 1
    again = await stage.go_on(run_id, Work(steps=0, text="I remember both."))
    assert (again.state, again.text) == (RunState.COMPLETED, "I remember both."), again
    assert (stage.rig.requests(), stage.rig.carried()) == (2, 2)


@check("resume", "permissions")
async def an_agent_that_ends_while_it_asks_for_leave_fails_the_run_and_resumes(stage: Stage) -> None:
    session_id = await stage.session(permission_mode=ASK)
    run_id = await stage.start(session_id, Work(asks=True))
    await stage.asked(run_id, AWAITING)
    run = await _lost(stage, run_id)
    assert not run.pending_permissions
    assert stage.rig.changes() in (None, 0)
    stage.facade.update_session(LOCAL, session_id, SessionChange(permission_mode=PermissionMode.BYPASS))
    await stage.usable(session_id)


@check("resume", "step_gate")
async def an_agent_that_ends_between_runs_is_started_again_with_its_conversation(stage: Stage) -> None:
    session_id = await stage.session()
    run = await stage.run(session_id, Work(steps=5, calls=2), stop_rules=(steps_rule(1),))
    own_id = stage.get_session(session_id).agent_session_id
    stage.kill()
    await stage.until_session(session_id, SessionState.SUSPENDED)
    again = await stage.go_on(run.run_id, Work(steps=0, text="All there."))
    assert (again.state, again.text, stage.rig.carried()) == (RunState.COMPLETED, "All there.", 2), again
    assert stage.get_session(session_id).agent_session_id == own_id


@check("resume")
async def another_session_takes_a_conversation_up(stage: Stage) -> None:
    session_id = await stage.session()
    await stage.usable(session_id)
    own_id = stage.get_session(session_id).agent_session_id
    await stage.facade.close_session(LOCAL, session_id, force=False)
    other = await stage.session(resume=own_id)
    assert stage.get_session(other).agent_session_id == own_id
    await stage.usable(other)
    assert stage.rig.carried() == 2


@check("resume")
async def a_conversation_that_does_not_exist_is_not_begun_anew(stage: Stage) -> None:
    unknown = str(uuid.uuid4())
    refused = await refusal(stage.new_session(resume=unknown))
    assert refused.reason == "RESUME_UNKNOWN", refused
    assert unknown in str(refused)
    assert stage.rig.requests() == 0
    assert stage.parents.agents() == set()
    await stage.usable(await stage.session())
