"""T10, a silent CLI: no result, no exit, no end of its output; every run ends all the same, and sessions go on."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.behaviours.stage import (
    COMPLETED,
    FAILED,
    PlayedDaemon,
    Stage,
    daemon_of_its_own,
    play,
    read,
    says,
    script,
)
from tests.framework.liveness import is_alive, wait_gone

from steprail.v1 import events_pb2

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(90)]

SETTINGS = """
[limits]
silence = "1s"
abort_timeout = "500ms"
[processes]
idle_timeout = "1s"
ladder = ["end:300ms", "eof:300ms", "term:300ms", "kill"]
"""


async def usable(stage: Stage, session_id: str, prompt: str) -> None:
    """See that a session takes another run."""
    assert (await stage.run(session_id, prompt)).state == COMPLETED


async def suspended(stage: Stage, session_id: str) -> None:
    """Wait until a session has no process any more."""
    async for event in stage.client.watch_session(session_id):
        if event.session_state_changed.state == events_pb2.SESSION_STATE_SUSPENDED:
            return


@pytest.fixture(scope="module")
def impatient() -> Iterator[PlayedDaemon]:
    """One daemon for the cases in which somebody has to lose patience."""
    deaf = {"FAKE_CLAUDE": json.dumps({"hang_after_result": True, "ignore_term": True}).replace('"', '\\"')}
    with daemon_of_its_own(SETTINGS, environment=deaf) as daemon:
        anyio.run(daemon.start)
        yield daemon


@pytest.fixture
async def hurried(impatient: PlayedDaemon, tmp_path: Path) -> AsyncIterator[Stage]:
    async with play(impatient, tmp_path.name) as made:
        yield made


NO_RESULT: dict[str, dict[str, Any]] = {
    "a turn that never ends": {"at": "turn_end", "hang": "turn"},
    "a process that freezes before its result": {"at": "turn_end", "hang": "process"},
    "a model that never answers": {"at": "model", "hang": "turn"},
}


@pytest.mark.parametrize("name", NO_RESULT)
async def test_an_agent_that_never_sends_a_result_fails_the_run_with_its_reason(name: str, hurried: Stage) -> None:
    """T10: no result."""
    session_id = await hurried.session()
    run = await hurried.run(session_id, script(read(), says("over", faults=[NO_RESULT[name]])))
    assert (run.state, run.failure.reason) == (FAILED, "AGENT_UNRESPONSIVE"), run
    await usable(hurried, session_id, script(says("again")))


async def test_an_agent_that_ends_without_a_result_fails_the_run_at_once(stage: Stage) -> None:
    """T10: exit code 0, from both protocols."""
    session_id = await stage.session()
    run = await stage.run(session_id, script(says("over", faults=[{"at": "turn_end", "exit": 0}])))
    assert (run.state, run.failure.reason) == (FAILED, "AGENT_EXITED")
    await usable(stage, session_id, script(says("again")))
    session_id = await stage.session("claude")
    run = await stage.run(session_id, json.dumps({"steps": 1, "no_result": True}))
    assert (run.state, run.failure.reason) == (FAILED, "AGENT_EXITED")
    await usable(stage, session_id, json.dumps({"steps": 1}))


async def test_an_agent_that_freezes_after_its_result_is_ended_and_the_run_stays_completed(hurried: Stage) -> None:
    """T10: hangs after the result."""
    session_id = await hurried.session()
    prompt = script(says("over", faults=[{"at": "after_turn_end", "hang": "process"}]))
    run = await hurried.run(session_id, prompt)
    assert (run.state, run.text) == (COMPLETED, "over")
    frozen = hurried.agents()
    assert frozen
    await suspended(hurried, session_id)
    assert wait_gone(frozen, 5.0) == set()
    assert (await hurried.client.get_run(run.run_id)).state == COMPLETED
    await usable(hurried, session_id, script(says("again")))


async def test_an_agent_that_does_not_end_with_its_input_is_ended_and_its_session_can_be_used(hurried: Stage) -> None:
    """T10: the same of the other protocol, where the process reads on but stays at the end of its input."""
    session_id = await hurried.session("claude")
    assert (await hurried.run(session_id, '{"steps": 1}')).state == COMPLETED
    frozen = hurried.agents()
    assert frozen
    await suspended(hurried, session_id)
    assert wait_gone(frozen, 5.0) == set()
    await usable(hurried, session_id, '{"steps": 1}')


async def test_a_run_that_was_prompted_into_a_frozen_agent_fails_or_is_served_but_does_not_hang(hurried: Stage) -> None:
    """T10: the next prompt comes before anybody noticed."""
    session_id = await hurried.session()
    prompt = script(says("over", faults=[{"at": "after_turn_end", "hang": "process"}]))
    assert (await hurried.run(session_id, prompt)).state == COMPLETED
    started = await hurried.client.start_run(session_id, script(says("again")))
    run = await hurried.ended(started.run_id, timeout=50)
    assert run.state == COMPLETED or run.failure.reason == "AGENT_UNRESPONSIVE"
    await usable(hurried, session_id, script(says("and again")))


@pytest.mark.parametrize("end", ["result", "exit"])
async def test_a_grandchild_that_keeps_the_output_open_holds_nothing_up(end: str, stage: Stage) -> None:
    """T10: the pipe never comes to its end, since a background process has it."""
    session_id = await stage.session()
    orphan = {"setsid": True, "double_fork": True, "keep_stdout": True, "seconds": 600, "pid_file": "keeper"}
    faults: list[dict[str, Any]] = [{"at": "tool_end", "orphan": orphan}]
    if end == "exit":
        faults.append({"at": "step_end", "exit": 0})
    run = await stage.run(session_id, script(read(faults=faults), says("over")))
    keeper = int((stage.workspace / "keeper").read_text())
    if end == "exit":
        assert (run.state, run.failure.reason) == (FAILED, "AGENT_EXITED")
        assert wait_gone([keeper], 5.0) == set()
    else:
        assert (run.state, is_alive(keeper)) == (COMPLETED, True)
    await usable(stage, session_id, script(says("again")))
