"""Daemons for tests of refusals, with identities or with little patience, and who lives there beside a case."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc.aio
from tests.behaviours import impatient_worker
from tests.behaviours.scene import Neighbour, Scene
from tests.behaviours.stage import PlayedDaemon
from tests.framework.daemon import children_of, short_directory

IDENTITIES = (("looker", "viewer", "default"), ("doer", "operator", "default"), ("stranger", "operator", "elsewhere"))


def token_of(name: str) -> str:
    """Give the token of an identity."""
    return f"the-token-of-{name}-0123456789"


def bearer(name: str) -> tuple[tuple[str, str], ...]:
    """Give the metadata of a call that an identity makes."""
    return (("authorization", f"Bearer {token_of(name)}"),)


def identities(directory: Path) -> str:
    """Give the identities' part of the configuration; their tokens are written into the directory."""
    parts = []
    for name, role, tenant in IDENTITIES:
        file = directory / f"token-{name}"
        file.touch(mode=0o600)
        file.write_text(token_of(name))
        parts.append(f'[[identities]]\nname = "{name}"\nrole = "{role}"\ntenant = "{tenant}"\ntoken_file = "{file}"\n')
    return "".join(parts)


def free_port() -> int:
    """Give a port of loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class RefusingDaemon(PlayedDaemon):
    """A daemon on its socket and, with identities, on TCP too."""

    def __init__(self, root: Path, *, settings: str = "", max_sessions: int = 64, tcp: bool = False) -> None:
        super().__init__(root, settings=settings + (identities(root) if tcp else ""))
        self.tcp = f"127.0.0.1:{free_port()}" if tcp else ""
        self._max_sessions = max_sessions

    @property
    def environment(self) -> dict[str, str]:
        """What it runs with."""
        more = {"STEPRAIL_SERVER__MAX_SESSIONS": str(self._max_sessions)}
        if self.tcp:
            more["STEPRAIL_SERVER__LISTEN"] = f"{self.address},{self.tcp}"
        return {**super().environment, **more}


class ImpatientDaemon(RefusingDaemon):
    """A daemon whose worker waits for less long; see `impatient_worker`."""

    async def start(self) -> None:
        """Start the built parent process with that worker, and wait until it answers."""
        self.state.mkdir(mode=0o700)
        worker = [sys.executable, "-P", impatient_worker.__file__]
        worker += ["--state-dir", str(self.state), "--config", str(self.config)]
        parent = [sys.executable, "-P", "-m", "steprail_daemon.parent", f"--instance={self.root.name}"]
        parent += [f"--lock={self.state / 'lock'}", "--", *worker]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: ASYNC220 - its end is waited for by `stop`, which is not async
                parent, env=self.environment, stdout=log, stderr=log
            )
        await self.answering()

    def worker_pid(self) -> int:
        """Find the worker below the parent process."""
        for pid in children_of(self.pid):
            if impatient_worker.__file__.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                return pid
        raise AssertionError(f"there is no worker\n{self.log.read_text()}")


@dataclass(frozen=True)
class Site:
    """A daemon that many cases share, and who lives there beside them."""

    daemon: RefusingDaemon
    channel: grpc.aio.Channel
    neighbour: Neighbour

    @asynccontextmanager
    async def scene(self, name: str) -> AsyncIterator[Scene]:
        """Give a scene, and see after it that the neighbour was not disturbed and the worker is the same."""
        scene = Scene(self.daemon, self.channel, name, tcp=self.daemon.tcp)
        worker = self.daemon.worker_pid()
        try:
            yield scene
            await self.neighbour.goes_on()
            assert self.daemon.worker_pid() == worker
        finally:
            await scene.leave()


@asynccontextmanager
async def open_site(make: Callable[[Path], RefusingDaemon], steps: int) -> AsyncIterator[Site]:
    """Start a daemon with a neighbour who can be asked to take `steps` steps; at the end he completes."""
    with short_directory() as directory:
        daemon = make(directory)
        try:
            await daemon.start()
            async with grpc.aio.insecure_channel(daemon.address) as channel:
                home = Scene(daemon, channel, "neighbour")
                neighbour = await Neighbour.move_in(home, steps + 1)
                yield Site(daemon, channel, neighbour)
                await neighbour.completes()
                await home.leave()
            assert daemon.stop() == 0
        finally:
            if daemon.log.exists():
                daemon.stop()
