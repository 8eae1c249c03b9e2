"""Processes of the bench: an agent joined to a limit by two pipes, and waits that have a bound."""

from __future__ import annotations

import fcntl
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from steprail_daemon.testing.bench import agent

#: The size that the daemon's parent process gives an agent's stdout.
PIPE_BYTES = 1 << 20
#: A bound on every wait, in seconds.
PATIENCE = 120.0

AGENT_ARGV = (sys.executable, "-I", str(Path(agent.__file__)))


def module_argv(name: str, *arguments: str) -> list[str]:
    """Give the command line of a module of the bench."""
    return [sys.executable, "-P", "-m", f"steprail_daemon.testing.bench.{name}", *arguments]


def read_report(path: Path) -> dict[str, Any]:
    """Read and remove what a process measured."""
    report: dict[str, Any] = json.loads(path.read_text())
    path.unlink()
    return report


class ReportPipe:
    """A named pipe at `path` for the report of a process that is not our child. Reading it wakes nobody else.

    To be made before that process is told to write.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        os.mkfifo(path)
        self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)

    def read(self) -> dict[str, Any]:
        """Wait for the report.

        Raises:
            TimeoutError: there was none within `PATIENCE`.
        """
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        text = b""
        deadline = time.monotonic() + PATIENCE
        while True:
            if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
                raise TimeoutError(f"no report came through {self.path} in {PATIENCE:g} s")
            part = os.read(self._descriptor, 1 << 16)
            if not part:
                report: dict[str, Any] = json.loads(text)
                return report
            text += part

    def close(self) -> None:
        """Remove it."""
        os.close(self._descriptor)
        self.path.unlink()


@contextmanager
def running(argv: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program for as long as the block lasts; killed if it is still there afterwards."""
    with subprocess.Popen(argv, **options) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def finish(process: subprocess.Popen[bytes], what: str) -> None:
    """Wait for a program's end.

    Raises:
        RuntimeError: it failed.
        subprocess.TimeoutExpired: it took longer than `PATIENCE`.
    """
    code = process.wait(PATIENCE)
    if code:
        raise RuntimeError(f"{what} ended with {code}")


def run(argv: Sequence[str], what: str, **options: Any) -> None:
    """Run a program to its end."""
    with running(argv, **options) as process:
        finish(process, what)


def run_pair(limit: Sequence[str], prompt: dict[str, Any]) -> None:
    """Run an agent without a handshake and a limit, joined by pipes, to their end."""
    to_agent, from_limit = os.pipe()
    to_limit, from_agent = os.pipe()
    fcntl.fcntl(from_agent, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    agent_argv = [*AGENT_ARGV, "--bare", json.dumps(prompt)]
    try:
        with (
            running(agent_argv, stdin=to_agent, stdout=from_agent) as one,
            running(limit, stdin=to_limit, stdout=from_limit) as other,
        ):
            for descriptor in (to_agent, from_limit, to_limit, from_agent):
                os.close(descriptor)
            to_agent = -1
            finish(one, "the agent")
            finish(other, "the limit")
    finally:
        if to_agent >= 0:
            for descriptor in (to_agent, from_limit, to_limit, from_agent):
                os.close(descriptor)
