"""Framing and dispatch: lines in, JSON-RPC 2.0 requests out of them, and the error answers of the CLI."""

import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
STARTUP_FAILED = -32010
NOT_AUTHENTICATED = -32011


class RpcError(Exception):
    """A request that is answered with an error."""

    def __init__(self, code: int, message: str, data: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data

    def answer(self, request_id: object) -> dict[str, Any]:
        """Shape the error as a response."""
        error: dict[str, Any] = {"code": self.code, "message": self.message}
        if self.data is not None:
            error["data"] = self.data
        return {"jsonrpc": "2.0", "error": error, "id": request_id}


class Effect:
    """What a request does beyond its answer: it happens when the answer is written.

    `urgent` ones come first among those that were read in one piece, whatever the order of the requests: of a decision
    and an abort in one write, the abort wins.
    """

    __slots__ = ("run", "urgent")

    def __init__(self, run: Callable[[], None], *, urgent: bool = False) -> None:
        self.run = run
        self.urgent = urgent


class Handled(NamedTuple):
    """The result of a method, with what is to happen after it is answered."""

    result: dict[str, Any]
    effect: Effect | None = None


Method = Callable[[dict[str, Any]], Handled]


class LineReader:
    """Cuts a byte stream into lines without a limit of length; CRLF and blank lines are fine."""

    def __init__(self) -> None:
        self._partial: list[bytes] = []

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Take a piece of the stream and give the lines that it completes."""
        *complete, rest = data.split(b"\n")
        for line in complete:
            if self._partial:
                self._partial.append(line)
                whole = b"".join(self._partial)
                self._partial.clear()
            else:
                whole = line
            if whole.strip():
                yield whole
        if rest:
            self._partial.append(rest)


def encode(message: object) -> bytes:
    """Encode a message as one line, as JavaScript does: text as it is, lone surrogates escaped."""
    try:
        return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
    except UnicodeEncodeError:
        return json.dumps(message, separators=(",", ":")).encode() + b"\n"


class Dispatcher:
    """Answers lines through a table of methods."""

    def __init__(self, methods: dict[str, Method]) -> None:
        self._methods = methods

    def handle(self, line: bytes) -> tuple[object | None, list[Effect]]:
        """Answer one line. The answer is `None` where none is due; the effects are for after it is written."""
        effects: list[Effect] = []
        try:
            message = json.loads(line)
        except ValueError:
            return RpcError(PARSE_ERROR, "Parse error: Invalid JSON").answer(None), effects
        if isinstance(message, list):
            return self._batch(message, effects), effects
        return self._one(message, effects), effects

    def _batch(self, members: list[Any], effects: list[Effect]) -> object | None:
        if not members:
            return _invalid().answer(None)
        valid = [member for member in members if _is_request(member)]
        answers = [answer for member in valid if (answer := self._one(member, effects)) is not None]
        return answers or None

    def _one(self, message: Any, effects: list[Effect]) -> dict[str, Any] | None:
        if not _is_request(message):
            return _invalid().answer(None)
        wants_answer = "id" in message
        try:
            handled = self._call(message["method"], message.get("params"))
        except RpcError as error:
            return error.answer(message["id"]) if wants_answer else None
        if handled.effect is not None:
            effects.append(handled.effect)
        return {"jsonrpc": "2.0", "result": handled.result, "id": message["id"]} if wants_answer else None

    def _call(self, name: str, params: Any) -> Handled:
        method = self._methods.get(name)
        if method is None:
            raise RpcError(METHOD_NOT_FOUND, f"Method not found: {name}")
        try:
            return method(params if isinstance(params, dict) else {})
        except (TypeError, ValueError, LookupError, AttributeError, OSError) as error:
            # Whatever a request throws is its answer, as in the CLI; the process goes on.
            raise RpcError(INTERNAL_ERROR, str(error)) from error


def _is_request(message: Any) -> bool:
    return isinstance(message, dict) and message.get("jsonrpc") == "2.0" and isinstance(message.get("method"), str)


def _invalid() -> RpcError:
    return RpcError(INVALID_REQUEST, "Invalid request: Missing jsonrpc version or method")
