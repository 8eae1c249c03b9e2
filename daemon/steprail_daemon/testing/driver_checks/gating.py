"""Checks of the gate: that the agent waits at a step boundary, takes its answer, and loses nothing by a stop."""

from __future__ import annotations

import os
from typing import Final

from steprail_daemon.core.model import (
    SECOND,
    CostRule,
    DecisionAction,
    DecisionSource,
    FinishReason,
    FinishReasonRule,
    RunState,
    StopRule,
    TokenUsageRule,
    UsageSupport,
)
from steprail_daemon.core.views import RunView
from steprail_daemon.engine.admission import HOLD_MARGIN_NS
from steprail_daemon.engine.facade import LOCAL, ContinueRun, DeciderRequest, Guidance, SessionChange
from steprail_daemon.testing.driver_checks.registry import check
from steprail_daemon.testing.driver_rig import INPUT_TOKENS, OUTPUT_TOKENS, Work
from steprail_daemon.testing.driver_stage import Stage, refusal, steps_rule

CONTINUE, STOP = DecisionAction.CONTINUE, DecisionAction.STOP
AWAITING_DECISION, STOPPED, COMPLETED = RunState.AWAITING_DECISION, RunState.STOPPED, RunState.COMPLETED

#: Environment variable with the seconds for which an agent is held at a boundary and at a permission.
HOLD_VARIABLE: Final = "STEPRAIL_KIT_HOLD_SECONDS"
_HOLD_S: Final = 0.8
_BEFORE_DEADLINE_S: Final = 5.0
#: How long it is watched that a stopped agent makes no request.
QUIET_S: Final = 0.25


def hold_seconds(longest_ns: int | None) -> float:
    """Give how long to hold an agent: what the environment says, but less than the daemon ever would."""
    seconds = float(os.environ.get(HOLD_VARIABLE) or _HOLD_S)
    return seconds if longest_ns is None else min(seconds, (longest_ns - HOLD_MARGIN_NS) / SECOND - _BEFORE_DEADLINE_S)


def decide(stage: Stage, run: RunView, action: DecisionAction, guidance: Guidance = Guidance()) -> None:  # noqa: B008
    """Decide about the step that waits."""
    assert run.pending_decision is not None
    step_id = run.pending_decision.step_id
    stage.facade.submit_decision(LOCAL, run.run_id, step_id, action, reason="", error="", guidance=guidance)


@check("step_gate")
async def a_rule_stops_at_its_step_and_no_request_follows(stage: Stage) -> None:
    session_id = await stage.session()
    run = await stage.run(session_id, Work(steps=5, calls=2), stop_rules=(steps_rule(2),))
    assert (run.state, run.step_count, run.text) == (STOPPED, 2, ""), run
    assert run.stop_reason is not None
    assert (run.stop_reason.exact, run.stop_reason.rule_id) == (True, "steps")
    assert all(decision.delivered for decision in run.decisions.values())
    await stage.quiet(QUIET_S)
    assert stage.rig.requests() == 2


@check("step_gate", covers=("stop_leaves_trace",))
async def a_stopped_run_is_gone_on_with_and_the_next_request_has_every_result(stage: Stage) -> None:
    session_id = await stage.session()
    run = await stage.run(session_id, Work(steps=5, calls=3), stop_rules=(steps_rule(1),))
    assert run.state is STOPPED
    for number in range(1, 4):
        work = Work(steps=5, calls=3) if number < 3 else Work(steps=0, text="I saw all nine.")
        run = await stage.go_on(run.run_id, work, stop_rules=(steps_rule(1),))
        assert stage.rig.requests() == number + 1
        assert stage.rig.carried() == 3 * number
    assert (run.state, run.text) == (COMPLETED, "I saw all nine."), run
    assert stage.rig.told_of_stop() in (None, stage.capabilities.stop_leaves_trace)


@check("max_decision_hold_ns", covers=("step_gate",))
async def a_held_agent_makes_no_request_until_it_is_told_to_go_on(stage: Stage) -> None:
    hold = hold_seconds(stage.capabilities.max_decision_hold_ns)
    run_id = await stage.start(await stage.session(), Work(steps=2), decider=DeciderRequest())
    run = await stage.asked(run_id, AWAITING_DECISION)
    assert stage.rig.requests() == 1
    await stage.quiet(hold)
    decide(stage, run, CONTINUE)
    run = await stage.asked(run_id, AWAITING_DECISION)
    assert (run.step_count, stage.rig.requests(), stage.rig.carried()) == (2, 2, 1)
    decide(stage, run, CONTINUE)
    run = await stage.ended(run_id)
    assert (run.state, stage.rig.requests(), stage.rig.carried()) == (COMPLETED, 3, 2), run
    decided = [(decision.action, decision.source, decision.delivered) for decision in run.decisions.values()]
    assert decided == [(CONTINUE, DecisionSource.CLIENT, True)] * 2


@check("max_decision_hold_ns")
async def no_decision_may_take_longer_than_the_agent_provably_waits(stage: Stage) -> None:
    longest = stage.capabilities.max_decision_hold_ns
    assert longest is not None
    session_id = await stage.session()
    error = await refusal(stage.start(session_id, Work(), decider=DeciderRequest(timeout_ns=longest)))
    assert (error.reason, error.field) == ("FIELD_INVALID", "decider.timeout")


@check("step_gate", "max_decision_hold_ns")
async def a_client_stops_at_a_boundary_and_the_session_goes_on(stage: Stage) -> None:
    session_id = await stage.session()
    run_id = await stage.start(session_id, Work(steps=3, calls=2), decider=DeciderRequest())
    decide(stage, await stage.asked(run_id, AWAITING_DECISION), STOP)
    run = await stage.ended(run_id)
    assert run.state is STOPPED
    assert run.stop_reason is not None
    assert run.stop_reason.source is DecisionSource.CLIENT
    assert stage.rig.requests() == 1
    await stage.usable(session_id)
    assert stage.rig.carried() == 3


@check("step_gate")
async def a_stop_request_is_met_at_the_next_boundary(stage: Stage) -> None:
    run_id = await stage.start(await stage.session(), Work(steps=50))
    await stage.until(run_id, "step_end")
    stage.facade.stop_run(LOCAL, run_id, reason="enough")
    run = await stage.ended(run_id)
    assert run.state is STOPPED, run
    requests = stage.rig.requests()
    assert requests == run.step_count
    await stage.quiet(QUIET_S)


@check("usage", "step_gate")
async def a_rule_about_tokens_stops_where_they_are_told_for_each_step_and_is_refused_elsewhere(stage: Stage) -> None:
    rule = StopRule("tokens", TokenUsageRule(2 * (INPUT_TOKENS + OUTPUT_TOKENS)))
    started = stage.start(await stage.session(), Work(steps=5), stop_rules=(rule,))
    if stage.capabilities.usage is not UsageSupport.PER_STEP:
        error = await refusal(started)
        assert (error.reason, error.metadata["capability"]) == ("CAPABILITY_MISSING", "usage")
        return
    run = await stage.ended(await started)
    assert (run.state, run.step_count, stage.rig.requests()) == (STOPPED, 2, 2), run


@check("cost", "step_gate")
async def a_rule_about_money_stops_where_it_is_told(stage: Stage) -> None:
    session_id = await stage.session()
    run = await stage.run(session_id, Work(steps=3), stop_rules=(StopRule("cost", CostRule(1)),))
    assert run.state is STOPPED, run
    assert run.stop_reason is not None
    assert run.stop_reason.rule_id == "cost"


@check("finish_reason", "step_gate")
async def a_rule_about_the_finish_reason_stops(stage: Stage) -> None:
    rule = StopRule("finish", FinishReasonRule((FinishReason.TOOL_CALLS,)))
    run = await stage.run(await stage.session(), Work(steps=3), stop_rules=(rule,))
    assert (run.state, run.step_count, stage.rig.requests()) == (STOPPED, 1, 1), run


@check("guidance", "max_decision_hold_ns")
async def guidance_reaches_the_model_with_its_next_request(stage: Stage) -> None:
    run_id = await stage.start(await stage.session(), Work(steps=1), decider=DeciderRequest())
    run = await stage.asked(run_id, AWAITING_DECISION)
    decide(stage, run, CONTINUE, Guidance("Mind the heron."))
    run = await stage.ended(run_id)
    assert (run.state, stage.rig.requests(), stage.rig.carried()) == (COMPLETED, 2, 1), run
    assert stage.rig.saw("Mind the heron.") in (None, True)


@check("steer")
async def a_text_for_the_running_turn_is_delivered_with_the_next_boundary(stage: Stage) -> None:
    run_id = await stage.start(await stage.session(), Work(steps=20))
    await stage.until(run_id, "turn_start")
    steer_id = stage.facade.steer_run(LOCAL, run_id, "Look at the kingfisher.")
    delivered = await stage.until(run_id, "steer_delivered")
    assert delivered.steer_delivered.steer_id == steer_id
    assert stage.rig.saw("Look at the kingfisher.") in (None, True)
    run = await stage.ended(run_id)
    assert (run.state, run.step_count) == (COMPLETED, 20), run


@check("continue_without_prompt")
async def a_run_goes_on_without_a_prompt(stage: Stage) -> None:
    run = await stage.run(await stage.session(), Work(steps=5), stop_rules=(steps_rule(1),))
    request = ContinueRun(run_id=run.run_id, stop_rules=(), inherit_decider=False)
    again = await stage.ended((await stage.facade.continue_run(LOCAL, request)).run_id)
    assert (again.state, again.spec.prompt_synthesized) == (COMPLETED, False), again
    assert stage.rig.carried() >= 1


@check("step_gate")
async def a_run_that_is_gone_on_with_without_a_prompt_gets_a_neutral_one_where_the_agent_needs_it(stage: Stage) -> None:
    run = await stage.run(await stage.session(), Work(steps=5, calls=2), stop_rules=(steps_rule(1),))
    request = ContinueRun(run_id=run.run_id, stop_rules=(), inherit_decider=False)
    again = await stage.ended((await stage.facade.continue_run(LOCAL, request)).run_id)
    assert again.state is COMPLETED, again
    assert again.spec.prompt_synthesized is not stage.capabilities.continue_without_prompt
    assert stage.rig.carried() >= 2


@check("model_switch")
async def another_model_is_used_from_the_next_run_on(stage: Stage) -> None:
    session_id = await stage.session()
    await stage.usable(session_id)
    pid = stage.tap.pid
    stage.facade.update_session(LOCAL, session_id, SessionChange(model="kit-other"))
    await stage.usable(session_id)
    assert stage.rig.model() in (None, "kit-other")
    assert stage.tap.pid == pid


@check("model_switch", "max_decision_hold_ns")
async def another_model_is_used_from_a_boundary_on(stage: Stage) -> None:
    run_id = await stage.start(await stage.session(), Work(steps=1), decider=DeciderRequest())
    decide(stage, await stage.asked(run_id, AWAITING_DECISION), CONTINUE, Guidance(model="kit-other"))
    run = await stage.ended(run_id)
    assert run.state is COMPLETED, run
    assert stage.rig.model() in (None, "kit-other")


@check("resume")
async def a_session_is_started_with_another_model_where_it_cannot_be_switched(stage: Stage) -> None:
    session_id = await stage.session()
    await stage.usable(session_id)
    stage.facade.update_session(LOCAL, session_id, SessionChange(model="kit-other"))
    await stage.usable(session_id)
    assert stage.rig.model() in (None, "kit-other")
    assert stage.rig.carried() == 2
