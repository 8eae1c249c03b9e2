"""Runs that fail, each with how it must have failed: the cases of `test_refusals_failed_runs.py`."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from tests.behaviours.refusal_status import refused
from tests.behaviours.scene import Scene, text_prompt
from tests.behaviours.stage import (
    COMPLETED,
    FAILED,
    SCRIPTED,
    TERMINAL,
    WAIT,
    agent,
    client_decides,
    read,
    says,
    script,
    seconds,
)

from steprail.v1 import decisions_pb2, errors_pb2, events_pb2, rules_pb2, runs_pb2

AGENT = errors_pb2.FAILURE_FAULT_AGENT
PROVIDER = errors_pb2.FAILURE_FAULT_PROVIDER
CLIENT = errors_pb2.FAILURE_FAULT_CLIENT
ENVIRONMENT = errors_pb2.FAILURE_FAULT_ENVIRONMENT
Play = Callable[[Scene], Awaitable[runs_pb2.Run]]

#: What a started agent looks for in its directory, and ends at once if it is there.
OUT_OF_ORDER = "out-of-order"
_GUARD = f'test -e {OUT_OF_ORDER} && echo out of order >&2 && exit 3; exec "$@"'

SETTINGS = """
[limits]
silence = "2s"
line_bytes = "64KiB"
[processes]
ladder = ["end:300ms", "eof:300ms", "term:300ms", "kill"]
""" + "".join(
    (
        agent("scripted"),
        agent("limited"),
        agent("fragile", command=["/bin/sh", "-c", _GUARD, "sh", *SCRIPTED]),
    )
)


@dataclass(frozen=True)
class Case:
    """How a run fails. `resumable_at` is the last step that is stored, `waits` the time that the provider named."""

    reason: str
    play: Play
    fault: errors_pb2.FailureFault.ValueType
    retryable: bool
    resumable_at: int | None
    waits: float | None
    breaks: bool


CASES: dict[str, Case] = {}


def case(
    reason: str,
    fault: errors_pb2.FailureFault.ValueType,
    *,
    retryable: bool = False,
    resumable_at: int | None = None,
    waits: float | None = None,
    breaks: bool = False,
    table: dict[str, Case] = CASES,
) -> Callable[[Play], Play]:
    """Enter a case into a table; `breaks`: the session is BROKEN afterwards."""

    def enter(play: Play) -> Play:
        name = f"{reason}-{play.__name__}"
        assert name not in table
        table[name] = Case(reason, play, fault, retryable, resumable_at, waits, breaks)
        return play

    return enter


async def judge(scene: Scene, run: runs_pb2.Run, case: Case) -> None:
    """See that a run failed as its case says, once, and that its session goes on, or says that it cannot."""
    check(run, case)
    await check_end(scene, run)
    await (check_broken if case.breaks else check_usable)(scene, run)


def check(run: runs_pb2.Run, case: Case) -> None:
    """See that a run says of its failure what its reason promises."""
    failure = run.failure
    assert (run.state, failure.reason, failure.fault) == (FAILED, case.reason, case.fault)
    assert failure.message
    assert failure.retryable == case.retryable
    waits = failure.retry_after.ToNanoseconds() / 1e9 if failure.HasField("retry_after") else None
    assert waits == case.waits
    stored = failure.resumable_at_step if failure.HasField("resumable_at_step") else None
    assert (stored, run.step_count) == (case.resumable_at, case.resumable_at or 0)
    assert run.HasField("end_time")
    assert not run.HasField("pending_decision")


async def check_end(scene: Scene, run: runs_pb2.Run) -> None:
    """See that the log has one end of a run, at its end, with the same failure."""
    events = await scene.events(run.run_id)
    ends = [event.agent_end for event in events if event.HasField("agent_end")]
    assert [(end.state, end.failure) for end in ends] == [(FAILED, run.failure)]
    assert events[-1].HasField("agent_end")
    states = [event.run_state_changed.state for event in events if event.HasField("run_state_changed")]
    assert [state for state in states if state in TERMINAL] == [FAILED]


async def check_usable(scene: Scene, run: runs_pb2.Run) -> None:
    """See that a session goes on after a failed run."""
    session = await scene.get_session(run.session_id)
    again = '{"steps": 0, "text": "again"}' if session.agent == "claude" else script(says("again"))
    request = runs_pb2.ContinueRunRequest(
        run_id=run.run_id,
        prompt=text_prompt(again),
        stop_rules=rules_pb2.StopRuleSet(),
        decider=decisions_pb2.Decider(),
        limits=rules_pb2.RunLimits(),
        queue=runs_pb2.QUEUE_MODE_QUEUE,
    )
    further = await scene.ended((await scene.runs.ContinueRun(request, timeout=WAIT)).run.run_id)
    assert (further.state, further.text, further.continued_from) == (COMPLETED, "again", run.run_id)


async def check_broken(scene: Scene, run: runs_pb2.Run) -> None:
    """See that a session says that it cannot go on."""
    session = await scene.get_session(run.session_id)
    assert session.state == events_pb2.SESSION_STATE_BROKEN
    assert session.broken_reason
    found = await refused(scene.start(run.session_id, script(says("again"))))
    assert (found.reason, found.metadata["broken_reason"]) == ("SESSION_BROKEN", session.broken_reason)


async def scripted(scene: Scene, *replies: dict[str, Any], **more: Any) -> runs_pb2.Run:
    """Give a run of the built-in agent that has ended."""
    return await scene.ran(await scene.session(), script(*replies), **more)


async def claude(scene: Scene, **behaviour: Any) -> runs_pb2.Run:
    """Give a run of the agent with the other protocol that has ended."""
    return await scene.ran(await scene.session("claude"), json.dumps({"steps": 1, **behaviour}))


@case("AGENT_EXITED", AGENT, resumable_at=1)
async def an_agent_that_ends_without_a_result(scene: Scene) -> runs_pb2.Run:
    run = await scripted(scene, read(), says("x", faults=[{"at": "turn_end", "exit": 3}]))
    assert "exit code 3" in run.failure.message
    return run


@case("AGENT_EXITED", ENVIRONMENT)
async def an_agent_that_is_killed(scene: Scene) -> runs_pb2.Run:
    run = await scripted(scene, says("x", faults=[{"at": "model", "signal": "KILL"}]))
    assert "signal 9" in run.failure.message
    return run


@case("AGENT_UNRESPONSIVE", AGENT, resumable_at=1)
async def an_agent_that_falls_silent(scene: Scene) -> runs_pb2.Run:
    return await scripted(scene, read(), says("x", faults=[{"at": "model", "hang": "process"}]))


@case("AGENT_ERROR", AGENT, resumable_at=1)
async def an_agent_with_an_error_of_its_own(scene: Scene) -> runs_pb2.Run:
    return await claude(scene, result={"is_error": True, "terminal_reason": "", "errors": ["something broke"]})


@case("AGENT_ERROR", PROVIDER, retryable=True)
async def a_provider_that_is_not_well(scene: Scene) -> runs_pb2.Run:
    return await claude(scene, steps=0, api_error_status=500)


@case("AGENT_START_FAILED", ENVIRONMENT)
async def an_agent_that_does_not_come_up(scene: Scene) -> runs_pb2.Run:
    (scene.workspace / OUT_OF_ORDER).touch()
    session_id = await scene.session("fragile")
    run = await scene.ran(session_id, script(says("x")))
    assert "out of order" in run.failure.message
    (scene.workspace / OUT_OF_ORDER).unlink()
    return run


@case("PROTOCOL_ERROR", AGENT, resumable_at=1)
async def a_line_over_the_limit(scene: Scene) -> runs_pb2.Run:
    return await scripted(scene, read(), says("x", faults=[{"at": "model", "json_line_bytes": 70_000}]))


@case("RATE_LIMITED", PROVIDER, retryable=True, waits=1.0)
async def a_provider_that_names_a_time(scene: Scene) -> runs_pb2.Run:
    error = {"status": 429, "message": "slow down", "retry_after": 1}
    return await scene.ran(await scene.session("limited"), script({"error": error}))


@case("QUOTA_EXHAUSTED", PROVIDER)
async def a_quota_that_is_used_up(scene: Scene) -> runs_pb2.Run:
    error = {"status": 429, "message": "You exceeded your current quota.", "code": "insufficient_quota"}
    return await scripted(scene, {"error": error})


@case("AUTH_FAILED", ENVIRONMENT)
async def credentials_that_the_provider_refuses(scene: Scene) -> runs_pb2.Run:
    return await scripted(scene, {"error": {"status": 401, "message": "no such key"}})


@case("CONTEXT_OVERFLOW", AGENT)
async def a_conversation_that_does_not_fit(scene: Scene) -> runs_pb2.Run:
    error = {"status": 400, "message": "This model's maximum context length is 112000 tokens."}
    return await scripted(scene, {"error": {**error, "code": "context_length_exceeded"}})


@case("MODEL_REFUSED", PROVIDER, resumable_at=1)
async def a_model_that_refuses(scene: Scene) -> runs_pb2.Run:
    return await claude(scene, result={"is_error": True, "stop_reason": "refusal"})


@case("MAX_ITERATIONS", CLIENT, resumable_at=1)
async def an_agent_at_its_own_limit(scene: Scene) -> runs_pb2.Run:
    over = {"is_error": True, "subtype": "error_max_turns", "terminal_reason": "max_turns"}
    return await claude(scene, result={**over, "errors": ["Reached maximum number of turns (1)"]})


@case("HARD_TIMEOUT", CLIENT, resumable_at=1)
async def a_run_that_takes_too_long(scene: Scene) -> runs_pb2.Run:
    limits = rules_pb2.RunLimits(hard_timeout=seconds(1.0))
    return await scripted(scene, read(), says("x", hang=True), limits=limits)


@case("QUEUE_TIMEOUT", CLIENT, retryable=True)
async def a_run_that_waits_too_long(scene: Scene) -> runs_pb2.Run:
    session_id = await scene.session()
    live = await scene.held(session_id)
    limits = rules_pb2.RunLimits(queue_timeout=seconds(0.2))
    prompt = script(says("x"))
    run = await scene.ran(session_id, prompt, queue=runs_pb2.QUEUE_MODE_QUEUE, limits=limits)
    await scene.goes_on(live)
    return run


@case("DECIDER_ERROR", CLIENT, resumable_at=1)
async def a_client_that_cannot_decide(scene: Scene) -> runs_pb2.Run:
    run = await scene.held(await scene.session())
    await scene.decide(run, error="my disk is full")
    run = await scene.ended(run.run_id)
    assert "my disk is full" in run.failure.message
    return run


@case("RULE_ERROR", CLIENT, resumable_at=1)
async def a_rule_that_divides_by_zero(scene: Scene) -> runs_pb2.Run:
    rule = rules_pb2.StopRule(
        id="wrong", expression=rules_pb2.ExpressionRule(cel="1 / (step.number - step.number) > 0")
    )
    run = await scripted(scene, read(), says("x"), stop_rules=[rule])
    assert "wrong" in run.failure.message
    return run


@case("GATE_LOST", AGENT, resumable_at=1)
async def an_agent_that_goes_past_its_gate(scene: Scene) -> runs_pb2.Run:
    session_id = await scene.session("claude")
    prompt = json.dumps({"steps": 2, "gate_opens_after_ms": 100})
    run = await scene.ran(session_id, prompt, decider=client_decides())
    gate = (await scene.get_session(session_id)).capabilities.step_gate
    assert gate != (await scene.get_session(await scene.session("claude"))).capabilities.step_gate
    return run


@case("RESUME_FAILED", ENVIRONMENT, breaks=True)
async def a_conversation_that_is_gone(scene: Scene) -> runs_pb2.Run:
    session_id = await scene.session_without_conversation()
    return await scene.ran(session_id, script(says("x")))
