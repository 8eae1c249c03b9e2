"""An agent that works as fast as it can and times how long it has to wait. Standard library only, run by its path.

It speaks the stream-json protocol of Claude Code 2.1.332 as far as the daemon needs it. The prompt is a JSON object
that says what to do: `{"mode": "flood", "count": N, "write": "chunk" | "line", "report": PATH}` writes N results of
tools, with `"while": FILE` in place of the count as many as can be written until that file is gone; `{"mode": "steps",
"count": N, "gap_ns": G, "report": PATH}` works through N steps and times each boundary, from before the boundary's line
is written until its answer was read. What was measured is written to PATH, a file or a named pipe, as JSON, times in
nanoseconds of the monotonic clock.

With `--bare PROMPT` there is no handshake: it does what PROMPT says as soon as a line arrives. The limits use that.
"""

from __future__ import annotations

import json
import os
import select
import sys
import time
from typing import Any

VERSION = "2.1.332"
MODEL = "bench-model"
#: What a boundary's line has and no other line does.
BOUNDARY_MARK = b'"PostToolBatch"'
#: 150 bytes of UTF-8 with what JSON has to escape and what is no ASCII.
OUTPUT = 'total 24\n-rw-r--r-- 1 root "größe"\tC:\\tmp\\naïve\n日本語 ✓ done\n'
OUTPUT += "." * (150 - len(OUTPUT.encode()))
CALLS = 8
BLOCK_LINES = 1000
CHUNK_BYTES = 64 * 1024
READ_BYTES = 64 * 1024
_SESSION = "3f0c1e4a-6a52-4f6e-9a51-6e1f7f1f2d10"
_UUID = "687a6e79-6e84-43f9-a865-e7277639eea1"
_TIMESTAMP = "2026-11-30T09:18:38.098Z"


def encode(value: dict[str, Any]) -> bytes:
    """Give a line as the CLI writes it: compact, non-ASCII characters as they are."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def assistant_line(message_id: str, call_ids: list[str]) -> bytes:
    """Give a message of the model that calls tools."""
    content = [
        {"type": "tool_use", "id": call_id, "name": "Bash", "input": {"command": "ls -l", "description": "look"}}
        for call_id in call_ids
    ]
    message: dict[str, Any] = {"id": message_id, "type": "message", "role": "assistant", "model": MODEL}
    message |= {"content": content, "stop_reason": None, "usage": {"input_tokens": 100, "output_tokens": 20}}
    line = {"type": "assistant", "message": message, "parent_tool_use_id": None, "session_id": _SESSION}
    return encode(line | {"uuid": _UUID, "timestamp": _TIMESTAMP})


def stream_line(event: dict[str, Any]) -> bytes:
    """Give a line of a message as it is streamed, which the CLI writes beside the message's own lines."""
    line = {"type": "stream_event", "event": event, "parent_tool_use_id": None, "session_id": _SESSION}
    return encode(line | {"uuid": _UUID})


def streamed_message(message_id: str, call_id: str) -> bytes:
    """Give a message with one tool call as the CLI writes it with `--include-partial-messages`."""
    message: dict[str, Any] = {"id": message_id, "type": "message", "role": "assistant", "model": MODEL, "content": []}
    message |= {"stop_reason": None, "usage": {"input_tokens": 100, "output_tokens": 1}}
    block = {"type": "tool_use", "id": call_id, "name": "Bash", "input": {}}
    part = {"type": "input_json_delta", "partial_json": '{"command": "ls -l", "description": "look"}'}
    end = {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 20}}
    return b"".join(
        [
            stream_line({"type": "message_start", "message": message}),
            stream_line({"type": "content_block_start", "index": 0, "content_block": block}),
            stream_line({"type": "content_block_delta", "index": 0, "delta": part}),
            assistant_line(message_id, [call_id]),
            stream_line({"type": "content_block_stop", "index": 0}),
            stream_line(end),
            stream_line({"type": "message_stop"}),
        ]
    )


def result_line(call_id: str) -> bytes:
    """Give the result of a tool, about 450 bytes."""
    block = {"tool_use_id": call_id, "type": "tool_result", "content": OUTPUT, "is_error": False}
    line = {"type": "user", "message": {"role": "user", "content": [block]}, "parent_tool_use_id": None}
    return encode(line | {"session_id": _SESSION, "uuid": _UUID, "timestamp": _TIMESTAMP})


def boundary_line(request_id: str, call_id: str, callback_id: str) -> bytes:
    """Give the question at the end of a step."""
    call = {"tool_name": "Bash", "tool_input": {"command": "ls -l"}, "tool_use_id": call_id, "tool_response": OUTPUT}
    hook = {"session_id": _SESSION, "cwd": "/", "hook_event_name": "PostToolBatch", "tool_calls": [call]}
    request = {"subtype": "hook_callback", "callback_id": callback_id, "input": hook, "tool_use_id": f"hook-{call_id}"}
    return encode({"type": "control_request", "request_id": request_id, "request": request})


def write_all(data: bytes) -> None:
    """Write to stdout, whole."""
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]


class Lines:
    """Lines of stdin, whole ones only."""

    def __init__(self) -> None:
        self._held = b""

    def read(self) -> list[bytes]:
        """Wait for at least one line. Nobody at the other end means that there is nothing left to do."""
        while True:
            data = os.read(0, READ_BYTES)
            if not data:
                raise SystemExit(0)
            *lines, self._held = (self._held + data).split(b"\n")
            if lines:
                return lines


class Agent:
    """One process of the CLI."""

    def __init__(self, stdin: Lines) -> None:
        self._stdin = stdin
        self._callback_id = "PostToolBatch"

    def serve(self) -> None:
        """Answer the host until it goes away."""
        while True:
            for line in self._stdin.read():
                self._take(json.loads(line))

    def _take(self, message: dict[str, Any]) -> None:
        if message["type"] == "control_request":
            self._answer(message)
        elif message["type"] == "user":
            self._turn(message)

    def _answer(self, message: dict[str, Any]) -> None:
        request = message["request"]
        answer: dict[str, Any] = {}
        if request["subtype"] == "initialize":
            for matcher in request.get("hooks", {}).get("PostToolBatch", ()):
                self._callback_id = matcher["hookCallbackIds"][0]
            answer = {"claude_code_version": VERSION, "hooks_applied": True, "hook_on_failure_supported": True}
        response = {"subtype": "success", "request_id": message["request_id"], "response": answer}
        write_all(encode({"type": "control_response", "response": response}))

    def _turn(self, message: dict[str, Any]) -> None:
        content = message["message"]["content"]
        prompt = content if isinstance(content, str) else "".join(block["text"] for block in content)
        uuid = message["uuid"]
        for state in ("queued", "started"):
            self._lifecycle(uuid, state)
        init = {"type": "system", "subtype": "init", "session_id": _SESSION, "model": MODEL}
        write_all(encode(init | {"claude_code_version": VERSION}))
        stopped = self.work(json.loads(prompt))
        result = {"type": "result", "subtype": "success", "is_error": False, "result": "done", "session_id": _SESSION}
        result |= {"terminal_reason": "hook_stopped" if stopped else "completed", "usage": {"input_tokens": 100}}
        write_all(encode(result))
        self._lifecycle(uuid, "completed")

    def _lifecycle(self, uuid: str, state: str) -> None:
        write_all(encode({"type": "command_lifecycle", "command_uuid": uuid, "state": state, "session_id": _SESSION}))

    def work(self, prompt: dict[str, Any]) -> bool:
        """Do what the prompt says; tells whether it was stopped."""
        if prompt["mode"] == "flood":
            report: dict[str, Any] = flood(prompt.get("count", 0), prompt["write"], prompt.get("while", ""))
        else:
            report = self._steps(prompt["count"], prompt["gap_ns"])
        with open(prompt["report"], "w", encoding="utf-8") as file:  # noqa: PTH123  pathlib slows the start
            json.dump(report, file)
        return bool(report.get("stopped"))

    def _steps(self, count: int, gap_ns: int) -> dict[str, Any]:
        waits: list[int] = []
        clock = time.perf_counter_ns
        gap = gap_ns / 1e9
        for number in range(count):
            call_id = f"toolu_{number:010d}"
            request_id = f"request-{number}"
            step = streamed_message(f"msg_{number}", call_id) + result_line(call_id)
            boundary = boundary_line(request_id, call_id, self._callback_id)
            if gap:
                write_all(step)
                select.select((), (), (), gap)
                begun = clock()
                os.write(1, boundary)
            else:
                begun = clock()
                os.write(1, step + boundary)
            answer = self._await(request_id)
            waits.append(clock() - begun)
            if b'"continue":false' in answer:
                return {"waits_ns": waits, "stopped": True}
            if gap:
                select.select((), (), (), gap)
        return {"waits_ns": waits}

    def _await(self, request_id: str) -> bytes:
        wanted = request_id.encode()
        while True:
            for line in self._stdin.read():
                if wanted in line:
                    return line
                self._take(json.loads(line))


def flood(count: int, write: str, while_there: str = "") -> dict[str, Any]:
    """Write `count` results of tools that were announced once, and more as long as a file `while_there` is there."""
    call_ids = [f"toolu_{number:010d}" for number in range(CALLS)]
    lines = [result_line(call_ids[number % CALLS]) for number in range(BLOCK_LINES)]
    block = b"".join(lines)
    chunks = [block[start : start + CHUNK_BYTES] for start in range(0, len(block), CHUNK_BYTES)]
    pieces = chunks if write == "chunk" else lines
    write_all(assistant_line("msg_0", call_ids))
    begun = time.monotonic_ns()
    for _ in range(count // BLOCK_LINES):
        for piece in pieces:
            write_all(piece)
    for line in lines[: count % BLOCK_LINES]:
        write_all(line)
    while while_there and os.path.exists(while_there):  # noqa: PTH110  pathlib slows the start
        for piece in pieces:
            write_all(piece)
        count += BLOCK_LINES
    ended = time.monotonic_ns()
    return {"begun_ns": begun, "ended_ns": ended, "line_bytes": len(block) // BLOCK_LINES, "count": count}


def main(arguments: list[str]) -> None:
    """Be an agent."""
    if "--version" in arguments:
        write_all(f"{VERSION} (Claude Code)\n".encode())
        return
    stdin = Lines()
    if arguments[:1] == ["--bare"]:
        stdin.read()
        Agent(stdin).work(json.loads(arguments[1]))
    else:
        Agent(stdin).serve()


if __name__ == "__main__":
    main(sys.argv[1:])
