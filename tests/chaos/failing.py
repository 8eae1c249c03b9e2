"""A daemon whose worker kills itself at given points; see `steprail_daemon.testing.failpoints`."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import anyio
from tests.framework.daemon import START_SECONDS, Daemon, children_of

from steprail_daemon.testing import failpoints

SETTINGS = """
[agents.scripted]
home = "isolated"
permission_mode = "ask"
[processes]
ladder = ["eof:1s", "term:1s", "kill"]
"""


class FailingDaemon(Daemon):
    """Runs the built parent process, and under it a worker each of whose lives dies at its own of `points`."""

    def __init__(self, root: Path, points: str) -> None:
        super().__init__(root, ["true"], settings=SETTINGS)
        self.points = points
        self.notes = root / "notes"
        self.notes.mkdir()
        self.state.mkdir(mode=0o700)

    async def start(self) -> None:
        """Start the daemon and wait until it answers."""
        python = [sys.executable, "-P", "-m"]
        worker = [*python, "steprail_daemon.testing.failpoints"]
        worker += ["--state-dir", str(self.state), "--config", str(self.config), "--set", "server.http=127.0.0.1:0"]
        parent = [*python, "steprail_daemon.parent", f"--instance={self.root.name}", f"--lock={self.state / 'lock'}"]
        environment = {**os.environ, failpoints.POINTS: self.points, failpoints.DIRECTORY: str(self.notes)}
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: ASYNC220 - its end is waited for by `stop`, which is not async
                [*parent, "--backoff=0.01:0.02", "--", *worker], env=environment, stdout=log, stderr=log
            )
        await self.answering()

    async def answering(self) -> None:
        """Wait until the daemon answers calls: a listening socket is looked for first, which costs next to nothing."""
        path = self.address.removeprefix("unix:")
        with anyio.fail_after(START_SECONDS):
            while not _listens(path):  # noqa: ASYNC110 - nothing announces that a process begins to listen
                await anyio.sleep(0.05)
        await super().answering()

    def lines(self, name: str) -> list[str]:
        """Give what the worker noted."""
        path = self.notes / name
        return path.read_text().splitlines() if path.exists() else []

    def agents(self) -> int:
        """Give how many processes of agents there are."""
        return sum(b"steprail_scripted" in _command(pid) and b"--version" not in _command(pid) for pid in self._below())

    def _below(self) -> list[int]:
        return children_of(self.pid)


def _listens(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(path) == 0


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
