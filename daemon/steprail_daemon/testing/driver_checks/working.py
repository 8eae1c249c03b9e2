"""Checks of a run that is let work: its steps, results, figures and end."""

from __future__ import annotations

from steprail.v1 import events_pb2, steps_pb2
from steprail_daemon.core.model import CostBasis, CostSupport, FinishReason, PermissionMode, RunState, UsageSupport
from steprail_daemon.testing.driver_checks.registry import check
from steprail_daemon.testing.driver_rig import INPUT_TOKENS, OUTPUT_TOKENS, Work
from steprail_daemon.testing.driver_stage import Stage

_SUCCEEDED, _FAILED = steps_pb2.TOOL_OUTCOME_SUCCEEDED, steps_pb2.TOOL_OUTCOME_FAILED


@check(covers=("usage", "cost"))
async def a_run_works_through_its_steps_and_completes_with_the_last_message(stage: Stage) -> None:
    run = await stage.run(await stage.session(), Work(steps=3, text="Done with all three."))
    assert (run.state, run.text, run.step_count) == (RunState.COMPLETED, "Done with all three.", 3), run
    assert stage.rig.requests() == 4
    for number, step in enumerate(stage.steps(run.run_id), start=1):
        assert (step.number, step.boundary) == (number, steps_pb2.STEP_BOUNDARY_OBSERVED)
        assert [call.call_id for call in step.tool_calls] == [result.call_id for result in step.tool_results]
        assert [result.outcome for result in step.tool_results] == [_SUCCEEDED], step
        assert "fine" in step.tool_results[0].output.value
    _figures_are_right(stage, run.run_id)


def _figures_are_right(stage: Stage, run_id: str) -> None:
    run, can = stage.get(run_id), stage.capabilities
    requests = run.step_count + 1
    if can.usage is UsageSupport.UNSUPPORTED:
        assert run.usage is None or run.usage.total_tokens is None, run.usage
    else:
        assert run.usage is not None
        assert run.usage.complete
        assert run.usage.total_tokens == requests * (INPUT_TOKENS + OUTPUT_TOKENS), run.usage
    for step in stage.steps(run_id):
        if can.usage is UsageSupport.PER_STEP:
            assert (step.usage.input_tokens, step.usage.output_tokens) == (INPUT_TOKENS, OUTPUT_TOKENS), step.usage
        else:
            assert not step.HasField("usage")
    known = run.cost is not None and run.cost.micro_usd is not None
    assert known is (can.cost is not CostSupport.UNSUPPORTED), run.cost
    if run.cost is not None and run.cost.micro_usd is not None:
        assert run.cost.micro_usd > 0
        assert run.cost.basis is (CostBasis.PRICED if can.cost is CostSupport.PRICED else CostBasis.REPORTED)


@check()
async def a_message_without_calls_ends_the_run_with_no_step(stage: Stage) -> None:
    run = await stage.run(await stage.session(), Work(steps=0, text="Nothing to do."))
    assert (run.state, run.text, run.step_count) == (RunState.COMPLETED, "Nothing to do.", 0), run
    assert stage.rig.requests() == 1


@check()
async def events_come_in_order_each_once(stage: Stage) -> None:
    run_id = await stage.start(await stage.session(), Work(steps=2, text="In order."))
    await stage.ended(run_id)
    events = await stage.events(run_id)
    numbers = [event.seq for event in events]
    assert numbers == sorted(set(numbers))
    kinds = [str(event.WhichOneof("body")) for event in events]
    for once in ("agent_start", "turn_start", "turn_end", "agent_end"):
        assert kinds.count(once) == 1, (once, kinds)
    outline = [kind for kind in kinds if kind in ("agent_start", "tool_start", "tool_end", "step_end", "turn_end")]
    step = ["tool_start", "tool_end", "step_end"]
    assert outline == ["agent_start", *step, *step, "turn_end"]
    texts = [event.message_end.content.value for event in events if event.WhichOneof("body") == "message_end"]
    assert texts[-1] == "In order."


@check("partial_text")
async def a_text_is_told_in_parts_that_make_up_the_whole(stage: Stage) -> None:
    text = "A text of several words that takes a while to be said."
    run_id = await stage.start(await stage.session(), Work(steps=0, text=text))
    await stage.ended(run_id)
    events = await stage.events(run_id)
    parts = [event.message_delta.text for event in events if event.WhichOneof("body") == "message_delta"]
    assert parts
    assert "".join(parts) == text


@check("finish_reason")
async def the_finish_reason_of_each_message_is_told(stage: Stage) -> None:
    run = await stage.run(await stage.session(), Work(steps=1))
    (step,) = stage.steps(run.run_id)
    assert FinishReason(step.finish_reason) is FinishReason.TOOL_CALLS
    events = await stage.events(run.run_id)
    ended = [event.message_end for event in events if event.WhichOneof("body") == "message_end"]
    assert FinishReason(ended[-1].finish_reason) is FinishReason.STOP


@check()
async def calls_of_one_message_are_one_step_with_a_result_each(stage: Stage) -> None:
    run = await stage.run(await stage.session(), Work(steps=2, calls=3, output="side by side"))
    assert (run.state, run.step_count) == (RunState.COMPLETED, 2), run
    assert stage.rig.requests() == 3
    assert stage.rig.carried() == 6
    for step in stage.steps(run.run_id):
        calls = [call.call_id for call in step.tool_calls]
        assert len(set(calls)) == 3
        # In the order in which they ended, which is the agent's affair.
        assert sorted(result.call_id for result in step.tool_results) == sorted(calls)
        assert [result.outcome for result in step.tool_results] == [_SUCCEEDED] * 3
        assert all("side by side" in result.output.value for result in step.tool_results)


@check()
async def a_call_that_fails_is_a_failed_result_and_the_run_goes_on(stage: Stage) -> None:
    run = await stage.run(await stage.session(), Work(steps=1, calls=2, fails=True))
    assert (run.state, run.step_count) == (RunState.COMPLETED, 1), run
    (step,) = stage.steps(run.run_id)
    assert [result.outcome for result in step.tool_results] == [_FAILED, _FAILED]
    assert all(result.error.value or result.output.value for result in step.tool_results)


@check()
async def one_session_takes_one_prompt_after_another(stage: Stage) -> None:
    session_id = await stage.session()
    pid = None
    for number in range(1, 4):
        run = await stage.run(session_id, Work(steps=1, text=f"Answer {number}."))
        assert (run.state, run.text) == (RunState.COMPLETED, f"Answer {number}."), run
        assert stage.rig.requests() == 2 * number
        assert stage.rig.carried() == number
        assert pid in (None, stage.tap.pid)
        pid = stage.tap.pid
    totals = [stage.get(run_id).usage for run_id in stage.get_session(session_id).run_ids]
    if stage.capabilities.usage is not UsageSupport.UNSUPPORTED:
        assert [usage and usage.total_tokens for usage in totals] == [2 * (INPUT_TOKENS + OUTPUT_TOKENS)] * 3


@check()
async def two_sessions_work_side_by_side_and_know_nothing_of_each_other(stage: Stage) -> None:
    sessions = [await stage.session() for _ in range(2)]
    runs = [await stage.start(one, Work(steps=2, text=f"For {one}.")) for one in sessions]
    for session_id, run_id in zip(sessions, runs, strict=True):
        run = await stage.ended(run_id)
        assert (run.state, run.text, run.step_count) == (RunState.COMPLETED, f"For {session_id}.", 2), run
    assert len({stage.get_session(one).agent_session_id for one in sessions}) == 2


@check()
async def read_only_changes_nothing(stage: Stage) -> None:
    session_id = await stage.session(permission_mode=PermissionMode.READ_ONLY)
    run = await stage.run(session_id, Work(steps=1, asks=True))
    assert run.state in (RunState.COMPLETED, RunState.STOPPED), run
    assert stage.rig.changes() in (None, 0)
    (step,) = stage.steps(run.run_id)
    assert [result.outcome for result in step.tool_results] == [steps_pb2.TOOL_OUTCOME_DENIED]


@check()
async def a_rate_limit_is_a_failure_of_its_own_that_is_waited_out(stage: Stage) -> None:
    session_id = await stage.session()
    run = await stage.run(session_id, Work(steps=1, rate_limited=True))
    assert run.state is RunState.FAILED, run
    failure = run.failure
    assert failure is not None
    assert (failure.reason, failure.retryable) == ("RATE_LIMITED", True), failure
    assert run.text == ""
    limits = [event.rate_limited for event in await stage.events(run.run_id) if event.HasField("rate_limited")]
    assert limits
    assert all(limit.kind == events_pb2.RATE_LIMIT_KIND_TRANSIENT for limit in limits)
    from_now = await stage.queued(session_id, Work(steps=1, text="After the limit."))
    assert (from_now.state, from_now.text) == (RunState.COMPLETED, "After the limit."), from_now
