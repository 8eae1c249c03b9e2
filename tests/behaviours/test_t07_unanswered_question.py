"""T7, what nobody answers: each question ends at a deadline of its own with its default, and no watchdog strikes."""

from __future__ import annotations

import anyio
import pytest
from tests.behaviours.stage import (
    AWAITING_DECISION,
    AWAITING_PERMISSION,
    COMPLETED,
    FAILED,
    STOPPED,
    Stage,
    agent,
    bodies,
    client_decides,
    command,
    daemon_of_its_own,
    play,
    read,
    says,
    script,
)
from tests.framework.waiting import until

from steprail.v1 import decisions_pb2, rules_pb2, steps_pb2

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]

#: The watchdog for silence is the quickest that can be had, and everybody waits for longer than it.
SETTINGS = """
[limits]
silence = "1s"
permission_timeout = "2500ms"
"""
DEADLINE_NS = 2_500_000_000
LATE_NS = 1_500_000_000
#: Timers and the clock of the records are not the same clock.
EARLY_NS = 20_000_000


def within(waited_ns: int) -> bool:
    """Whether a wait ended at its deadline, not before, and not long after."""
    return DEADLINE_NS - EARLY_NS <= waited_ns < DEADLINE_NS + LATE_NS


async def permission(stage: Stage) -> None:
    """Nobody answers a permission: it is denied, the model goes on with that."""
    session_id = await stage.session("asking")
    started = await stage.client.start_run(session_id, script(command("touch never"), says("went on")))
    run = await stage.asked(started.run_id)
    (item,) = await stage.pending(session_id)
    assert (run.state, item.permission.tool) == (AWAITING_PERMISSION, "run_command")
    assert item.permission.default == decisions_pb2.PERMISSION_ANSWER_DENY
    run = await stage.ended(started.run_id)
    assert (run.state, run.text) == (COMPLETED, "went on")
    assert within(run.awaiting_permission.ToNanoseconds())
    (resolved,) = bodies(await stage.events(run.run_id), "permission_resolved")
    assert resolved.source == decisions_pb2.RESOLUTION_SOURCE_TIMEOUT
    step = await stage.client.get_step(run.run_id, 1)
    assert step.tool_results[0].outcome == steps_pb2.TOOL_OUTCOME_DENIED
    assert not (stage.workspace / "never").exists()
    assert await stage.pending(session_id) == []


async def directory(stage: Stage) -> None:
    """Nobody answers a question for a directory: likewise."""
    session_id = await stage.session("asking")
    ask = {"text": "ask", "calls": [{"request_directory_access": {"path": "/elsewhere", "reason": "to look"}}]}
    run = await stage.run(session_id, script(ask, says("stayed here")))
    assert (run.state, run.text) == (COMPLETED, "stayed here")
    assert within(run.awaiting_permission.ToNanoseconds())
    (resolved,) = bodies(await stage.events(run.run_id), "permission_resolved")
    assert resolved.answer == decisions_pb2.PERMISSION_ANSWER_DENY
    assert await stage.pending(session_id) == []


async def question(stage: Stage) -> None:
    """Nobody answers a question of the model's: it is declined, and the model goes on with that."""
    session_id = await stage.session("claude")
    started = await stage.client.start_run(session_id, '{"steps": 1, "ask_question": true}')
    run = await stage.asked(started.run_id)
    (item,) = await stage.pending(session_id)
    assert (run.state, item.WhichOneof("item"), len(item.question.items)) == (AWAITING_PERMISSION, "question", 1)
    run = await stage.ended(started.run_id)
    assert run.state == COMPLETED
    assert within(run.awaiting_permission.ToNanoseconds())
    (resolved,) = bodies(await stage.events(run.run_id), "question_resolved")
    assert (resolved.declined, resolved.source) == (True, decisions_pb2.RESOLUTION_SOURCE_TIMEOUT)
    assert await stage.pending(session_id) == []


async def decision(stage: Stage, on_timeout: decisions_pb2.OnTimeout.ValueType) -> None:
    """Nobody decides: the step's default acts."""
    session_id = await stage.session()
    decider = client_decides(timeout=2.5, on_timeout=on_timeout)
    started = await stage.client.start_run(session_id, script(read(), says("went on")), decider=decider)
    run = await stage.asked(started.run_id)
    (item,) = await stage.pending(session_id)
    assert (run.state, item.decision.step_id) == (AWAITING_DECISION, run.pending_decision.step_id)
    run = await stage.ended(started.run_id)
    stops = on_timeout == decisions_pb2.ON_TIMEOUT_STOP
    assert run.state == (STOPPED if stops else COMPLETED)
    assert within(run.awaiting_decision.ToNanoseconds())
    (recorded,) = bodies(await stage.events(run.run_id), "decision_recorded")
    assert recorded.decision.source == decisions_pb2.DECISION_SOURCE_TIMEOUT
    assert await stage.pending(session_id) == []


async def test_each_question_that_nobody_answers_ends_at_its_own_deadline_with_its_default() -> None:
    """T7: permission, directory, question and decisions at one time, without any client that would answer."""
    with daemon_of_its_own(SETTINGS + agent("asking", mode="ask")) as daemon:
        await daemon.start()
        async with play(daemon) as stage:
            async with anyio.create_task_group() as group:
                group.start_soon(permission, stage)
                group.start_soon(directory, stage)
                group.start_soon(question, stage)
                group.start_soon(decision, stage, decisions_pb2.ON_TIMEOUT_STOP)
                group.start_soon(decision, stage, decisions_pb2.ON_TIMEOUT_CONTINUE)
            waited = "permission_wait_seconds"
            await until(lambda: daemon.metric(f"{waited}_count", outcome="timed_out") == 2)
            assert daemon.metric(f"{waited}_sum", outcome="timed_out") >= 4.9
            assert daemon.metric("permissions_pending") == 0
            assert daemon.metric("step_decision_wait_seconds_count", source="timeout") == 2


async def test_the_watchdog_that_waits_for_people_does_strike_an_agent_that_is_silent_by_itself() -> None:
    """T7: the counterpart, without which the case above would show nothing."""
    with daemon_of_its_own(SETTINGS) as daemon:
        await daemon.start()
        async with play(daemon) as stage:
            run = await stage.run(await stage.session(), script(says("never", hang=True)))
            assert (run.state, run.failure.reason) == (FAILED, "AGENT_UNRESPONSIVE")


async def test_a_runs_own_deadline_is_nearer_than_the_daemons(stage: Stage) -> None:
    """T7: by RunLimits."""
    limits = rules_pb2.RunLimits()
    limits.permission_timeout.FromMilliseconds(200)
    run = await stage.run(await stage.session("asking"), script(command("true"), says("on")), limits=limits)
    assert run.state == COMPLETED
    assert 200_000_000 - EARLY_NS <= run.awaiting_permission.ToNanoseconds() < 200_000_000 + LATE_NS
