"""The codec on the built-in agent's real process, without a daemon between them."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from steprail_daemon.core.commands import (
    AgentCommand,
    AnswerBoundary,
    AnswerPermission,
    Interrupt,
    SendPrompt,
    SetPermissionMode,
)
from steprail_daemon.core.events import (
    AgentEvent,
    AgentReady,
    BoundaryReached,
    PermissionAsked,
    PermissionWithdrawn,
    PromptConfirmed,
    ToolEnded,
    ToolStarted,
    TurnEnded,
)
from steprail_daemon.core.model import (
    DecisionAction,
    PermissionAlternative,
    PermissionMode,
    ToolOutcome,
    TurnEndReason,
)
from steprail_daemon.drivers.base import Channel, CodecSettings, LaunchSpec
from steprail_daemon.drivers.registry import DRIVERS

pytestmark = pytest.mark.timeout(60)

DRIVER = DRIVERS["scripted"]
COMMAND = (sys.executable, "-P", "-m", "steprail_scripted")
LIMIT_SECONDS = 20.0

ONE_COMMAND = """#!scripted
turns:
- replies:
  - {text: run it, calls: [{run_command: {command: echo first}}]}
  - {text: it ran}
"""


class Process:
    """The agent as an engine would hold it: what it says goes to the codec, what the codec owes goes to it."""

    def __init__(self, home: Path, workspace: Path, session_id: str, *, resume: bool) -> None:
        spec = LaunchSpec(
            command=COMMAND,
            cwd=str(workspace),
            agent_session_id=session_id,
            resume=resume,
            model="",
            permission_mode=PermissionMode.ASK,
            isolated_home=str(home),
        )
        plan = DRIVER.plan(spec)
        for directory in plan.directories:
            Path(directory).mkdir(parents=True, exist_ok=True)
        self.codec = DRIVER.codec(
            CodecSettings(
                agent_session_id=session_id, permission_mode=PermissionMode.ASK, line_bytes=1 << 20, resume=resume
            )
        )
        self.popen = subprocess.Popen(
            plan.argv,
            env={**os.environ, **plan.environment},
            cwd=workspace,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.events: list[AgentEvent] = []
        self.prompts = 0
        self.codec.start()

    def send(self, command: AgentCommand) -> None:
        self.codec.send(command)
        self._write()

    def _write(self) -> None:
        assert self.popen.stdin is not None
        self.popen.stdin.write(self.codec.data_to_send())
        self.popen.stdin.flush()

    def prompt(self, text: str) -> None:
        self.prompts += 1
        self.send(SendPrompt(f"p{self.prompts}", text))

    def until(self, kind: type, holds: Callable[[Any], bool] = lambda _: True) -> Any:
        """Read until such an event came, and give it; what came is forgotten up to there."""
        assert self.popen.stdout is not None
        deadline = time.monotonic() + LIMIT_SECONDS
        while True:
            for position, event in enumerate(self.events):
                if isinstance(event, kind) and holds(event):
                    self.passed, self.events = self.events[:position], self.events[position + 1 :]
                    return event
            readable, _, _ = select.select([self.popen.stdout], [], [], max(0.0, deadline - time.monotonic()))
            assert readable, f"no {kind.__name__} came: {self.events}"
            data = os.read(self.popen.stdout.fileno(), 65_536)
            assert data, f"the agent ended before a {kind.__name__}: {self.events}"
            self.events += self.codec.receive(Channel.STDOUT, data)
            self._write()

    def end(self) -> int:
        """Close its input, where that is safe, and wait for its exit."""
        assert self.popen.stdin is not None
        assert self.codec.eof_is_safe()
        self.popen.stdin.close()
        return self.popen.wait(LIMIT_SECONDS)


@contextmanager
def process(root: Path, session_id: str = "new", *, resume: bool = False) -> Iterator[Process]:
    workspace = root / "work"
    workspace.mkdir(exist_ok=True)
    started = Process(root / "home", workspace, session_id, resume=resume)
    try:
        yield started
    finally:
        started.popen.kill()
        started.popen.wait(LIMIT_SECONDS)
        for pipe in (started.popen.stdout, started.popen.stdin):
            assert pipe is not None
            if not pipe.closed:
                pipe.close()


@pytest.mark.parametrize(
    ("answer", "outcome", "told"),
    [
        (AnswerPermission("", True, ""), ToolOutcome.SUCCEEDED, "first"),
        (AnswerPermission("", False, "no"), ToolOutcome.DENIED, "skipped"),
        (
            AnswerPermission("", True, "", PermissionAlternative(command="echo second")),
            ToolOutcome.SUCCEEDED,
            "second",
        ),
    ],
)
def test_a_permission_is_answered(tmp_path: Path, answer: AnswerPermission, outcome: ToolOutcome, told: str) -> None:
    with process(tmp_path) as agent:
        agent.until(AgentReady)
        agent.prompt(ONE_COMMAND)
        asked = agent.until(PermissionAsked)
        assert (asked.tool, asked.call_id != "") == ("run_command", True)
        agent.send(AnswerPermission(asked.permission_id, answer.allow, answer.message, answer.alternative))
        result = agent.until(ToolEnded).result
        assert (result.call_id, result.outcome) == (asked.call_id, outcome)
        assert told in (result.output or result.error)
        boundary = agent.until(BoundaryReached)
        assert boundary.held
        agent.send(AnswerBoundary(boundary.boundary_id, DecisionAction.CONTINUE))
        ended = agent.until(TurnEnded)
        assert (ended.reason, ended.text) == (TurnEndReason.COMPLETED, "it ran")
        assert agent.end() == 0


def test_an_abort_takes_the_open_question_with_it_and_the_next_prompt_is_taken(tmp_path: Path) -> None:
    with process(tmp_path) as agent:
        agent.until(AgentReady)
        agent.prompt(ONE_COMMAND)
        asked = agent.until(PermissionAsked)
        agent.send(Interrupt())
        assert agent.until(PermissionWithdrawn).permission_id == asked.permission_id
        assert agent.until(TurnEnded).reason is TurnEndReason.ABORTED
        agent.prompt("#!scripted\nturns: [{replies: [{text: still here}]}]\n")
        assert agent.until(TurnEnded).text == "still here"


def test_an_abort_before_the_turn_began_does_not_wedge_the_agent(tmp_path: Path) -> None:
    script = tmp_path / "late.yaml"
    script.write_text("timers: {turn_start: 0.3}\nrepeat: all\nturns: [{replies: [{text: here, delay: 30}]}]\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STEPRAIL_SCRIPTED_SCRIPT", str(script))
        with process(tmp_path) as agent:
            agent.until(AgentReady)
            for _ in range(2):
                agent.prompt("go")
                agent.send(Interrupt())
                agent.until(PromptConfirmed)
                assert agent.until(TurnEnded).reason is TurnEndReason.ABORTED


def test_another_process_takes_a_conversation_up_even_after_a_kill_at_a_boundary(tmp_path: Path) -> None:
    with process(tmp_path) as agent:
        saved = agent.until(AgentReady).agent_session_id
        agent.prompt("#!scripted\nturns: [{replies: [{text: look, calls: [{list_tree: {path: .}}]}]}]\n")
        agent.until(BoundaryReached)
        agent.popen.kill()
    with process(tmp_path, saved, resume=True) as agent:
        assert agent.until(AgentReady).agent_session_id == saved
        agent.prompt("#!scripted\nturns: [{replies: [{text: '${messages} before'}]}]\n")
        # The prompt, the reply with its call, and the call's result.
        assert agent.until(TurnEnded).text == "3 before"


def test_a_conversation_that_is_not_there_is_not_begun_anew(tmp_path: Path) -> None:
    with process(tmp_path, "57a36ff1-d575-4ad4-92ad-8f75f156ab75-1796030537324", resume=True) as agent:
        ended = agent.until(TurnEnded)
        assert ended.failure is not None
        assert ended.failure.reason == "RESUME_FAILED"


def test_a_stop_is_held_until_it_is_said(tmp_path: Path) -> None:
    with process(tmp_path) as agent:
        agent.until(AgentReady)
        agent.send(SetPermissionMode(PermissionMode.READ_ONLY, plan_mode=False))
        agent.prompt(ONE_COMMAND)
        boundary = agent.until(BoundaryReached)
        started, refused = [event for event in agent.passed if isinstance(event, (ToolStarted, ToolEnded))]
        assert isinstance(started, ToolStarted)
        assert isinstance(refused, ToolEnded)
        assert refused.result.outcome is ToolOutcome.DENIED
        agent.send(AnswerBoundary(boundary.boundary_id, DecisionAction.STOP))
        ended = agent.until(TurnEnded)
        assert (ended.reason, ended.text) == (TurnEndReason.STOP_CONDITION, "")
        assert ended.usage is not None
        assert ended.usage.complete
