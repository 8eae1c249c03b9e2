"""Recorded traffic of the real Autohand CLI, played through the codec.

`tests/golden/autohand/<version>/NAME.jsonl` holds one record a line: `in` what a host sent, `out` what the CLI wrote,
`llm` what the model's endpoint was asked and said. The codec numbers its requests itself and sends some that the
recorded host did not, so answers are given the codec's ids, and its own requests are answered as the CLI does.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from steprail_daemon.core.commands import (
    AgentCommand,
    AnswerBoundary,
    AnswerPermission,
    Interrupt,
    SendPrompt,
    SetPermissionMode,
)
from steprail_daemon.core.events import AgentEvent
from steprail_daemon.core.model import DecisionAction, PermissionAlternative, PermissionMode
from steprail_daemon.drivers.autohand.codec import AutohandCodec
from steprail_daemon.drivers.base import Channel, CodecSettings

GOLDEN = Path(__file__).parents[2] / "golden" / "autohand"
LINE_BYTES = 1 << 20
SAVED = "57a36ff1-d575-4ad4-92ad-8f75f156ab75-1796030537324"
#: What the recorded model's endpoint said it used where a reply says nothing else.
USUAL_TOKENS = 120
#: A prompt that one recorded host sent while the CLI worked, and that was refused.
SENT_WHILE_BUSY = "Second one, at the same time."

Cutter = Callable[[bytes], list[bytes]]


def whole(data: bytes) -> list[bytes]:
    return [data]


def settings(
    *,
    resume: bool = False,
    line_bytes: int = LINE_BYTES,
    mode: PermissionMode = PermissionMode.ASK,
    plan_mode: bool = False,
) -> CodecSettings:
    return CodecSettings(
        agent_session_id=SAVED, permission_mode=mode, line_bytes=line_bytes, resume=resume, plan_mode=plan_mode
    )


@dataclass
class ModelTurn:
    """What the model's endpoint saw between a prompt and the end of its turn. `stopped_by` is `turnEnd`'s word."""

    prompt: dict[str, Any]
    replies: list[dict[str, Any]] = field(default_factory=list)
    reason: str = ""
    tools_ended: set[str] = field(default_factory=set)

    @property
    def gated(self) -> bool:
        return "stopWhen" in self.prompt

    @property
    def tokens(self) -> int | None:
        """What the turn used; None if a reply told nothing, or if none came although the model was asked."""
        total = 0
        for reply in self.replies:
            usage = reply.get("usage", [USUAL_TOKENS, 0])
            if usage is None or "status" in reply:
                return None
            total += sum(usage)
        return total


@dataclass(frozen=True)
class Recording:
    """One recorded process."""

    version: str
    name: str
    records: list[dict[str, Any]]

    def __str__(self) -> str:
        return self.name

    @property
    def resumes(self) -> bool:
        return any(
            r["dir"] == "in" and isinstance(r.get("msg"), dict) and r["msg"].get("method") == "autohand.session.attach"
            for r in self.records
        )

    def play(self, cut: Cutter = whole) -> Player:
        player = Player(self, cut)
        player.run()
        return player

    def out(self, method: str) -> list[dict[str, Any]]:
        return [
            r["msg"]["params"]
            for r in self.records
            if r["dir"] == "out" and r.get("msg", {}).get("method") == f"autohand.{method}"
        ]

    def turns(self) -> list[ModelTurn]:
        """The turns of the prompts that this codec would have sent, as the model's endpoint saw them."""
        turns: list[ModelTurn] = []
        prompts = [r["msg"]["params"] for r in self.records if r["dir"] == "in" and _method(r) == "prompt"]
        taken = [prompt for prompt in prompts if prompt["message"] not in ("", SENT_WHILE_BUSY)]
        current: ModelTurn | None = None
        for record in self.records:
            if record["dir"] == "out" and _method(record) == "turnStart":
                prompt = taken.pop(0)
                current = None if prompt["message"].startswith("/") else ModelTurn(prompt)
            elif current is None:
                continue
            elif record["dir"] == "out" and _method(record) == "toolEnd":
                current.tools_ended.add(record["msg"]["params"]["toolId"])
            elif record["dir"] == "out" and _method(record) == "turnEnd":
                current.reason = record["msg"]["params"]["reason"]
                turns.append(current)
                current = None
            elif record["dir"] == "llm" and record["msg"]["event"] == "reply":
                current.replies.append(record["msg"]["step"])
        return turns

    def tool_messages(self) -> dict[str, str]:
        """What the model got as results of its calls, by the call's id; long ones are cut."""
        found: dict[str, str] = {}
        for record in self.records:
            if record["dir"] == "llm" and record["msg"]["event"] == "request":
                for message in record["msg"]["summary"]["messages"]:
                    if message["role"] == "tool":
                        found[message["tool_call_id"]] = message["content"]
        return found


class Player:
    """Feeds one recording to a codec and keeps what came of it."""

    def __init__(self, recording: Recording, cut: Cutter) -> None:
        self.recording = recording
        self.codec = AutohandCodec(settings(resume=recording.resumes))
        self.events: list[AgentEvent] = []
        self.sent: list[dict[str, Any]] = []
        self.prompts: list[str] = []
        self._cut = cut
        self._pending = b""
        self._ids: dict[Any, int | None] = {}
        self._turn_open = False

    def run(self) -> None:
        self.codec.start()
        for record in self.recording.records:
            if record["dir"] == "out":
                self._out(record)
            elif record["dir"] == "out_nonjson":
                self._pending += record["raw"].encode() + b"\n"
            elif record["dir"] == "in":
                self._flush()
                self._in(record)
        self._flush()
        self.events += self.codec.receive_eof(Channel.STDOUT)

    def _out(self, record: dict[str, Any]) -> None:
        if "msg" not in record:
            return  # a recorded answer that was cut
        message = record["msg"]
        if "method" not in message and message.get("id") is not None:
            known = self._ids.get(message["id"])
            if known is None:
                return
            message = {**message, "id": known}
        if message.get("method") in ("autohand.turnEnd", "autohand.agentStart"):
            self._turn_open = False
        self._pending += json.dumps(message, ensure_ascii=False).encode() + b"\n"
        if message.get("method") == "autohand.agentStart":
            self._flush()

    def _flush(self) -> None:
        while self._pending:
            data, self._pending = self._pending, b""
            for chunk in self._cut(data):
                self.events += self.codec.receive(Channel.STDOUT, chunk)
            for line in self._taken():
                self._pending += json.dumps(self._own_answer(line)).encode() + b"\n"

    def _taken(self) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.codec.data_to_send().splitlines()]
        self.sent += lines
        return lines

    def _own_answer(self, line: dict[str, Any]) -> dict[str, Any]:
        """Answer a request that the codec made by itself, as the recorded CLI did if it was asked the same."""
        method = line["method"]
        asked = [r["msg"]["id"] for r in self.recording.records if r["dir"] == "in" and _full_method(r) == method]
        for record in self.recording.records:
            message = record.get("msg")
            if record["dir"] == "out" and message and "method" not in message and message.get("id") in asked:
                return {**message, "id": line["id"]}
        result: dict[str, Any] = {"sessions": []} if method == "autohand.getHistory" else {"success": True}
        return {"jsonrpc": "2.0", "id": line["id"], "result": result}

    def _in(self, record: dict[str, Any]) -> None:
        message = record.get("msg")
        if not isinstance(message, dict) or "method" not in message:
            return
        command = self._command(_method(record), message.get("params") or {}, record)
        if command is None:
            return
        self.codec.send(command)
        for line in self._taken():
            self._ids[message.get("id")] = line["id"]

    def _command(self, method: str, params: dict[str, Any], record: dict[str, Any]) -> AgentCommand | None:
        if method == "prompt" and _is_prompt(record) and not self._turn_open:
            self._turn_open = True
            self.prompts.append(f"prompt-{len(self.prompts) + 1}")
            return SendPrompt(self.prompts[-1], params["message"])
        if method == "stepDecision" and "stop" in params:
            return AnswerBoundary(params["stepId"], DecisionAction.STOP if params["stop"] else DecisionAction.CONTINUE)
        if method == "abort":
            return Interrupt()
        if method == "permissionResponse":
            text = params.get("alternative")
            allow = params.get("allowed", params.get("decision") in ("allow_once", "alternative"))
            instead = None if text is None else PermissionAlternative(command=text)
            return AnswerPermission(params["requestId"], allow, "", instead)
        if method == "directoryAccessResponse":
            return AnswerPermission(params["requestId"], params["granted"], "")
        if method == "planModeSet":
            return SetPermissionMode(PermissionMode.ASK, params["enabled"])
        return None


def _full_method(record: dict[str, Any]) -> str:
    message = record.get("msg")
    return str(message.get("method", "")) if isinstance(message, dict) else ""


def _method(record: dict[str, Any]) -> str:
    return _full_method(record).removeprefix("autohand.")


def _is_prompt(record: dict[str, Any]) -> bool:
    text = record["msg"]["params"]["message"]
    return bool(text) and not text.startswith("/")


def load(name: str, version: str = "0.8.2") -> Recording:
    path = GOLDEN / version / f"{name}.jsonl"
    return Recording(version, name, [json.loads(line) for line in path.read_text().splitlines()])


def load_all() -> list[Recording]:
    return [load(path.stem, path.parent.name) for path in sorted(GOLDEN.glob("*/*.jsonl"))]
