"""The configured agents: whether their programs are there, of which version, and fit to be used.

A program is asked for its version once, and again when its file changes.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import msgspec

from steprail_daemon.core.errors import Invalid, WrongState
from steprail_daemon.core.model import Capabilities
from steprail_daemon.core.shutdown import Ladder, Rung, RungKind
from steprail_daemon.drivers.base import Driver, ProbeResult
from steprail_daemon.engine.facade import AgentView
from steprail_daemon.engine.ports import ExitStatus, Launcher
from steprail_daemon.engine.settings import AgentSettings, EngineSettings

#: What a program may print before it is no version any more, in bytes.
PROBE_BYTES = 64 * 1024
_KILL = Ladder((Rung(RungKind.KILL, 0),))


class Agents:
    """Probes agents and remembers what was found."""

    def __init__(self, settings: EngineSettings, drivers: Mapping[str, Driver], launcher: Launcher) -> None:
        self._settings = settings
        self._drivers = drivers
        self._launcher = launcher
        self._probed: dict[str, tuple[object, ProbeResult]] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    def views(self) -> list[AgentView]:
        """Give every configured agent as it was last probed, by name."""
        return [self._view(agent) for agent in sorted(self._settings.agents, key=lambda agent: agent.name)]

    def _view(self, agent: AgentSettings) -> AgentView:
        driver = self._drivers[agent.driver]
        found = self._probed.get(agent.name)
        result = found[1] if found else ProbeResult("", "it has not been probed yet")
        return AgentView(agent.name, agent.driver, result.version, result.unavailable_reason, driver.capabilities)

    async def probe_all(self) -> None:
        """Probe every agent, one after the other."""
        for agent in self._settings.agents:
            await self._probe(agent)

    async def require(self, name: str) -> tuple[AgentSettings, Capabilities]:
        """Give an agent that can be used now.

        Raises:
            Invalid: AGENT_UNKNOWN.
            WrongState: AGENT_UNAVAILABLE, with what is wrong and what would be right.
        """
        agent = next((agent for agent in self._settings.agents if agent.name == name), None)
        if agent is None:
            names = ", ".join(sorted(agent.name for agent in self._settings.agents)) or "none"
            raise Invalid(
                "AGENT_UNKNOWN", f"the configuration names no agent {name!r}; it names: {names}", field="agent"
            )
        result = await self._probe(agent)
        if result.unavailable_reason:
            raise WrongState("AGENT_UNAVAILABLE", f"agent {name!r}: {result.unavailable_reason}", agent=name)
        return agent, self._drivers[agent.driver].capabilities

    async def _probe(self, agent: AgentSettings) -> ProbeResult:
        async with self._locks.setdefault(agent.name, asyncio.Lock()):
            path = shutil.which(agent.command[0], path=agent.environment.get("PATH", os.defpath))
            if path is None:
                result = ProbeResult("", f"program {agent.command[0]!r} was not found or is not executable")
                self._probed[agent.name] = (None, result)
                return result
            mark = _mark_of(path)
            known = self._probed.get(agent.name)
            if known is not None and known[0] == mark:
                return known[1]
            result = await self._ask(agent, path)
            self._probed[agent.name] = (mark, result)
            return result

    async def _ask(self, agent: AgentSettings, path: str) -> ProbeResult:
        if agent.checksum:
            found = await asyncio.to_thread(_sha256, path)
            if found != agent.checksum.lower():
                return ProbeResult("", f"{path} has the SHA-256 {found}, the configuration wants {agent.checksum}")
        driver = self._drivers[agent.driver]
        listener = _Collector(asyncio.get_running_loop())
        timeout = self._settings.start_timeout_ns / 1e9
        try:
            process = await self._launcher.spawn(driver.probe_argv(agent.command), agent.environment, "/", listener)
        except (OSError, TimeoutError) as error:
            return ProbeResult("", f"{path} could not be started: {error}")
        try:
            async with asyncio.timeout(timeout):
                code = await listener.exit_code
        except TimeoutError:
            return ProbeResult("", f"{path} did not tell its version within {timeout:g} s")
        finally:
            if not listener.exit_code.done() or listener.exit_code.cancelled():
                await process.shut_down(_KILL)
        return driver.read_probe(bytes(listener.output), code)


class _Collector:
    """Takes what a program prints, bounded, and its exit."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.output = bytearray()
        self.exit_code: asyncio.Future[int | None] = loop.create_future()

    def on_stdout(self, data: bytes) -> None:
        self.output += data[: PROBE_BYTES - len(self.output)]

    def on_stdout_eof(self) -> None:
        pass

    def on_exit(self, status: ExitStatus) -> None:
        if not self.exit_code.done():
            self.exit_code.set_result(status.code)


class _Mark(msgspec.Struct, frozen=True):
    path: str
    inode: int
    size: int
    mtime_ns: int


def _mark_of(path: str) -> _Mark:
    real = Path(path).resolve()
    found = real.stat()
    return _Mark(str(real), found.st_ino, found.st_size, found.st_mtime_ns)


def _sha256(path: str) -> str:
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
