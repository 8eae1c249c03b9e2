"""The program that speaks Claude Code's protocol as a rig. What it does in a turn is in the prompt, as JSON."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.framework.daemon import FAKE_CLAUDE

from steprail_daemon.core.model import PermissionMode
from steprail_daemon.engine.settings import AgentSettings
from steprail_daemon.testing.driver_rig import AGENT, ENDLESS, INPUT_TOKENS, OUTPUT_TOKENS, RequestLog, Work


class FakeClaudeRig:
    """Reads the requests that the program would make from what it writes down about each."""

    driver = "claude"
    unknown_line = b'{"type":"kit_new_thing","weather":["fair","foul"]}'
    asking_command = "echo"

    def __init__(self, directory: Path) -> None:
        self._home = directory / "home"
        self._state = directory / "state"
        self._state.mkdir()
        self.log = RequestLog(directory / "requests")

    def agent(self) -> AgentSettings:
        behaviour = {
            "calls": str(self.log.path),
            "state": str(self._state),
            "steps": 0,
            "text": "Yes.",
            "input_tokens": INPUT_TOKENS,
            "output_tokens": OUTPUT_TOKENS,
        }
        return AgentSettings(
            name=AGENT,
            driver=self.driver,
            command=tuple(FAKE_CLAUDE),
            environment={"PATH": os.environ["PATH"], "FAKE_CLAUDE": json.dumps(behaviour)},
            isolated_home=str(self._home),
            model="",
            permission_mode=PermissionMode.BYPASS,
            checksum="",
        )

    def prompt(self, work: Work) -> str:
        members: dict[str, Any] = {
            "steps": work.steps,
            "tools": work.calls,
            "text": work.text,
            "output": work.output,
            "output_bytes": work.output_bytes,
            "fail_tools": work.fails,
            "ask_permission": work.asks,
            "ask_question": work.question,
            "plan": work.plan,
            "model_ms": ENDLESS * 1000 if work.slow_model else 0,
            "tool_ms": ENDLESS * 1000 if work.slow_tool else 0,
        }
        if work.rate_limited:
            members |= {"steps": 0, "api_error_status": 429, "retries": 1}
        return json.dumps(members)

    def requests(self) -> int:
        return len(self.log.lines)

    async def request(self, number: int) -> None:
        await self.log.wait(number)

    def carried(self) -> int:
        return int(self._latest()["tool_results"])

    def changes(self) -> None:
        """It runs nothing."""

    def saw(self, text: str) -> bool:
        return any(text in json.loads(line)["guidance"] for line in self.log.lines)

    def told_of_stop(self) -> None:
        """It makes no requests, so that nothing else is in them."""

    def model(self) -> str:
        return str(self._latest()["model"])

    def _latest(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.log.lines[-1])
        return found


@contextmanager
def fake(directory: Path) -> Iterator[FakeClaudeRig]:
    """Give the program behind the driver `claude`."""
    rig = FakeClaudeRig(directory)
    try:
        yield rig
    finally:
        rig.log.close()
