"""The gate on the real Claude Code: whether a stop is exact is counted where the model's requests arrive."""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.conftest import Stage, stage
from tests.framework.liveness import wait_gone, wait_none_marked
from tests.framework.waiting import until

from steprail.client import steps
from steprail.v1 import decisions_pb2, events_pb2, runs_pb2, sessions_pb2
from steprail_daemon.testing.messages_endpoint import Request, Script, Step, Tool

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

STOPS = 25
KILLS = 20
#: How long a held agent is watched for a request that must not come.
HOLD_SECONDS = 3.0
CLIENT_DECIDES = decisions_pb2.Decider(mode=decisions_pb2.DECIDER_MODE_CLIENT)


def bash(command: str, call_id: str) -> Tool:
    return Tool("Bash", {"command": command, "description": "run"}, call_id)


def parallel(number: int) -> Step:
    """Three calls in one message; what they print is found again in later requests."""
    return Step(
        text=f"Step {number}.",
        tools=tuple(bash(f"echo result-{number}-{part}", f"toolu_{number}_{part}") for part in range(3)),
    )


def results_in(request: Request) -> set[str]:
    """Give the calls whose results a request carries, each checked for what the tool really printed."""
    found = set()
    for block in request.blocks("tool_result"):
        call_id = str(block["tool_use_id"])
        assert call_id.replace("toolu_", "result-").replace("_", "-") in str(block["content"])
        found.add(call_id)
    return found


def calls_up_to(number: int) -> set[str]:
    return {f"toolu_{step}_{part}" for step in range(number + 1) for part in range(3)}


def is_stored(play: Stage, session: sessions_pb2.Session, number: int) -> bool:
    """Whether the CLI has written the results of a step into its store, a moment later than it tells them."""
    (store,) = play.daemon.root.rglob(f"{session.agent_session_id}.jsonl")
    text = store.read_text()
    return all(f'"tool_use_id":"toolu_{number}_{part}"' in text for part in range(3))


async def decision_asked(control: Any) -> runs_pb2.DecisionRequest:
    async for message in control:
        if message.WhichOneof("body") == "decision_requested":
            asked: runs_pb2.DecisionRequest = message.decision_requested
            return asked
    raise AssertionError("the run ended without asking")


async def finished(control: Any) -> runs_pb2.Run:
    async for message in control:
        if message.WhichOneof("body") == "finished":
            run: runs_pb2.Run = message.finished.run
            return run
    raise AssertionError("the stream ended without the run")


async def test_every_stop_is_exact_and_every_continued_run_carries_every_result(directory: Path, claude: Path) -> None:
    script = Script([parallel(number) for number in range(STOPS)])
    async with stage(directory, claude, script) as play:
        session_id = await play.session()
        run = await play.client.start_run(session_id, "Begin.", stop_rules=[steps(1)])
        for number in range(STOPS):
            run = await play.client.wait_run(run.run_id, timeout=60)
            assert run.state == events_pb2.RUN_STATE_STOPPED, run
            assert run.stop_reason.exact
            assert play.model_requests == number + 1
            step = await play.client.get_step(run.run_id, 1)
            assert {result.call_id for result in step.tool_results} == {f"toolu_{number}_{part}" for part in range(3)}
            assert step.decision.delivered
            if number:
                assert results_in(play.endpoint.main_requests()[number]) == calls_up_to(number - 1)
            run = await play.client.continue_run(run.run_id)
        run = await play.client.wait_run(run.run_id, timeout=60)
        assert run.state == events_pb2.RUN_STATE_COMPLETED
        assert results_in(play.endpoint.main_requests()[STOPS]) == calls_up_to(STOPS - 1)
        assert play.model_requests == STOPS + 1


def nothing_is_requested_while_held(play: Stage, count: int) -> None:
    with pytest.raises(TimeoutError):
        play.endpoint.wait_main(count + 1, timeout=HOLD_SECONDS)
    assert play.model_requests == count


async def test_a_held_agent_makes_no_request_until_a_client_decides(directory: Path, claude: Path) -> None:
    async with stage(directory, claude, Script([parallel(0), parallel(1), parallel(2)])) as play:
        session_id = await play.session()
        start = play.client.start_request(session_id, "Begin.", decider=CLIENT_DECIDES)
        async with play.client.control(start=start, decide=True, events=runs_pb2.CONTROL_EVENTS_STEPS) as control:
            first = await decision_asked(control)
            assert [result.output.value for result in first.step.tool_results] != []
            nothing_is_requested_while_held(play, 1)
            await control.decide(first.step.step_id, decisions_pb2.DECISION_ACTION_CONTINUE)
            second = await decision_asked(control)
            assert second.step.number == 2
            assert play.model_requests == 2
            await control.decide(second.step.step_id, decisions_pb2.DECISION_ACTION_STOP, reason="seen enough")
            run = await finished(control)
        assert run.state == events_pb2.RUN_STATE_STOPPED
        assert run.stop_reason.source == decisions_pb2.DECISION_SOURCE_CLIENT
        assert run.stop_reason.reason == "seen enough"
        assert play.model_requests == 2
        again = await play.client.continue_run(run.run_id, "Go on.", decider=decisions_pb2.Decider())
        again = await play.client.wait_run(again.run_id)
        assert again.state == events_pb2.RUN_STATE_COMPLETED
        third = play.endpoint.main_requests()[2]
        assert results_in(third) == calls_up_to(1)
        assert "seen enough" not in str(third.body)


async def test_an_abort_at_the_gate_makes_no_request_and_the_session_goes_on(directory: Path, claude: Path) -> None:
    async with stage(directory, claude, Script([parallel(0)])) as play:
        session_id = await play.session()
        run = await play.client.start_run(session_id, "Begin.", decider=CLIENT_DECIDES)
        run = await play.client.wait_run(run.run_id, until=runs_pb2.WAIT_UNTIL_NEEDS_ATTENTION)
        assert run.state == events_pb2.RUN_STATE_AWAITING_DECISION
        run = await play.client.abort_run(run.run_id, "not needed")
        run = await play.client.wait_run(run.run_id)
        assert run.state == events_pb2.RUN_STATE_ABORTED
        assert play.model_requests == 1
        again = await play.client.continue_run(run.run_id, decider=decisions_pb2.Decider())
        again = await play.client.wait_run(again.run_id)
        assert again.state == events_pb2.RUN_STATE_COMPLETED
        assert results_in(play.endpoint.main_requests()[1]) == calls_up_to(0)


async def test_an_agent_killed_before_it_stored_anything_begins_anew_with_the_next_run(
    directory: Path, claude: Path
) -> None:
    script = Script([], then=Step(text="Here I am.", start_delay=2.0))
    async with stage(directory, claude, script) as play:
        session_id = await play.session()
        run = await play.client.start_run(session_id, "Begin.")
        async for event in play.client.watch_run(run.run_id):
            if event.run_state_changed.state == events_pb2.RUN_STATE_RUNNING:
                os.kill(play.daemon.agent_pid(claude), signal.SIGKILL)
        run = await play.client.wait_run(run.run_id)
        assert run.failure.reason == "AGENT_EXITED"
        again = await play.client.start_run(session_id, "Begin again.")
        again = await play.client.wait_run(again.run_id)
        assert again.state == events_pb2.RUN_STATE_COMPLETED, again
        assert again.text == "Here I am."


async def test_twenty_kills_of_the_worker_at_the_gate_let_no_request_out_and_leave_no_process(
    directory: Path, claude: Path
) -> None:
    background = "setsid sh -c 'trap \"\" TERM; sleep 600' >/dev/null 2>&1 & echo result"
    script = Script(
        [
            Step(text=f"Step {number}.", tools=(*parallel(number).tools, bash(background, f"toolu_bg_{number}")))
            for number in range(KILLS)
        ]
    )
    settings = '[processes]\nworker_backoff = ["0.1s", "0.2s"]'
    async with stage(directory, claude, script, settings) as play:
        session_id = await play.session()
        run = await play.client.start_run(session_id, "Begin.", decider=CLIENT_DECIDES)
        session = await play.client.get_session(session_id)
        for number in range(KILLS):
            run = await play.client.wait_run(run.run_id, until=runs_pb2.WAIT_UNTIL_NEEDS_ATTENTION)
            assert run.state == events_pb2.RUN_STATE_AWAITING_DECISION, run
            assert play.model_requests == number + 1
            await until(partial(is_stored, play, session, number))
            worker = play.daemon.worker_pid()
            tree = play.daemon.descendants()
            assert len(tree) >= 3
            os.kill(worker, signal.SIGKILL)
            assert wait_gone(tree, 5.0) == set()
            await play.daemon.answering()
            run = await play.client.get_run(run.run_id)
            assert run.state == events_pb2.RUN_STATE_FAILED
            assert run.failure.reason == "DAEMON_RESTARTED"
            assert run.failure.resumable_at_step == 1
            assert play.model_requests == number + 1
            run = await play.client.continue_run(run.run_id)
        run = await play.client.wait_run(run.run_id)
        assert run.state == events_pb2.RUN_STATE_COMPLETED
        assert play.model_requests == KILLS + 1
        kept = {block["tool_use_id"] for block in play.endpoint.main_requests()[KILLS].blocks("tool_result")}
        assert kept >= calls_up_to(KILLS - 1)
        instance = play.daemon.instance()
    assert wait_none_marked(instance, 5.0) == set()
