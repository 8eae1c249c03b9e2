"""Where the daemon listens, and whether one answers."""

from __future__ import annotations

import os
import socket
import stat
from importlib.metadata import version
from pathlib import Path
from typing import Final

import anyio

from steprail_daemon.cli.doctor.findings import (
    Case,
    Check,
    Finding,
    Tell,
    nearest,
    note,
    ok,
    problem,
    warning,
    why_not_writable,
)
from steprail_daemon.cli.problems import Problem, Unanswered
from steprail_daemon.cli.reach import listens

_ABOUT: Final = "daemon"
#: Seconds within which a daemon has to answer.
_ANSWER_LIMIT: Final = 15.0


async def addresses(case: Case, tell: Tell) -> None:
    """Whether each address of the configuration is served, or could be."""
    for address in case.loaded.config.server.listen:
        about = f"listen {address}"
        if address.startswith("unix:"):
            tell(await _socket(about, address))
        elif await listens(address):
            tell(ok(about, "something listens there"))
        else:
            tell(_port(about, address))


async def _socket(about: str, address: str) -> Finding:
    unlike = _unlike_a_socket(about, Path(address.removeprefix("unix:").removeprefix("//")))
    if unlike is not None:
        return unlike
    if await listens(address):
        return ok(about, "something listens there")
    return ok(about, "a daemon that is dead left its socket, which the next start removes")


def _unlike_a_socket(about: str, path: Path) -> Finding | None:
    """Judge what is at a path; None if it is a socket that can be opened."""
    try:
        mode = path.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return _place(about, path.parent)
    except OSError as error:
        return problem(about, f"it cannot be looked at: {error.strerror}", "run this as the user of the daemon")
    if not stat.S_ISSOCK(mode):
        return problem(about, "a file is there that is no socket", "remove it, or change server.listen")
    if not os.access(path, os.W_OK):
        return problem(about, "this user may not open the socket", "run this as the user of the daemon")
    return None


def _place(about: str, directory: Path) -> Finding:
    """Judge whether a socket could be made in a directory, which need not exist."""
    place = nearest(directory)
    why_not = why_not_writable(place)
    if not why_not:
        return ok(about, "nothing listens there, the socket can be made")
    advice = "run this as the user of the daemon, or change server.listen"
    return problem(about, f"the socket cannot be made, as {place} cannot be written: {why_not}", advice)


def _port(about: str, address: str) -> Finding:
    host, _, port = address.rpartition(":")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host.strip("[]"), int(port)))
    except OSError as error:
        text = f"nothing listens there, and nothing can: {error.strerror}"
        return problem(about, text, "change server.listen to an address of this machine that the daemon may use")
    return ok(about, "nothing listens there, the port is free")


async def answer(case: Case, tell: Tell) -> None:
    """Whether a daemon answers where commands would look for one, and of which version it is."""
    server: dict[str, object] = {}
    try:
        with anyio.fail_after(_ANSWER_LIMIT):
            async with case.connect(case.address) as daemon:
                server = await daemon.server_info()
    except Unanswered as error:
        tell(_unanswered(case, error))
        return
    except (Problem, TimeoutError) as error:
        text = error.message if isinstance(error, Problem) else f"no answer came within {_ANSWER_LIMIT:.0f} s"
        advice = "see the daemon's log, and $STEPRAIL_TOKEN_FILE and $STEPRAIL_TLS_ROOTS if the address is TCP"
        tell(problem(_ABOUT, f"{case.address} does not answer as it should: {text}", advice))
        return
    case.server = server
    ours, theirs = version("steprail-daemon"), str(server.get("version", ""))
    if ours == theirs:
        tell(ok(_ABOUT, f"a daemon answers on {case.address}, version {theirs} as this program"))
    else:
        text = f"the daemon on {case.address} is version {theirs or 'unknown'}, this program is {ours}"
        tell(warning(_ABOUT, text, "restart the daemon if it was updated, or use the command line of its version"))


def _unanswered(case: Case, error: Unanswered) -> Finding:
    if case.address_named:
        return problem(_ABOUT, error.message.partition(";")[0], "start a daemon there, or name another address")
    advice = "start one with `steprail serve`; `run` and `continue` start one for themselves"
    return note(_ABOUT, f"no daemon listens on {case.address}", advice)


def draining(case: Case, tell: Tell) -> None:
    """Whether it is going down."""
    if case.server is not None and case.server.get("draining"):
        tell(warning(_ABOUT, "it is draining and takes no new runs", "wait for its end, then start it again"))


CHECKS: Final[tuple[Check, ...]] = (addresses, answer, draining)
