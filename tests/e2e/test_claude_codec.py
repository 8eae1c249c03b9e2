"""The codec against the real Claude Code: its process, its launch plan, a scripted model, and nothing between."""

from __future__ import annotations

import subprocess
import uuid
from pathlib import Path

from tests.e2e.agent import GO_ON, PATIENCE, QUIET, STOP, bash, prompt, results, started

from steprail_daemon.core.commands import AnswerBoundary
from steprail_daemon.core.events import (
    AgentReady,
    BoundaryReached,
    MessageDelta,
    MessageEnded,
    PromptConfirmed,
    ToolEnded,
    ToolStarted,
    TurnEnded,
)
from steprail_daemon.core.model import (
    FinishReason,
    MessageKind,
    PermissionMode,
    TurnEndReason,
    Usage,
)
from steprail_daemon.drivers.registry import DRIVERS
from steprail_daemon.testing.messages_endpoint import MessagesEndpoint, Script, Step


def test_a_held_boundary_lets_no_request_out_and_a_stop_ends_the_turn_with_every_result_kept(
    claude: Path, tmp_path: Path
) -> None:
    script = Script([bash("echo one"), bash("echo two", "echo three"), Step(text="I saw it all.")])
    session = str(uuid.uuid4())
    with MessagesEndpoint(script) as endpoint:
        with started(tmp_path, claude, endpoint, session=session) as agent:
            ready = agent.until(AgentReady)
            assert ready.version == "2.1.332"
            assert ready.gate_held
            assert agent.codec.eof_is_safe()

            first = prompt("begin")
            agent.send(first)
            assert agent.until(PromptConfirmed).prompt_id == first.prompt_id
            boundary = agent.until(BoundaryReached)
            assert boundary.usage == Usage(100, 0, 0, 20, None)
            assert boundary.call_ids == tuple(event.call.call_id for event in agent.of(ToolStarted))
            agent.listen(QUIET)
            assert len(endpoint.main_requests()) == 1
            assert not agent.codec.eof_is_safe()

            agent.send(AnswerBoundary(boundary.boundary_id, GO_ON))
            boundary = agent.until(BoundaryReached)
            assert len(endpoint.main_requests()) == 2
            assert len(boundary.call_ids) == 2
            agent.send(AnswerBoundary(boundary.boundary_id, STOP))
            ended = agent.until(TurnEnded)
            assert ended.reason is TurnEndReason.STOP_CONDITION
            assert ended.usage is not None
            assert (ended.usage.input_tokens, ended.usage.output_tokens) == (200, 40)
            assert ended.cost is not None
            agent.listen(QUIET)
            assert len(endpoint.main_requests()) == 2
            assert agent.codec.eof_is_safe()
            outputs = [event.result.output for event in agent.of(ToolEnded)]
            assert sorted(output or "" for output in outputs) == ["one", "three", "two"]
            assert agent.end() == 0

        with started(tmp_path, claude, endpoint, session=session, resume=True) as agent:
            agent.until(AgentReady)
            agent.send(prompt("go on"))
            ended = agent.until(TurnEnded)
            assert ended.reason is TurnEndReason.COMPLETED
            assert ended.text == "I saw it all."
            assert ended.usage is not None
            assert ended.usage.input_tokens == 100
            assert sorted(map(str, results(endpoint))) == ["one", "three", "two"]
            last = agent.of(MessageEnded)[-1]
            assert (last.text, last.finish_reason) == ("I saw it all.", FinishReason.STOP)
            assert "".join(delta.text for delta in agent.of(MessageDelta)) == last.text


def test_read_only_offers_no_tool_that_edits_and_none_offers_work_beside_the_run(claude: Path, tmp_path: Path) -> None:
    with (
        MessagesEndpoint(Script([Step(text="Fine.")])) as endpoint,
        started(tmp_path, claude, endpoint, mode=PermissionMode.READ_ONLY) as agent,
    ):
        agent.send(prompt("begin"))
        agent.until(TurnEnded)
        offered = {tool["name"] for tool in endpoint.main_requests()[0].body["tools"]}
        assert {"Bash", "Read"} <= offered
        assert not offered & {"Edit", "Write", "NotebookEdit", "Workflow", "ScheduleWakeup", "CronCreate"}


def test_a_thought_is_a_message_of_its_own(claude: Path, tmp_path: Path) -> None:
    with (
        MessagesEndpoint(Script([Step(thinking="Let me see.", text="Fine.")])) as endpoint,
        started(tmp_path, claude, endpoint) as agent,
    ):
        agent.send(prompt("begin"))
        agent.until(TurnEnded)
        said = [(event.kind, event.text) for event in agent.of(MessageEnded)]
        assert said == [(MessageKind.THOUGHT, "Let me see."), (MessageKind.TEXT, "Fine.")]


def test_a_broken_stream_gives_no_message_twice(claude: Path, tmp_path: Path) -> None:
    script = Script([Step(text="one two three", cut_after=4), Step(text="whole")])
    with MessagesEndpoint(script) as endpoint, started(tmp_path, claude, endpoint) as agent:
        agent.send(prompt("begin"))
        ended = agent.until(TurnEnded)
        texts = [event.text for event in agent.of(MessageEnded)]
        assert texts[-1] == ended.text
        assert len(texts) <= len(endpoint.requests)


def test_an_unknown_session_cannot_be_resumed_and_says_so(claude: Path, tmp_path: Path) -> None:
    with MessagesEndpoint(Script([])) as endpoint, started(tmp_path, claude, endpoint, resume=True) as agent:
        ended = agent.until(TurnEnded)
        assert ended.failure is not None
        assert ended.failure.reason == "RESUME_FAILED"
        assert not agent.of(AgentReady)
        assert agent.end() == 1


def test_the_probe_knows_the_version(claude: Path) -> None:
    driver = DRIVERS["claude"]
    done = subprocess.run(driver.probe_argv((str(claude),)), capture_output=True, timeout=PATIENCE, check=False)
    probe = driver.read_probe(done.stdout, done.returncode)
    assert (probe.version, probe.unavailable_reason) == ("2.1.332", "")
