"""An Autohand CLI made of lines: a codec that is ready, what is said to it, and what it sends."""

from __future__ import annotations

import json
from typing import Any

from tests.unit.drivers.autohand_recordings import SAVED, settings

from steprail_daemon.core.commands import AgentCommand, SendPrompt
from steprail_daemon.core.model import PermissionMode
from steprail_daemon.drivers.autohand.codec import AutohandCodec
from steprail_daemon.drivers.base import Channel

PROCESS = "session_1_1796030540605"


def line(method: str, **params: Any) -> bytes:
    """A notification."""
    return json.dumps({"jsonrpc": "2.0", "method": f"autohand.{method}", "params": params}).encode() + b"\n"


def answer(request_id: Any, result: Any = None, error: dict[str, Any] | None = None) -> bytes:
    """An answer to a request."""
    part = {"result": result} if error is None else {"error": error}
    return json.dumps({"jsonrpc": "2.0", **part, "id": request_id}).encode() + b"\n"


class Agent:
    """Speaks to one codec as the CLI does; `say` and `send` give the events and the requests that came of it."""

    def __init__(
        self,
        *,
        resume: bool = False,
        mode: PermissionMode = PermissionMode.ASK,
        plan_mode: bool = False,
        line_bytes: int = 1 << 20,
    ) -> None:
        self.codec = AutohandCodec(settings(resume=resume, mode=mode, plan_mode=plan_mode, line_bytes=line_bytes))
        self.codec.start()

    def say(self, *lines: bytes) -> list[Any]:
        return self.codec.receive(Channel.STDOUT, b"".join(lines))

    def sent(self) -> list[dict[str, Any]]:
        """The requests since the last call."""
        return [json.loads(request) for request in self.codec.data_to_send().splitlines()]

    def send(self, command: AgentCommand) -> list[dict[str, Any]]:
        self.codec.send(command)
        return self.sent()

    def begin(self) -> dict[str, dict[str, Any]]:
        """Say `agentStart`; gives the handshake's requests by method."""
        self.say(line("agentStart", sessionId=PROCESS, model="m"))
        return {request["method"].removeprefix("autohand."): request for request in self.sent()}

    def ready(self) -> Agent:
        """Go through the handshake with a session that is told for certain."""
        requests = self.begin()
        entry = {"sessionId": SAVED.rpartition("-")[0] + "-1796030540560", "messageCount": 0, "status": "active"}
        self.say(
            answer(requests["getHistory"]["id"], {"sessions": [entry]}),
            answer(requests["permissionModeSet"]["id"], {"success": True}),
        )
        return self

    def prompted(self, text: str = "do it") -> Agent:
        """Send a prompt and begin its turn."""
        (request,) = self.send(SendPrompt("p1", text))
        self.say(answer(request["id"], {"success": True}), line("turnStart", turnId="t1"))
        return self

    def tool(self, call_id: str = "c1", tool: str = "read_file", **args: Any) -> list[Any]:
        """Carry out one call."""
        return self.say(
            line("hook.preTool", toolId=call_id, toolName=tool, args=args),
            line("toolStart", toolId=call_id, toolName=tool, args={**args, "type": tool}),
            line("hook.postTool", toolId=call_id, toolName=tool, success=True, duration=3, output="out"),
            line("toolEnd", toolId=call_id, toolName=tool, success=True, output="out"),
        )

    def step(self, step_id: str = "s1", call_id: str = "c1", number: int = 1, **more: Any) -> list[Any]:
        """End a step of one call."""
        step = {
            "stepNumber": number,
            "thought": "why",
            "toolCalls": [{"id": call_id, "tool": "read_file", "args": {}}],
            "toolResults": [{"tool": "read_file", "success": True, "output": "out"}],
        }
        return self.say(line("stepEnd", stepId=step_id, step=step, **more))

    def turn_end(self, reason: str = "completed", tokens: int = 0, status: str = "actual") -> list[Any]:
        return self.say(line("turnEnd", turnId="t1", reason=reason, tokensUsed=tokens, tokensUsageStatus=status))

    def says(self, text: str) -> list[Any]:
        """A message without calls."""
        return self.say(
            line("messageUpdate", messageId="m1", delta=text), line("messageEnd", messageId="m1", content=text)
        )
