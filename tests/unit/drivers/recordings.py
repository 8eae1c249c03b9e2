"""Recorded traffic of the real Claude Code, played through the codec.

`tests/golden/claude/<version>/NAME.jsonl` holds one record a line, `dir` in, out, err or meta with the parsed line in
`msg`; `NAME.requests.jsonl` holds what the model's endpoint received meanwhile, abridged. A `meta` record with `argv`
begins a new process; with `wants_cost` its prompts were sent so. Strings over 3,000 characters and the CLI's catalogues
are cut.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steprail_daemon.core.commands import (
    AgentCommand,
    AnswerBoundary,
    AnswerPermission,
    AnswerQuestion,
    Interrupt,
    SendPrompt,
)
from steprail_daemon.core.events import AgentEvent
from steprail_daemon.core.model import DecisionAction, PermissionMode, QuestionItemAnswer
from steprail_daemon.drivers.base import Channel, CodecSettings
from steprail_daemon.drivers.claude.codec import ClaudeCodec

GOLDEN = Path(__file__).parents[2] / "golden" / "claude"
LINE_BYTES = 1 << 20

#: Cuts a process's output, between two inputs, into the chunks that the codec gets.
Cutter = Callable[[bytes], list[bytes]]


def whole(data: bytes) -> list[bytes]:
    return [data]


def random_cutter(seed: int, size: int) -> Cutter:
    """Give a cutter into chunks of `size` bytes on average, the same ones for the same seed."""
    random_ = random.Random(seed)

    def cut(data: bytes) -> list[bytes]:
        chunks, start = [], 0
        while start < len(data):
            end = start + random_.randint(1, 2 * size)
            chunks.append(data[start:end])
            start = end
        return chunks

    return cut


def settings(*, resume: bool = False, line_bytes: int = LINE_BYTES) -> CodecSettings:
    return CodecSettings(
        agent_session_id="f9cdfd84-2a60-4bc6-b407-feb7014e5dfd",
        permission_mode=PermissionMode.ASK,
        line_bytes=line_bytes,
        resume=resume,
    )


@dataclass
class Life:
    """What one process of a recording gave: its events, and the lines that the codec sent to it."""

    events: list[AgentEvent]
    sent: list[dict[str, Any]]


@dataclass(frozen=True)
class Recording:
    """One recorded scenario."""

    version: str
    name: str
    records: list[dict[str, Any]]
    requests: list[dict[str, Any]]

    def __str__(self) -> str:
        return f"{self.version}-{self.name}"

    def out(self, kind: str) -> list[dict[str, Any]]:
        """The lines of one type that the CLI wrote."""
        return [r["msg"] for r in self.records if r["dir"] == "out" and r["msg"].get("type") == kind]

    def play(self, cut: Cutter = whole) -> list[Life]:
        """Play every process of the recording through a codec of its own."""
        return [_play(life, cut) for life in self._lives()]

    def events(self, cut: Cutter = whole) -> list[AgentEvent]:
        return [event for life in self.play(cut) for event in life.events]

    def _lives(self) -> Iterator[list[dict[str, Any]]]:
        life: list[dict[str, Any]] = []
        for record in self.records:
            if record["dir"] == "meta" and "argv" in record["msg"]:
                if life:
                    yield life
                life = [record]
            elif record["dir"] in ("in", "out"):
                life.append(record)
        yield life


def load(version: str, name: str) -> Recording:
    folder = GOLDEN / version
    return Recording(version, name, _lines(folder / f"{name}.jsonl"), _lines(folder / f"{name}.requests.jsonl"))


def load_all() -> list[Recording]:
    names = sorted(p for p in GOLDEN.glob("*/*.jsonl") if not p.name.endswith(".requests.jsonl"))
    return [load(path.parent.name, path.stem) for path in names]


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def _play(life: list[dict[str, Any]], cut: Cutter) -> Life:
    argv = " ".join(life[0]["msg"]["argv"])
    codec = ClaudeCodec(settings(resume="--resume" in argv))
    played = Life([], [])
    pending = b""

    def flush() -> None:
        nonlocal pending
        for chunk in cut(pending):
            played.events += codec.receive(Channel.STDOUT, chunk)
        pending = b""
        played.sent += [json.loads(line) for line in codec.data_to_send().splitlines()]

    wants_cost = life[0]["msg"].get("wants_cost", False)
    for index, record in enumerate(life[1:], 2):
        if record["dir"] == "out":
            pending += json.dumps(record["msg"], ensure_ascii=False).encode() + b"\n"
            continue
        flush()
        model = _model_in(record["msg"])
        if model:
            # It went along with an answer at the gate, which was withheld until it was confirmed.
            later = (line["msg"] for line in life[index:] if line["dir"] == "in")
            answer = next(line["response"] for line in later if line["type"] == "control_response")
            codec.send(_gate_answer(answer, model))
        else:
            _put_in(codec, record["msg"], wants_cost=wants_cost)
    flush()
    played.events += codec.receive_eof(Channel.STDOUT)
    return played


def _model_in(line: dict[str, Any]) -> str:
    request = line.get("request", {})
    return str(request["model"]) if request.get("subtype") == "set_model" else ""


def _put_in(codec: ClaudeCodec, line: dict[str, Any], *, wants_cost: bool) -> None:
    if line["type"] == "control_request" and line["request"]["subtype"] == "initialize":
        codec.start()
        return
    for command in _commands(line, wants_cost=wants_cost):
        codec.send(command)


def _commands(line: dict[str, Any], *, wants_cost: bool) -> list[AgentCommand]:
    if line["type"] == "user":
        return [SendPrompt(line["uuid"], line["message"]["content"], wants_cost)]
    if line["type"] == "control_request":
        return [Interrupt()] if line["request"]["subtype"] == "interrupt" else []
    response = line["response"]
    answer = response.get("response", {})
    if "behavior" not in answer:
        # An answer to another hook than the gate's names an id that the codec does not know, and sends nothing.
        return [_gate_answer(response)]
    request_id, told = response["request_id"], answer.get("updatedInput", {}).get("answers")
    answers = None if told is None else tuple(QuestionItemAnswer(str(n), (), text) for n, text in _numbered(told))
    # One of the two names an id that the codec does not know.
    allow = answer["behavior"] == "allow"
    return [AnswerPermission(request_id, allow, answer.get("message", "")), AnswerQuestion(request_id, answers)]


def _numbered(answers: dict[str, str]) -> Iterator[tuple[int, str]]:
    return enumerate(answers.values(), 1)


def _gate_answer(response: dict[str, Any], model: str = "") -> AnswerBoundary:
    answer = response.get("response", {})
    if answer.get("continue") is False or response["subtype"] == "error":
        return AnswerBoundary(response["request_id"], DecisionAction.STOP)
    text = answer.get("hookSpecificOutput", {}).get("additionalContext", "")
    return AnswerBoundary(response["request_id"], DecisionAction.CONTINUE, (text,) if text else (), model)
