"""Reads the lines that the Autohand CLI writes: each is one JSON-RPC 2.0 message, a notification or an answer."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import Raw

from steprail_daemon.drivers.autohand.wire import Notification
from steprail_daemon.drivers.framing import mended

_EMPTY_OBJECT: Final = Raw(b"{}")


class _Wire(msgspec.Struct, gc=False):
    pass


class _Params(msgspec.Struct, gc=False, rename="camel"):
    pass


class Consumed(_Wire):
    """A notification that says nothing beyond what others say, or nothing but that the process lives."""


class RpcError(_Wire):
    """Why a request was refused. Codes are shared by many causes; a busy process is told by the message alone."""

    code: int = 0
    message: str = ""


class Answer(_Wire):
    """The answer to a request; without an id it is about a line that was not understood, or about the start."""

    id: int | str | None
    result: Raw = _EMPTY_OBJECT
    error: RpcError | None = None


class Success(_Wire):
    """Most results: whether it was done."""

    success: bool = True


class Attached(_Params):
    """Result of `session.attach`."""

    success: bool = False
    session_id: str = ""
    message_count: int = 0


class SavedSession(_Params):
    """An entry of the history. Every start of a process adds one, `active` and without messages."""

    session_id: str
    message_count: int = 0
    status: str = ""


class History(_Wire):
    """Result of `getHistory`, the newest first."""

    sessions: list[SavedSession] = []


class UnknownLine(msgspec.Struct, frozen=True):
    """A line without a shape here. `method` is empty where it has none."""

    method: str


class UnreadableLine(msgspec.Struct, frozen=True):
    """A line that is no JSON, or one on which the protocol hangs and which has another shape than it must have."""

    problem: str
    is_json: bool


class _Head(_Wire):
    method: Any = ""


#: Notifications without which the protocol cannot go on; the others may be passed on unread.
_ESSENTIAL: Final = frozenset(
    f"autohand.{name}"
    for name in (
        "agentStart",
        "turnStart",
        "turnEnd",
        "stepEnd",
        "changesBatchStart",
        "permissionRequest",
        "directoryAccessRequest",
    )
)

_CONSUMED: Final = frozenset(
    f"autohand.{name}"
    for name in (
        "ping",
        "messageStart",
        "changesBatchUpdate",
        "hook.prePrompt",
        "hook.stop",
        "hook.postResponse",
        "hook.sessionStart",
        "hook.sessionEnd",
    )
)

_decode = msgspec.json.Decoder(Notification).decode
_decode_answer = msgspec.json.Decoder(Answer).decode
_decode_head = msgspec.json.Decoder(_Head).decode
decode_success = msgspec.json.Decoder(Success).decode
decode_attached = msgspec.json.Decoder(Attached).decode
decode_history = msgspec.json.Decoder(History).decode

Line = Notification | Answer | Consumed | UnknownLine | UnreadableLine


def read_line(line: bytes) -> Line:
    """Read one line, strictly first, and if that fails as `mended` gives it."""
    try:
        return _decode(line)
    except msgspec.ValidationError as error:
        return _read_other(line, error)
    except (msgspec.DecodeError, RecursionError) as error:
        whole = mended(line)
        if whole is None:
            return UnreadableLine(f"a line that is no JSON: {error}", is_json=False)
    try:
        return _decode(whole)
    except msgspec.ValidationError as error:
        return _read_other(whole, error)


def _read_other(line: bytes, error: msgspec.ValidationError) -> Line:
    # The typed decoder stopped where the shape was odd; the rest of the line is read for the first time here.
    try:
        method = _decode_head(line).method
    except (msgspec.DecodeError, RecursionError):
        whole = mended(line)
        if whole is None:
            return UnreadableLine(f"a line that is no JSON: {error}", is_json=False)
        return read_line(whole) if whole != line else UnknownLine("")
    if not method:
        return _read_answer(line)
    if method in _CONSUMED:
        return Consumed()
    if method in _ESSENTIAL:
        return UnreadableLine(f"a notification {method} of an unknown shape: {error}", is_json=True)
    return UnknownLine(method if isinstance(method, str) else "")


def _read_answer(line: bytes) -> Line:
    try:
        return _decode_answer(line)
    except msgspec.ValidationError:
        return UnknownLine("")
