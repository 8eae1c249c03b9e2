"""A daemon for the length of one command, where none listens: started, waited for, and drained at the end.

It uses the default state directory, so that the run is there for `continue`, and it drains by itself if we are killed.
"""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import click

from steprail_daemon.cli.serving import end, listens, start_serve, wait_until_it_listens
from steprail_daemon.config.load import LoadedConfig

_BEYOND_GRACE = 10.0
_SECOND_NS = 1_000_000_000


@asynccontextmanager
async def daemon_for_a_run(address: str, loaded: LoadedConfig, extra: Sequence[str]) -> AsyncIterator[None]:
    """See that a daemon listens on the configuration's address; start one, and end it afterwards, if none does.

    `extra` are further arguments of `serve`.

    Raises:
        Problem: it does not start; with what it said.
    """
    if await listens(address):
        yield
        return
    click.echo(click.style("no daemon listens; one is started for the length of this run", dim=True), err=True)
    log = loaded.state_directory / "own-daemon.log"
    process = _start(loaded, log, extra)
    try:
        await wait_until_it_listens(address, process, log)
        yield
    finally:
        with anyio.CancelScope(shield=True):
            await end(process, loaded.config.drain.grace_ns / _SECOND_NS + _BEYOND_GRACE)


def _start(loaded: LoadedConfig, log: Path, extra: Sequence[str]) -> subprocess.Popen[bytes]:
    arguments = ["--state-dir", str(loaded.state_directory)]
    arguments += ["--config", str(loaded.path)] if loaded.path is not None else []
    # Nobody scrapes what is gone in a moment, and a daemon that stays may want the port.
    arguments += ["--set", "server.http="]
    loaded.state_directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    return start_serve([*arguments, *extra], log)
