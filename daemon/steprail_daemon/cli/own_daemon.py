"""A daemon for the length of one command, where none listens: started, waited for, and drained at the end.

It uses the default state directory, so that the run is there for `continue`, and it drains by itself if we are killed.
Only one daemon can use that directory. So commands start theirs one after the other, and wait for one that is on its
way out; who only looks has its daemon to itself, at a socket of its own, so that nobody joins what is gone in a moment.
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import IO, NamedTuple

import anyio
import click

from steprail_daemon.cli.problems import ConfigProblem, Problem
from steprail_daemon.cli.reach import why_silent
from steprail_daemon.cli.serving import end, start_serve, wait_until_it_listens
from steprail_daemon.cli.state_lock import lock_holder
from steprail_daemon.config.load import LoadedConfig
from steprail_daemon.config.values import MAX_SOCKET_PATH

#: Seconds to wait for daemons of other commands to come up, or to go.
_TURN_LIMIT = 90.0
_BETWEEN_LOOKS = 0.05
_BEYOND_GRACE = 10.0
_SECOND_NS = 1_000_000_000


class OwnDaemon(NamedTuple):
    """Where the daemon listens, and what to call once nothing is left to do but to end it.

    From then on Ctrl-C only hurries that.
    """

    address: str
    done: Callable[[], object]


@asynccontextmanager
async def daemon_for_a_command(
    address: str, loaded: LoadedConfig, extra: Sequence[str], *, looks: bool
) -> AsyncIterator[OwnDaemon]:
    """See that a daemon listens on the configuration's address; start one, and end it afterwards, if none does.

    `extra` are further arguments of `serve`. `looks`: nothing is started on it, so that nobody needs to find it.

    Raises:
        Problem: it does not start; with what it said.
    """
    if not await _silent(address):
        yield OwnDaemon(address, lambda: None)
        return
    directory = loaded.state_directory
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        starter = (directory / "own-daemon.lock").open("a+")
    except OSError as error:
        raise ConfigProblem(f"the state directory {directory} cannot be used: {error}") from None
    with starter:
        if not await _our_turn(address, directory, starter):
            starter.close()
            yield OwnDaemon(address, lambda: None)
            return
        click.echo(click.style("no daemon listens; one is started for the length of this command", dim=True), err=True)
        found = _own_socket(directory, address) if looks else address
        log = directory / "own-daemon.log"
        process = _start(loaded, log, extra if found == address else [*extra, "--listen", found])
        try:
            starter.truncate(0)
            starter.write(str(process.pid))
            starter.flush()
            await wait_until_it_listens(found, process, log)
            starter.close()
            yield OwnDaemon(found, partial(signal.signal, signal.SIGINT, signal.SIG_IGN))
        finally:
            # The receiver leaves the signal as it is by default, whatever it was before.
            with anyio.CancelScope(shield=True), anyio.open_signal_receiver(signal.SIGINT) as presses:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(_hurry, presses, process)
                    await end(process, loaded.config.drain.grace_ns / _SECOND_NS + _BEYOND_GRACE)
                    tasks.cancel_scope.cancel()


async def _silent(address: str) -> bool:
    """Whether no daemon listens on an address, where one could be started."""
    silence = await why_silent(address)
    if silence is not None and not silence.vacant:
        raise Problem(f"no daemon listens on {address}, and none can be started there: {silence.why}")
    return silence is not None


async def _our_turn(address: str, directory: Path, starter: IO[str]) -> bool:
    """Wait until a daemon listens, or until one can be started by us alone; whether it is the latter.

    Raises:
        Problem: none can be started.
    """
    with anyio.move_on_after(_TURN_LIMIT):
        while True:
            if not await _silent(address):
                return False
            if _taken(starter):
                holder = lock_holder(directory / "lock")
                starter.seek(0)
                if not holder or holder != starter.read().strip():
                    # Nobody, or a daemon that stays: `serve` says which, and what to do.
                    return True
                fcntl.flock(starter, fcntl.LOCK_UN)
            # Another command starts or ends its daemon, which nothing tells us.
            await anyio.sleep(_BETWEEN_LOOKS)
    raise Problem(f"daemons of other commands used the state directory {directory} for {_TURN_LIMIT:.0f} s")


def _taken(starter: IO[str]) -> bool:
    """Take the right to start a daemon, if nobody has it."""
    try:
        fcntl.flock(starter, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _own_socket(directory: Path, address: str) -> str:
    """Give a socket that nobody else looks for, or the usual one where its path would be too long."""
    path = directory / f"own-{os.getpid()}.sock"
    return f"unix:{path}" if len(os.fsencode(path)) <= MAX_SOCKET_PATH else address


def _start(loaded: LoadedConfig, log: Path, extra: Sequence[str]) -> subprocess.Popen[bytes]:
    arguments = ["--state-dir", str(loaded.state_directory)]
    arguments += ["--config", str(loaded.path)] if loaded.path is not None else []
    # Nobody scrapes what is gone in a moment, and a daemon that stays may want the port.
    arguments += ["--set", "server.http="]
    try:
        return start_serve([*arguments, *extra], log)
    except OSError as error:
        raise ConfigProblem(f"the state directory {loaded.state_directory} cannot be used: {error}") from None


async def _hurry(presses: AsyncIterator[signal.Signals], process: subprocess.Popen[bytes]) -> None:
    """Pass Ctrl-C on to a daemon that drains: asked again, it waits for nothing. What the command has come to stays."""
    async for _ in presses:
        process.terminate()
