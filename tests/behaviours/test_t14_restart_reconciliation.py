"""T14, restart reconciliation: whenever the worker dies, each run has one end, and nothing is sent again."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import anyio
import pytest
from tests.behaviours.stage import (
    AWAITING_DECISION,
    COMPLETED,
    CONTINUE,
    FAILED,
    INPUT,
    SCRIPTED,
    STOPPED,
    TERMINAL,
    Stage,
    agent,
    bodies,
    client_decides,
    command,
    daemon_of_its_own,
    play,
    read,
    recorded,
    says,
    script,
)

from steprail.errors import FailedPrecondition
from steprail.v1 import decisions_pb2, events_pb2, runs_pb2, sessions_pb2

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(150)]

QUICK = '[processes]\nworker_backoff = ["0.05s", "0.1s"]\n' + agent("recorded", command=recorded(INPUT, SCRIPTED))
#: A little pause before each message, so that a kill hits while the agent is at work.
SMALL = script(read(delay=0.03), says("the end", delay=0.03))
#: How long somebody is frozen.
FROZEN = 1.5


async def reach(stage: Stage, run_id: str, index: int) -> list[events_pb2.Event]:
    """Read a run up to an event, or its end."""
    seen: list[events_pb2.Event] = []
    async for event in stage.client.watch_run(run_id):
        seen.append(event)
        if len(seen) > index:
            break
    return seen


async def judge(stage: Stage, session_id: str, run_id: str, seen: list[events_pb2.Event], gone_at: int) -> runs_pb2.Run:
    """See that a run is over after a restart, its log whole, its input given once, and its session usable.

    A run whose prompt had not been given survives: its agent is started after the daemon was gone.
    """
    run = await stage.ended(run_id)
    events = await stage.events(run_id)
    survived = any(event.HasField("agent_start") and event.time.ToNanoseconds() > gone_at for event in events)
    assert run.state == COMPLETED or run.failure.reason == "DAEMON_RESTARTED"
    assert run.state == COMPLETED or not survived
    assert [end.state for end in bodies(events, "agent_end")] == [run.state]
    assert events[: len(seen)] == seen  # nothing that a client saw is lost or changed
    assert events[-1].WhichOneof("body") == "agent_end"
    session = await stage.client.get_session(session_id)
    assert session.active_run_id == ""
    assert session.state == (events_pb2.SESSION_STATE_IDLE if survived else events_pb2.SESSION_STATE_SUSPENDED)
    prompts = sum(line.get("method") == "autohand.prompt" for line in stage.written())
    assert prompts <= 1
    after = await stage.run(session_id, script(says("usable")))
    assert (after.state, after.text) == (COMPLETED, "usable")
    assert sum(line.get("method") == "autohand.prompt" for line in stage.written()) == prompts + 1
    return run


async def test_a_worker_killed_at_events_of_a_run_leaves_one_end_and_a_session_that_goes_on() -> None:
    """T14: SIGKILL after every third event that a client sees; kills at the commits themselves are in tests/chaos."""
    with daemon_of_its_own(QUICK) as daemon:
        await daemon.start()
        async with play(daemon, "plain") as stage:
            plain = await stage.run(await stage.session("recorded"), SMALL)
            count = len(await stage.events(plain.run_id))
        ends = set()
        for index in sorted({*range(0, count, 3), count - 1}):
            async with play(daemon, f"at-{index}") as stage:
                session_id = await stage.session("recorded")
                started = await stage.client.start_run(session_id, SMALL)
                seen = await reach(stage, started.run_id, index)
                gone_at = await daemon.kill_worker()
                ends.add((await judge(stage, session_id, started.run_id, seen, gone_at)).state)
        assert ends == {COMPLETED, FAILED}


async def test_a_decision_that_waits_is_closed_by_the_restart_and_can_be_taken_up_again() -> None:
    """T14: killed at the gate; no model request, and `resumable_at_step` says where it was."""
    with daemon_of_its_own(QUICK) as daemon:
        await daemon.start()
        async with play(daemon) as stage:
            session_id = await stage.session("recorded")
            started = await stage.client.start_run(session_id, SMALL, decider=client_decides())
            await stage.asked(started.run_id)
            gone_at = await daemon.kill_worker()
            run = await judge(stage, session_id, started.run_id, [], gone_at)
            assert (run.state, run.failure.resumable_at_step) == (FAILED, 1)
            assert not run.HasField("pending_decision")
            assert await stage.pending(session_id) == []


async def test_a_queued_run_survives_and_begins_after_the_restart() -> None:
    """T14: its prompt was not given yet, so it is given then, once; a failed run before it holds the queue."""
    with daemon_of_its_own(QUICK) as daemon:
        await daemon.start()
        async with play(daemon) as stage:
            session_id = await stage.session("recorded")
            first = await stage.client.start_run(session_id, SMALL, decider=client_decides())
            await stage.asked(first.run_id)
            second = await stage.queue(session_id, script(says("my turn")))
            await daemon.kill_worker()
            assert (await stage.client.get_run(first.run_id)).state == FAILED
            assert (await stage.client.get_run(second.run_id)).state not in TERMINAL
            await stage.sessions.ReleaseQueue(sessions_pb2.ReleaseQueueRequest(session_id=session_id), timeout=10)
            done = await stage.ended(second.run_id)
            assert (done.state, done.text) == (COMPLETED, "my turn")
            given = [line for line in stage.written() if line.get("method") == "autohand.prompt"]
            assert len(given) == 2


@contextmanager
def frozen(*pids: int) -> Iterator[None]:
    """Stop processes and let them go on."""
    try:
        for pid in pids:
            # One that ended by itself meanwhile must not leave the others frozen.
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        yield
    finally:
        for pid in reversed(pids):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize("who", ["worker", "agent", "everybody"])
async def test_whoever_is_frozen_for_a_while_goes_on_and_the_run_completes(who: str) -> None:
    """T14: SIGSTOP and SIGCONT, as when a machine sleeps; no state is lost and none is invented."""
    with daemon_of_its_own(QUICK) as daemon:
        await daemon.start()
        async with play(daemon) as stage:
            started = await stage.client.start_run(
                await stage.session(), script(command("sleep 0.5"), read(delay=0.2), says("the end", delay=0.2))
            )
            await stage.until(started.run_id, "tool_start")
            worker = daemon.worker_pid()
            agents = sorted(daemon.descendants() - {worker})
            pids = {"worker": [worker], "agent": agents, "everybody": [daemon.pid, worker, *agents]}[who]
            with frozen(*pids):
                await anyio.sleep(FROZEN)
            run = await stage.ended(started.run_id)
            assert (run.state, run.step_count, run.text) == (COMPLETED, 2, "the end")
            assert len(bodies(await stage.events(run.run_id), "agent_end")) == 1
            assert daemon.worker_pid() == worker


async def test_a_deadline_that_passed_while_everybody_was_frozen_acts_once_everybody_is_back() -> None:
    """T14: a decision's time ran out meanwhile; the default acts, and a late answer is refused."""
    with daemon_of_its_own(QUICK) as daemon:
        await daemon.start()
        async with play(daemon) as stage:
            session_id = await stage.session()
            started = await stage.client.start_run(session_id, SMALL, decider=client_decides(timeout=1.0))
            run = await stage.asked(started.run_id)
            assert run.state == AWAITING_DECISION
            step_id = run.pending_decision.step_id
            with frozen(daemon.pid, *sorted(daemon.descendants())):
                await anyio.sleep(FROZEN)
            run = await stage.ended(started.run_id)
            assert (run.state, run.stop_reason.source) == (STOPPED, decisions_pb2.DECISION_SOURCE_TIMEOUT)
            with pytest.raises(FailedPrecondition) as refused:
                await stage.client.submit_decision(run.run_id, step_id, CONTINUE)
            assert refused.value.reason == "DECISION_NOT_PENDING"
            assert len(bodies(await stage.events(run.run_id), "decision_recorded")) == 1
            further = await stage.client.continue_run(
                run.run_id, script(says("went on")), decider=decisions_pb2.Decider()
            )
            assert (await stage.ended(further.run_id)).text == "went on"


async def test_a_decision_given_before_the_kill_is_there_after_it() -> None:
    """T14: what a client was told is never lost."""
    with daemon_of_its_own(QUICK) as daemon:
        await daemon.start()
        async with play(daemon) as stage:
            session_id = await stage.session("recorded")
            prompt = script(read(), command("sleep 30"), says("never"))
            started = await stage.client.start_run(session_id, prompt, decider=client_decides())
            pending = (await stage.asked(started.run_id)).pending_decision
            decision = await stage.client.submit_decision(started.run_id, pending.step_id, CONTINUE, reason="go")
            await daemon.kill_worker()
            step = await stage.client.get_step(started.run_id, 1)
            assert (step.decision.action, step.decision.reason) == (decision.action, "go")
            (recorded_,) = bodies(await stage.events(started.run_id), "decision_recorded")
            assert (recorded_.step_id, recorded_.decision.reason) == (pending.step_id, "go")
