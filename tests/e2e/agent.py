"""One process of the real Claude Code and its codec: its launch plan, a scripted model, and nothing between."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from steprail_daemon.core.commands import AgentCommand, AnswerBoundary, AnswerPermission, SendPrompt
from steprail_daemon.core.events import AgentEvent, BoundaryReached, PermissionAsked, TurnEnded
from steprail_daemon.core.model import DecisionAction, PermissionMode
from steprail_daemon.drivers.base import Channel, CodecSettings, LaunchSpec
from steprail_daemon.drivers.registry import DRIVERS
from steprail_daemon.testing.messages_endpoint import MessagesEndpoint, Step, Tool

PATIENCE = 30.0
#: How long it is watched that nothing happens.
QUIET = 1.5
LINE_BYTES = 1 << 26
GO_ON, STOP = DecisionAction.CONTINUE, DecisionAction.STOP

E = TypeVar("E")


@dataclass(frozen=True)
class Setup:
    """How a process is started. In the mode BYPASS the tests allow what it asks for, see `Agent.work`."""

    session: str = field(default_factory=lambda: str(uuid.uuid4()))
    resume: bool = False
    mode: PermissionMode = PermissionMode.BYPASS
    plan_mode: bool = False
    allowed_tools: tuple[str, ...] = ()
    disallowed_tools: tuple[str, ...] = ()
    instructions: str = ""
    environment: dict[str, str] = field(default_factory=lambda: {"ANTHROPIC_API_KEY": "sk-ant-none"})


class Agent:
    """One Claude Code process and its codec."""

    def __init__(self, room: Path, claude: Path, url: str, setup: Setup) -> None:
        driver = DRIVERS["claude"]
        home, cwd = room / "home", room / "work"
        cwd.mkdir(parents=True, exist_ok=True)
        spec = LaunchSpec(
            command=(str(claude),),
            cwd=str(cwd),
            agent_session_id=setup.session,
            resume=setup.resume,
            model="",
            permission_mode=setup.mode,
            isolated_home=str(home),
            plan_mode=setup.plan_mode,
            allowed_tools=setup.allowed_tools,
            disallowed_tools=setup.disallowed_tools,
            instructions=setup.instructions,
        )
        plan = driver.plan(spec)
        for directory in plan.directories:
            Path(directory).mkdir(parents=True, exist_ok=True)
        environment = {"PATH": os.environ["PATH"], "ANTHROPIC_BASE_URL": url, **setup.environment}
        self.work_directory = cwd
        self.codec = driver.codec(
            CodecSettings(
                agent_session_id=setup.session,
                permission_mode=setup.mode,
                line_bytes=LINE_BYTES,
                resume=setup.resume,
                plan_mode=setup.plan_mode,
            )
        )
        self.process = subprocess.Popen(
            plan.argv,
            cwd=cwd,
            env=environment | {"TMPDIR": str(room)} | plan.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self.events: list[AgentEvent] = []
        self.written: list[bytes] = []
        #: All bytes in their order, each with whether they were written to the process.
        self.traffic: list[tuple[bool, bytes]] = []
        self._chunks: queue.Queue[bytes] = queue.Queue()
        self._seen = 0
        self._reader = threading.Thread(target=self._pump, daemon=True)
        self._reader.start()
        self.codec.start()
        self._flush()

    def send(self, command: AgentCommand) -> None:
        self.codec.send(command)
        self._flush()

    def until(self, kind: type[E] | tuple[type[E], ...], such: Callable[[E], bool] = lambda _: True) -> E:
        """Give the next event of a kind, looking at each event once."""
        deadline = time.monotonic() + PATIENCE
        while True:
            while self._seen < len(self.events):
                event = self.events[self._seen]
                self._seen += 1
                if isinstance(event, kind) and such(event):
                    return event
            assert self._take(deadline - time.monotonic()), f"no {kind}: {self.events[-8:]}"

    def listen(self, seconds: float) -> None:
        """Take what comes within a time."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self._take(left)

    def work(self) -> TurnEnded:
        """Allow everything and let every boundary go on until the turn is over."""
        while True:
            event = self.until((BoundaryReached, PermissionAsked, TurnEnded))
            if isinstance(event, TurnEnded):
                return event
            if isinstance(event, PermissionAsked):
                self.send(AnswerPermission(event.permission_id, True, ""))
            elif isinstance(event, BoundaryReached):
                self.go_on(event)

    def go_on(self, boundary: BoundaryReached, *guidance: str, model: str = "") -> None:
        self.send(AnswerBoundary(boundary.boundary_id, GO_ON, guidance, model))

    def stop(self, boundary: BoundaryReached) -> None:
        self.send(AnswerBoundary(boundary.boundary_id, STOP))

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]

    def end(self) -> int:
        """Close stdin and give the exit code."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(PATIENCE)

    def close(self) -> None:
        """Leave nothing behind."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()

    def _flush(self) -> None:
        assert self.process.stdin is not None
        data = self.codec.data_to_send()
        if data:
            self.written.append(data)
            self.traffic.append((True, data))
            self.process.stdin.write(data)
            self.process.stdin.flush()

    def _pump(self) -> None:
        assert self.process.stdout is not None
        while data := os.read(self.process.stdout.fileno(), 1 << 16):
            self._chunks.put(data)
        self._chunks.put(b"")

    def _take(self, seconds: float) -> bool:
        try:
            data = self._chunks.get(timeout=max(0.0, seconds))
        except queue.Empty:
            return False
        self.traffic.append((False, data))
        if data:
            self.events += self.codec.receive(Channel.STDOUT, data)
        else:
            self.events += self.codec.receive_eof(Channel.STDOUT)
        self._flush()
        return True


@contextmanager
def started(
    room: Path, claude: Path, endpoint: MessagesEndpoint, setup: Setup | None = None, **fields: Any
) -> Iterator[Agent]:
    """Start a process with `Setup(**fields)` and end it."""
    agent = Agent(room, claude, endpoint.url, setup or Setup(**fields))
    try:
        yield agent
    finally:
        agent.close()


def prompt(text: str, *, wants_cost: bool = False) -> SendPrompt:
    return SendPrompt(str(uuid.uuid4()), text, wants_cost)


def bash(*commands: str, text: str = "I work.") -> Step:
    return Step(text=text, tools=tuple(Tool("Bash", {"command": command, "description": "x"}) for command in commands))


def results(endpoint: MessagesEndpoint) -> list[object]:
    return [block["content"] for block in endpoint.main_requests()[-1].blocks("tool_result")]
