"""Interrupts, exits and deaths of the real Claude Code, in each phase, and what is there afterwards."""

from __future__ import annotations

import os
import signal
import threading
import time
import uuid
from pathlib import Path

from tests.e2e.agent import GO_ON, PATIENCE, QUIET, bash, prompt, results, started

from steprail_daemon.core.commands import AnswerBoundary, Interrupt
from steprail_daemon.core.events import (
    AgentReady,
    BoundaryCancelled,
    BoundaryReached,
    MessageDelta,
    MessageEnded,
    PromptConfirmed,
    RateLimited,
    ToolEnded,
    TurnEnded,
)
from steprail_daemon.core.model import FinishReason, ToolOutcome, TurnEndReason
from steprail_daemon.testing.messages_endpoint import MessagesEndpoint, Script, Step


def test_an_interrupt_at_a_held_boundary_withdraws_it_and_the_next_prompt_has_the_results(
    claude: Path, tmp_path: Path
) -> None:
    with (
        MessagesEndpoint(Script([bash("echo kept"), Step(text="Here again.")])) as endpoint,
        started(tmp_path, claude, endpoint) as agent,
    ):
        agent.send(prompt("begin"))
        boundary = agent.until(BoundaryReached)
        agent.send(Interrupt())
        assert agent.until(BoundaryCancelled).boundary_id == boundary.boundary_id
        assert agent.until(TurnEnded).reason is TurnEndReason.ABORTED
        before = len(agent.written)
        agent.send(AnswerBoundary(boundary.boundary_id, GO_ON))
        assert len(agent.written) == before
        assert len(endpoint.main_requests()) == 1
        agent.send(prompt("and now"))
        assert agent.until(TurnEnded).reason is TurnEndReason.COMPLETED
        assert results(endpoint) == ["kept"]


def test_an_interrupt_while_a_tool_runs_cuts_the_tool_and_keeps_its_sibling(claude: Path, tmp_path: Path) -> None:
    with (
        MessagesEndpoint(Script([bash("echo kept", "echo begun; sleep 30")])) as endpoint,
        started(tmp_path, claude, endpoint) as agent,
    ):
        agent.send(prompt("begin"))
        assert agent.until(ToolEnded).result.output == "kept"
        agent.send(Interrupt())
        assert agent.until(ToolEnded).result.outcome is ToolOutcome.CANCELLED
        assert agent.until(TurnEnded).reason is TurnEndReason.ABORTED


def test_an_interrupt_while_the_model_writes_keeps_what_it_wrote(claude: Path, tmp_path: Path) -> None:
    script = Script([Step(text=" ".join("word" for _ in range(200)), event_delay=0.05)])
    with MessagesEndpoint(script) as endpoint, started(tmp_path, claude, endpoint) as agent:
        agent.send(prompt("begin"))
        agent.until(MessageDelta)
        agent.send(Interrupt())
        ended = agent.until(MessageEnded)
        assert ended.text.startswith("word")
        assert ended.finish_reason is FinishReason.UNKNOWN
        turn = agent.until(TurnEnded)
        assert turn.reason is TurnEndReason.ABORTED
        assert turn.text == ended.text


def test_an_interrupt_before_the_first_word_or_in_a_back_off_ends_the_turn_at_once(
    claude: Path, tmp_path: Path
) -> None:
    slow = Step(text="never", start_delay=60.0)
    busy = Step(status=429, headers={"retry-after": "60"})
    with (
        MessagesEndpoint(
            Script([bash("echo kept"), slow, bash("echo kept too"), busy, Step(text="Here.")])
        ) as endpoint,
        started(tmp_path, claude, endpoint) as agent,
    ):
        agent.send(prompt("begin"))
        agent.go_on(agent.until(BoundaryReached))
        endpoint.wait_main(2, PATIENCE)
        agent.send(Interrupt())
        assert agent.until(TurnEnded).reason is TurnEndReason.ABORTED
        agent.send(prompt("again"))
        agent.until(PromptConfirmed)
        agent.go_on(agent.until(BoundaryReached))
        agent.until(RateLimited)
        agent.send(Interrupt())
        turn = agent.until(TurnEnded)
        assert (turn.reason, turn.reason_raw) == (TurnEndReason.ABORTED, "aborted_streaming")
        agent.send(prompt("and now"))
        assert agent.until(TurnEnded).text == "Here."
        assert results(endpoint) == ["kept", "kept too"]


def test_a_term_at_a_held_boundary_makes_no_request_and_keeps_every_result(claude: Path, tmp_path: Path) -> None:
    session = str(uuid.uuid4())
    with MessagesEndpoint(Script([bash("echo one", "cat missing.txt"), Step(text="Here.")])) as endpoint:
        with started(tmp_path, claude, endpoint, session=session) as agent:
            agent.send(prompt("begin"))
            agent.until(BoundaryReached)
            assert not agent.codec.eof_is_safe()
            agent.process.send_signal(signal.SIGTERM)
            assert agent.process.wait(PATIENCE) == 143
            assert len(endpoint.main_requests()) == 1
        with started(tmp_path, claude, endpoint, session=session, resume=True) as agent:
            agent.send(prompt("go on"))
            assert agent.until(TurnEnded).text == "Here."
            assert sorted(str(result)[:11] for result in results(endpoint)) == ["Exit code 1", "one"]


def wait_stored(room: Path, session: str, text: str) -> None:
    """Wait until the CLI has written something into its store, which it does a moment later than it tells it."""
    (store,) = room.glob(f"home/.claude/projects/*/{session}.jsonl")
    pause, deadline = threading.Event(), time.monotonic() + PATIENCE
    while text not in store.read_text():
        assert time.monotonic() < deadline, f"{text!r} was not stored"
        pause.wait(0.02)


def test_a_call_that_a_kill_cut_off_is_flagged_to_the_model_at_the_next_prompt(claude: Path, tmp_path: Path) -> None:
    session = str(uuid.uuid4())
    with MessagesEndpoint(Script([bash("echo kept"), bash("sleep 31"), Step(text="Here.")])) as endpoint:
        with started(tmp_path, claude, endpoint, session=session) as agent:
            agent.send(prompt("begin"))
            boundary = agent.until(BoundaryReached)
            wait_stored(tmp_path, session, '"tool_result","content":"kept"')
            agent.go_on(boundary)
            wait_stored(tmp_path, session, "sleep 31")
            os.killpg(agent.process.pid, signal.SIGKILL)
            agent.process.wait(PATIENCE)
        with started(tmp_path, claude, endpoint, session=session, resume=True) as agent:
            assert agent.until(AgentReady).gate_held
            agent.send(prompt("go on"))
            assert agent.until(TurnEnded).text == "Here."
            kept, flagged = map(str, results(endpoint))
            assert kept == "kept"
            assert "outcome is unknown" in flagged


def test_a_process_stays_after_its_result_and_makes_no_request_until_the_next_prompt(
    claude: Path, tmp_path: Path
) -> None:
    with (
        MessagesEndpoint(Script([Step(text="One."), Step(text="Two.")])) as endpoint,
        started(tmp_path, claude, endpoint) as agent,
    ):
        agent.send(prompt("begin"))
        agent.until(TurnEnded)
        agent.send(Interrupt())
        agent.listen(QUIET)
        assert agent.process.poll() is None
        assert len(endpoint.requests) == 1
        agent.send(prompt("go on"))
        assert agent.until(TurnEnded).text == "Two."
        assert agent.end() == 0


def test_a_session_id_that_is_in_use_ends_the_process_before_it_is_ready(claude: Path, tmp_path: Path) -> None:
    session = str(uuid.uuid4())
    with MessagesEndpoint(Script([])) as endpoint:
        with started(tmp_path, claude, endpoint, session=session) as agent:
            agent.send(prompt("begin"))
            agent.until(TurnEnded)
            agent.end()
        with started(tmp_path, claude, endpoint, session=session) as agent:
            assert agent.process.wait(PATIENCE) == 1
            agent.listen(0.2)
            assert not agent.of(AgentReady)
