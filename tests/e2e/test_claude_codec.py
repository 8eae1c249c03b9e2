"""The codec against the real Claude Code: its process, its launch plan, a scripted model, and nothing between."""

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
from pathlib import Path
from typing import TypeVar

from steprail_daemon.core.commands import AgentCommand, AnswerBoundary, AnswerPermission, Interrupt, SendPrompt
from steprail_daemon.core.events import (
    AgentErrorReported,
    AgentEvent,
    AgentReady,
    BoundaryCancelled,
    BoundaryReached,
    MessageDelta,
    MessageEnded,
    PermissionAsked,
    PromptConfirmed,
    ToolEnded,
    ToolStarted,
    TurnEnded,
)
from steprail_daemon.core.model import (
    DecisionAction,
    FinishReason,
    MessageKind,
    PermissionMode,
    ToolKind,
    ToolOutcome,
    TurnEndReason,
    Usage,
)
from steprail_daemon.drivers.base import Channel, CodecSettings, LaunchSpec
from steprail_daemon.drivers.registry import DRIVERS
from steprail_daemon.testing.messages_endpoint import MessagesEndpoint, Script, Step, Tool

PATIENCE = 30.0
#: How long it is watched that nothing happens.
QUIET = 1.5
LINE_BYTES = 1 << 26
GO_ON, STOP = DecisionAction.CONTINUE, DecisionAction.STOP

E = TypeVar("E")


class Agent:
    """One Claude Code process and its codec."""

    def __init__(self, room: Path, claude: Path, url: str, session: str, mode: PermissionMode, *, resume: bool) -> None:
        driver = DRIVERS["claude"]
        home, cwd = room / "home", room / "work"
        cwd.mkdir(parents=True, exist_ok=True)
        spec = LaunchSpec(
            command=(str(claude),),
            cwd=str(cwd),
            agent_session_id=session,
            resume=resume,
            model="",
            permission_mode=mode,
            isolated_home=str(home),
        )
        plan = driver.plan(spec)
        for directory in plan.directories:
            Path(directory).mkdir(parents=True, exist_ok=True)
        environment = {"PATH": os.environ["PATH"], "ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "sk-ant-none"}
        self.codec = driver.codec(
            CodecSettings(agent_session_id=session, permission_mode=mode, line_bytes=LINE_BYTES, resume=resume)
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
        self.read: list[bytes] = []
        self._chunks: queue.Queue[bytes] = queue.Queue()
        self._seen = 0
        self._reader = threading.Thread(target=self._pump, daemon=True)
        self._reader.start()
        self.codec.start()
        self._flush()

    def send(self, command: AgentCommand) -> None:
        self.codec.send(command)
        self._flush()

    def until(self, kind: type[E], such: Callable[[E], bool] = lambda _: True) -> E:
        """Give the next event of a kind, looking at each event once."""
        deadline = time.monotonic() + PATIENCE
        while True:
            while self._seen < len(self.events):
                event = self.events[self._seen]
                self._seen += 1
                if isinstance(event, kind) and such(event):
                    return event
            assert self._take(deadline - time.monotonic()), f"no {kind.__name__}: {self.events[-8:]}"

    def listen(self, seconds: float) -> None:
        """Take what comes within a time."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self._take(left)

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
        self.read.append(data)
        if data:
            self.events += self.codec.receive(Channel.STDOUT, data)
        else:
            self.events += self.codec.receive_eof(Channel.STDOUT)
        self._flush()
        return True


@contextmanager
def started(
    room: Path,
    claude: Path,
    endpoint: MessagesEndpoint,
    session: str = "",
    mode: PermissionMode = PermissionMode.BYPASS,
    *,
    resume: bool = False,
) -> Iterator[Agent]:
    agent = Agent(room, claude, endpoint.url, session or str(uuid.uuid4()), mode, resume=resume)
    try:
        yield agent
    finally:
        agent.close()


def prompt(text: str) -> SendPrompt:
    return SendPrompt(str(uuid.uuid4()), text)


def bash(*commands: str, text: str = "I work.") -> Step:
    return Step(text=text, tools=tuple(Tool("Bash", {"command": command, "description": "x"}) for command in commands))


def results(endpoint: MessagesEndpoint) -> list[object]:
    return [block["content"] for block in endpoint.main_requests()[-1].blocks("tool_result")]


def test_a_held_boundary_lets_no_request_out_and_a_stop_ends_the_turn_with_every_result_kept(
    claude: Path, tmp_path: Path
) -> None:
    script = Script([bash("echo one"), bash("echo two", "echo three"), Step(text="I saw it all.")])
    session = str(uuid.uuid4())
    with MessagesEndpoint(script) as endpoint:
        with started(tmp_path, claude, endpoint, session) as agent:
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

        with started(tmp_path, claude, endpoint, session, resume=True) as agent:
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


def test_asked_for_leave_the_codec_carries_yes_with_the_input_and_no_with_the_reason(
    claude: Path, tmp_path: Path
) -> None:
    with (
        MessagesEndpoint(Script([bash("touch yes", "touch no")])) as endpoint,
        started(tmp_path, claude, endpoint, mode=PermissionMode.ASK) as agent,
    ):
        agent.send(prompt("begin"))
        for _ in range(2):
            asked = agent.until(PermissionAsked)
            agent.send(AnswerPermission(asked.permission_id, "yes" in asked.arguments_json, "not that one"))
        boundary = agent.until(BoundaryReached)
        outcomes = {event.result.outcome: event.result for event in agent.of(ToolEnded)}
        assert outcomes.keys() == {ToolOutcome.SUCCEEDED, ToolOutcome.DENIED}
        assert outcomes[ToolOutcome.DENIED].error == "not that one"
        assert (tmp_path / "work" / "yes").exists()
        assert not (tmp_path / "work" / "no").exists()
        agent.send(AnswerBoundary(boundary.boundary_id, STOP))
        assert agent.until(TurnEnded).reason is TurnEndReason.STOP_CONDITION


def test_read_only_offers_no_tool_that_edits_and_no_question_to_a_person(claude: Path, tmp_path: Path) -> None:
    with (
        MessagesEndpoint(Script([Step(text="Fine.")])) as endpoint,
        started(tmp_path, claude, endpoint, mode=PermissionMode.READ_ONLY) as agent,
    ):
        agent.send(prompt("begin"))
        agent.until(TurnEnded)
        offered = {tool["name"] for tool in endpoint.main_requests()[0].body["tools"]}
        assert {"Bash", "Read"} <= offered
        assert not offered & {"Edit", "Write", "NotebookEdit", "AskUserQuestion", "ScheduleWakeup", "CronCreate"}


def test_a_sub_agents_steps_are_not_the_main_loops(claude: Path, tmp_path: Path) -> None:
    order = {"description": "a job", "prompt": "do the job", "subagent_type": "general-purpose"}
    script = Script(
        [
            Step(text="I delegate.", tools=(Tool("Agent", order),)),
            bash("echo inside", text=""),
            Step(text="The job is done."),
            Step(text="All done."),
        ]
    )
    with MessagesEndpoint(script) as endpoint, started(tmp_path, claude, endpoint) as agent:
        agent.send(prompt("begin"))
        boundary = agent.until(BoundaryReached)
        assert len(endpoint.main_requests()) == 3
        outer, inner = agent.of(ToolStarted)
        assert (outer.subagent_id, outer.call.tool_kind) == ("", ToolKind.OTHER)
        assert inner.subagent_id
        assert inner.parent_call_id == outer.call.call_id
        assert boundary.call_ids == (outer.call.call_id,)
        assert [event.parent_call_id for event in agent.of(ToolEnded)] == [outer.call.call_id, ""]
        agent.send(AnswerBoundary(boundary.boundary_id, GO_ON))
        assert agent.until(TurnEnded).text == "All done."
        texts = [event.text for event in agent.of(MessageEnded) if not event.parent_call_id]
        assert texts == ["I delegate.", "All done."]


def test_a_thought_is_a_message_of_its_own(claude: Path, tmp_path: Path) -> None:
    with (
        MessagesEndpoint(Script([Step(thinking="Let me see.", text="Fine.")])) as endpoint,
        started(tmp_path, claude, endpoint) as agent,
    ):
        agent.send(prompt("begin"))
        agent.until(TurnEnded)
        said = [(event.kind, event.text) for event in agent.of(MessageEnded)]
        assert said == [(MessageKind.THOUGHT, "Let me see."), (MessageKind.TEXT, "Fine.")]


def test_a_refused_request_is_told_and_a_turn_without_an_answer_has_its_fault(claude: Path, tmp_path: Path) -> None:
    denied = {"type": "error", "error": {"type": "invalid_request_error", "message": "no such thing"}}
    script = Script([Step(status=429, headers={"retry-after": "1"})], then=Step(status=400, error=denied))
    with MessagesEndpoint(script) as endpoint, started(tmp_path, claude, endpoint) as agent:
        agent.send(prompt("begin"))
        retried, final = agent.until(AgentErrorReported), agent.until(AgentErrorReported)
        assert (retried.code, retried.will_retry) == ("rate_limit", True)
        assert not final.will_retry
        ended = agent.until(TurnEnded)
        assert ended.reason is TurnEndReason.ERROR
        assert ended.failure is not None
        assert ended.failure.reason == "AGENT_ERROR"
        assert not ended.failure.retryable


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
