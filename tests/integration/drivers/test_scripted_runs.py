"""The built daemon with the built-in agent, through the driver that runs the Autohand CLI too."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import anyio
import pytest
from tests.framework.daemon import Daemon, running_daemon

from steprail.client import Client, steps
from steprail.v1 import events_pb2, runs_pb2, steps_pb2

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("one_loop"), pytest.mark.timeout(120)]

COMPLETED, STOPPED = events_pb2.RUN_STATE_COMPLETED, events_pb2.RUN_STATE_STOPPED
ABORTED, FAILED = events_pb2.RUN_STATE_ABORTED, events_pb2.RUN_STATE_FAILED

AGENTS = """
[processes]
idle_timeout = "1s"
[agents.scripted]
home = "isolated"
permission_mode = "bypass"
[agents.limited]
driver = "scripted"
home = "isolated"
permission_mode = "bypass"
[agents.asking]
driver = "scripted"
home = "isolated"
permission_mode = "ask"
[agents.reader]
driver = "scripted"
home = "isolated"
permission_mode = "read_only"
"""

TWO_STEPS = """#!scripted
turns:
- replies:
  - text: first I look at the notes, for they say what is to be done in this folder
    calls: [{read_file: {path: notes.txt}}]
    usage: {input_tokens: 100, output_tokens: 10}
  - text: now I write what I found, in a file of its own beside the notes that I read
    calls: [{write_file: {path: report.txt, contents: "found\\n"}}, {run_command: {command: cat report.txt}}]
    usage: {input_tokens: 200, output_tokens: 20}
  - text: all done
    usage: {input_tokens: 300, output_tokens: 30}
"""

#: The agent answers with the first prompt of its conversation.
ASK_FIRST = "#!scripted\nturns:\n- replies:\n  - text: it began with ${first_prompt}\n"


def command(text: str) -> str:
    """A prompt that makes the agent run one command."""
    return f"#!scripted\nturns:\n- replies:\n  - {{text: go, calls: [{{run_command: {{command: '{text}'}}}}]}}\n"


class Play:
    """A client of a daemon, and a directory for its agents to work in."""

    def __init__(self, client: Client, workspace: Path) -> None:
        self.client = client
        self.workspace = workspace

    async def session(self, agent: str = "scripted") -> str:
        session = await self.client.create_session(agent, str(self.workspace))
        return str(session.session_id)

    async def run(self, session_id: str, prompt: str) -> runs_pb2.Run:
        started = await self.client.start_run(session_id, prompt)
        return await self.client.wait_run(started.run_id, timeout=60)


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    """One daemon for the tests of this file."""
    with running_daemon(["true"], settings=AGENTS) as made:
        yield made


@pytest.fixture
async def play(daemon: Daemon, tmp_path: Path) -> AsyncIterator[Play]:
    workspace = daemon.workspace / tmp_path.name
    workspace.mkdir()
    (workspace / "notes.txt").write_text("remember the milk\n")
    async with Client(daemon.address) as client:
        yield Play(client, workspace)


async def test_without_a_script_it_looks_around_and_reports(play: Play) -> None:
    run = await play.run(await play.session(), "What do the notes say?")
    assert (run.state, run.text != "") == (COMPLETED, True)
    assert run.step_count >= 2


async def test_a_run_stops_after_its_first_step_and_goes_on_where_it_was(play: Play) -> None:
    started = await play.client.start_run(await play.session(), TWO_STEPS, stop_rules=[steps(1)])
    stopped = await play.client.wait_run(started.run_id, timeout=60)
    assert (stopped.state, stopped.step_count, stopped.stop_reason.exact) == (STOPPED, 1, True)
    assert not (play.workspace / "report.txt").exists()
    step = await play.client.get_step(stopped.run_id, 1)
    assert [call.tool for call in step.tool_calls] == ["read_file"]
    assert "remember the milk" in step.tool_results[0].output.value
    assert step.thought.value.startswith("first I look")
    assert (step.usage.input_tokens, step.usage.output_tokens) == (100, 10)
    assert stopped.usage.total_tokens == 110

    further = await play.client.continue_run(stopped.run_id, prompt="Go on.", stop_rules=[])
    done = await play.client.wait_run(further.run_id, timeout=60)
    assert done.state == COMPLETED


async def test_writes_reach_later_tools_of_the_same_turn_and_the_disk(play: Play) -> None:
    run = await play.run(await play.session(), TWO_STEPS)
    assert (run.state, run.step_count, run.text) == (COMPLETED, 2, "all done")
    assert (play.workspace / "report.txt").read_text() == "found\n"
    step = await play.client.get_step(run.run_id, 2)
    assert "found" in step.tool_results[1].output.value
    assert (run.usage.input_tokens, run.usage.output_tokens, run.usage.complete) == (600, 60, True)


async def test_a_read_only_session_changes_nothing(play: Play) -> None:
    run = await play.run(await play.session("reader"), TWO_STEPS)
    assert run.state == COMPLETED
    assert not (play.workspace / "report.txt").exists()
    step = await play.client.get_step(run.run_id, 2)
    assert {result.outcome for result in step.tool_results} == {steps_pb2.TOOL_OUTCOME_DENIED}


async def test_an_abort_ends_a_command_and_the_session_goes_on(play: Play) -> None:
    session_id = await play.session()
    started = await play.client.start_run(session_id, command("exec sleep 60"))
    async for event in play.client.watch_run(started.run_id):
        if event.WhichOneof("body") == "tool_start":
            break
    await play.client.abort_run(started.run_id)
    assert (await play.client.wait_run(started.run_id, timeout=60)).state == ABORTED
    assert (await play.run(session_id, command("echo again"))).state == COMPLETED


async def test_an_abort_right_after_the_start_does_not_wedge_the_agent(play: Play) -> None:
    session_id = await play.session()
    for _ in range(5):
        started = await play.client.start_run(session_id, "What do the notes say?")
        await play.client.abort_run(started.run_id)
        assert (await play.client.wait_run(started.run_id, timeout=60)).state in (ABORTED, COMPLETED)
    assert (await play.run(session_id, "What do the notes say?")).state == COMPLETED


async def test_an_abort_ends_a_run_whose_question_nobody_answered(play: Play) -> None:
    session_id = await play.session("asking")
    started = await play.client.start_run(session_id, command("echo asked"))
    async for event in play.client.watch_run(started.run_id):
        if event.WhichOneof("body") == "permission_requested":
            assert event.permission_requested.permission.tool == "run_command"
            break
    await play.client.abort_run(started.run_id)
    assert (await play.client.wait_run(started.run_id, timeout=60)).state == ABORTED
    assert (await play.run(session_id, "What do the notes say?")).state == COMPLETED


async def test_a_rate_limit_fails_the_run_with_its_time(play: Play) -> None:
    limited = "#!scripted\nturns:\n- replies:\n  - error: {status: 429, message: slow down, retry_after: 2}\n"
    run = await play.run(await play.session("limited"), limited)
    assert (run.state, run.failure.reason, run.failure.retryable) == (FAILED, "RATE_LIMITED", True)
    assert run.failure.retry_after.seconds == 2
    assert run.text == ""


async def test_a_session_that_lost_its_process_takes_its_conversation_up_again(play: Play) -> None:
    session_id = await play.session()
    first = await play.run(session_id, "#!scripted\nturns:\n- replies:\n  - text: the word is pineapple\n")
    assert first.state == COMPLETED
    async for event in play.client.watch_session(session_id):
        if event.session_state_changed.state == events_pb2.SESSION_STATE_SUSPENDED:
            break
    before = await play.client.get_session(session_id)
    said = await play.run(session_id, ASK_FIRST)
    assert said.state == COMPLETED
    assert "pineapple" in said.text
    after = await play.client.get_session(session_id)
    assert before.agent_session_id == after.agent_session_id != ""


async def test_sessions_that_begin_at_one_time_take_up_each_its_own_conversation(play: Play) -> None:
    words = [f"word-{number}" for number in range(6)]
    sessions: dict[str, str] = {}

    async def begin(word: str) -> None:
        sessions[word] = session_id = await play.session()
        await play.run(session_id, f"#!scripted\nturns:\n- replies:\n  - text: {word}\n")

    async def take_up(word: str) -> None:
        async for event in play.client.watch_session(sessions[word]):
            if event.session_state_changed.state == events_pb2.SESSION_STATE_SUSPENDED:
                break
        run = await play.run(sessions[word], ASK_FIRST)
        assert word in run.text

    async with anyio.create_task_group() as group:
        for word in words:
            group.start_soon(begin, word)
    async with anyio.create_task_group() as group:
        for word in words:
            group.start_soon(take_up, word)
