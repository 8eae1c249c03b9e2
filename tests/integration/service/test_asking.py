"""A client that decides, before the real engine with a fake agent: what it is asked, when, and what else it is sent."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from tests.unit.engine.stage import FakeProcess, Stage, engine_stage

from steprail.client import Client, Control
from steprail.v1 import decisions_pb2, events_pb2, runs_pb2
from steprail_daemon.service.server import ApiServer

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("one_loop")]

CONTINUE = decisions_pb2.DECISION_ACTION_CONTINUE
STOP = decisions_pb2.DECISION_ACTION_STOP


@asynccontextmanager
async def deciding(
    directory: Path, socket: Path, events: runs_pb2.ControlEvents.ValueType
) -> AsyncIterator[tuple[Stage, Client, Control, FakeProcess]]:
    """Open a stream on a run that its agent has taken up."""
    async with engine_stage(directory) as stage:
        server = ApiServer(stage.engine, [f"unix:{socket}"])
        await server.start()
        try:
            async with Client(f"unix:{socket}", timeout=10) as client:
                session_id, process = await stage.session()
                decider = decisions_pb2.Decider(mode=decisions_pb2.DECIDER_MODE_CLIENT)
                start = client.start_request(session_id, "go", decider=decider)
                async with client.control(start=start, decide=True, events=events) as control:
                    process.take_prompt()
                    yield stage, client, control, process
        finally:
            await server.stop(0.2)


async def until(control: Control, kind: str) -> tuple[runs_pb2.ControlRunResponse, list[str | None]]:
    """Give the next message of a kind, and the events that came before it."""
    bodies: list[str | None] = []
    with anyio.fail_after(10):
        async for message in control:
            bodies += [event.WhichOneof("body") for event in message.events.events]
            if message.WhichOneof("body") == kind:
                return message, bodies
    raise AssertionError(f"the stream ended without {kind}")


async def test_one_that_wants_no_events_is_asked_and_told_for_each_step(tmp_path: Path, socket: Path) -> None:
    async with deciding(tmp_path, socket, runs_pb2.CONTROL_EVENTS_NO_EVENTS) as (stage, client, control, process):
        for number in range(1, 4):
            process.step(f"x{number}", f"gate-{number}")
            asked = (await until(control, "decision_requested"))[0].decision_requested
            assert asked.step.number == number
            assert asked.step.tool_results[0].output.value == f"output of x{number}"
            assert 590 < asked.remaining.seconds < 600
            # Whoever is asked finds the step.
            assert (await client.get_step(control.run_id, asked.step.step_id)).tool_calls == asked.step.tool_calls
            await control.decide(asked.step.step_id, CONTINUE if number < 3 else STOP)
            recorded = (await until(control, "decision_recorded"))[0].decision_recorded
            assert recorded.step_id == asked.step.step_id
        await stage.until(lambda: "gate-3" in process.answers())
        process.end_turn("hook_stopped")
        finished, bodies = await until(control, "finished")
        assert finished.finished.run.state == events_pb2.RUN_STATE_STOPPED
        assert bodies == []


@pytest.mark.parametrize(
    "events", [runs_pb2.CONTROL_EVENTS_ALL, runs_pb2.CONTROL_EVENTS_STEPS], ids=["all events", "events of steps"]
)
async def test_one_that_wants_events_gets_that_of_the_step_before_the_question(
    tmp_path: Path, socket: Path, events: runs_pb2.ControlEvents.ValueType
) -> None:
    async with deciding(tmp_path, socket, events) as (_, _, control, process):
        for number in range(1, 3):
            process.step(f"x{number}", f"gate-{number}")
            asked, bodies = await until(control, "decision_requested")
            assert bodies.index("step_end") < bodies.index("decision_requested")
            await control.decide(asked.decision_requested.step.step_id, CONTINUE)
            _, bodies = await until(control, "decision_recorded")
            assert bodies == ["decision_recorded", "run_state_changed"]


async def test_one_with_events_and_one_without_are_both_asked(tmp_path: Path, socket: Path) -> None:
    async with (
        deciding(tmp_path, socket, runs_pb2.CONTROL_EVENTS_NO_EVENTS) as (_, client, control, process),
        client.control(attach=control.run_id, events=runs_pb2.CONTROL_EVENTS_STEPS) as other,
    ):
        process.step("a", "gate-1")
        first = (await until(control, "decision_requested"))[0].decision_requested
        second, bodies = await until(other, "decision_requested")
        assert first.step == second.decision_requested.step
        assert "step_end" in bodies
        await other.decide(first.step.step_id, CONTINUE)
        await until(control, "decision_recorded")
        await until(other, "decision_recorded")
