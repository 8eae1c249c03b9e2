"""The configured agents: whether their programs are there, of which version, and fit to be used.

A program that can be used is asked for its version once, and again when its file changes; one that cannot is asked
again, for what was wrong may lie outside of its file. Each probe is a task of its own: whoever waits for it may leave.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import shutil
import signal
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec

from steprail_daemon.core.errors import Invalid, WrongState
from steprail_daemon.core.model import Capabilities
from steprail_daemon.core.shutdown import Ladder, Rung, RungKind
from steprail_daemon.drivers.base import Driver, ProbeResult
from steprail_daemon.engine.facade import AgentView
from steprail_daemon.engine.ports import ExitStatus, ProgramLauncher, ProgramProcess
from steprail_daemon.engine.settings import AgentSettings, EngineSettings
from steprail_daemon.engine.world import StartTask

#: What a program may print before it is no version any more, in bytes.
PROBE_BYTES = 64 * 1024
#: How long a list of agents believes that a program cannot be used, in seconds.
UNAVAILABLE_SECONDS = 10.0
_KILL = Ladder((Rung(RungKind.KILL, 0),))
#: What a kill may take on top of the bounds of a probe, in seconds.
_KILL_SECONDS = 20.0
_STDERR_SHOWN = 200


class Agents:
    """Probes agents and remembers what was found."""

    def __init__(
        self, settings: EngineSettings, drivers: Mapping[str, Driver], launcher: ProgramLauncher, start_task: StartTask
    ) -> None:
        self._agents = {agent.name: agent for agent in settings.agents}
        self._drivers = drivers
        self._launcher = launcher
        self._start_task = start_task
        self._seconds = settings.start_timeout_ns / 1e9
        self._found: dict[str, _Found] = {}
        self._probing: dict[str, asyncio.Event] = {}

    def views(self) -> list[AgentView]:
        """Give every configured agent as it was last probed, by name."""
        return [self._view(self._agents[name]) for name in sorted(self._agents)]

    def _view(self, agent: AgentSettings) -> AgentView:
        result = self._last(agent)
        capabilities = self._drivers[agent.driver].capabilities
        return AgentView(agent.name, agent.driver, result.version, result.unavailable_reason, capabilities)

    async def probe_all(self) -> None:
        """Probe every agent that was not probed lately. To leave the call does not end the probes."""
        now = asyncio.get_running_loop().time()
        for agent in self._agents.values():
            found = self._found.get(agent.name)
            lately = (
                found is not None and bool(found.result.unavailable_reason) and now < found.at + UNAVAILABLE_SECONDS
            )
            if not lately and self._known(agent) is None:
                self._begin(agent)
        for ended in list(self._probing.values()):
            await ended.wait()

    async def require(self, name: str) -> tuple[AgentSettings, Capabilities]:
        """Give an agent that can be used now; to be asked before each start, for a program may have been replaced.

        Where its file is unchanged since it was last found usable, that costs a look at the file. The first word of the
        command is the path of the file that was looked at.

        Raises:
            Invalid: AGENT_UNKNOWN.
            WrongState: AGENT_UNAVAILABLE, with what is wrong and what would be right.
        """
        agent = self._agents.get(name)
        if agent is None:
            names = ", ".join(sorted(self._agents)) or "none"
            raise Invalid(
                "AGENT_UNKNOWN", f"the configuration names no agent {name!r}; it names: {names}", field="agent"
            )
        found = self._known(agent)
        if found is None:
            found = await self._probe(agent)
        if found.result.unavailable_reason:
            raise WrongState("AGENT_UNAVAILABLE", f"agent {name!r}: {found.result.unavailable_reason}", agent=name)
        checked = msgspec.structs.replace(agent, command=(found.path, *agent.command[1:]))
        return checked, self._drivers[agent.driver].capabilities

    def version_of(self, name: str) -> str:
        """Give the version that an agent's program told last; empty if it has not."""
        agent = self._agents.get(name)
        return "" if agent is None else self._last(agent).version

    def program_of(self, name: str) -> str:
        """Give the path of the file that was looked at last; empty if there is none."""
        found = self._found.get(name)
        return "" if found is None or found.mark is None else found.path

    def _last(self, agent: AgentSettings) -> ProbeResult:
        found = self._found.get(agent.name)
        return found.result if found is not None else ProbeResult("", "it has not told its version yet")

    def _known(self, agent: AgentSettings) -> _Found | None:
        """Give what was found of a program that can be used and is unchanged since."""
        found = self._found.get(agent.name)
        if found is None or found.mark is None or found.result.unavailable_reason:
            return None
        try:
            path = find_program(agent)
            return found if path == found.path and _mark_of(path) == found.mark else None
        except OSError:
            return None

    async def _probe(self, agent: AgentSettings) -> _Found:
        bound = 3 * self._seconds + _KILL_SECONDS
        with anyio.move_on_after(bound):
            await self._begin(agent).wait()
            return self._found[agent.name]
        return _Found("", None, ProbeResult("", f"its program was not probed within {bound:g} s"), 0)

    def _begin(self, agent: AgentSettings) -> asyncio.Event:
        """Begin a probe, or give the one that is under way."""
        ended = self._probing.get(agent.name)
        if ended is None:
            ended = self._probing[agent.name] = asyncio.Event()
            self._start_task(partial(self._look, agent, ended), f"probe agent {agent.name}")
        return ended

    async def _look(self, agent: AgentSettings, ended: asyncio.Event) -> None:
        path, mark = agent.command[0], None
        try:
            path = find_program(agent)
            mark = _mark_of(path)
            result = await self._check(agent, path) or await self._ask(agent, path)
        except OSError as error:
            result = ProbeResult("", f"program {path!r} cannot be used: {error.strerror or error}")
        self._found[agent.name] = _Found(path, mark, result, asyncio.get_running_loop().time())
        del self._probing[agent.name]
        ended.set()

    async def _check(self, agent: AgentSettings, path: str) -> ProbeResult | None:
        """Compare the checksum; None if it is right or none is wanted."""
        if not agent.checksum:
            return None
        with anyio.move_on_after(self._seconds):
            found = await anyio.to_thread.run_sync(sha256_of, path, abandon_on_cancel=True)
            if found == agent.checksum.lower():
                return None
            return ProbeResult("", f"{path} has the SHA-256 {found}, the configuration wants {agent.checksum}")
        return ProbeResult("", f"{path} could not be read for its checksum within {self._seconds:g} s")

    async def _ask(self, agent: AgentSettings, path: str) -> ProbeResult:
        argv = self._drivers[agent.driver].probe_argv((path, *agent.command[1:]))
        answer = _Answer()
        try:
            with anyio.fail_after(self._seconds):
                process = await self._launcher.spawn(argv, agent.environment, "/", answer)
        except TimeoutError:
            return ProbeResult("", f"{path} did not start within {self._seconds:g} s")
        except OSError as error:
            return ProbeResult("", f"{path} could not be started: {error.strerror or error}")
        status: ExitStatus | None = None
        try:
            with anyio.move_on_after(self._seconds):
                status = await answer.exit()
        finally:
            if status is None:
                await process.shut_down(_KILL)
        if status is None:
            return ProbeResult("", f"{path} did not tell its version within {self._seconds:g} s")
        return self._judge(agent, path, bytes(answer.output), status, process)

    def _judge(
        self, agent: AgentSettings, path: str, output: bytes, status: ExitStatus, process: ProgramProcess
    ) -> ProbeResult:
        if status.signal is not None:
            result = ProbeResult("", f"{path} was killed by {_signal_name(status.signal)} before it told its version")
        else:
            result = self._drivers[agent.driver].read_probe(output, status.code)
        stderr = process.stderr_tail[-_STDERR_SHOWN:].decode("utf-8", "replace").strip()
        if result.unavailable_reason and stderr:
            return ProbeResult(result.version, f"{result.unavailable_reason}; it wrote: {stderr}")
        return result


class _Mark(msgspec.Struct, frozen=True):
    """Tells one state of a file from another; a change of its contents or its mode moves `ctime_ns`."""

    device: int
    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int


class _Found(msgspec.Struct, frozen=True):
    """What came of a probe: of which file, in which state (None: unknown), and when by the loop's clock."""

    path: str
    mark: _Mark | None
    result: ProbeResult
    at: float


class _Answer:
    """Takes what a program prints, bounded, and its exit."""

    def __init__(self) -> None:
        self.output = bytearray()
        self._status: ExitStatus | None = None
        self._ended = asyncio.Event()

    async def exit(self) -> ExitStatus:
        """Wait for the exit. The caller has the bound."""
        await self._ended.wait()
        assert self._status is not None
        return self._status

    def on_stdout(self, data: bytes) -> None:
        self.output += data[: PROBE_BYTES - len(self.output)]

    def on_stdout_eof(self) -> None:
        pass

    def on_exit(self, status: ExitStatus) -> None:
        self._status = status
        self._ended.set()


def find_program(agent: AgentSettings) -> str:
    """Give the path of an agent's program; raises OSError if there is none."""
    found = shutil.which(agent.command[0], path=agent.environment.get("PATH", os.defpath))
    if found is None:
        raise FileNotFoundError(errno.ENOENT, "it was not found or is not executable")
    return str(Path(found).absolute())


def _mark_of(path: str) -> _Mark:
    found = Path(path).stat()
    return _Mark(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def sha256_of(path: str) -> str:
    """Give the SHA-256 of a file in hexadecimal digits; raises OSError."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
