"""Recorded traffic of Autohand CLI 0.8.2, made into scripts for the built-in agent, and played against it.

`tests/golden/autohand/0.8.2/NAME.jsonl` holds one record a line: `dir` is in or out for the two pipes, llm for what the
model's endpoint was asked and said, note for what the recorder did, stderr and out_nonjson as named.
"""

from __future__ import annotations

import json
import re
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.integration.scripted.client import WAIT, Host, Message

GOLDEN = Path(__file__).parents[2] / "golden" / "autohand" / "0.8.2"
NAMES = sorted(path.stem for path in GOLDEN.glob("*.jsonl"))
FILES = {"package.json": '{\n "name": "demo-pkg",\n "version": "1.2.3"\n}\n', "notes.txt": "alpha\nbeta\ngamma\n"}

FAST = {"permission_unacknowledged": 0.8, "shutdown": 0.3, "retries": [0.01, 0.01, 0.01]}
SHORTER = {"sleep 8": "sleep 0.8", '"8"': '"0.8"', "sleep 5": "sleep 1.2", "sleep 0.4": "sleep 0.04"}
"""Commands that take their time, made shorter in recording and script alike."""

NON_INTERACTIVE = {"r-plan-mode", "r3-ask-followup-noninteractive"}
EXTRA: dict[str, dict[str, Any]] = {
    "d2-reflection-guard": {"guards": True},
    "i3-permission-no-ack": {"timers": {**FAST, "ping": 0.3}},
    "n-no-auth": {"startup": {"error": "authentication"}},
    "v1-bare": {"startup": {"error": "authentication"}},
}
TURN_EXTRA: dict[tuple[str, int], dict[str, Any]] = {
    ("t1-bootstrap-fails", 0): {"bootstrap": {"fails": True}},
    # The recorder closed the input between the message and the end of the turn.
    ("o-startup", 1): {"faults": [{"at": "message", "delay": 10}]},
}


class Recording:
    """One file."""

    def __init__(self, name: str) -> None:
        text = (GOLDEN / f"{name}.jsonl").read_text()
        for long, short in SHORTER.items():
            text = text.replace(long, short).replace(json.dumps(long)[1:-1], json.dumps(short)[1:-1])
        self.name = name
        self.records: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines()]

    def flags(self) -> list[str]:
        """Give the flags that the CLI was started with, without mode and path."""
        line = str(self.records[0]["raw"])
        words = shlex.split(line[line.index("--mode") :])
        at = words.index("--path")
        return words[2:at] + words[at + 2 :]

    def path(self) -> str:
        """Give the workspace as the CLI was told it."""
        words = shlex.split(str(self.records[0]["raw"]))
        return words[words.index("--path") + 1]

    def script(self) -> dict[str, Any]:
        """Make a script that says what the model's endpoint said, prompt by prompt."""
        turns: list[dict[str, Any]] = []
        unanswered = False
        for record in self.records:
            message = record.get("msg")
            if record["dir"] == "in" and isinstance(message, dict) and message.get("method") == "autohand.prompt":
                if message["params"]["message"] and not _refused(self.records, message["id"]):
                    turns.append({"replies": []})
                    unanswered = False
            elif record["dir"] == "llm" and isinstance(message, dict) and turns:
                if message["event"] == "request":
                    unanswered = True
                    turns[-1]["replies"].append({"hang": True})
                elif message["event"] == "reply" and unanswered:
                    unanswered = False
                    turns[-1]["replies"][-1] = _reply(message["step"])
        for (name, index), extra in TURN_EXTRA.items():
            if name == self.name:
                turns[index].update(extra)
        # A slash command asks no model; its turn in the script is not taken.
        return {"model": "fixture-model", "timers": FAST, "turns": turns, **EXTRA.get(self.name, {})}

    def exit_code(self) -> int | None:
        """Give the exit code, if it was recorded."""
        for record in self.records:
            if match := re.match(r"exit code (-?\d+)", str(record.get("raw"))):
                return int(match[1])
        return None


def _refused(records: list[dict[str, Any]], number: object) -> bool:
    answers = (record.get("msg") for record in records if record["dir"] == "out")
    return any(isinstance(answer, dict) and answer.get("id") == number and "error" in answer for answer in answers)


def _reply(step: dict[str, Any]) -> dict[str, Any]:
    if "status" in step:
        error = {"status": step["status"], "message": step["error"]}
        if "Retry-After" in step.get("headers", {}):
            error["retry_after"] = float(step["headers"]["Retry-After"])
        return {"error": error}
    # The endpoint of the recordings counts 120 tokens for every answer, unless told otherwise.
    usage = step.get("usage", [100, 20])
    reply: dict[str, Any] = {"text": step["text"], "calls": [{tool: args} for tool, args in step.get("tools", [])]}
    reply["usage"] = None if usage is None else {"input_tokens": usage[0], "output_tokens": usage[1]}
    if "delay" in step:
        reply["delay"] = 0.4
    return reply


class Player:
    """Plays the host's part of a recording: what it wrote, when everything recorded before has arrived."""

    def __init__(self, recording: Recording, root: Path) -> None:
        self.recording = recording
        self.workspace = root / "ws"
        self.workspace.mkdir(parents=True, exist_ok=True)
        for name, text in FILES.items():
            (self.workspace / name).write_text(text)
        self.home = root / "home"
        self.pairs: list[tuple[Message | None, Message | None]] = []
        self.raw: list[tuple[str, bytes]] = []
        self.pings = 0
        self.ids: dict[str, str] = {}
        path = recording.path()
        given = str(self.workspace) if path == "/workspace" else path
        self.host = Host(
            self.workspace,
            self.home,
            recording.script(),
            *recording.flags(),
            environment={"AUTOHAND_NON_INTERACTIVE": "1"} if recording.name in NON_INTERACTIVE else {},
            argv=["--mode", "rpc", "--path", given],
        )
        self._records = iter(recording.records[1:])

    def play_outputs(self, count: int) -> None:
        """Play up to some number of messages of the CLI."""
        while len(self.pairs) < count:
            self._step(next(self._records))

    def play(self, until: str | None = None) -> None:
        """Play, to the end or up to a note that begins with some words."""
        for record in self._records:
            if until is not None and record["dir"] == "note" and record["raw"].startswith(until):
                return
            self._step(record)

    def _step(self, record: dict[str, Any]) -> None:
        kind = record["dir"]
        if kind == "out":
            self._expect(record.get("msg"))
        elif kind == "out_nonjson":
            self.raw.append((record["raw"], self.host.line() or b""))
        elif kind == "in":
            self._send(record)
        elif kind == "note":
            self._act(record["raw"])

    def _expect(self, recorded: Message | None) -> None:
        if recorded is not None and recorded.get("id") == 90:
            self._send({"msg": {"jsonrpc": "2.0", "id": 90, "method": "autohand.getState"}})  # not in the file
        if recorded is not None and recorded.get("method") == "autohand.ping":
            return
        actual = self._next()
        self.pairs.append((recorded, actual))
        self.ids.update(_matching_ids(recorded, actual))

    def _next(self) -> Message:
        while True:
            message = self.host.message()
            if message.get("method") != "autohand.ping":
                return message
            self.pings += 1

    def _send(self, record: dict[str, Any]) -> None:
        if "msg" in record:
            text = json.dumps(record["msg"])
        else:
            text = record["raw"]
            if match := re.search(r"\.\.\.\((\d+) chars\)$", text):
                head = text[: match.start()] + ' "'
                text = head + "x" * (int(match[1]) - len(head) - 3) + '"}}'
        for recorded, actual in self.ids.items():
            text = text.replace(recorded, actual)
        self.host.write(text.encode() + b"\n")

    def _act(self, note: str) -> None:
        if note == "closing stdin":
            self.host.close_input()
        elif note.startswith("sending "):
            self.host.signal(signal.Signals[note.removeprefix("sending ")])


ID = re.compile(
    r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}-\d{13}|(?:session|turn|msg|changes|step|perm|dir)_\d+_\d{13}"
)


def _matching_ids(recorded: Any, actual: Any) -> Iterator[tuple[str, str]]:
    if isinstance(recorded, str) and isinstance(actual, str) and ID.fullmatch(recorded):
        yield recorded, actual
    elif isinstance(recorded, dict) and isinstance(actual, dict):
        for key in recorded.keys() & actual.keys():
            yield from _matching_ids(recorded[key], actual[key])
    elif isinstance(recorded, list) and isinstance(actual, list):
        for one, other in zip(recorded, actual, strict=False):
            yield from _matching_ids(one, other)


def finished(player: Player) -> int:
    """Play to the end, and let the process end; the result is its exit code."""
    player.play()
    rest = [line for line in player.host.rest() if b"autohand.ping" not in line]
    assert rest == []
    return player.host.exit_code(WAIT)
