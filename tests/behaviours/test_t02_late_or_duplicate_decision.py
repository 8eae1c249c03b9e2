"""T2, late or duplicate decisions: only the first valid one acts, and no other ever reaches the agent."""

from __future__ import annotations

from typing import Any

import anyio
import grpc
import pytest
from tests.behaviours.stage import (
    ABORTED,
    COMPLETED,
    CONTINUE,
    STEPS_ONLY,
    STOP,
    STOPPED,
    Stage,
    bodies,
    client_decides,
    command,
    says,
    script,
)

from steprail.client import Client
from steprail.errors import FailedPrecondition
from steprail.v1 import decisions_pb2

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]

TWO_STEPS = script(command("echo one"), command("echo two"), says("done"))
DECISION = "autohand.stepDecision"


async def refused(client: Client, run_id: str, step_id: str, action: decisions_pb2.DecisionAction.ValueType) -> None:
    """Give a decision that must be refused by its name."""
    with pytest.raises(FailedPrecondition) as error:
        await client.submit_decision(run_id, step_id, action)
    assert error.value.reason == "DECISION_NOT_PENDING"
    assert error.value.code is grpc.StatusCode.FAILED_PRECONDITION


async def fence(stage: Stage, session_id: str) -> list[dict[str, Any]]:
    """Let another run go through the same process; gives what was written to it, all of it up to that run's prompt."""
    assert (await stage.run(session_id, script(says("fence")))).state == COMPLETED
    written = stage.written()
    prompts = [place for place, line in enumerate(written) if line.get("method") == "autohand.prompt"]
    return written[: prompts[-1]]


def decisions(written: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Give the decisions among what was written."""
    return [line["params"] for line in written if line.get("method") == DECISION]


async def test_after_the_deadline_the_default_has_acted_and_nothing_else_does(stage: Stage) -> None:
    """T2: after the deadline."""
    session_id = await stage.session("recorded")
    run = await stage.run(session_id, TWO_STEPS, decider=client_decides(timeout=0.2))
    assert (run.state, run.stop_reason.source) == (STOPPED, decisions_pb2.DECISION_SOURCE_TIMEOUT)
    step = await stage.client.get_step(run.run_id, 1)
    for action in (CONTINUE, STOP, CONTINUE):
        await refused(stage.client, run.run_id, step.step_id, action)
    assert len(decisions(await fence(stage, session_id))) == 1
    assert len(bodies(await stage.events(run.run_id), "decision_recorded")) == 1


async def test_after_an_abort_no_decision_is_sent_for_the_cancelled_step(stage: Stage) -> None:
    """T2: after an abort."""
    session_id = await stage.session("recorded")
    started = await stage.client.start_run(session_id, TWO_STEPS, decider=client_decides())
    pending = (await stage.asked(started.run_id)).pending_decision
    await stage.client.abort_run(started.run_id)
    await refused(stage.client, started.run_id, pending.step_id, CONTINUE)
    assert (await stage.ended(started.run_id)).state == ABORTED
    await refused(stage.client, started.run_id, pending.step_id, CONTINUE)
    assert decisions(await fence(stage, session_id)) == []
    assert bodies(await stage.events(started.run_id), "decision_recorded") == []


async def test_of_two_clients_that_decide_at_one_time_the_first_one_counts(stage: Stage) -> None:
    """T2: twice from two clients, by both ways in."""
    session_id = await stage.session("recorded")
    started = await stage.client.start_run(session_id, TWO_STEPS, decider=client_decides())
    step_id = (await stage.asked(started.run_id)).pending_decision.step_id
    outcomes: list[str] = []

    async def decide(client: Client) -> None:
        try:
            await client.submit_decision(started.run_id, step_id, STOP)
            outcomes.append("acted")
        except FailedPrecondition as error:
            outcomes.append(error.reason)

    async with Client(stage.daemon.address) as other, anyio.create_task_group() as group:
        for client in (stage.client, other, stage.client, other):
            group.start_soon(decide, client)
    assert sorted(outcomes) == ["DECISION_NOT_PENDING"] * 3 + ["acted"]
    run = await stage.ended(started.run_id)
    assert (run.state, run.step_count) == (STOPPED, 1)
    assert len(decisions(await fence(stage, session_id))) == 1
    assert len(bodies(await stage.events(run.run_id), "decision_recorded")) == 1


async def test_a_stream_is_told_which_of_its_messages_came_too_late(stage: Stage) -> None:
    """T2: the second one on a stream is `rejected`, with the same reason, and the run goes on by the first."""
    session_id = await stage.session("recorded")
    start = stage.client.start_request(session_id, TWO_STEPS, decider=client_decides())
    rejected = []
    async with stage.client.control(start=start, decide=True, events=STEPS_ONLY) as control:
        run_id = control.run_id
        async for message in control:
            match message.WhichOneof("body"):
                case "decision_requested":
                    step = message.decision_requested.step
                    await control.decide(step.step_id, CONTINUE)
                    if step.number == 1:
                        # After the last step the stream may be over before a second one is read.
                        await control.decide(step.step_id, STOP)
                case "rejected":
                    rejected.append((message.rejected.code, message.rejected.reason))
    code = grpc.StatusCode.FAILED_PRECONDITION.value[0]
    assert rejected == [(code, "DECISION_NOT_PENDING")]
    run = await stage.client.get_run(run_id)
    assert (run.state, run.step_count, run.text) == (COMPLETED, 2, "done")
    assert len(decisions(await fence(stage, session_id))) == 2


async def test_an_old_steps_id_decides_nothing_about_the_step_that_waits(stage: Stage) -> None:
    """T2: with an old step id, and with one that never was."""
    session_id = await stage.session("recorded")
    started = await stage.client.start_run(session_id, TWO_STEPS, decider=client_decides())
    old = (await stage.asked(started.run_id)).pending_decision.step_id
    await stage.client.submit_decision(started.run_id, old, CONTINUE)
    new = (await stage.asked(started.run_id)).pending_decision.step_id
    assert new != old
    await refused(stage.client, started.run_id, old, STOP)
    await refused(stage.client, started.run_id, "step_of_nobody", STOP)
    assert (await stage.client.get_run(started.run_id)).pending_decision.step_id == new
    await stage.client.submit_decision(started.run_id, new, CONTINUE)
    run = await stage.ended(started.run_id)
    assert (run.state, run.text) == (COMPLETED, "done")
    recorded = bodies(await stage.events(run.run_id), "decision_recorded")
    assert [(entry.step_id, entry.decision.action) for entry in recorded] == [(old, CONTINUE), (new, CONTINUE)]
    assert len(decisions(await fence(stage, session_id))) == 2
