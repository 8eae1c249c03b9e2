"""The built-in agent as a rig, for both drivers that speak its protocol. The script of a turn is in its prompt."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from steprail_daemon.core.model import PermissionMode
from steprail_daemon.engine.settings import AgentSettings
from steprail_daemon.testing.driver_rig import AGENT, ENDLESS, INPUT_TOKENS, OUTPUT_TOKENS, RequestLog, Work

_USAGE = {"input_tokens": INPUT_TOKENS, "output_tokens": OUTPUT_TOKENS, "cost_micro_usd": 400}
#: What the agent is started with goes to the log, and so does what it says of its requests.
_SHELL = 'echo "start $*" >>"$KIT_LOG"; exec "$@" 2>>"$KIT_LOG"'
_ASKED = b"the model is asked"


class ScriptedRig:
    """Counts requests by a line that the agent writes before each, and reads the rest in its saved sessions."""

    unknown_line = b'{"jsonrpc":"2.0","method":"autohand.kit.newThing","params":{"weather":["fair","foul"]}}'
    asking_command = "touch"

    def __init__(self, directory: Path, driver: str) -> None:
        self.driver = driver
        self._home = directory / "home"
        self._workspace = directory / "work"
        self._prompts = 0
        self._script = directory / "script.yaml"
        script = {
            "turns": [{"replies": [{"text": "Yes.", "usage": _USAGE}]}],
            "repeat": "all",
            "faults": [{"at": "model", "stderr": _ASKED.decode()}],
            # The Autohand CLI tells tokens for the whole run alone.
            "report_usage": driver == "scripted",
        }
        self._script.write_text(json.dumps(script))
        self.log = RequestLog(directory / "requests")

    def agent(self) -> AgentSettings:
        environment = {
            "PATH": os.environ["PATH"],
            "KIT_LOG": str(self.log.path),
            "STEPRAIL_SCRIPTED_SCRIPT": str(self._script),
        }
        return AgentSettings(
            name=AGENT,
            driver=self.driver,
            command=("/bin/sh", "-c", _SHELL, "sh", sys.executable, "-P", "-m", "steprail_scripted"),
            environment=environment,
            isolated_home=str(self._home),
            model="",
            permission_mode=PermissionMode.BYPASS,
            checksum="",
        )

    def prompt(self, work: Work) -> str:
        self._prompts += 1
        replies = [self._reply(work, number) for number in range(work.steps)]
        replies.append({"text": work.text, "usage": _USAGE})
        if work.slow_model:
            replies[0]["hang"] = True
        if work.rate_limited:
            replies = [{"error": {"status": 429, "message": "slow down", "retry_after": 1}}]
        # YAML takes the two escapes of a letter beyond the basic plane for two letters.
        return "#!scripted\n" + json.dumps({"turns": [{"replies": replies}]}, ensure_ascii=False)

    def _reply(self, work: Work, number: int) -> dict[str, Any]:
        calls = [{"run_command": {"command": self._command(work, f"{number}-{call}")}} for call in range(work.calls)]
        if work.slow_tool:
            calls[0] = {"run_command": {"command": f"exec sleep {ENDLESS}"}}
        if work.plan:
            calls = [{"plan": {"notes": work.plan}}]
        return {"text": f"Step {number}.", "calls": calls, "usage": _USAGE}

    def _command(self, work: Work, name: str) -> str:
        says = f"printf %s {shlex.quote(work.output)}"
        if work.output_bytes:
            says = f"head -c {work.output_bytes} /dev/zero | tr '\\0' x"
        asks = f"touch made-{self._prompts}-{name} && " if work.asks else ""
        return f"{asks}{says}{' && exit 3' if work.fails else ''}"

    def requests(self) -> int:
        return self.log.lines.count(_ASKED)

    async def request(self, number: int) -> None:
        while self.requests() < number:
            await self.log.wait(len(self.log.lines) + 1)

    def carried(self) -> int:
        return sum(message["role"] == "tool" for message in self._latest())

    def changes(self) -> int:
        return len(list(self._workspace.glob("made-*")))

    def saw(self, text: str) -> bool:
        return any(text in message["content"] for message in self._latest())

    def told_of_stop(self) -> bool:
        return any(message["role"] not in ("user", "assistant", "tool") for message in self._latest())

    def model(self) -> str | None:
        starts = [line.decode().split() for line in self.log.lines if line.startswith(b"start ") and b"--mode" in line]
        words = starts[-1]
        return words[words.index("--model") + 1] if "--model" in words else None

    def _latest(self) -> list[dict[str, Any]]:
        """Give what the latest request held that was answered: all before the answer."""
        sessions = [_records(path) for path in self._home.glob(".autohand/sessions/*.jsonl")]
        messages = max(sessions, key=lambda records: max([record["at"] for record in records]))
        said = [record["message"] for record in messages if record["kind"] == "message"]
        last = max((place for place, message in enumerate(said) if message["role"] == "assistant"), default=0)
        return said[:last]


def _records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@contextmanager
def scripted(directory: Path) -> Iterator[ScriptedRig]:
    """Give the agent behind the driver `scripted`."""
    rig = ScriptedRig(directory, "scripted")
    try:
        yield rig
    finally:
        rig.log.close()


@contextmanager
def autohand(directory: Path) -> Iterator[ScriptedRig]:
    """Give the agent behind the driver `autohand`."""
    rig = ScriptedRig(directory, "autohand")
    try:
        yield rig
    finally:
        rig.log.close()
