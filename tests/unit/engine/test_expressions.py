"""Stop rules in CEL: checked before the run, evaluated while the agent waits, and overtaken by an abort."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.unit.engine.stage import engine_stage

from steprail_daemon.core.errors import Invalid
from steprail_daemon.core.model import ExpressionRule, RunState, StopRule, VerdictOutcome
from steprail_daemon.core.stops.expression_view import ExpressionView
from steprail_daemon.core.stops.expressions import ExpressionOutcome, ExpressionResult
from steprail_daemon.engine.facade import LOCAL

pytestmark = pytest.mark.anyio
RULE = (StopRule("many", ExpressionRule("size(steps) >= 2")),)


async def test_a_bad_expression_is_refused_with_its_place(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        session_id, _ = await stage.session()
        with pytest.raises(Invalid, match=r"RULE_INVALID: stop_rules\[0\]\.expression\.cel:1:5: undeclared") as caught:
            await stage.start(session_id, stop_rules=(StopRule("x", ExpressionRule("bad")),))
        assert caught.value.field == "stop_rules[0].expression.cel"
        assert stage.engine.list_runs(LOCAL, session_id) == []


async def test_the_agent_waits_for_the_evaluation_and_goes_on_or_stops_by_it(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        _, run_id, process = await stage.running(stop_rules=RULE)
        process.step("a", "gate-1")
        await stage.until(lambda: "gate-1" in process.answers())
        assert process.answers()["gate-1"] == {}
        stage.rules.results["size(steps) >= 2"] = ExpressionResult(ExpressionOutcome.MATCHED, "two are enough")
        process.step("b", "gate-2")
        await stage.until(lambda: "gate-2" in process.answers())
        process.end_turn("hook_stopped")
        view = stage.engine.get_run(LOCAL, run_id)
        assert view.state is RunState.STOPPED
        assert view.stop_reason is not None
        assert view.stop_reason.reason == "two are enough"
        views = [one.view for one in stage.rules.seen]
        assert [len(one.steps) for one in views if isinstance(one, ExpressionView)] == [1, 2]


async def test_an_abort_does_not_wait_for_an_evaluation(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        session_id, run_id, process = await stage.running(stop_rules=RULE)
        gate = stage.rules.waits["size(steps) >= 2"] = asyncio.Event()
        process.step("a", "gate-1")
        await stage.until(lambda: len(stage.rules.seen) == 1)
        view = stage.engine.abort_run(LOCAL, run_id, reason="")
        states = [view.state]
        process.end_turn("aborted_tools")
        states.append(view.state)
        assert states == [RunState.ABORTING, RunState.ABORTED]
        gate.set()
        (step,) = [event.step_end.step for event in stage.events(session_id) if event.HasField("step_end")]
        assert step.verdicts[0].outcome == int(VerdictOutcome.UNKNOWN)
        assert view.step_count == 1
        assert "gate-1" not in process.answers()


async def test_an_expression_that_goes_wrong_stops_the_agent_first_and_fails_the_run(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        session_id, run_id, process = await stage.running(stop_rules=RULE)
        stage.rules.results["size(steps) >= 2"] = ExpressionResult(ExpressionOutcome.ERROR, "division by zero")
        process.step("a", "gate-1")
        await stage.until(lambda: "gate-1" in process.answers())
        view = stage.engine.get_run(LOCAL, run_id)
        assert view.state is RunState.STOPPING
        process.end_turn("hook_stopped")
        assert view.failure is not None
        assert view.failure.reason == "RULE_ERROR"
        assert (await stage.start(session_id, "next")).state is RunState.QUEUED
