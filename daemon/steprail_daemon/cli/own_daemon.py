"""A daemon for the length of one command, where none listens: started, waited for, and drained at the end.

It uses the default state directory, so that the run is there for `continue`, and it drains by itself if we are killed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import click

from steprail_daemon.cli.problems import ConfigProblem, Problem
from steprail_daemon.cli.reach import why_silent
from steprail_daemon.config.load import LoadedConfig

_START_LIMIT = 60.0
_BEYOND_GRACE = 10.0
_BETWEEN_TRIES = 0.05
_SECOND_NS = 1_000_000_000


@asynccontextmanager
async def daemon_for_a_run(
    address: str, loaded: LoadedConfig, extra: Sequence[str]
) -> AsyncIterator[Callable[[], object]]:
    """See that a daemon listens on the configuration's address; start one, and end it afterwards, if none does.

    `extra` are further arguments of `serve`. Gives what is to be called once nothing is left to do but to end it: from
    then on Ctrl-C only hurries that.

    Raises:
        Problem: it does not start; with what it said.
    """
    silence = await why_silent(address)
    if silence is None:
        yield lambda: None
        return
    if not silence.vacant:
        raise Problem(f"no daemon listens on {address}, and none can be started there: {silence.why}")
    click.echo(click.style("no daemon listens; one is started for the length of this command", dim=True), err=True)
    log = loaded.state_directory / "own-daemon.log"
    process = _start(loaded, log, extra)
    try:
        await _wait_until_it_listens(address, process, log)
        yield partial(signal.signal, signal.SIGINT, signal.SIG_IGN)
    finally:
        # The receiver leaves the signal as it is by default, whatever it was before.
        with anyio.CancelScope(shield=True), anyio.open_signal_receiver(signal.SIGINT) as presses:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_hurry, presses, process)
                await _end(process, loaded.config.drain.grace_ns / _SECOND_NS + _BEYOND_GRACE)
                tasks.cancel_scope.cancel()


def _start(loaded: LoadedConfig, log: Path, extra: Sequence[str]) -> subprocess.Popen[bytes]:
    argv = [sys.executable, "-P", "-m", "steprail_daemon.cli", "serve", "--owner", str(os.getpid())]
    argv += ["--state-dir", str(loaded.state_directory)]
    argv += ["--config", str(loaded.path)] if loaded.path is not None else []
    # Nobody scrapes what is gone in a moment, and a daemon that stays may want the port.
    argv += ["--set", "server.http="]
    try:
        loaded.state_directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with log.open("wb") as output:
            # A session of its own: Ctrl-C is for us, who then ask for a stop.
            return subprocess.Popen(
                [*argv, *extra], stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
    except OSError as error:
        raise ConfigProblem(f"the state directory {loaded.state_directory} cannot be used: {error}") from None


async def _wait_until_it_listens(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    with anyio.move_on_after(_START_LIMIT):
        while await why_silent(address):
            if process.poll() is not None:
                raise Problem(f"the daemon did not start:\n{_last_lines(log)}")
            # Nothing wakes a waiter for a socket that another process makes, so it is tried again.
            await anyio.sleep(_BETWEEN_TRIES)
        return
    raise Problem(f"the daemon did not listen on {address} within {_START_LIMIT:.0f} s:\n{_last_lines(log)}")


async def _hurry(presses: AsyncIterator[signal.Signals], process: subprocess.Popen[bytes]) -> None:
    """Pass Ctrl-C on to a daemon that drains: asked again, it waits for nothing. What the command has come to stays."""
    async for _ in presses:
        process.terminate()


async def _end(process: subprocess.Popen[bytes], limit: float) -> None:
    process.terminate()
    try:
        await anyio.to_thread.run_sync(partial(process.wait, limit))
    except subprocess.TimeoutExpired:
        process.kill()
        await anyio.to_thread.run_sync(process.wait)


def _last_lines(log: Path) -> str:
    return "\n".join(f"  {line}" for line in log.read_text(errors="replace").splitlines()[-10:])
