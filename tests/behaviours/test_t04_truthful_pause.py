"""T4, a truthful pause: no state is claimed before the agent confirmed it, and what cannot be held is not promised."""

from __future__ import annotations

import json
import os
import signal

import anyio
import grpc
import pytest
from tests.behaviours.stage import (
    ABORTED,
    ABORTING,
    COMPLETED,
    FAILED,
    STOPPED,
    STOPPING,
    Stage,
    bodies,
    client_decides,
    daemon_of_its_own,
    model_calls,
    play,
)
from tests.framework.liveness import is_alive

from steprail.client import steps
from steprail.errors import from_rpc
from steprail.v1 import agents_pb2, events_pb2

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]

#: How long a state that nobody confirmed is watched.
WATCHED = 1.0
IMPATIENT = """
[limits]
abort_timeout = "700ms"
stop_timeout = "700ms"
[processes]
ladder = ["end:200ms", "term:200ms", "kill"]
"""


async def stays(stage: Stage, run_id: str, state: events_pb2.RunState.ValueType) -> None:
    """Watch a run for a while; its state must not change."""
    with anyio.move_on_after(WATCHED):
        async for event in stage.client.watch_run(run_id, after_seq=0):
            assert event.run_state_changed.state not in (STOPPED, ABORTED), event
    assert (await stage.client.get_run(run_id)).state == state


async def test_a_stop_is_claimed_when_the_agent_confirmed_it_and_not_before(stage: Stage) -> None:
    """T4: the agent is frozen at the gate, so that it cannot take the stop."""
    started = await stage.client.start_run(await stage.session("claude"), '{"steps": 2}', decider=client_decides())
    await stage.asked(started.run_id)
    (agent,) = stage.agents()
    os.kill(agent, signal.SIGSTOP)
    try:
        run = await stage.client.stop_run(started.run_id, "pause")
        assert run.state == STOPPING
        await stays(stage, started.run_id, STOPPING)
        step = await stage.client.get_step(started.run_id, 1)
        assert not step.decision.delivered
    finally:
        os.kill(agent, signal.SIGCONT)
    run = await stage.ended(started.run_id)
    assert (run.state, run.stop_reason.exact) == (STOPPED, True)
    assert (await stage.client.get_step(started.run_id, 1)).decision.delivered


async def test_an_abort_is_claimed_when_the_agent_confirmed_it_and_not_before(stage: Stage) -> None:
    """T4: likewise, in the middle of a tool."""
    started = await stage.client.start_run(await stage.session("claude"), '{"steps": 1, "tool_ms": 60000}')
    await stage.until(started.run_id, "tool_start")
    (agent,) = stage.agents()
    os.kill(agent, signal.SIGSTOP)
    try:
        assert (await stage.client.abort_run(started.run_id)).state == ABORTING
        await stays(stage, started.run_id, ABORTING)
    finally:
        os.kill(agent, signal.SIGCONT)
    assert (await stage.ended(started.run_id)).state == ABORTED


async def test_an_agent_that_ignores_the_cancel_is_gone_before_the_run_counts_as_aborted() -> None:
    """T4: ignoring cancel, and TERM too."""
    # Whether it heeds TERM is settled at its start; a prompt comes too late for that.
    deaf = {"FAKE_CLAUDE": json.dumps({"ignore_term": True}).replace('"', '\\"')}
    with daemon_of_its_own(IMPATIENT, environment=deaf) as daemon:
        await daemon.start()
        async with play(daemon) as stage:
            session_id = await stage.session("claude")
            does = {"steps": 1, "tool_ms": 60_000, "ignore_interrupt": True}
            started = await stage.client.start_run(session_id, json.dumps(does))
            await stage.until(started.run_id, "tool_start")
            (agent,) = stage.agents()
            assert (await stage.client.abort_run(started.run_id)).state == ABORTING
            watch = stage.client.watch_run(started.run_id)
            alive = [is_alive(agent) async for event in watch if event.run_state_changed.state == ABORTED]
            assert alive == [False]
            run = await stage.ended(started.run_id)
            assert run.state == ABORTED
            session = await stage.client.get_session(session_id)
            assert session.state == events_pb2.SESSION_STATE_SUSPENDED
            assert (await stage.run(session_id, '{"steps": 0}')).state == COMPLETED


async def test_an_agent_that_never_takes_the_stop_fails_the_run_since_nobody_knows_what_it_stored() -> None:
    """T4: frozen at the gate, it confirms nothing, so that after `stop_timeout` a claim of STOPPED would be false."""
    with daemon_of_its_own(IMPATIENT) as daemon:
        await daemon.start()
        async with play(daemon) as stage:
            started = await stage.client.start_run(
                await stage.session("claude"), '{"steps": 2}', decider=client_decides()
            )
            await stage.asked(started.run_id)
            (agent,) = stage.agents()
            os.kill(agent, signal.SIGSTOP)
            await stage.client.stop_run(started.run_id)
            run = await stage.ended(started.run_id)
            assert not is_alive(agent)
            assert (run.state, run.failure.reason) == (FAILED, "AGENT_UNRESPONSIVE")


async def test_an_agent_that_does_not_confirm_its_gate_is_not_started() -> None:
    """T4: an agent without a gate where one is due gives no run at all."""
    environment = {"FAKE_CLAUDE": json.dumps({"hooks_applied": False}).replace('"', '\\"')}
    with daemon_of_its_own(environment=environment) as daemon:
        await daemon.start()
        async with play(daemon) as stage:
            run = await stage.run(await stage.session("claude"), '{"steps": 1}', stop_rules=[steps(1)])
            assert (run.state, run.failure.reason, run.step_count) == (FAILED, "AGENT_START_FAILED", 0)
            assert "step boundaries" in run.failure.message


async def test_a_gate_that_opens_by_itself_is_noticed_and_nothing_exact_is_promised_any_more(stage: Stage) -> None:
    """T4: a gate that fails open; from then on rules and deciders are refused, or a stop says that it was not exact."""
    log = stage.workspace / "calls"
    session_id = await stage.session("claude")
    does = {"steps": 3, "gate_opens_after_ms": 200, "model_ms": 50, "calls": str(log)}
    started = await stage.client.start_run(session_id, json.dumps(does), decider=client_decides())
    run = await stage.ended(started.run_id)
    assert (run.state, run.failure.reason) == (FAILED, "GATE_LOST")
    assert len(model_calls(log)) <= 3
    assert bodies(await stage.events(run.run_id), "decision_recorded") == []
    capabilities = (await stage.client.get_session(session_id)).capabilities
    assert capabilities.step_gate == agents_pb2.STEP_GATE_BEST_EFFORT

    prompt = '{"steps": 3, "model_ms": 300}'
    plain = stage.client.start_request(session_id, prompt, stop_rules=[steps(1, rule_id="one")])
    decided = stage.client.start_request(session_id, prompt, decider=client_decides())
    decided.allow_inexact_stop = True
    for request in (plain, decided):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stage.runs.StartRun(request, timeout=10)
        assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert from_rpc(refused.value, "").reason == "CAPABILITY_MISSING"  # type: ignore[attr-defined]
    plain.allow_inexact_stop = True
    plain.request_id = "another"
    run = await stage.ended((await stage.runs.StartRun(plain, timeout=10)).run.run_id)
    assert (run.state, run.stop_reason.rule_id, run.stop_reason.exact) == (STOPPED, "one", False)
