"""Packets of the control socket: one JSON object each, checked when they arrive. The package docstring is their law."""

from __future__ import annotations

import json

MAX_PACKET = 1 << 20
"""Bytes of the largest packet, on both ends; more than a usual command line with its environment."""

MARK = "STEPRAIL_PROCESS"
"""Environment variable that ties a process to the CLI it descends from."""

CONTROL_OPTION = "--control-fd"
"""What the worker's command line names its end of the control socket by, and what tells a worker from a CLI."""

SCOPES = ("process", "group", "tree")

_LAST_SIGNAL = 64


class Malformed(Exception):
    """A packet that breaks the law. `request_id` is set where a `spawn` was recognised, so that it can be answered."""

    def __init__(self, message: str, request_id: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.request_id = request_id


class PacketTooLarge(Exception):
    """A packet that the control socket cannot carry. Nothing of it was sent."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"packet has {size} bytes, the control socket carries at most {limit}")
        self.size = size
        self.limit = limit


class SpawnRequest:
    """A CLI to start; every field checked."""

    __slots__ = ("argv", "cwd", "env", "id")

    def __init__(self, request_id: int, argv: list[str], env: dict[str, str], cwd: str) -> None:
        self.id = request_id
        self.argv = argv
        self.env = env
        self.cwd = cwd


class CloseRequest:
    """Close the parent's duplicate of a CLI's stdin."""

    __slots__ = ("id",)

    def __init__(self, request_id: int) -> None:
        self.id = request_id


class SignalRequest:
    """Send a signal to a CLI, its group or its tree."""

    __slots__ = ("id", "scope", "signal")

    def __init__(self, request_id: int, signum: int, scope: str) -> None:
        self.id = request_id
        self.signal = signum
        self.scope = scope


def encode(message: dict[str, object]) -> bytes:
    """Give the packet of `message`.

    Raises:
        PacketTooLarge: it has more than `MAX_PACKET` bytes.
    """
    packet = json.dumps(message, separators=(",", ":")).encode("ascii")
    if len(packet) > MAX_PACKET:
        raise PacketTooLarge(len(packet), MAX_PACKET)
    return packet


def decode(packet: bytes) -> dict[str, object]:
    """Give the object of a packet.

    Raises:
        Malformed: it is no JSON object.
    """
    try:
        message = json.loads(packet)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"packet is not JSON: {error}") from error
    if not isinstance(message, dict):
        raise Malformed(f"packet is a JSON {type(message).__name__}, expected an object")
    return message


def read_request(packet: bytes) -> SpawnRequest | CloseRequest | SignalRequest:
    """Read what the worker asks.

    Raises:
        Malformed: the packet is none of the three requests, or a field of it is wrong.
    """
    message = decode(packet)
    kind = message.get("type")
    request_id = message.get("id")
    if not _is_whole(request_id) or not 0 <= request_id < 1 << 63:
        raise Malformed(f"id is {request_id!r}, expected an integer from 0 to 2^63 - 1")
    if kind == "spawn":
        return _read_spawn(message, request_id)
    if kind == "close_stdin":
        return CloseRequest(request_id)
    if kind == "signal":
        return _read_signal(message, request_id)
    raise Malformed(f"type is {kind!r}, expected 'spawn', 'close_stdin' or 'signal'")


def _read_spawn(message: dict[str, object], request_id: int) -> SpawnRequest:
    argv, env, cwd = message.get("argv"), message.get("env"), message.get("cwd")
    if not isinstance(argv, list) or not argv or not all(_is_text(item) for item in argv) or not argv[0]:
        raise Malformed("argv is wrong, expected a list of strings without NUL, the first not empty", request_id)
    if not isinstance(env, dict) or not all(_is_text(item) for pair in env.items() for item in pair):
        raise Malformed("env is wrong, expected an object of strings without NUL", request_id)
    odd = next((name for name in env if not name or "=" in name), None)
    if odd is not None:
        raise Malformed(f"env has the name {odd!r}, expected a name that is not empty and has no '='", request_id)
    if not isinstance(cwd, str) or not _is_text(cwd) or not cwd.startswith("/"):
        raise Malformed(f"cwd is {cwd!r}, expected an absolute path", request_id)
    return SpawnRequest(request_id, argv, env, cwd)


def _read_signal(message: dict[str, object], request_id: int) -> SignalRequest:
    signum, scope = message.get("signal"), message.get("scope")
    if not _is_whole(signum) or not 1 <= signum <= _LAST_SIGNAL:
        raise Malformed(f"signal is {signum!r}, expected a number from 1 to {_LAST_SIGNAL}")
    if scope not in SCOPES or not isinstance(scope, str):
        raise Malformed(f"scope is {scope!r}, expected one of {', '.join(SCOPES)}")
    return SignalRequest(request_id, signum, scope)


TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeGuard


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_text(value: object) -> bool:
    if not isinstance(value, str) or "\0" in value:
        return False
    try:
        value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return True
