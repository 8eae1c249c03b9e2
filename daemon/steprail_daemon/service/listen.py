"""Addresses to listen on: whose a Unix socket is, who may connect, and what TCP needs."""

from __future__ import annotations

import errno
import os
import re
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from steprail_daemon.config.values import MAX_SOCKET_PATH, is_loopback

UNIX: Final = "unix:"
_TCP: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([0-9.]+|localhost)):(\d{1,5})")


class CannotListen(OSError):
    """An address cannot be served. Its text is the sentence alone; `errno` is the kernel's number."""

    def __str__(self) -> str:
        """Give the sentence."""
        return str(self.strerror)


def socket_path(address: str) -> Path:
    """Give the path of the socket of a `unix:` address.

    Raises:
        CannotListen: the address is none that is served.
    """
    name = address.removeprefix(UNIX)
    path = Path(name.removeprefix("//") if name.startswith("///") else name)
    if not path.is_absolute():
        raise CannotListen(
            errno.EINVAL, f"cannot listen on {address!r}: the path must be absolute, as in unix:/run/x.sock"
        )
    if len(os.fsencode(path)) > MAX_SOCKET_PATH:
        raise CannotListen(
            errno.ENAMETOOLONG, f"cannot listen on {address!r}: a socket's path has at most {MAX_SOCKET_PATH} bytes"
        )
    return path


def check_tcp(address: str, *, provable: bool, encrypted: bool) -> None:
    """See that an address of TCP is open to nobody who cannot prove who they are, and not readable on the way.

    The configuration is held to the same; this is the door itself. Port 0 is any free one.

    Raises:
        CannotListen: it is no address of TCP, `provable` is missing, or `encrypted` is and it is beyond loopback.
    """
    loopback = _is_loopback(address)
    if loopback is None:
        raise CannotListen(
            errno.EPROTONOSUPPORT,
            f"cannot listen on {address!r}: accepted are unix:/path, and an IP address or localhost with a port",
        )
    if not provable:
        raise CannotListen(
            errno.EPERM, f"cannot listen on {address!r}: TCP needs identities with a token or a client certificate"
        )
    if not encrypted and not loopback:
        raise CannotListen(
            errno.EPERM, f"cannot listen on {address!r}: beyond loopback TCP needs TLS, and server.tls is not set"
        )


def _is_loopback(address: str) -> bool | None:
    """Whether only this machine reaches an address of TCP; None if it is none."""
    match = _TCP.fullmatch(address)
    if match is None:
        return None
    try:
        return is_loopback(match[1] or match[2])
    except ValueError:
        return None


def make_room(path: Path) -> None:
    """Make the directory, open to its owner alone, and remove the socket of a daemon that is dead.

    Raises:
        CannotListen: somebody listens there, something else is there, or the directory cannot be made.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        problem = f"cannot listen on {path}: {path.parent} cannot be made: {error.strerror}"
        raise CannotListen(error.errno or errno.EIO, problem) from error
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise CannotListen(errno.EEXIST, f"cannot listen on {path}: a file is there that is no socket; remove it")
    if _answers(path):
        raise CannotListen(errno.EADDRINUSE, f"cannot listen on {path}: another daemon serves there; stop it first")
    path.unlink()


def _answers(path: Path) -> bool:
    """Whether somebody listens. Only a refused connection proves that nobody does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(os.fspath(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except BlockingIOError:
            # Its queue is full, so that somebody has opened one.
            return True
    return True


@contextmanager
def owner_only() -> Iterator[None]:
    """Make files that are created meanwhile accessible to their owner alone.

    The mode of a socket comes from the process's umask; to change it afterwards would leave it open for a moment.
    """
    before = os.umask(0o177)
    try:
        yield
    finally:
        os.umask(before)
