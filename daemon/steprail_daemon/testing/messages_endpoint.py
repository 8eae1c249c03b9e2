"""A scripted Messages API on loopback, so that a real Claude Code works without an account and costs nothing.

In a test, with `ANTHROPIC_BASE_URL` set to the endpoint's address and any `ANTHROPIC_API_KEY`:

    with MessagesEndpoint(Script([Step(tools=(Tool("Bash", {"command": "ls"}),)), Step(text="Done.")])) as endpoint:
        ...
        endpoint.wait_main(2, timeout=10)

As a program: `python -m steprail_daemon.testing.messages_endpoint --script demo --port-file FILE` prints `{"port": N}`
on one line and serves until it is ended. `GET /_steprail/requests` gives the requests so far as JSON, with their bodies
if `?bodies=1` is added.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
import threading
import time
import types
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, Literal

from steprail_daemon.cli.owner import die_with

RequestKind = Literal["main", "aside", "side", "other"]

_RATE_LIMITED: Final = {"type": "error", "error": {"type": "rate_limit_error", "message": "slow down"}}


@dataclass(frozen=True)
class Tool:
    """A tool that the model calls. The id is made up unless given."""

    name: str
    arguments: Mapping[str, Any]
    call_id: str = ""


@dataclass(frozen=True)
class Step:
    """What the model does with one request.

    Delays are in seconds: before the answer, and between two events of the stream. `usage` lays itself over 100 input
    tokens and nothing cached; `output_tokens` is the sum at the message's end. With `status` the answer is that HTTP
    error and `error` its body. With `cut_after` the connection breaks after so many events.
    """

    text: str = ""
    thinking: str = ""
    tools: tuple[Tool, ...] = ()
    stop_reason: str = ""
    usage: Mapping[str, int] = field(default_factory=dict)
    output_tokens: int = 20
    start_delay: float = 0.0
    event_delay: float = 0.0
    status: int = 0
    error: Mapping[str, Any] = field(default_factory=lambda: _RATE_LIMITED)
    headers: Mapping[str, str] = field(default_factory=dict)
    cut_after: int | None = None


#: A step, or a function of the request's body that gives it: for what only the request tells, such as a path.
Reply = Step | Callable[[dict[str, Any]], Step]


@dataclass(frozen=True)
class Script:
    """The model's steps in order; `then` is what it does once they are used up.

    `aside` is asked first about each request and may answer it without using up a step, which tells the requests of
    sub-agents that work at the same time from those of the main loop.
    """

    steps: Sequence[Reply]
    then: Step = Step(text="Nothing is left to do.")
    aside: Callable[[dict[str, Any]], Step | None] = lambda _body: None

    def step(self, number: int, body: dict[str, Any]) -> Step:
        """Give the step of the `number`-th request that takes one, counted from 0."""
        if number >= len(self.steps):
            return self.then
        reply = self.steps[number]
        return reply if isinstance(reply, Step) else reply(body)


def _bash(command: str, description: str) -> Tool:
    return Tool("Bash", {"command": command, "description": description})


#: Scripts that the program knows by name.
SCRIPTS: Final[Mapping[str, Script]] = {
    "demo": Script(
        [
            Step(text="I look at what is here.", tools=(_bash("ls -la", "List the directory"),), event_delay=0.05),
            Step(
                text="I write a note.",
                tools=(_bash("echo 'written by a scripted model' > note.txt", "Write a note"),),
                event_delay=0.05,
            ),
            Step(text="I read it back.", tools=(_bash("cat note.txt", "Read the note"),), event_delay=0.05),
            Step(text="The note says what it should.", event_delay=0.05),
        ]
    ),
}


@dataclass
class Request:
    """One request as it was received. Times are Unix nanoseconds.

    `kind` is main for a streamed one that offers tools (of the main loop, or of a sub-agent) and took a step of the
    script, aside if the script answered it aside, side for other requests to the model, other for the rest. `ended_at`
    is None while the answer is not sent; `cut` says that the client went away before it was.
    """

    number: int
    kind: RequestKind
    path: str
    at: int
    body: dict[str, Any]
    ended_at: int | None = None
    cut: bool = False

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The conversation so far."""
        messages = self.body.get("messages")
        return messages if isinstance(messages, list) else []

    def blocks(self, kind: str) -> list[dict[str, Any]]:
        """Give the content blocks of one kind in the conversation, such as `tool_result`."""
        contents = (message["content"] for message in self.messages)
        return [
            block for content in contents if isinstance(content, list) for block in content if block["type"] == kind
        ]


class MessagesEndpoint:
    """Serves a script on a port of loopback that the system chooses, between `with` and its end."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._changed = threading.Condition()
        self._requests: list[Request] = []
        self._closing = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Handler, self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="messages-endpoint", daemon=True)

    @property
    def port(self) -> int:
        """The port."""
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        """What `ANTHROPIC_BASE_URL` must be."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def requests(self) -> list[Request]:
        """All requests so far."""
        with self._changed:
            return list(self._requests)

    def main_requests(self) -> list[Request]:
        """The requests so far that took a step of the script."""
        return [request for request in self.requests if request.kind == "main"]

    def wait_main(self, count: int, timeout: float) -> Request:
        """Wait until `count` main requests came, and give the last of them.

        Raises:
            TimeoutError: fewer came within `timeout` seconds.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: len(self._main()) >= count, timeout):
                raise TimeoutError(f"{len(self._main())} main requests came within {timeout} s, not {count}")
            return self._main()[count - 1]

    def wait_ended(self, request: Request, timeout: float) -> None:
        """Wait until a request's answer was sent or its client was gone.

        Raises:
            TimeoutError: neither happened within `timeout` seconds.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: request.ended_at is not None, timeout):
                raise TimeoutError(f"request {request.number} was not ended within {timeout} s")

    def serve_forever(self) -> None:
        """Serve in this thread, for the program."""
        self._server.serve_forever()

    def __enter__(self) -> MessagesEndpoint:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        self._closing.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _main(self) -> list[Request]:
        return [request for request in self._requests if request.kind == "main"]

    def receive(self, path: str, body: dict[str, Any]) -> tuple[Request, Step | None]:
        """Record a request, and give the script's step if it takes one."""
        with self._changed:
            kind = _kind(path, body)
            step = self._script.aside(body) if kind == "main" else None
            if step is not None:
                kind = "aside"
            elif kind == "main":
                step = self._script.step(len(self._main()), body)
            request = Request(len(self._requests) + 1, kind, path, time.time_ns(), body)
            self._requests.append(request)
            self._changed.notify_all()
        return request, step

    def end(self, request: Request, *, cut: bool) -> None:
        """Record that a request's answer was sent, or that the client did not wait for it."""
        with self._changed:
            request.ended_at = time.time_ns()
            request.cut = cut
            self._changed.notify_all()

    def pause(self, seconds: float) -> None:
        """Let time pass in a script; closing ends it early."""
        if seconds:
            self._closing.wait(seconds)


def _kind(path: str, body: dict[str, Any]) -> RequestKind:
    if not path.startswith("/v1/messages") or "count_tokens" in path:
        return "other"
    return "main" if body.get("stream") and body.get("tools") else "side"


def message_events(step: Step, model: str, message_id: str) -> list[dict[str, Any]]:
    """Give the stream's events of one message."""
    usage = {"input_tokens": 100, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 1}
    message: dict[str, Any] = {
        "id": message_id,
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage | dict(step.usage),
    }
    events: list[dict[str, Any]] = [{"type": "message_start", "message": message}]
    for index, (block, deltas) in enumerate(_blocks(step, message_id)):
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events += ({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas)
        events.append({"type": "content_block_stop", "index": index})
    stop_reason = step.stop_reason or ("tool_use" if step.tools else "end_turn")
    events.append(
        {
            "type": "message_delta",
            "delta": {"stop_reason": stop_reason, "stop_sequence": None},
            "usage": {"output_tokens": step.output_tokens},
        }
    )
    events.append({"type": "message_stop"})
    return events


def _blocks(step: Step, message_id: str) -> list[tuple[dict[str, Any], list[dict[str, Any]]]]:
    blocks: list[tuple[dict[str, Any], list[dict[str, Any]]]] = []
    if step.thinking:
        thinking = [{"type": "thinking_delta", "thinking": part} for part in _parts(step.thinking)]
        signature = {"type": "signature_delta", "signature": "c2NyaXB0ZWQ="}
        blocks.append(({"type": "thinking", "thinking": "", "signature": ""}, [*thinking, signature]))
    if step.text:
        text = [{"type": "text_delta", "text": part} for part in _parts(step.text)]
        blocks.append(({"type": "text", "text": ""}, text))
    for number, tool in enumerate(step.tools):
        call_id = tool.call_id or f"toolu_{message_id.removeprefix('msg_')}_{number}"
        block = {"type": "tool_use", "id": call_id, "name": tool.name, "input": {}}
        blocks.append((block, [{"type": "input_json_delta", "partial_json": json.dumps(dict(tool.arguments))}]))
    return blocks


def _parts(text: str) -> list[str]:
    words = text.split(" ")
    return [word + " " for word in words[:-1]] + words[-1:]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __init__(self, endpoint: MessagesEndpoint, *connection: Any) -> None:
        # The base class serves the whole connection within its constructor.
        self._endpoint = endpoint
        super().__init__(*connection)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is the base class's
        del format, args

    def do_HEAD(self) -> None:
        self._send(200, None)

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        if path == "/_steprail/requests":
            self._send(200, [_shown(request, bodies="bodies=1" in query) for request in self._endpoint.requests])
            return
        request, _ = self._endpoint.receive(self.path, {})
        self._send(404, {"type": "error", "error": {"type": "not_found_error", "message": self.path}})
        self._endpoint.end(request, cut=False)

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers.get("content-length") or 0))
        try:
            body = json.loads(data)
        except ValueError:
            self._send(400, {"type": "error", "error": {"type": "invalid_request_error", "message": "no JSON"}})
            return
        request, step = self._endpoint.receive(self.path, body)
        try:
            self._answer(request, step)
        except ConnectionError:
            self.close_connection = True
            self._endpoint.end(request, cut=True)
        else:
            self._endpoint.end(request, cut=False)

    def _answer(self, request: Request, step: Step | None) -> None:
        if request.kind == "other":
            self._send(200, {"input_tokens": 10})
            return
        if step is None:
            step = Step(text="ok")
        self._endpoint.pause(step.start_delay)
        if step.status:
            self._send(step.status, dict(step.error), step.headers)
        elif request.body.get("stream"):
            self._stream(request, step)
        else:
            self._send(200, _whole(step, request.body))

    def _send(self, status: int, content: object, headers: Mapping[str, str] | None = None) -> None:
        data = b"" if content is None else json.dumps(content).encode()
        self.send_response(status)
        for name, value in {"content-type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, request: Request, step: Step) -> None:
        self.send_response(200)
        for name, value in {"content-type": "text/event-stream", **step.headers}.items():
            self.send_header(name, value)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        message_id = f"msg_{uuid.uuid4().hex[:12]}"
        for number, event in enumerate(message_events(step, str(request.body.get("model")), message_id)):
            if number == step.cut_after:
                self.close_connection = True
                return
            data = f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()
            self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
            self.wfile.flush()
            self._endpoint.pause(step.event_delay)
        self.wfile.write(b"0\r\n\r\n")


def _whole(step: Step, body: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": "msg_side",
        "type": "message",
        "role": "assistant",
        "model": body.get("model"),
        "content": [{"type": "text", "text": step.text}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }


def _shown(request: Request, *, bodies: bool) -> dict[str, Any]:
    shown = asdict(request)
    if not bodies:
        del shown["body"]
        shown["model"] = request.body.get("model")
        shown["message_count"] = len(request.messages)
    return shown


def main(arguments: Sequence[str] | None = None, write: Callable[[str], object] = sys.stdout.write) -> None:
    """Serve one of `SCRIPTS` until the process is ended."""
    parser = argparse.ArgumentParser(prog="messages_endpoint", description="A scripted Messages API on 127.0.0.1.")
    parser.add_argument("--script", choices=sorted(SCRIPTS), default="demo", help="what the model does")
    parser.add_argument("--port-file", type=Path, help="file to write the port to, once it is served")
    parser.add_argument("--owner", type=int, help="end when the process with this id, our parent, is gone")
    options = parser.parse_args(arguments)
    if options.owner is not None:
        die_with(options.owner)
    endpoint = MessagesEndpoint(SCRIPTS[options.script])
    line = json.dumps({"port": endpoint.port}) + "\n"
    if options.port_file is not None:
        part = options.port_file.with_name(options.port_file.name + ".part")
        part.write_text(line)
        part.replace(options.port_file)
    write(line)
    sys.stdout.flush()
    endpoint.serve_forever()


if __name__ == "__main__":
    main()
