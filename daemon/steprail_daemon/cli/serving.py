"""Processes that a command starts for itself, a daemon above all: started, waited for, ended.

Each has a session of its own, as Ctrl-C is for the command, which then sees to it that they end. `--owner` ends them if
the command is killed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import anyio

from steprail_daemon.cli.problems import Problem
from steprail_daemon.cli.reach import listens
from steprail_daemon.threads import run_apart

#: Seconds.
START_LIMIT = 60.0
KILLED_LIMIT = 10.0
_BETWEEN_TRIES = 0.05
_LINES_SHOWN = 15


def start_serve(
    arguments: Sequence[str], log: Path, *, environment: Mapping[str, str] | None = None, cwd: Path | None = None
) -> subprocess.Popen[bytes]:
    """Start `steprail serve` with further arguments; what it writes goes to a new file `log`."""
    argv = [sys.executable, "-P", "-m", "steprail_daemon.cli", "serve", "--owner", str(os.getpid())]
    with log.open("wb") as output:
        return subprocess.Popen(
            [*argv, *arguments],
            env=environment,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


async def wait_until_it_listens(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until a daemon that was started listens.

    Raises:
        Problem: it ended, or does not; with what it said.
    """
    with anyio.move_on_after(START_LIMIT):
        while not await listens(address):
            if process.poll() is not None:
                raise Problem(f"the daemon did not start:\n{last_lines(log)}")
            # Nothing wakes a waiter for a socket that another process makes, so it is tried again.
            await anyio.sleep(_BETWEEN_TRIES)
        return
    raise Problem(f"the daemon did not listen on {address} within {START_LIMIT:.0f} s:\n{last_lines(log)}")


async def end(process: subprocess.Popen[bytes], limit: float) -> None:
    """End a process by SIGTERM, or by SIGKILL after `limit` seconds. Not to be cancelled: shield it.

    Raises:
        Problem: it is still there after SIGKILL.
    """
    process.terminate()
    if await _ended(process, limit):
        return
    process.kill()
    if not await _ended(process, KILLED_LIMIT):
        held = "the kernel holds it, often for a file system that does not answer"
        raise Problem(f"process {process.pid} is still there {KILLED_LIMIT:g} s after SIGKILL: {held}")


async def _ended(process: subprocess.Popen[bytes], limit: float) -> bool:
    with anyio.move_on_after(limit):
        await run_apart(process.wait)
        return True
    return False


def last_lines(log: Path) -> str:
    """Give the last lines of a log, indented."""
    return "\n".join(f"  {line}" for line in log.read_text(errors="replace").splitlines()[-_LINES_SHOWN:])
