"""T12, messages that nobody knows, and providers that say no: the stream goes on, and what waiting helps is told."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.behaviours.stage import (
    COMPLETED,
    FAILED,
    RUNNING,
    Stage,
    agent,
    bodies,
    daemon_of_its_own,
    kinds,
    play,
    read,
    says,
    script,
)
from tests.framework.waiting import until

from steprail.errors import ResourceExhausted
from steprail.v1 import errors_pb2, events_pb2, sessions_pb2

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]

BACK_OFF_NS = 1_500_000_000
#: A machine that is busy with other things starts the last of five agents late.
LATE_NS = 10_000_000_000
#: Timers and the clock of the records are not the same clock.
EARLY_NS = 20_000_000

TRANSIENT, QUOTA = events_pb2.RATE_LIMIT_KIND_TRANSIENT, events_pb2.RATE_LIMIT_KIND_QUOTA


async def test_a_message_of_an_unknown_kind_is_handed_on_as_it_is_and_the_stream_goes_on(stage: Stage) -> None:
    """T12: unknown type."""
    params = {"depth": 3, "name": "caf\u00e9", "list": [1, 2.5, None]}
    news = [{"at": at, "notify": {"method": "autohand.newThing", "params": params}} for at in ("model", "step_end")]
    run = await stage.run(await stage.session(), script(read(faults=news), says("went on")))
    assert (run.state, run.step_count, run.text) == (COMPLETED, 1, "went on")
    raw = [body for body in bodies(await stage.events(run.run_id), "raw") if "newThing" in body.vendor_type]
    assert len(raw) == 2
    payload = json.loads(raw[0].payload_json.value)
    assert {name: payload.get("params", payload)[name] for name in params} == params


async def test_new_fields_of_a_known_message_change_nothing(stage: Stage) -> None:
    """T12: new fields, also in a message that the driver reads."""
    news = {"toolId": "none", "toolName": "none", "args": {}, "severity": {"level": 9}, "of": ["a", "newer", "version"]}
    faults = [{"at": "model", "notify": {"method": "autohand.hook.preTool", "params": news}}]
    run = await stage.run(await stage.session(), script(read(faults=faults), says("went on")))
    assert (run.state, run.step_count, run.text) == (COMPLETED, 1, "went on")


def refusal(**error: Any) -> str:
    """Give a prompt whose model is refused by its provider."""
    return script({"error": {"status": 429, "message": "slow down", **error}})


async def test_a_rate_limit_fails_the_run_tells_its_time_and_the_next_start_is_refused_with_it() -> None:
    """T12: rate limit with retry-after; sessions of another agent are not held up."""
    with daemon_of_its_own(agent("limited")) as daemon:
        await daemon.start()
        async with play(daemon) as stage:
            session_id = await stage.session("limited")
            run = await stage.run(session_id, refusal(retry_after=30))
            assert (run.state, run.failure.reason, run.text) == (FAILED, "RATE_LIMITED", "")
            assert (run.failure.retryable, run.failure.retry_after.seconds) == (True, 30)
            assert run.failure.fault == errors_pb2.FAILURE_FAULT_PROVIDER
            (limited,) = bodies(await stage.events(run.run_id), "rate_limited")
            assert (limited.kind, limited.http_status, limited.retry_after.seconds) == (TRANSIENT, 429, 30)
            provider = limited.provider or "unknown"
            await until(lambda: daemon.metric("rate_limited_total", provider=provider, kind="transient") == 1)
            assert 25 < daemon.metric("rate_limit_backoff_seconds_sum", provider=provider) < 60

            for refused_session in (session_id, await stage.session("limited")):
                with pytest.raises(ResourceExhausted) as refused:
                    await stage.client.start_run(refused_session, script(says("too early")))
                assert refused.value.reason == "RATE_LIMITED"
                assert refused.value.retry_after is not None
                assert 20 < refused.value.retry_after < 60
            assert (await stage.run(await stage.session(), script(says("not concerned")))).state == COMPLETED


async def test_a_rate_limit_without_a_time_gets_one() -> None:
    """T12: rate limit without retry-after."""
    with daemon_of_its_own(agent("limited")) as daemon:
        await daemon.start()
        async with play(daemon) as stage:
            run = await stage.run(await stage.session("limited"), refusal())
            assert (run.failure.reason, run.failure.retryable) == ("RATE_LIMITED", True)
            (limited,) = bodies(await stage.events(run.run_id), "rate_limited")
            assert (limited.kind, limited.HasField("retry_after")) == (TRANSIENT, False)
            with pytest.raises(ResourceExhausted) as refused:
                await stage.client.start_run(await stage.session("limited"), script(says("too early")))
            assert refused.value.reason == "RATE_LIMITED"
            assert refused.value.retry_after


async def test_runs_that_wait_in_the_queue_start_once_the_back_off_is_over() -> None:
    """T12: waiting is what a run may do; five sessions, so that a timer that is early for one of them is seen."""
    with daemon_of_its_own(agent("limited")) as daemon:
        await daemon.start()
        async with play(daemon) as stage:
            sessions = [await stage.session("limited") for _ in range(5)]
            run = await stage.run(sessions[0], refusal(retry_after=BACK_OFF_NS / 1e9))
            assert run.failure.reason == "RATE_LIMITED"
            (limited,) = [event for event in await stage.events(run.run_id) if event.HasField("rate_limited")]
            over = limited.time.ToNanoseconds() + BACK_OFF_NS
            await stage.sessions.ReleaseQueue(sessions_pb2.ReleaseQueueRequest(session_id=sessions[0]), timeout=10)
            queued = [await stage.queue(session_id, script(says("in time"))) for session_id in sessions]
            for waiting in queued:
                done = await stage.ended(waiting.run_id)
                assert (done.state, done.text) == (COMPLETED, "in time")
                events = await stage.events(waiting.run_id)
                (began,) = [event.time for event in events if event.run_state_changed.state == RUNNING]
                assert over - EARLY_NS < began.ToNanoseconds() < over + LATE_NS


async def test_a_quota_that_is_used_up_is_never_retried() -> None:
    """T12: quota; waiting does not help, so nothing is held up and nothing is tried again."""
    with daemon_of_its_own(agent("limited")) as daemon:
        await daemon.start()
        async with play(daemon) as stage:
            session_id = await stage.session("limited")
            prompt = refusal(code="insufficient_quota", message="You exceeded your current quota.")
            run = await stage.run(session_id, prompt)
            assert (run.state, run.failure.reason, run.failure.retryable) == (FAILED, "QUOTA_EXHAUSTED", False)
            assert not run.failure.HasField("retry_after")
            (limited,) = bodies(await stage.events(run.run_id), "rate_limited")
            assert limited.kind == QUOTA
            provider = limited.provider or "unknown"
            await until(lambda: daemon.metric("rate_limited_total", provider=provider, kind="quota") == 1)
            assert await stage.replies(session_id) == 0
            assert (await stage.run(session_id, script(says("paid")))).state == COMPLETED


async def test_a_refusal_that_the_agent_itself_gets_over_is_told_and_fails_nothing(stage: Stage) -> None:
    """T12: retries of the agent's own are events, and the run completes."""
    run = await stage.run(await stage.session("claude"), json.dumps({"steps": 1, "retries": 2}))
    assert (run.state, run.step_count) == (COMPLETED, 1)
    told = kinds(await stage.events(run.run_id))
    assert "rate_limited" in told
    assert told[-1] == "agent_end"
