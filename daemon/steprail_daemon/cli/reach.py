"""Whether something listens on an address, and why not."""

from __future__ import annotations

import os
import socket
import stat
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from typing import Final

import anyio
import anyio.abc

from steprail_daemon.config.values import MAX_SOCKET_PATH
from steprail_daemon.threads import run_apart

#: Seconds.
_CONNECT_LIMIT: Final = 10.0


class Kind(Enum):
    """What is in the way of a connection."""

    ABSENT = auto()
    LEFT_OVER = auto()
    FORBIDDEN = auto()
    NO_DIRECTORY = auto()
    NO_SOCKET = auto()
    TOO_LONG = auto()
    NO_ANSWER = auto()
    UNKNOWN_HOST = auto()
    REFUSED = auto()
    OTHER = auto()


@dataclass(frozen=True)
class Silence:
    """Why nothing answers, in words too, and whether a daemon could be started there."""

    kind: Kind
    why: str
    vacant: bool = False


async def why_silent(address: str) -> Silence | None:
    """Connect to an address of a form that is accepted; None if something listens there, whatever it is."""
    if address.startswith("unix:"):
        return await _socket(address.removeprefix("unix:").removeprefix("//"))
    host, _, port = address.rpartition(":")
    return await _tcp(host.strip("[]"), int(port))


async def listens(address: str) -> bool:
    """Whether something listens on an address."""
    return await why_silent(address) is None


async def _socket(path: str) -> Silence | None:
    if len(os.fsencode(path)) > MAX_SOCKET_PATH:
        return Silence(Kind.TOO_LONG, f"a socket's path has at most {MAX_SOCKET_PATH} bytes")
    try:
        # On a thread: to look for the path, and to wait where too many wait already, blocks even if told not to.
        with anyio.fail_after(_CONNECT_LIMIT):
            return await run_apart(partial(_open, path))
    except TimeoutError:
        return _no_answer()


def _open(path: str) -> Silence | None:
    try:
        with socket.socket(socket.AF_UNIX) as stream:
            stream.connect(path)
    except OSError as error:
        return why_not_open(path, error)
    return None


def _no_answer() -> Silence:
    return Silence(Kind.NO_ANSWER, f"there was no answer within {_CONNECT_LIMIT:g} s")


def why_not_open(path: str, error: OSError) -> Silence:
    """Tell the error of a connection to a socket; where that is not enough, by a look at the file."""
    if isinstance(error, ConnectionRefusedError) and _is_socket(path):
        return Silence(Kind.LEFT_OVER, "the socket is left over from one that ended", vacant=True)
    if isinstance(error, PermissionError):
        return Silence(Kind.FORBIDDEN, "this user may not open the socket, or not look into its directory")
    if isinstance(error, FileNotFoundError):
        return Silence(Kind.ABSENT, "there is no such socket", vacant=True)
    if isinstance(error, NotADirectoryError):
        return Silence(Kind.NO_DIRECTORY, "a part of the path is no directory")
    if isinstance(error, ConnectionRefusedError):
        return Silence(Kind.NO_SOCKET, "this is a file of another kind, not a socket")
    return Silence(Kind.OTHER, error.strerror or str(error))


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.stat(path).st_mode)  # noqa: PTH116 - beside the other calls with plain paths
    except OSError:
        return False


async def _tcp(host: str, port: int) -> Silence | None:
    try:
        with anyio.fail_after(_CONNECT_LIMIT):
            stream: anyio.abc.ByteStream = await anyio.connect_tcp(host, port)
    except TimeoutError:
        return _no_answer()
    except socket.gaierror:
        return Silence(Kind.UNKNOWN_HOST, "the name of the host is not known")
    except OSError as error:
        # anyio puts the errors of a host's addresses into a group, which is the cause of its own error.
        if _refused(error):
            return Silence(Kind.REFUSED, "the connection is refused", vacant=True)
        return Silence(Kind.OTHER, str(error), vacant=True)
    await stream.aclose()
    return None


def _refused(error: OSError) -> bool:
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ConnectionRefusedError):
        cause = cause.exceptions[0] if isinstance(cause, BaseExceptionGroup) else cause.__cause__
    return cause is not None
