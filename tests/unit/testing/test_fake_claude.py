"""The fake, asked through the real codec: whatever the daemon's tests rely on."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from steprail_daemon.core.commands import (
    AgentCommand,
    AnswerBoundary,
    AnswerPermission,
    AnswerQuestion,
    Interrupt,
    SendPrompt,
)
from steprail_daemon.core.events import (
    AgentEvent,
    AgentReady,
    BoundaryCancelled,
    BoundaryReached,
    MessageDelta,
    MessageEnded,
    MessageStarted,
    ModelChanged,
    PermissionAsked,
    ProtocolFailed,
    QuestionAsked,
    RateLimited,
    ToolEnded,
    TurnEnded,
)
from steprail_daemon.core.model import (
    Cost,
    CostBasis,
    DecisionAction,
    PermissionAlternative,
    PermissionMode,
    QuestionItemAnswer,
    ToolOutcome,
    TurnEndReason,
    Usage,
)
from steprail_daemon.drivers.base import Channel, CodecSettings, LaunchSpec
from steprail_daemon.drivers.registry import DRIVERS
from steprail_daemon.testing import fake_claude

GO_ON, STOP = DecisionAction.CONTINUE, DecisionAction.STOP
PATIENCE = 20.0
COMMAND = (sys.executable, "-S", "-E", fake_claude.__file__)

E = TypeVar("E")


class Fake:
    """A running fake and its codec."""

    def __init__(self, behaviour: dict[str, Any], session: str, *, resume: bool) -> None:
        driver = DRIVERS["claude"]
        mode = PermissionMode.ASK
        spec = LaunchSpec(
            command=COMMAND, cwd="/", agent_session_id=session, resume=resume, model="", permission_mode=mode
        )
        self.codec = driver.codec(
            CodecSettings(agent_session_id=session, permission_mode=mode, line_bytes=1 << 20, resume=resume)
        )
        self.process = subprocess.Popen(
            driver.plan(spec).argv,
            env={"FAKE_CLAUDE": json.dumps(behaviour)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.events: list[AgentEvent] = []
        self._seen = 0
        self._chunks: queue.Queue[bytes] = queue.Queue()
        self._reader = threading.Thread(target=self._pump, daemon=True)
        self._reader.start()
        self.codec.start()
        self._flush()

    def send(self, command: AgentCommand) -> None:
        self.codec.send(command)
        self._flush()

    def begin(self, text: str = "go") -> None:
        self.send(SendPrompt(str(uuid.uuid4()), text))

    def until(self, kind: type[E]) -> E:
        while True:
            while self._seen < len(self.events):
                event = self.events[self._seen]
                self._seen += 1
                if isinstance(event, kind):
                    return event
            assert self._take(), f"no {kind.__name__} before the end: {self.events[-5:]}"

    def answer(self, action: DecisionAction) -> None:
        self.send(AnswerBoundary(self.until(BoundaryReached).boundary_id, action))

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]

    def end(self) -> int:
        """Close stdin, take the rest, and give the exit code."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        while self._take():
            pass
        return self.process.wait(PATIENCE)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()

    def _flush(self) -> None:
        data = self.codec.data_to_send()
        assert self.process.stdin is not None
        if data and not self.process.stdin.closed:
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.write(data)
                self.process.stdin.flush()

    def _pump(self) -> None:
        assert self.process.stdout is not None
        while data := os.read(self.process.stdout.fileno(), 1 << 16):
            self._chunks.put(data)
        self._chunks.put(b"")

    def _take(self) -> bool:
        data = self._chunks.get(timeout=PATIENCE)
        self.events += self.codec.receive(Channel.STDOUT, data)
        self._flush()
        return bool(data)


@contextmanager
def running(session: str = "s", *, resume: bool = False, **behaviour: Any) -> Iterator[Fake]:
    fake = Fake(behaviour, session, resume=resume)
    try:
        yield fake
    finally:
        fake.close()


def calls(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_run_goes_through_its_steps_and_ends(tmp_path: Path) -> None:
    log = tmp_path / "calls"
    with running(steps=2, tools=3, deltas=3, calls=str(log)) as fake:
        assert fake.until(AgentReady).gate_held
        fake.begin()
        for _ in range(2):
            boundary = fake.until(BoundaryReached)
            assert len(boundary.call_ids) == 3
            assert boundary.usage == Usage(100, None, None, 20)
            fake.send(AnswerBoundary(boundary.boundary_id, GO_ON))
        ended = fake.until(TurnEnded)
        assert (ended.reason, ended.text) == (TurnEndReason.COMPLETED, "All done.")
        assert ended.usage == Usage(300, 0, 0, 60)
        assert ended.cost == Cost(2_400, CostBasis.REPORTED)
        assert [event.text for event in fake.of(MessageEnded)] == ["Step 1.", "Step 2.", "All done."]
        assert len(fake.of(MessageDelta)) == 9
        assert len(fake.of(ToolEnded)) == 6
        assert fake.end() == 0
    assert [call["tool_results"] for call in calls(log)] == [0, 3, 6]


def test_a_stop_makes_no_further_call_and_a_resumed_session_remembers(tmp_path: Path) -> None:
    log = tmp_path / "calls"
    with running(calls=str(log), state=str(tmp_path)) as fake:
        fake.begin()
        fake.answer(STOP)
        assert fake.until(TurnEnded).reason is TurnEndReason.STOP_CONDITION
        fake.begin()
        fake.answer(STOP)
        fake.until(TurnEnded)
        assert fake.end() == 0
    with running(resume=True, calls=str(log), state=str(tmp_path), steps=0) as fake:
        fake.begin()
        assert fake.until(TurnEnded).reason is TurnEndReason.COMPLETED
    assert [call["tool_results"] for call in calls(log)] == [0, 1, 2]


def test_an_unknown_session_is_not_resumed_and_a_used_one_not_begun(tmp_path: Path) -> None:
    with running(resume=True, state=str(tmp_path)) as fake:
        failure = fake.until(TurnEnded).failure
        assert failure is not None
        assert failure.reason == "RESUME_FAILED"
        assert fake.end() == 1
    with running(state=str(tmp_path)) as fake:
        fake.until(AgentReady)
    with running(state=str(tmp_path)) as fake:
        assert fake.end() == 1
        assert fake.process.stderr is not None
        assert b"already in use" in fake.process.stderr.read()


def test_an_interrupt_withdraws_the_boundary_and_the_process_works_on() -> None:
    with running() as fake:
        fake.begin()
        fake.until(BoundaryReached)
        fake.send(Interrupt())
        fake.until(BoundaryCancelled)
        assert fake.until(TurnEnded).reason is TurnEndReason.ABORTED
        fake.begin('{"steps": 0}')
        assert fake.until(TurnEnded).reason is TurnEndReason.COMPLETED


def test_an_interrupt_ends_a_tool_that_takes_its_time() -> None:
    with running(tool_ms=60_000) as fake:
        fake.begin()
        fake.until(MessageEnded)
        fake.send(Interrupt())
        assert fake.until(TurnEnded).reason is TurnEndReason.ABORTED


def test_eof_while_the_gate_is_held_lets_it_go_on_alone(tmp_path: Path) -> None:
    log = tmp_path / "calls"
    with running(steps=3, calls=str(log)) as fake:
        fake.begin()
        fake.until(BoundaryReached)
        assert len(calls(log)) == 1
        assert fake.end() == 0
        assert len(calls(log)) == 4


def test_a_gate_that_opens_by_itself_shows_the_next_message_unasked() -> None:
    with running(gate_opens_after_ms=10) as fake:
        fake.begin()
        fake.until(BoundaryReached)
        fake.until(MessageStarted)


def test_leave_is_asked_for_each_tool_and_a_denial_is_seen() -> None:
    with running(ask_permission=True, tools=2, steps=1) as fake:
        fake.begin()
        for allow in (True, False):
            fake.send(AnswerPermission(fake.until(PermissionAsked).permission_id, allow, "no"))
        fake.until(BoundaryReached)
        assert [event.result.outcome for event in fake.of(ToolEnded)] == [ToolOutcome.SUCCEEDED, ToolOutcome.DENIED]


def test_a_refused_request_is_retried_and_then_a_failure() -> None:
    with running(steps=0, retries=2, api_error_status=429) as fake:
        fake.begin()
        failure = fake.until(TurnEnded).failure
        assert failure is not None
        assert failure.reason == "RATE_LIMITED"
        assert len(fake.of(RateLimited)) == 3
        assert fake.end() == 1


def test_a_question_is_asked_and_its_answer_is_what_the_tool_gives() -> None:
    with running(ask_question=True, steps=1) as fake:
        fake.begin()
        asked = fake.until(QuestionAsked)
        fake.send(AnswerQuestion(asked.question_id, (QuestionItemAnswer("1", ("2",)),)))
        fake.until(BoundaryReached)
        assert [event.result.output for event in fake.of(ToolEnded)] == ['{"Which colour?": "Blue"}']


def test_another_command_is_what_a_tool_ran_with() -> None:
    with running(ask_permission=True, steps=1) as fake:
        fake.begin()
        asked = fake.until(PermissionAsked)
        fake.send(AnswerPermission(asked.permission_id, True, "", PermissionAlternative(command="ls")))
        fake.until(BoundaryReached)
        (ended,) = fake.of(ToolEnded)
        assert json.loads(ended.result.output or "")["command"] == "ls"


def test_texts_and_a_model_are_in_the_next_call_of_the_model(tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    with running(steps=2, calls=str(calls)) as fake:
        fake.begin()
        boundary = fake.until(BoundaryReached)
        fake.send(AnswerBoundary(boundary.boundary_id, GO_ON, ("Be brief.",), "another"))
        assert fake.until(ModelChanged) == ModelChanged("another")
        fake.until(BoundaryReached)
    first, second = map(json.loads, calls.read_text().splitlines())
    assert (first["model"], first["guidance"]) == (fake_claude.MODEL, "")
    assert (second["model"], second["guidance"]) == ("another", "Be brief.")


def test_what_a_step_costs_is_told_where_it_is_wanted() -> None:
    with running(steps=2) as fake:
        fake.send(SendPrompt(str(uuid.uuid4()), "go", wants_cost=True))
        for _ in range(2):
            boundary = fake.until(BoundaryReached)
            # 100 tokens in and 20 out, at 4 and 20 dollars for a million.
            assert boundary.cost == Cost(800, CostBasis.REPORTED)
            fake.send(AnswerBoundary(boundary.boundary_id, GO_ON))
        assert fake.until(TurnEnded).cost == Cost(2_400, CostBasis.REPORTED)


@pytest.mark.parametrize("behaviour", [{"garbage_in_step": 1}, {"long_line_in_step": 1, "long_line_bytes": 1 << 21}])
def test_what_it_writes_can_break_the_protocol(behaviour: dict[str, Any]) -> None:
    with running(**behaviour) as fake:
        fake.begin()
        fake.until(ProtocolFailed)


def test_noise_and_a_lone_surrogate_do_not(tmp_path: Path) -> None:
    with running(steps=1, noise_lines=3, lone_surrogate=True) as fake:
        fake.begin()
        fake.answer(GO_ON)
        fake.until(TurnEnded)
        assert fake.codec.noise_lines == 3
        assert fake.of(ProtocolFailed) == []


def test_it_crashes_in_a_step_with_its_code() -> None:
    with running(crash_in_step=1, crash_code=7) as fake:
        fake.begin()
        fake.until(MessageEnded)
        assert fake.process.wait(PATIENCE) == 7
        assert fake.of(ToolEnded) == []


def test_it_can_fail_to_start() -> None:
    with running(start_exit=3, start_stderr="no such thing") as fake:
        assert fake.end() == 3
        assert fake.process.stderr is not None
        assert fake.process.stderr.read() == b"no such thing"


def test_it_can_stay_after_its_result_and_be_deaf_to_the_polite_signals() -> None:
    with running(steps=0, hang_after_result=True, ignore_term=True) as fake:
        fake.begin()
        fake.until(TurnEnded)
        assert fake.process.stdin is not None
        fake.process.stdin.close()
        fake.process.send_signal(signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            fake.process.wait(0.3)


def test_term_ends_it_with_143() -> None:
    with running() as fake:
        fake.begin()
        fake.until(BoundaryReached)
        fake.process.send_signal(signal.SIGTERM)
        assert fake.process.wait(PATIENCE) == 143


def test_it_can_end_without_a_result() -> None:
    with running(steps=0, no_result=True) as fake:
        fake.begin()
        assert fake.end() == 0
        assert fake.of(TurnEnded) == []


def test_the_probe_reads_its_version() -> None:
    driver = DRIVERS["claude"]
    for version, problem in (("2.1.332", ""), ("1.0.0", "not supported")):
        environment = {"FAKE_CLAUDE": json.dumps({"version": version})}
        done = subprocess.run(driver.probe_argv(COMMAND), env=environment, capture_output=True, timeout=20, check=False)
        assert problem in driver.read_probe(done.stdout, done.returncode).unavailable_reason


def test_a_member_that_does_not_exist_is_named() -> None:
    done = subprocess.run(COMMAND, env={"FAKE_CLAUDE": '{"stepz": 1}'}, capture_output=True, timeout=20, check=False)
    assert done.returncode == 1
    assert b"unknown member 'stepz'" in done.stderr
