"""A daemon for the length of one command, where none listens: started, waited for, and drained at the end.

It uses the default state directory, so that the run is there for `continue`, and it drains by itself if we are killed.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import click

from steprail_daemon.cli.problems import ConfigProblem, Problem
from steprail_daemon.cli.reach import why_silent
from steprail_daemon.cli.serving import end, start_serve, wait_until_it_listens
from steprail_daemon.config.load import LoadedConfig

_BEYOND_GRACE = 10.0
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
        await wait_until_it_listens(address, process, log)
        yield partial(signal.signal, signal.SIGINT, signal.SIG_IGN)
    finally:
        # The receiver leaves the signal as it is by default, whatever it was before.
        with anyio.CancelScope(shield=True), anyio.open_signal_receiver(signal.SIGINT) as presses:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_hurry, presses, process)
                await end(process, loaded.config.drain.grace_ns / _SECOND_NS + _BEYOND_GRACE)
                tasks.cancel_scope.cancel()


def _start(loaded: LoadedConfig, log: Path, extra: Sequence[str]) -> subprocess.Popen[bytes]:
    arguments = ["--state-dir", str(loaded.state_directory)]
    arguments += ["--config", str(loaded.path)] if loaded.path is not None else []
    # Nobody scrapes what is gone in a moment, and a daemon that stays may want the port.
    arguments += ["--set", "server.http="]
    try:
        loaded.state_directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        return start_serve([*arguments, *extra], log)
    except OSError as error:
        raise ConfigProblem(f"the state directory {loaded.state_directory} cannot be used: {error}") from None


async def _hurry(presses: AsyncIterator[signal.Signals], process: subprocess.Popen[bytes]) -> None:
    """Pass Ctrl-C on to a daemon that drains: asked again, it waits for nothing. What the command has come to stays."""
    async for _ in presses:
        process.terminate()
