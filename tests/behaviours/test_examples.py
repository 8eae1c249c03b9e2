"""What the documents promise first, as a user would try it."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from tests.behaviours.stage import (
    ABORTED,
    AWAITING_DECISION,
    AWAITING_PERMISSION,
    COMPLETED,
    CONTINUE,
    FAILED,
    QUEUED,
    STEPS_ONLY,
    STOP,
    STOPPED,
    Stage,
    bodies,
    client_decides,
    command,
    kinds,
    read,
    says,
    script,
)

from steprail.client import Control, cost, duration, expression, failures, finish, steps, tokens, tool
from steprail.errors import FailedPrecondition
from steprail.v1 import decisions_pb2, rules_pb2, runs_pb2, steps_pb2

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]

USAGE = {"input_tokens": 100, "output_tokens": 10, "cost_micro_usd": 400}
THREE_STEPS = script(
    read(usage=USAGE),
    command("echo second", usage=USAGE),
    command("echo third", usage=USAGE),
    says("all done", usage=USAGE),
)


async def message(control: Control, kind: str) -> Any:
    """Read a conversation up to a message of a kind."""
    async for found in control:
        if found.WhichOneof("body") == kind:
            return getattr(found, kind)
    raise AssertionError(f"the conversation ended without {kind}")


async def test_a_run_stops_after_its_first_step_is_looked_at_and_goes_on_with_what_the_tool_said(stage: Stage) -> None:
    session_id = await stage.session()
    stopped = await stage.run(session_id, THREE_STEPS, stop_rules=[steps(1)])
    assert (stopped.state, stopped.step_count, stopped.stop_reason.exact) == (STOPPED, 1, True)
    assert await stage.replies(session_id) == 1

    step = await stage.client.get_step(stopped.run_id, 1)
    (result,) = step.tool_results
    assert (result.outcome, step.tool_calls[0].tool) == (steps_pb2.TOOL_OUTCOME_SUCCEEDED, "read_file")
    assert "remember the milk" in result.output.value

    further = await stage.client.continue_run(stopped.run_id, script(says("there were ${messages} before")))
    done = await stage.ended(further.run_id)
    assert (done.state, done.continued_from) == (COMPLETED, stopped.run_id)
    said = await stage.said(session_id)
    assert [entry["role"] for entry in said] == ["user", "assistant", "tool", "user", "assistant"]
    assert "remember the milk" in said[2]["content"]
    # The model of the continued run had all of it before its prompt: the first prompt, the call, the result.
    assert done.text == "there were 3 before"


async def test_any_rule_of_a_list_stops_a_run_and_what_else_matched_is_recorded(stage: Stage) -> None:
    rules = [
        tokens(1_000_000, rule_id="much"),
        tool("run_*", rule_id="commands"),
        steps(2, rule_id="two"),
    ]
    run = await stage.run(await stage.session(), THREE_STEPS, stop_rules=rules)
    assert (run.state, run.step_count, run.stop_reason.rule_id) == (STOPPED, 2, "commands")
    assert [verdict.rule_id for verdict in run.stop_reason.also_matched] == ["two"]
    step = await stage.client.get_step(run.run_id, 2)
    outcomes = {verdict.rule_id: verdict.outcome for verdict in step.verdicts}
    matched, not_matched = rules_pb2.VERDICT_OUTCOME_MATCHED, rules_pb2.VERDICT_OUTCOME_NOT_MATCHED
    assert outcomes == {"much": not_matched, "commands": matched, "two": matched}


async def test_a_client_says_yes_and_then_no(stage: Stage) -> None:
    session_id = await stage.session()
    start = stage.client.start_request(session_id, THREE_STEPS, decider=client_decides())
    async with stage.client.control(start=start, decide=True, events=STEPS_ONLY) as control:
        asked = await message(control, "decision_requested")
        await control.decide(asked.step.step_id, CONTINUE)
        recorded = await message(control, "decision_recorded")
        assert recorded.decision.source == decisions_pb2.DECISION_SOURCE_CLIENT
        asked = await message(control, "decision_requested")
        assert asked.step.number == 2
        await control.decide(asked.step.step_id, STOP, reason="enough of it")
        run = (await message(control, "finished")).run
    assert (run.state, run.step_count, run.stop_reason.reason) == (STOPPED, 2, "enough of it")
    assert await stage.replies(session_id) == 2


async def test_a_client_that_says_nothing_in_time_stops_the_run_by_its_default(stage: Stage) -> None:
    run = await stage.run(await stage.session(), THREE_STEPS, decider=client_decides(timeout=0.3))
    assert (run.state, run.step_count) == (STOPPED, 1)
    assert run.stop_reason.source == decisions_pb2.DECISION_SOURCE_TIMEOUT
    step = await stage.client.get_step(run.run_id, 1)
    with pytest.raises(FailedPrecondition) as refused:
        await stage.client.submit_decision(run.run_id, step.step_id, CONTINUE)
    assert refused.value.reason == "DECISION_NOT_PENDING"


async def test_a_client_whose_predicate_threw_fails_the_run_with_its_words_and_the_session_goes_on(
    stage: Stage,
) -> None:
    session_id = await stage.session()
    start = stage.client.start_request(session_id, THREE_STEPS, decider=client_decides())
    async with stage.client.control(start=start, decide=True, events=STEPS_ONLY) as control:
        asked = await message(control, "decision_requested")
        await control.decide(asked.step.step_id, error="KeyError: 'tests'")
        run = (await message(control, "finished")).run
    assert (run.state, run.failure.reason) == (FAILED, "DECIDER_ERROR")
    assert "KeyError: 'tests'" in run.failure.message
    assert await stage.replies(session_id) == 1
    assert (await stage.run(session_id, script(says("here")))).state == COMPLETED


async def test_a_run_whose_decision_never_comes_is_aborted_and_the_queued_one_starts(stage: Stage) -> None:
    session_id = await stage.session()
    first = await stage.client.start_run(session_id, THREE_STEPS, decider=client_decides())
    pending = (await stage.asked(first.run_id)).pending_decision
    second = await stage.queue(session_id, script(says("my turn")))
    assert second.state == QUEUED
    await stage.client.abort_run(first.run_id, "nobody decides")
    assert (await stage.ended(first.run_id)).state == ABORTED
    done = await stage.ended(second.run_id)
    assert (done.state, done.text) == (COMPLETED, "my turn")
    with pytest.raises(FailedPrecondition) as refused:
        await stage.client.submit_decision(first.run_id, pending.step_id, CONTINUE)
    assert refused.value.reason == "DECISION_NOT_PENDING"
    assert not bodies(await stage.events(first.run_id), "decision_recorded")


async def test_an_answer_of_text_alone_completes_and_nobody_is_asked(stage: Stage) -> None:
    run = await stage.run(
        await stage.session(), script(says("42")), stop_rules=[steps(1), tokens(1)], decider=client_decides()
    )
    assert (run.state, run.step_count, run.text) == (COMPLETED, 0, "42")
    assert "decision_requested" not in kinds(await stage.events(run.run_id))


LIMITS = {
    "steps": (steps(2, rule_id="r"), rules_pb2.STOP_KIND_STEP_COUNT, 2, "2", "2"),
    "tokens": (tokens(150, rule_id="r"), rules_pb2.STOP_KIND_TOKEN_USAGE, 2, "220", "150"),
    "cost": (cost(700, rule_id="r"), rules_pb2.STOP_KIND_COST, 2, "0.0008 USD", "0.0007 USD"),
    "duration": (duration(0.001, rule_id="r"), rules_pb2.STOP_KIND_DURATION, 1, "", "0.001"),
    "tool": (tool("run_command", rule_id="r"), rules_pb2.STOP_KIND_TOOL_CALL, 2, "run_command", "run_command"),
}


@pytest.mark.parametrize("name", LIMITS)
async def test_each_limit_stops_a_run_and_says_which_what_and_how_much(stage: Stage, name: str) -> None:
    rule, kind, count, observed, limit = LIMITS[name]
    run = await stage.run(await stage.session(), THREE_STEPS, stop_rules=[rule])
    reason = run.stop_reason
    assert (run.state, run.step_count) == (STOPPED, count)
    assert (reason.kind, reason.source, reason.rule_id) == (kind, decisions_pb2.DECISION_SOURCE_RULE, "r")
    assert observed in reason.observed
    assert reason.observed
    assert limit in reason.limit
    assert reason.reason


async def test_a_reason_of_the_messages_end_stops_a_run(stage: Stage) -> None:
    run = await stage.run(
        await stage.session("claude"), '{"steps": 3}', stop_rules=[finish("tool_calls", rule_id="called")]
    )
    assert (run.state, run.step_count, run.stop_reason.rule_id) == (STOPPED, 1, "called")
    assert run.stop_reason.kind == rules_pb2.STOP_KIND_FINISH_REASON
    assert "tool_calls" in run.stop_reason.observed.lower()


async def test_a_rule_whose_data_the_agent_never_gives_is_refused_at_the_start(stage: Stage) -> None:
    with pytest.raises(FailedPrecondition) as refused:
        await stage.client.start_run(await stage.session(), THREE_STEPS, stop_rules=[finish("length")])
    assert refused.value.reason == "CAPABILITY_MISSING"


async def test_repeated_failures_stop_a_run_by_an_expression_that_gives_the_reason(stage: Stage) -> None:
    cel = "totals.consecutive_failures >= 2 ? 'two failures in a row' : ''"
    prompt = script(command("exit 3"), command("exit 4"), command("exit 5"), says("never"))
    run = await stage.run(await stage.session(), prompt, stop_rules=[expression(cel, rule_id="flaky")])
    assert (run.state, run.step_count) == (STOPPED, 2), run
    assert (run.stop_reason.rule_id, run.stop_reason.reason) == ("flaky", "two failures in a row")
    assert run.stop_reason.kind == rules_pb2.STOP_KIND_EXPRESSION


async def test_repeated_failures_stop_a_run_by_the_rule_of_the_house_too(stage: Stage) -> None:
    prompt = script(command("exit 3"), command("exit 4"), command("exit 5"), says("never"))
    run = await stage.run(await stage.session(), prompt, stop_rules=[failures(2)])
    assert (run.state, run.step_count, run.stop_reason.observed) == (STOPPED, 2, "2")


async def test_a_permission_is_asked_for_and_its_answer_counts(stage: Stage) -> None:
    session_id = await stage.session("asking")
    prompt = script(command("touch allowed"), command("touch denied"), says("both asked"))
    started = await stage.client.start_run(session_id, prompt)
    for answer in (decisions_pb2.PERMISSION_ANSWER_ALLOW_ONCE, decisions_pb2.PERMISSION_ANSWER_DENY):
        run = await stage.asked(started.run_id)
        assert run.state == AWAITING_PERMISSION
        (asked,) = run.pending_permissions
        assert asked.tool == "run_command"
        assert [item.permission.permission_id for item in await stage.pending(session_id)] == [asked.permission_id]
        await stage.runs.AnswerPermission(
            runs_pb2.AnswerPermissionRequest(
                run_id=run.run_id, permission_id=asked.permission_id, answer=answer, reason="as I like"
            ),
            timeout=10,
        )
    run = await stage.ended(started.run_id)
    assert (run.state, run.text) == (COMPLETED, "both asked")
    assert ((stage.workspace / "allowed").exists(), (stage.workspace / "denied").exists()) == (True, False)
    first, second = await stage.client.list_steps(run.run_id)
    assert first.tool_results[0].outcome == steps_pb2.TOOL_OUTCOME_SUCCEEDED
    assert second.tool_results[0].outcome == steps_pb2.TOOL_OUTCOME_DENIED
    assert await stage.pending(session_id) == []


async def test_a_permission_that_nobody_answers_is_denied_at_its_deadline(stage: Stage) -> None:
    limits = rules_pb2.RunLimits()
    limits.permission_timeout.FromMilliseconds(300)
    session_id = await stage.session("asking")
    run = await stage.run(session_id, script(command("touch never"), says("went on")), limits=limits)
    (resolved,) = bodies(await stage.events(run.run_id), "permission_resolved")
    assert resolved.source == decisions_pb2.RESOLUTION_SOURCE_TIMEOUT
    assert resolved.answer == decisions_pb2.PERMISSION_ANSWER_DENY
    assert not (stage.workspace / "never").exists()
    assert run.awaiting_permission.ToNanoseconds() >= 290_000_000
    assert (run.state, run.text) == (COMPLETED, "went on")


async def test_while_a_client_thinks_the_run_waits_and_its_time_is_told_apart(stage: Stage) -> None:
    started = await stage.client.start_run(await stage.session(), THREE_STEPS, decider=client_decides())
    run = await stage.asked(started.run_id)
    assert run.state == AWAITING_DECISION
    with anyio.fail_after(5):
        while run.awaiting_decision.ToMilliseconds() < 300:
            await anyio.sleep(0.05)
            run = await stage.client.get_run(run.run_id)
    await stage.client.stop_run(run.run_id, "seen enough")
    done = await stage.ended(run.run_id)
    assert done.stop_reason.source == decisions_pb2.DECISION_SOURCE_OPERATOR
    whole = done.end_time.ToNanoseconds() - done.create_time.ToNanoseconds()
    parts = (done.queued, done.active, done.awaiting_decision, done.awaiting_permission)
    assert abs(sum(part.ToNanoseconds() for part in parts) - whole) < 1_000_000
    assert done.awaiting_decision.ToMilliseconds() >= 300
