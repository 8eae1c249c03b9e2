"""The real Claude Code as a rig of the driver conformance kit. Its model, an endpoint, finds the work in prompts."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio.to_thread
import msgspec

from steprail_daemon.core.model import PermissionMode
from steprail_daemon.engine.settings import AgentSettings
from steprail_daemon.testing.driver_rig import AGENT, ENDLESS, OUTPUT_TOKENS, Work, as_json, from_json
from steprail_daemon.testing.messages_endpoint import MessagesEndpoint, Request, Script, Step, Tool

_WORK = "Work: "
#: What the daemon says where nobody gave a prompt.
_OTHER = "Continue."
#: How a result begins that stands in for one that never came.
_STAND_INS = ("[Request interrupted", "[Tool result missing", "The user doesn't want to", "Tool use was interrupted")
_WAIT_SLICE_S = 0.2


class WorkScript(Script):
    """Answers each request by the work in its last prompt, and by how much of it was done since."""

    def step(self, number: int, body: dict[str, Any]) -> Step:
        del number
        work, done = _place(body["messages"])
        if work is None:
            return Step(text="Yes.")
        if work.rate_limited:
            return Step(status=429, headers={"retry-after": "1"})
        delay = float(ENDLESS) if work.slow_model else 0.0
        if done >= work.steps:
            return Step(text=work.text, output_tokens=OUTPUT_TOKENS, start_delay=delay)
        name = f"{sum(1 for _ in _user_texts(body['messages']))}-{done}"
        tools = tuple(_tools(work, name))
        return Step(text=f"Step {done}.", tools=tools, output_tokens=OUTPUT_TOKENS, start_delay=delay)


def _user_texts(messages: list[dict[str, Any]]) -> Iterator[tuple[int, str]]:
    for place, message in enumerate(messages):
        if message["role"] == "user":
            content = message["content"]
            blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
            yield from ((place, block["text"]) for block in blocks if block["type"] == "text")


def _place(messages: list[dict[str, Any]]) -> tuple[Work | None, int]:
    """Give the work of the last prompt, if it has one, and how many messages of the model came after it."""
    work: Work | None = None
    begun = 0
    for place, text in _user_texts(messages):
        if text.startswith(_WORK):
            work, begun = from_json(text.removeprefix(_WORK)), place
        elif text.strip() == _OTHER:
            work = None
    return work, sum(message["role"] == "assistant" for message in messages[begun:])


def _tools(work: Work, name: str) -> Iterator[Tool]:
    if work.question:
        options = [{"label": label, "description": f"the {label} one"} for label in ("left", "right")]
        question = {"question": "Which way?", "header": "Way", "multiSelect": False, "options": options}
        yield Tool("AskUserQuestion", {"questions": [question]})
        return
    if work.plan:
        yield Tool("ExitPlanMode", {"plan": work.plan})
        return
    for call in range(work.calls):
        command = f"sleep {ENDLESS}" if work.slow_tool and call == 0 else _command(work, f"{name}-{call}")
        yield Tool("Bash", {"command": command, "description": "Work"})


def _command(work: Work, name: str) -> str:
    says = f"printf %s {shlex.quote(work.output)}"
    if work.output_bytes:
        says = f"head -c {work.output_bytes} /dev/zero | tr '\\0' x"
    return f"{f'touch made-{name} && ' if work.asks else ''}{says}{' && exit 3' if work.fails else ''}"


class ClaudeRig:
    """Looks at the requests that the endpoint got since the rig was made."""

    driver = "claude"
    unknown_line = b'{"type":"kit_new_thing","weather":["fair","foul"]}'
    asking_command = "touch"

    def __init__(self, directory: Path, claude: Path, endpoint: MessagesEndpoint) -> None:
        self._directory = directory
        self._claude = claude
        self._endpoint = endpoint
        self._before = len(endpoint.main_requests())

    def agent(self) -> AgentSettings:
        environment = {
            "PATH": os.environ["PATH"],
            "TMPDIR": str(self._directory),
            "ANTHROPIC_BASE_URL": self._endpoint.url,
            "ANTHROPIC_API_KEY": "sk-ant-not-a-key",
            "CLAUDE_CODE_MAX_RETRIES": "1",
        }
        return AgentSettings(
            name=AGENT,
            driver=self.driver,
            command=(str(self._claude),),
            environment=environment,
            isolated_home=str(self._directory / "home"),
            model="",
            permission_mode=PermissionMode.BYPASS,
            checksum="",
        )

    def prompt(self, work: Work) -> str:
        return f"{_WORK}{as_json(work)}"

    def requests(self) -> int:
        return len(self._own())

    async def request(self, number: int) -> None:
        while self.requests() < number:
            wait = partial(self._endpoint.wait_main, self._before + number, _WAIT_SLICE_S)
            try:
                await anyio.to_thread.run_sync(wait)
            except TimeoutError:
                continue

    def carried(self) -> int:
        return sum(_is_result(block["content"]) for block in self._latest().blocks("tool_result"))

    def changes(self) -> int:
        return len(list((self._directory / "work").glob("made-*")))

    def saw(self, text: str) -> bool:
        return any(text in _as_text(request.body["messages"]) for request in self._own())

    def told_of_stop(self) -> bool:
        return "hook stopped continuation" in _as_text(self._latest().messages)

    def model(self) -> str:
        return str(self._latest().body["model"])

    def _latest(self) -> Request:
        return self._own()[-1]

    def _own(self) -> list[Request]:
        return self._endpoint.main_requests()[self._before :]


def _as_text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _is_result(content: object) -> bool:
    text = (
        content
        if isinstance(content, str)
        else " ".join(block.get("text", "") for block in msgspec.convert(content, list[dict[str, Any]]))
    )
    return not text.startswith(_STAND_INS)


@contextmanager
def claude_rig(claude: Path, endpoint: MessagesEndpoint, directory: Path) -> Iterator[ClaudeRig]:
    """Give the real program behind the driver `claude`. The endpoint, with a `WorkScript`, may serve rigs in turn."""
    yield ClaudeRig(directory, claude, endpoint)
