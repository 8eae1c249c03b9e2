"""What only a start would tell, told without one: whether a configuration can be served, and what its agents are.

Programs are found, checked and asked for their version exactly as the daemon does it, but as children of our own.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Coroutine, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import msgspec

from steprail_daemon.access import open_entrance
from steprail_daemon.config.load import LoadedConfig
from steprail_daemon.core.shutdown import Ladder
from steprail_daemon.daemon import engine_settings
from steprail_daemon.drivers.base import LaunchSpec
from steprail_daemon.drivers.registry import DRIVERS
from steprail_daemon.engine.agents import Agents, find_program, sha256_of
from steprail_daemon.engine.ports import ProcessHandlers
from steprail_daemon.engine.settings import AgentSettings, EngineSettings
from steprail_daemon.threads import run_apart

_STDERR_KEPT = 1 << 14
_KILLED_LIMIT = 10.0
_FIRST_LINE = 256


class AgentFound(msgspec.Struct, frozen=True):
    """An agent of the configuration and what was found of its program.

    `path` is empty if there is no program, `version` if it did not tell one, `problem` if the daemon would use it;
    `accepted` are the versions that its driver takes, in words. `digest` is the SHA-256 of the file, empty if it cannot
    be read. `interpreter` is what its `#!` line asks for and is not there. `environment` is what the agent would get,
    its home among it, which is `isolated` or the user's. `silent`: a look at the file did not end, so that nothing else
    is known of it.
    """

    name: str
    driver: str
    command: tuple[str, ...]
    path: str
    version: str
    accepted: str
    problem: str
    digest: str
    interpreter: str
    environment: Mapping[str, str]
    isolated: bool
    silent: bool = False


def start_problem(loaded: LoadedConfig, environ: Mapping[str, str]) -> str:
    """Say what a start would refuse that the configuration by itself does not show; empty if nothing.

    It reads the files of tokens and certificates.
    """
    try:
        engine_settings(loaded, environ)
        open_entrance(loaded.config)
    except ValueError as error:
        return str(error)
    return ""


async def find_agents(loaded: LoadedConfig, environ: Mapping[str, str], names: Iterable[str]) -> list[AgentFound]:
    """Look at agents, each for at most a few times `processes.start_timeout`.

    Raises:
        ValueError: their environment is refused, see `start_problem`; or a path of the configuration does not answer.
    """
    wanted = set(names)
    limit = loaded.config.processes.start_timeout_ns / 1e9
    try:
        with anyio.fail_after(limit):
            settings = await run_apart(partial(engine_settings, loaded, environ))
    except TimeoutError:
        raise ValueError(f"a look at server.workspace_roots did not end within {limit:g} s") from None
    settings = msgspec.structs.replace(
        settings, agents=tuple(agent for agent in settings.agents if agent.name in wanted)
    )
    looked = await _look_at_files(settings)
    answering = tuple(agent for agent in settings.agents if agent.name in looked)
    async with anyio.create_task_group() as tasks:

        def start_task(function: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
            tasks.start_soon(function, name=name)

        agents = Agents(msgspec.structs.replace(settings, agents=answering), DRIVERS, _Programs(tasks), start_task)
        await agents.probe_all()
    views = {view.name: view for view in agents.views()}
    found: list[AgentFound] = []
    for agent in settings.agents:
        if agent.name not in looked:
            silent = f"the file of program {agent.command[0]!r} could not be read within {limit:g} s"
            found.append(_found(agent, problem=silent, silent=True))
            continue
        view = views[agent.name]
        digest, interpreter = looked[agent.name]
        found.append(
            _found(
                agent,
                path=agents.program_of(agent.name),
                version=view.version,
                problem=view.unavailable_reason,
                digest=digest,
                interpreter=interpreter,
            )
        )
    return found


def _found(
    agent: AgentSettings,
    *,
    problem: str,
    path: str = "",
    version: str = "",
    digest: str = "",
    interpreter: str = "",
    silent: bool = False,
) -> AgentFound:
    return AgentFound(
        agent.name,
        agent.driver,
        agent.command,
        path,
        version,
        DRIVERS[agent.driver].versions,
        problem,
        digest,
        interpreter,
        _environment(agent),
        bool(agent.isolated_home),
        silent,
    )


async def _look_at_files(settings: EngineSettings) -> dict[str, tuple[str, str]]:
    """Give the digest and the missing interpreter of each agent whose file answers within the time for its start."""
    looked: dict[str, tuple[str, str]] = {}
    for agent in settings.agents:
        with anyio.move_on_after(settings.start_timeout_ns / 1e9):
            looked[agent.name] = await run_apart(partial(_look_at_file, agent))
    return looked


def _look_at_file(agent: AgentSettings) -> tuple[str, str]:
    try:
        path = find_program(agent)
    except OSError:
        return "", ""
    return _digest(path), _missing_interpreter(path, agent.environment)


def _digest(path: str) -> str:
    try:
        return sha256_of(path)
    except OSError:
        return ""


def _environment(agent: AgentSettings) -> Mapping[str, str]:
    """Give what the agent would get, with what its driver adds."""
    spec = LaunchSpec(
        command=agent.command,
        cwd="/",
        agent_session_id="",
        resume=False,
        model=agent.model,
        permission_mode=agent.permission_mode,
        isolated_home=agent.isolated_home,
    )
    return {**agent.environment, **DRIVERS[agent.driver].plan(spec).environment}


def _missing_interpreter(path: str, environment: Mapping[str, str]) -> str:
    """Give the interpreter that a script names in its first line, itself or through `env`, if it is not there."""
    try:
        with Path(path).open("rb") as file:
            words = file.readline(_FIRST_LINE).removeprefix(b"#!").decode("utf-8", "replace").split()
            file.seek(0)
            if file.read(2) != b"#!" or not words:
                return ""
    except OSError:
        return ""
    if Path(words[0]).name == "env":
        words = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
    name = words[0] if words else ""
    return "" if not name or shutil.which(name, path=environment.get("PATH", os.defpath)) else name


class _Programs:
    """Starts programs as children of this process. Those that live when the task group ends are killed."""

    def __init__(self, tasks: anyio.abc.TaskGroup) -> None:
        self._tasks = tasks

    async def spawn(
        self, argv: tuple[str, ...], environment: Mapping[str, str], cwd: str, handlers: ProcessHandlers
    ) -> _Program:
        # Cancelled in here, asyncio would kill the program but not what it started; `read` sees to both.
        with anyio.CancelScope(shield=True):
            process = await anyio.open_process(
                list(argv),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=cwd,
                env=dict(environment),
                start_new_session=True,
            )
            program = _Program(process, handlers)
            self._tasks.start_soon(program.read)
        return program


class _Status(msgspec.Struct, frozen=True):
    """How a program ended: exactly one of both is set."""

    code: int | None
    signal: int | None


class _Program:
    """One program: what it writes goes to its handlers, and its exit."""

    def __init__(self, process: anyio.abc.Process, handlers: ProcessHandlers) -> None:
        self._process = process
        self._handlers = handlers
        self._gone = anyio.Event()
        self.stderr_tail = b""

    async def read(self) -> None:
        """Read to the exit."""
        process = self._process
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._read_stderr)
                assert process.stdout is not None
                async for data in process.stdout:
                    self._handlers.on_stdout(data)
            code = await process.wait()
        except BaseException:
            self._kill()
            raise
        finally:
            with anyio.move_on_after(_KILLED_LIMIT, shield=True):
                await process.aclose()
            self._gone.set()
        self._handlers.on_stdout_eof()
        self._handlers.on_exit(_Status(code, None) if code >= 0 else _Status(None, -code))

    async def _read_stderr(self) -> None:
        assert self._process.stderr is not None
        async for data in self._process.stderr:
            self.stderr_tail = (self.stderr_tail + data)[-_STDERR_KEPT:]

    async def shut_down(self, ladder: Ladder, end: Callable[[], None] | None = None) -> None:
        """Kill it and whatever is of its session, whatever the ladder says."""
        del ladder, end
        self._kill()
        with anyio.move_on_after(_KILLED_LIMIT):
            await self._gone.wait()

    def _kill(self) -> None:
        # Called only while it, or what it started, holds its pipes: until then nobody else has the group's number.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
