"""Where the daemon listens, and whether one answers."""

from __future__ import annotations

import socket
from functools import partial
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
from steprail_daemon.cli.doctor.looks import found_in_time
from steprail_daemon.cli.problems import NobodyListens, Problem
from steprail_daemon.cli.reach import Kind, Silence, why_silent

_ABOUT: Final = "daemon"
#: Seconds within which a daemon has to answer.
_ANSWER_LIMIT: Final = 15.0


async def addresses(case: Case, tell: Tell) -> None:
    """Whether each address of the configuration is served, or could be."""
    for address in case.loaded.config.server.listen:
        about = f"listen {address}"
        silence = await why_silent(address)
        if silence is None:
            tell(ok(about, "something listens there"))
        elif address.startswith("unix:"):
            tell(await _socket(about, Path(address.removeprefix("unix:")), silence))
        else:
            tell(await found_in_time(about, partial(_port, about, address)))


async def _socket(about: str, path: Path, silence: Silence) -> Finding:
    match silence.kind:
        case Kind.ABSENT | Kind.NO_DIRECTORY:
            return await found_in_time(about, partial(_place, about, path.parent))
        case Kind.LEFT_OVER:
            return ok(about, "a daemon that is dead left its socket, which the next start removes")
        case Kind.FORBIDDEN:
            advice = "run this as the user of the daemon"
        case Kind.NO_SOCKET:
            advice = "remove it, or change server.listen"
        case Kind.NO_ANSWER:
            advice = "see what listens there, and whether the file system of the socket answers"
        case _:
            advice = "change server.listen"
    return problem(about, silence.why, advice)


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
    """Whether a daemon answers where commands would look for one, and of which version it is.

    It writes `case.server`, for the checks after it.
    """
    server: dict[str, object] = {}
    try:
        with anyio.fail_after(_ANSWER_LIMIT):
            async with case.connect(case.address) as daemon:
                server = await daemon.server_info()
    except NobodyListens as error:
        tell(_nobody(case, error))
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


def _nobody(case: Case, error: NobodyListens) -> Finding:
    if case.address_named:
        text = f"no daemon listens on {error.address}: {error.why}"
        return problem(_ABOUT, text, "start a daemon there, or name another address")
    advice = "start one with `steprail serve`; `run` and `continue` start one for themselves"
    return note(_ABOUT, f"no daemon listens on {error.address}", advice)


def draining(case: Case, tell: Tell) -> None:
    """Whether it is going down."""
    if case.server is not None and case.server.get("draining"):
        tell(warning(_ABOUT, "it is draining and takes no new runs", "wait for its end, then start it again"))


CHECKS: Final[tuple[Check, ...]] = (addresses, answer, draining)
