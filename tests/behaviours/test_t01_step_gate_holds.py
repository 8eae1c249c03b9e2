"""T1, the step gate holds: once a run stopped, or while somebody thinks, the model is asked nothing."""

from __future__ import annotations

import json

import anyio
import pytest
from tests.behaviours.stage import (
    AWAITING_DECISION,
    COMPLETED,
    CONTINUE,
    STOPPED,
    Stage,
    client_decides,
    command,
    model_calls,
    read,
    says,
    script,
)
from tests.framework.waiting import until

from steprail.client import steps
from steprail.v1 import decisions_pb2, rules_pb2

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]

#: How long a held agent is watched for a request that must not come.
HOLD_SECONDS = 3.0
USAGE = {"input_tokens": 100, "output_tokens": 10}
FIVE_STEPS = script(*(command(f"echo {number}", usage=USAGE) for number in range(5)), says("done"))


@pytest.mark.parametrize("count", [1, 3])
async def test_a_rule_at_step_n_stops_before_the_model_is_asked_again(stage: Stage, count: int) -> None:
    """T1: the agent writes each request of its model down; the next run's comes right after the last one's."""
    log = stage.workspace / "calls"
    does = {"steps": 5, "calls": str(log)}
    session_id = await stage.session("claude")
    run = await stage.run(session_id, json.dumps(does), stop_rules=[steps(count, rule_id="enough")])
    assert (run.state, run.step_count, run.stop_reason.exact) == (STOPPED, count, True)
    assert run.stop_reason.overshoot_requests == 0
    further = await stage.client.continue_run(run.run_id, json.dumps({**does, "steps": 0}), stop_rules=[])
    assert (await stage.ended(further.run_id)).state == COMPLETED
    calls = model_calls(log)
    assert [call["turn"] for call in calls] == [1] * count + [2]
    assert [call["tool_results"] for call in calls] == list(range(count + 1))


async def test_the_built_in_agents_model_says_no_more_either(stage: Stage) -> None:
    """T1: the same with the agent that speaks Autohand's protocol, told by the conversation that it keeps."""
    session_id = await stage.session()
    run = await stage.run(session_id, FIVE_STEPS, stop_rules=[steps(3)])
    assert (run.state, run.step_count, run.usage.total_tokens) == (STOPPED, 3, 330)
    further = await stage.client.continue_run(run.run_id, script(says("went on")), stop_rules=[])
    assert (await stage.ended(further.run_id)).text == "went on"
    roles = [message["role"] for message in await stage.said(session_id)]
    assert roles == ["user", *["assistant", "tool"] * 3, "user", "assistant"]


async def test_the_end_names_the_rule_the_value_and_the_limit(stage: Stage) -> None:
    """T1: terminal reason."""
    rule = steps(2, rule_id="two-steps")
    rule.reason = "two are enough for a look"
    run = await stage.run(await stage.session(), FIVE_STEPS, stop_rules=[rule])
    reason = run.stop_reason
    assert (reason.kind, reason.source) == (rules_pb2.STOP_KIND_STEP_COUNT, decisions_pb2.DECISION_SOURCE_RULE)
    assert (reason.rule_id, reason.reason) == ("two-steps", "two are enough for a look")
    assert (reason.observed, reason.limit) == ("2", "2")
    (end,) = [event.agent_end for event in await stage.events(run.run_id) if event.HasField("agent_end")]
    assert end.stop_reason == reason


async def test_while_a_decision_is_withheld_no_model_is_asked_and_no_token_used(stage: Stage) -> None:
    """T1: decision withheld."""
    log = stage.workspace / "calls"
    prompt = json.dumps({"steps": 2, "calls": str(log)})
    claude = await stage.client.start_run(await stage.session("claude"), prompt, decider=client_decides())
    session_id = await stage.session()
    scripted = await stage.client.start_run(session_id, FIVE_STEPS, decider=client_decides())
    asked = [await stage.asked(run.run_id) for run in (claude, scripted)]
    replies = await stage.replies(session_id)
    with pytest.raises(TimeoutError):
        await until(lambda: len(model_calls(log)) > 1, HOLD_SECONDS)
    assert (len(model_calls(log)), replies, await stage.replies(session_id)) == (1, 1, 1)
    for before in asked:
        now = await stage.client.get_run(before.run_id)
        assert (now.state, now.usage) == (AWAITING_DECISION, before.usage)
        assert now.awaiting_decision.ToMilliseconds() >= 2_900
        assert now.pending_decision.step_id == before.pending_decision.step_id
        await stage.client.submit_decision(now.run_id, now.pending_decision.step_id, CONTINUE)
    for before in asked:
        assert (await stage.asked(before.run_id)).step_count == 2
        await stage.client.stop_run(before.run_id)
        assert (await stage.ended(before.run_id)).state == STOPPED
    assert (len(model_calls(log)), await stage.replies(session_id)) == (2, 2)


async def test_an_abort_of_a_held_run_asks_no_model_either(stage: Stage) -> None:
    """T1: the gate is not opened by what ends the run."""
    log = stage.workspace / "calls"
    session_id = await stage.session("claude")
    prompt = json.dumps({"steps": 2, "calls": str(log)})
    started = await stage.client.start_run(session_id, prompt, decider=client_decides())
    await stage.asked(started.run_id)
    await stage.client.abort_run(started.run_id)
    await stage.ended(started.run_id)
    last = json.dumps({"steps": 0, "calls": str(log)})
    assert (await stage.run(session_id, last)).state == COMPLETED
    assert [call["prompt"] for call in model_calls(log)] == [prompt, last]


async def test_a_read_in_parallel_with_the_gate_stays_one_boundary(stage: Stage) -> None:
    """T1: several calls of one message are one step, and one decision."""
    both = {"text": "both", "calls": [*read()["calls"], *command("echo two")["calls"]]}
    with anyio.fail_after(20):
        run = await stage.run(await stage.session(), script(both, says("never")), stop_rules=[steps(1)])
    step = await stage.client.get_step(run.run_id, 1)
    assert (len(step.tool_calls), len(step.tool_results), step.decision.delivered) == (2, 2, True)
