"""Checks of what an agent may write on its stdout beside what it should: noise, news, much of it, halves of letters."""

from __future__ import annotations

import json

from steprail.v1 import steps_pb2
from steprail_daemon.core.model import RunState
from steprail_daemon.testing.driver_checks.registry import check
from steprail_daemon.testing.driver_rig import Work
from steprail_daemon.testing.driver_stage import LINE_BYTES, Stage
from steprail_daemon.testing.driver_tap import HALF_PAIR

COMPLETED, FAILED = RunState.COMPLETED, RunState.FAILED


@check(codec_alone=True)
async def lines_of_no_protocol_are_skipped(stage: Stage) -> None:
    session_id = await stage.session()
    stage.tap.say(b"npm warn deprecated", b"", b"   ", b"\xff\xfe\x00 no text", b"Error: something { went } wrong")
    run = await stage.run(session_id, Work(steps=2, text="Unimpressed."))
    assert (run.state, run.text, run.step_count) == (COMPLETED, "Unimpressed.", 2), run


@check(codec_alone=True)
async def a_message_that_nobody_knows_is_passed_on(stage: Stage) -> None:
    session_id = await stage.session()
    run_id = await stage.start(session_id, Work(slow_model=False, steps=2))
    await stage.until(run_id, "turn_start")
    stage.tap.say(stage.rig.unknown_line)
    run = await stage.ended(run_id)
    assert run.state is COMPLETED, run
    raw = [event.raw for event in await stage.events(run_id) if event.HasField("raw")]
    assert json.loads(stage.rig.unknown_line) in [json.loads(one.payload_json.value) for one in raw]


@check(codec_alone=True)
async def it_does_not_matter_where_the_bytes_are_cut(stage: Stage) -> None:
    stage.tap.cut(7)
    run = await stage.run(await stage.session(), Work(steps=2, calls=2, output="a 🦦 and a heron", text="🦦 seen."))
    assert (run.state, run.text, run.step_count) == (COMPLETED, "🦦 seen.", 2), run
    assert all("a 🦦 and a heron" in one.output.value for step in stage.steps(run.run_id) for one in step.tool_results)


@check()
async def much_output_of_a_tool_is_taken(stage: Stage) -> None:
    run = await stage.run(await stage.session(), Work(steps=1, calls=2, output_bytes=400_000))
    assert (run.state, run.step_count) == (COMPLETED, 1), run
    (step,) = stage.steps(run.run_id)
    assert [result.outcome for result in step.tool_results] == [steps_pb2.TOOL_OUTCOME_SUCCEEDED] * 2
    assert all("xxxxxxxx" in result.output.value for result in step.tool_results)


@check()
async def half_a_letter_at_the_boundary_does_not_hide_it(stage: Stage) -> None:
    stage.tap.tear_pairs()
    run = await stage.run(await stage.session(), Work(steps=2, output=HALF_PAIR))
    assert (run.state, run.step_count) == (COMPLETED, 2), run
    for step in stage.steps(run.run_id):
        (result,) = step.tool_results
        assert "�" in result.output.value
        assert HALF_PAIR not in result.output.value


@check(codec_alone=True)
async def a_line_that_is_too_long_is_an_error_of_the_protocol(stage: Stage) -> None:
    await _fails_by(stage, b'{"padding":"' + b"x" * LINE_BYTES + b'"}')


@check(codec_alone=True)
async def a_line_that_begins_like_a_message_and_is_none_is_an_error_of_the_protocol(stage: Stage) -> None:
    await _fails_by(stage, stage.rig.unknown_line[: len(stage.rig.unknown_line) // 2])


async def _fails_by(stage: Stage, line: bytes) -> None:
    session_id = await stage.session()
    run_id = await stage.start(session_id, Work(steps=30))
    await stage.until(run_id, "turn_start")
    stage.tap.say(line)
    run = await stage.ended(run_id)
    assert run.state is FAILED, run
    assert run.failure is not None
    assert run.failure.reason == "PROTOCOL_ERROR", run.failure
    if stage.capabilities.resume:
        again = await stage.run(session_id, Work(text="Well again."))
        assert (again.state, again.text) == (COMPLETED, "Well again."), again
