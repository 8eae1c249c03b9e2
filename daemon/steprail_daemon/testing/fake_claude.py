"""A program that speaks Claude Code's protocol and does as it is told; no model, no tools, standard library only.

Run it as `python -S -E fake_claude.py` with Claude Code's arguments. Lines and their order are those of 2.1.332 with
partial messages on, as far as the daemon reads them, and so are its traps: an EOF while the gate is held lets it go on
alone. What it does is in the environment variable `FAKE_CLAUDE`, a JSON object with the members of `Behaviour`; a
prompt that is a JSON object lays its members over them for its own turn. It is one file so that it runs by its path.
"""

from __future__ import annotations

import dataclasses
import json
import os
import select
import signal
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

MODEL = "claude-fake-1"


@dataclass(frozen=True)
class Behaviour:
    """What the program does. Times are in milliseconds, steps are counted from 1 within a turn, 0 means never.

    `steps` messages of `tools` calls each are followed by a message without tools, `text`. `calls` is a file that gets
    one JSON line for each request to the model that a real CLI would make, with the model and with the texts that came
    with the last answer at the gate; `state` is a folder where sessions are remembered, without which every resume
    succeeds. A call that was allowed with another input than it asked with has that input as its output. `result` are
    members that are laid over those of the line that ends the turn.
    """

    steps: int = 2
    tools: int = 1
    deltas: int = 3
    text: str = "All done."
    output: str = "ok"
    output_bytes: int = 0
    input_tokens: int = 100
    output_tokens: int = 20
    model_ms: int = 0
    tool_ms: int = 0
    calls: str = ""
    state: str = ""

    version: str = "2.1.332"
    start_exit: int | None = None
    start_stderr: str = ""
    start_hangs: bool = False
    hooks_applied: bool = True
    hook_on_failure_supported: bool = True

    ask_permission: bool = False
    ask_question: bool = False
    plan: str = ""
    fail_tools: bool = False
    api_error_status: int = 0
    retries: int = 0

    crash_in_step: int = 0
    crash_code: int = 1
    hang_in_step: int = 0
    long_line_in_step: int = 0
    long_line_bytes: int = 0
    garbage_in_step: int = 0
    noise_lines: int = 0
    lone_surrogate: bool = False
    gate_opens_after_ms: int | None = None
    no_result: bool = False
    result: dict[str, Any] = dataclasses.field(default_factory=dict)
    hang_after_result: bool = False
    ignore_interrupt: bool = False
    ignore_term: bool = False

    def over(self, members: dict[str, Any]) -> Behaviour:
        """Give this with other members; one that does not exist ends the program with an explanation."""
        known = {field.name for field in dataclasses.fields(self)}
        if unknown := sorted(members.keys() - known):
            sys.exit(f"fake_claude: unknown member {unknown[0]!r}; there is {', '.join(sorted(known))}")
        return dataclasses.replace(self, **members)


class Interrupted(Exception):
    """The host cut the turn off."""


class Host:
    """The program's stdin and stdout: lines out, and lines in with a bound on the wait."""

    def __init__(self) -> None:
        self.ended = False
        self._rest = b""
        self._lines: list[bytes] = []

    @property
    def over(self) -> bool:
        """Whether nothing more will be heard."""
        return self.ended and not self._lines

    @property
    def speaks(self) -> bool:
        """Whether there is something to hear now."""
        return bool(self._lines) or (not self.ended and bool(select.select([0], [], [], 0)[0]))

    def say(self, *lines: dict[str, Any]) -> None:
        """Write lines at once."""
        self.say_raw(b"".join(json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in lines))

    def say_raw(self, data: bytes) -> None:
        """Write bytes at once."""
        view = memoryview(data)
        while view:
            view = view[os.write(1, view) :]

    def hear(self, seconds: float | None) -> dict[str, Any] | None:
        """Give the next line, or None once `seconds` are over or stdin is at its end."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while not self._lines and not self.ended:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not select.select([0], [], [], left)[0]:
                return None
            data = os.read(0, 1 << 16)
            self.ended = not data
            *lines, self._rest = (self._rest + data).split(b"\n")
            self._lines += [line for line in lines if line.strip()]
        if not self._lines:
            return None
        line = self._lines.pop(0)
        try:
            heard: dict[str, Any] = json.loads(line)
        except ValueError:
            # As the real one: it reads nothing that follows.
            sys.exit(f"Error parsing streaming input line: {line[:100]!r}")
        return heard


class FakeClaude:
    """One process: one session, one turn at a time."""

    def __init__(self, behaviour: Behaviour, session: str, results: int) -> None:
        self._base = self._does = behaviour
        self._session = session
        self._results = results
        self._host = Host()
        self._answers: dict[str, dict[str, Any]] = {}
        self._asked: list[str] = []
        self._prompts: list[dict[str, Any]] = []
        self._turns = 0
        self._prompt_id = ""
        self._working = False
        self._failed = False
        self._spent = {"inputTokens": 0, "outputTokens": 0}
        self._sums = {"inputTokens": 0, "outputTokens": 0}
        self._model = MODEL
        self._guidance = ""

    def run(self) -> int:
        """Serve until stdin ends; gives the exit code."""
        while True:
            while self._prompts:
                self._turn(self._prompts.pop(0))
            if self._host.over:
                break
            self._take(self._host.hear(None))
        if self._base.hang_after_result and self._turns:
            _sleep_for_ever()
        return 1 if self._failed else 0

    # --- in ------------------------------------------------------------------------------------------------------

    def _take(self, line: dict[str, Any] | None) -> None:
        if line is None:
            return
        if line["type"] == "user":
            self._say_lifecycle(line["uuid"], "queued")
            self._prompts.append(line)
        elif line["type"] == "control_response":
            self._answers[line["response"]["request_id"]] = line["response"]
        elif line["type"] == "control_request":
            self._take_request(line["request_id"], line["request"])

    def _take_request(self, request_id: str, request: dict[str, Any]) -> None:
        kind = request["subtype"]
        if kind == "initialize":
            if self._base.start_hangs:
                _sleep_for_ever()
            self._respond(
                request_id,
                {
                    "commands": [],
                    "pid": os.getpid(),
                    "claude_code_version": self._base.version,
                    "hooks_applied": self._base.hooks_applied,
                    "hook_on_failure_supported": self._base.hook_on_failure_supported,
                },
            )
        elif kind == "interrupt":
            if self._does.ignore_interrupt:
                return
            withdrawn, self._asked = self._asked, []
            self._host.say(*({"type": "control_cancel_request", "request_id": asked} for asked in withdrawn))
            self._respond(request_id, {"still_queued": []})
            if self._working:
                raise Interrupted
        elif kind == "get_usage":
            self._respond(request_id, {"session": {"model_usage": {MODEL: _priced(self._sums)}}})
        elif kind == "set_model":
            self._model = request.get("model", MODEL)
            self._respond(request_id, {"model": self._model})
        elif kind == "set_permission_mode":
            self._respond(request_id, {"mode": request["mode"]})
        else:
            error = {"subtype": "error", "request_id": request_id, "error": f"Unsupported control request: {kind}"}
            self._host.say({"type": "control_response", "response": error})

    def _respond(self, request_id: str, response: dict[str, Any]) -> None:
        answer = {"subtype": "success", "request_id": request_id, "response": response}
        self._host.say({"type": "control_response", "response": answer})

    def _pass_time(self, milliseconds: int) -> None:
        """Let time pass and hear what comes; an interrupt ends it."""
        deadline = time.monotonic() + milliseconds / 1000
        while (left := deadline - time.monotonic()) > 0:
            if self._host.over:
                select.select([], [], [], left)
            else:
                self._take(self._host.hear(left))
        while self._host.speaks:
            self._take(self._host.hear(0))

    def _answer_to(self, request_id: str, milliseconds: int | None) -> dict[str, Any] | None:
        """Wait for an answer; None once the time is over, or when stdin ends, as if the hook had passed."""
        self._asked.append(request_id)
        deadline = None if milliseconds is None else time.monotonic() + milliseconds / 1000
        while request_id not in self._answers and not self._host.over:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                break
            self._take(self._host.hear(left))
        self._asked.remove(request_id)
        return self._answers.pop(request_id, None)

    # --- a turn --------------------------------------------------------------------------------------------------

    def _turn(self, line: dict[str, Any]) -> None:
        prompt = line["message"]["content"]
        self._does = self._base.over(json.loads(prompt)) if prompt.startswith("{") else self._base
        self._turns += 1
        self._prompt_id = line["uuid"]
        self._spent = {"inputTokens": 0, "outputTokens": 0}
        self._say_lifecycle(self._prompt_id, "started")
        self._host.say(
            {
                "type": "system",
                "subtype": "init",
                "session_id": self._session,
                "model": MODEL,
                "claude_code_version": self._base.version,
            }
        )
        self._working = True
        try:
            terminal = self._work(prompt)
        except Interrupted:
            text = {"type": "text", "text": "[Request interrupted by user]"}
            self._host.say({"type": "user", "message": {"role": "user", "content": [text]}, "parent_tool_use_id": None})
            terminal = "aborted_tools"
        self._working = False
        if self._does.no_result:
            sys.exit(0)
        self._say_result(terminal)
        self._say_lifecycle(self._prompt_id, "cancelled" if terminal == "aborted_tools" else "completed")

    def _work(self, prompt: str) -> str:
        does = self._does
        for number in range(1, does.steps + 1):
            if not self._step(number, prompt):
                return "hook_stopped"
        self._call_model(prompt)
        if does.api_error_status:
            return "api_error"
        self._say_message(f"msg_{uuid.uuid4().hex[:12]}", does.text, [])
        return "completed"

    def _step(self, number: int, prompt: str) -> bool:
        """Work through one step; false if it was the last because the gate's answer stopped it."""
        does = self._does
        self._call_model(prompt)
        for _ in range(does.noise_lines):
            self._host.say_raw(b"a line of no protocol\n")
        if number == does.long_line_in_step:
            self._host.say_raw(b'{"type":"user","padding":"' + b"x" * does.long_line_bytes + b'"}\n')
        if number == does.garbage_in_step:
            self._host.say_raw(b'{"type":"user",\n')
        message_id = f"msg_{uuid.uuid4().hex[:12]}"
        calls = [f"toolu_{message_id[4:]}_{index}" for index in range(does.tools)]
        self._say_message(message_id, f"Step {number}.", calls)
        if number == does.crash_in_step:
            sys.stderr.write("fake_claude: crashed as told\n")
            sys.stderr.flush()
            os._exit(does.crash_code)
        if number == does.hang_in_step:
            _sleep_for_ever()
        self._run_tools(calls)
        return self._gate(calls)

    def _call_model(self, prompt: str) -> None:
        does = self._does
        if does.calls:
            call = {"session": self._session, "turn": self._turns, "prompt": prompt, "tool_results": self._results}
            call |= {"model": self._model, "guidance": self._guidance}
            with Path(does.calls).open("a") as log:
                log.write(json.dumps(call) + "\n")
        for attempt in range(1, does.retries + 1):
            self._host.say(
                {
                    "type": "system",
                    "subtype": "api_retry",
                    "attempt": attempt,
                    "max_retries": 10,
                    "retry_delay_ms": 1,
                    "error_status": 429,
                    "error": "rate_limit",
                }
            )
        self._pass_time(does.model_ms)

    def _run_tools(self, calls: list[str]) -> None:
        does = self._does
        output = "x" * does.output_bytes if does.output_bytes else does.output
        lines = []
        for call in calls:
            allowed, reason, said = self._may(call)
            block = {"tool_use_id": call, "type": "tool_result", "content": said or output, "is_error": does.fail_tools}
            line: dict[str, Any] = {
                "type": "user",
                "message": {"role": "user", "content": [block]},
                "parent_tool_use_id": None,
            }
            if not allowed:
                block |= {"content": reason, "is_error": True}
                line["tool_result_meta"] = [{"id": call, "non_execution_kind": "permission-rule"}]
            lines.append(line)
        self._pass_time(does.tool_ms)
        self._host.say(*lines)
        self._results += len(calls)
        _remember(does.state, self._session, self._results)

    def _may(self, call: str) -> tuple[bool, str, str]:
        """Ask for leave, if it does: whether there is, why not, and the tool's output where the answer makes it."""
        does = self._does
        if does.ask_question:
            answer = self._ask(call, "AskUserQuestion", {"questions": [_question()]})
            told = answer.get("updatedInput", {}).get("answers", {})
        elif does.plan:
            answer, told = self._ask(call, "ExitPlanMode", {"plan": does.plan}), {}
        elif does.ask_permission:
            answer = self._ask(call, "Bash", _arguments(call))
            given = answer.get("updatedInput", {})
            told = given if given != _arguments(call) else {}
        else:
            return True, "", ""
        return answer.get("behavior") == "allow", answer.get("message", ""), json.dumps(told) if told else ""

    def _ask(self, call: str, tool: str, given: dict[str, Any]) -> dict[str, Any]:
        request_id = str(uuid.uuid4())
        request = {"subtype": "can_use_tool", "tool_name": tool, "input": given, "tool_use_id": call}
        self._host.say({"type": "control_request", "request_id": request_id, "request": request})
        answer: dict[str, Any] = (self._answer_to(request_id, None) or {}).get("response", {})
        return answer

    def _gate(self, calls: list[str]) -> bool:
        does = self._does
        request_id = str(uuid.uuid4())
        batch = [
            {"tool_name": "Bash", "tool_input": _arguments(call), "tool_use_id": call, "tool_response": does.output}
            for call in calls
        ]
        given: dict[str, Any] = {"hook_event_name": "PostToolBatch", "session_id": self._session, "tool_calls": batch}
        if does.lone_surrogate:
            given["cut"] = "\ud83d"
        request = {"subtype": "hook_callback", "callback_id": "PostToolBatch", "input": given}
        self._host.say({"type": "control_request", "request_id": request_id, "request": request})
        answer = self._answer_to(request_id, does.gate_opens_after_ms)
        if answer is None:
            return True
        # `onFailure: block`: an answer that is an error stops, too.
        if answer["subtype"] != "success" or answer["response"].get("continue") is False:
            return False
        self._guidance = answer["response"].get("hookSpecificOutput", {}).get("additionalContext", "")
        return True

    # --- out -----------------------------------------------------------------------------------------------------

    def _say_lifecycle(self, command: str, state: str) -> None:
        line = {"type": "command_lifecycle", "command_uuid": command, "state": state, "session_id": self._session}
        self._host.say(line)

    def _say_message(self, message_id: str, text: str, calls: list[str]) -> None:
        does = self._does
        for counted in (self._spent, self._sums):
            counted["inputTokens"] += does.input_tokens
            counted["outputTokens"] += does.output_tokens
        message = {"id": message_id, "type": "message", "role": "assistant", "model": self._model, "stop_reason": None}
        usage = {"input_tokens": does.input_tokens, "output_tokens": 1}
        self._host.say(*map(_stream, self._begin(message | {"content": [], "usage": usage}, text)))
        blocks: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
        blocks += [{"type": "tool_use", "id": call, "name": "Bash", "input": _arguments(call)} for call in calls]
        self._host.say(
            *(
                {
                    "type": "assistant",
                    "message": message | {"content": [block], "usage": usage},
                    "parent_tool_use_id": None,
                    "session_id": self._session,
                    "uuid": str(uuid.uuid4()),
                }
                for block in blocks
            )
        )
        stop = {"stop_reason": "tool_use" if calls else "end_turn", "stop_sequence": None}
        end = {"type": "message_delta", "delta": stop, "usage": {"output_tokens": does.output_tokens}}
        self._host.say(_stream(end), _stream({"type": "message_stop"}))

    def _begin(self, message: dict[str, Any], text: str) -> Iterator[dict[str, Any]]:
        yield {"type": "message_start", "message": message}
        yield {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
        parts = max(1, self._does.deltas)
        size = -(-len(text) // parts)
        for start in range(0, len(text), max(1, size)):
            delta = {"type": "text_delta", "text": text[start : start + size]}
            yield {"type": "content_block_delta", "index": 0, "delta": delta}
        yield {"type": "content_block_stop", "index": 0}

    def _say_result(self, terminal: str) -> None:
        self._failed = terminal in ("api_error", "aborted_tools")
        line = {
            "stop_reason": "end_turn" if terminal == "completed" else "tool_use",
            "session_id": self._session,
            "terminal_reason": terminal,
            "is_error": self._failed,
            "subtype": "error_during_execution" if terminal == "aborted_tools" else "success",
            "result": self._does.text if terminal == "completed" else "",
            "modelUsage": {MODEL: _priced(self._sums)},
            "model_usage_since_last_result": {MODEL: _priced(self._spent)},
            "total_cost_usd": _priced(self._sums)["costUSD"],
            "type": "result",
        }
        if terminal == "api_error":
            line |= {"api_error_status": self._does.api_error_status, "result": "API Error: as told"}
        self._host.say(line | self._does.result)


def _priced(used: dict[str, int]) -> dict[str, float]:
    """Give tokens as sums of a model, at 4 and 20 dollars for a million."""
    dollars = (4 * used["inputTokens"] + 20 * used["outputTokens"]) / 1e6
    return {**used, "cacheReadInputTokens": 0, "cacheCreationInputTokens": 0, "costUSD": dollars}


def _stream(event: dict[str, Any]) -> dict[str, Any]:
    return {"type": "stream_event", "event": event, "parent_tool_use_id": None}


def _arguments(call: str) -> dict[str, str]:
    return {"command": f"echo {call}", "description": "pretend"}


def _question() -> dict[str, Any]:
    options = [{"label": label, "description": ""} for label in ("Red", "Blue")]
    return {"question": "Which colour?", "header": "Colour", "multiSelect": False, "options": options}


def _remember(state: str, session: str, results: int) -> None:
    if state:
        # Whole or not at all: it may be killed at any moment.
        new = Path(state) / f"{session}.{os.getpid()}"
        new.write_text(str(results))
        new.replace(Path(state) / session)


def _sleep_for_ever() -> NoReturn:
    while True:
        signal.pause()


def _session(behaviour: Behaviour, arguments: list[str]) -> tuple[str, int]:
    """Give the session that the arguments name and how many results its history holds; ends if it cannot be had."""
    options = dict(argument.split("=", 1) for argument in arguments if argument.startswith("--") and "=" in argument)
    resumed, named = options.get("--resume"), options.get("--session-id")
    session = resumed or named or str(uuid.uuid4())
    if not behaviour.state:
        return session, 0
    known = Path(behaviour.state) / session
    if resumed and not known.exists():
        error = f"No conversation found with session ID: {session}"
        result = {"type": "result", "subtype": "error_during_execution", "is_error": True, "errors": [error]}
        Host().say(result)
        sys.exit(error)
    if not resumed and known.exists():
        sys.exit(f"Error: Session ID {session} is already in use.")
    _remember(behaviour.state, session, results := int(known.read_text()) if resumed else 0)
    return session, results


def main(arguments: list[str]) -> int:
    """Do as Claude Code would with these arguments; gives the exit code."""
    behaviour = Behaviour().over(json.loads(os.environ.get("FAKE_CLAUDE") or "{}"))
    if "--version" in arguments:
        sys.stdout.write(f"{behaviour.version} (Claude Code)\n")
        return 0
    # 2.1.332 exits with 143 on TERM, within moments and without another request.
    signal.signal(signal.SIGTERM, signal.SIG_IGN if behaviour.ignore_term else lambda *_: os._exit(143))
    if behaviour.start_exit is not None:
        sys.stderr.write(behaviour.start_stderr)
        return behaviour.start_exit
    session, results = _session(behaviour, arguments)
    return FakeClaude(behaviour, session, results).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
