"""Runs the built daemon as a user would: the installed command line, a configuration file, a directory of its own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import anyio
import anyio.to_thread
import grpc
from tests.framework.liveness import wait_gone

from steprail.v1 import agents_pb2, agents_pb2_grpc
from steprail_daemon.testing import fake_claude

STEPRAIL = str(Path(sys.executable).parent / "steprail")
#: What starts the stand-in for Claude Code.
FAKE_CLAUDE = [sys.executable, "-S", "-E", str(Path(fake_claude.__file__))]
START_SECONDS = 30.0
END_SECONDS = 30.0
#: Within which nothing of a killed worker may be left.
GONE_SECONDS = 5.0


class Daemon:
    """One daemon with its directories. `environment` is what its agent `claude` gets, `program` the command to run."""

    def __init__(
        self,
        root: Path,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        permission_mode: str = "bypass",
        settings: str = "",
        program: str = STEPRAIL,
    ) -> None:
        self.root = root
        self._program = program
        self.state = root / "state"
        self.workspace = root / "work"
        self.workspace.mkdir(parents=True, exist_ok=True)
        self.address = f"unix:{root}/run/steprail.sock"
        self.log = root / "daemon.log"
        self.config = root / "steprail.toml"
        self._process: subprocess.Popen[bytes] | None = None
        variables = "\n".join(f'{name} = "{value}"' for name, value in (environment or {}).items())
        quoted = ", ".join(f'"{part}"' for part in command)
        self.config.write_text(
            f"""version = 1
{settings}
[server]
listen = ["{self.address}"]
workspace_roots = ["{self.workspace}"]
[agents.claude]
command = [{quoted}]
home = "isolated"
permission_mode = "{permission_mode}"
[agents.claude.environment.set]
{variables}
"""
        )

    @property
    def environment(self) -> dict[str, str]:
        """What a client of this daemon needs in its environment."""
        return {
            **os.environ,
            "STEPRAIL_STATE_DIR": str(self.state),
            "STEPRAIL_CONFIG": str(self.config),
            "STEPRAIL_ADDRESS": self.address,
        }

    @property
    def pid(self) -> int:
        """Process id of the parent process."""
        assert self._process is not None
        return self._process.pid

    async def start(self) -> None:
        """Start the daemon and wait until it answers."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: ASYNC220 - its end is waited for by `stop`, which is not async
                [self._program, "serve"], env=self.environment, stdout=log, stderr=log
            )
        await self.answering()

    async def answering(self) -> None:
        """Wait until the daemon answers calls."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                await anyio.to_thread.run_sync(self._ask)
                return
            except grpc.RpcError as error:
                ended = self._process is not None and self._process.poll() is not None
                if ended or time.monotonic() > deadline:
                    raise AssertionError(f"the daemon does not answer: {error}\n{self.log.read_text()}") from error
            await anyio.sleep(0.02)

    def _ask(self) -> None:
        # Blocking: fixtures that are not async start a daemon in a loop of its own, and grpc.aio tells a loop that was
        # closed of calls that were left (grpc/grpc#42357).
        with grpc.insecure_channel(self.address) as channel:
            agents_pb2_grpc.AgentServiceStub(channel).GetServerInfo(agents_pb2.GetServerInfoRequest(), timeout=2)

    def worker_pid(self) -> int:
        """Find the worker below the parent process."""
        for pid in children_of(self.pid):
            if b"steprail_daemon.daemon" in Path(f"/proc/{pid}/cmdline").read_bytes():
                return pid
        raise AssertionError(f"there is no worker\n{self.log.read_text()}")

    async def kill_worker(self) -> int:
        """Kill the worker, see everything below the parent process go, and wait until the next one answers.

        Gives when it was gone, Unix nanoseconds: some tenths of a second before the next one does anything.
        """
        tree = self.descendants()
        os.kill(self.worker_pid(), signal.SIGKILL)
        assert await anyio.to_thread.run_sync(wait_gone, tree, GONE_SECONDS) == set()
        gone_at = time.time_ns()
        await self.answering()
        return gone_at

    def agent_pid(self, program: Path) -> int:
        """Find the agent's own process."""
        for pid in children_of(self.pid):
            if Path(f"/proc/{pid}/exe").resolve() == program.resolve():
                return pid
        raise AssertionError(f"no process runs {program}\n{self.log.read_text()}")

    def descendants(self) -> set[int]:
        """Give everything below the parent process."""
        found: set[int] = set()
        new = [self.pid]
        while new:
            new = [child for pid in new for child in children_of(pid)]
            found.update(new)
        return found

    def instance(self) -> str:
        """Give what begins the mark of every process of this daemon."""
        mark = environment_of(self.worker_pid())["STEPRAIL_PROCESS"]
        return mark.rpartition(".")[0]

    def stop(self) -> int:
        """Ask for the orderly end and wait for it; gives the exit code."""
        assert self._process is not None
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(END_SECONDS)
            raise AssertionError(f"the daemon did not end\n{self.log.read_text()}") from None


def children_of(pid: int) -> list[int]:
    """Give the children of a process; none if it is gone. A child of any of its threads counts."""
    try:
        lists = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    except OSError:
        return []
    return [int(child) for text in lists for child in text.split()]


def environment_of(pid: int) -> dict[str, str]:
    """Give the environment that a process was started with."""
    variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    pairs = (variable.decode("utf-8", "replace").partition("=") for variable in variables if variable)
    return {name: value for name, _, value in pairs}


@contextmanager
def short_directory() -> Iterator[Path]:
    """Make a directory whose path is short: a socket's may have 107 bytes, and pytest's own are long."""
    path = Path(tempfile.mkdtemp(prefix="sr-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def running_daemon(
    command: Sequence[str] = FAKE_CLAUDE,
    *,
    permission_mode: str = "bypass",
    settings: str = "",
    program: str = STEPRAIL,
) -> Iterator[Daemon]:
    """Run a daemon in a directory of its own: within, it answers, and afterwards it ends as it should."""
    with short_directory() as directory:
        daemon = Daemon(directory, command, permission_mode=permission_mode, settings=settings, program=program)
        try:
            anyio.run(daemon.start)
            yield daemon
        finally:
            status = daemon.stop()
        assert status == 0, daemon.log.read_text()
