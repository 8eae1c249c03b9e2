"""What is found out about agents' programs, when they are looked at again, and who waits how long."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.unit.engine.stage import FakeProcess

from steprail_daemon.core.errors import Invalid, WrongState
from steprail_daemon.core.model import SECOND, PermissionMode
from steprail_daemon.core.shutdown import Ladder, Rung, RungKind
from steprail_daemon.drivers.registry import DRIVERS
from steprail_daemon.engine import agents as module
from steprail_daemon.engine.agents import Agents
from steprail_daemon.engine.ports import ProcessHandlers
from steprail_daemon.engine.settings import AgentSettings, EngineSettings

pytestmark = pytest.mark.anyio

VERSION = b"2.1.332 (Claude Code)\n"
WAIT = 5.0


class Programs:
    """A launcher whose programs print and end as a test says; those without an exit run on."""

    def __init__(self) -> None:
        self.output = VERSION
        self.stderr = b""
        self.code: int | None = 0
        self.signal: int | None = None
        self.refusal: OSError | None = None
        self.starts = True
        self.started: list[FakeProcess] = []
        self.asked: list[tuple[str, ...]] = []

    async def spawn(
        self, argv: tuple[str, ...], environment: Mapping[str, str], cwd: str, handlers: ProcessHandlers
    ) -> FakeProcess:
        """Start one."""
        self.asked.append(argv)
        if self.refusal is not None:
            raise self.refusal
        if not self.starts:
            await anyio.sleep_forever()
        process = FakeProcess(argv, handlers, [])
        process.stderr_tail = self.stderr
        self.started.append(process)
        loop = asyncio.get_running_loop()
        loop.call_soon(handlers.on_stdout, self.output)
        if self.code is not None or self.signal is not None:
            loop.call_soon(process.exit, self.code, self.signal)
        return process


class Room:
    """Agents over one program in a directory of its own."""

    def __init__(self, directory: Path, tasks: anyio.abc.TaskGroup, **settings: Any) -> None:
        self.program = directory / "claude"
        self.program.write_text("#!/bin/sh\n")
        self.program.chmod(0o755)
        self.launcher = Programs()
        seconds = settings.pop("seconds", 5.0)
        agent = AgentSettings(
            name="claude",
            driver="claude",
            command=("claude", "--flag"),
            environment={"PATH": str(directory)},
            isolated_home="",
            model="",
            permission_mode=PermissionMode.ASK,
            checksum=settings.pop("checksum", ""),
        )
        engine = EngineSettings(
            agents=(agent,),
            workspace_roots=("/",),
            max_sessions=1,
            max_processes=1,
            max_steps=1,
            hard_timeout_ns=SECOND,
            decision_timeout_ns=SECOND,
            stop_timeout_ns=SECOND,
            abort_timeout_ns=SECOND,
            start_timeout_ns=int(seconds * SECOND),
            idle_timeout_ns=SECOND,
            line_bytes=1024,
            prompt_bytes=1024,
            ladder=Ladder((Rung(RungKind.KILL, 0),)),
        )

        self.starts_tasks = True

        def start_task(function: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
            if self.starts_tasks:
                tasks.start_soon(function, name=name)

        self.agents = Agents(engine, DRIVERS, self.launcher, start_task)

    async def probe(self) -> tuple[str, str]:
        """Probe, and give version and reason as they are listed."""
        with anyio.fail_after(WAIT):
            await self.agents.probe_all()
        (view,) = self.agents.views()
        return view.version, view.unavailable_reason

    async def refusal(self) -> str:
        """Ask for the agent, and give why it is refused."""
        with anyio.fail_after(WAIT), pytest.raises(WrongState) as refused:
            await self.agents.require("claude")
        assert refused.value.reason == "AGENT_UNAVAILABLE"
        return refused.value.message

    def replace(self) -> None:
        """Put another file in the program's place, as an upgrade does."""
        new = self.program.with_name("new")
        new.write_text("#!/bin/sh\nnew\n")
        new.chmod(0o755)
        new.rename(self.program)


@asynccontextmanager
async def room(directory: Path, **settings: Any) -> AsyncIterator[Room]:
    async with anyio.create_task_group() as tasks:
        yield Room(directory, tasks, **settings)
        tasks.cancel_scope.cancel()


async def test_a_program_that_can_be_used_is_asked_once(tmp_path: Path) -> None:
    async with room(tmp_path) as it:
        assert it.agents.views()[0].unavailable_reason == "it has not told its version yet"
        assert await it.probe() == ("2.1.332", "")
        await it.agents.require("claude")
        assert await it.probe() == ("2.1.332", "")
        assert it.launcher.asked == [(str(it.program), "--flag", "--version")]


async def test_what_is_given_names_the_file_that_was_looked_at(tmp_path: Path) -> None:
    async with room(tmp_path) as it:
        agent, capabilities = await it.agents.require("claude")
        assert agent.command == (str(it.program), "--flag")
        assert capabilities == DRIVERS["claude"].capabilities


async def test_a_replaced_program_is_asked_and_checksummed_again(tmp_path: Path) -> None:
    checksum = hashlib.sha256(b"#!/bin/sh\n").hexdigest()
    async with room(tmp_path, checksum=checksum) as it:
        await it.agents.require("claude")
        it.replace()
        assert "has the SHA-256" in await it.refusal()
        assert len(it.launcher.asked) == 1


async def test_a_change_of_the_mode_alone_is_noticed(tmp_path: Path) -> None:
    async with room(tmp_path) as it:
        await it.agents.require("claude")
        it.program.chmod(0o600)
        assert "was not found or is not executable" in await it.refusal()


async def test_a_program_that_was_of_no_use_is_asked_again_at_once_when_it_is_needed(tmp_path: Path) -> None:
    async with room(tmp_path) as it:
        it.launcher.code, it.launcher.output, it.launcher.stderr = 127, b"", b"node: not found\n"
        assert (await it.refusal()).endswith("which is not Claude Code's answer; it wrote: node: not found")
        it.launcher.code, it.launcher.output, it.launcher.stderr = 0, VERSION, b""
        await it.agents.require("claude")


async def test_a_list_asks_a_program_that_was_of_no_use_only_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with room(tmp_path) as it:
        it.launcher.code = 1
        await it.probe()
        await it.probe()
        assert len(it.launcher.asked) == 1
        monkeypatch.setattr(module, "UNAVAILABLE_SECONDS", 0.0)
        await it.probe()
        assert len(it.launcher.asked) == 2


async def test_a_file_that_cannot_be_read_for_its_checksum_is_an_unavailable_agent(tmp_path: Path) -> None:
    async with room(tmp_path, checksum="0" * 64) as it:
        it.program.unlink()
        with socket.socket(socket.AF_UNIX) as unreadable:  # to open it is ENXIO, also for root
            unreadable.bind(str(it.program))
            it.program.chmod(0o755)
            version, reason = await it.probe()
        assert (version, reason) == ("", f"program '{it.program}' cannot be used: {os.strerror(errno.ENXIO)}")


async def test_a_file_whose_reading_does_not_end_is_an_unavailable_agent(tmp_path: Path) -> None:
    async with room(tmp_path, checksum="0" * 64, seconds=0.05) as it:
        it.program.unlink()
        os.mkfifo(it.program, 0o755)
        version, reason = await it.probe()
        os.close(os.open(it.program, os.O_WRONLY))  # lets the thread that reads go
        assert (version, reason) == ("", f"{it.program} could not be read for its checksum within 0.05 s")


async def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    async with room(tmp_path) as it:
        it.program.unlink()
        assert await it.probe() == ("", "program 'claude' cannot be used: it was not found or is not executable")


async def test_a_start_that_is_refused_says_why(tmp_path: Path) -> None:
    async with room(tmp_path) as it:
        it.launcher.refusal = OSError(errno.ENOEXEC, "no program at all")
        assert await it.probe() == ("", f"{it.program} could not be started: no program at all")


async def test_a_start_that_hangs_says_how_long_it_was_waited_for(tmp_path: Path) -> None:
    async with room(tmp_path, seconds=0.05) as it:
        it.launcher.starts = False
        assert await it.probe() == ("", f"{it.program} did not start within 0.05 s")


async def test_a_launcher_that_gives_up_by_itself_says_the_same(tmp_path: Path) -> None:
    async with room(tmp_path) as it:
        it.launcher.refusal = TimeoutError()
        assert await it.probe() == ("", f"{it.program} did not start within 5 s")


async def test_a_program_that_does_not_end_is_killed(tmp_path: Path) -> None:
    async with room(tmp_path, seconds=0.05) as it:
        it.launcher.code = None
        assert await it.probe() == ("", f"{it.program} did not tell its version within 0.05 s")
        assert it.launcher.started[0].ladder == Ladder((Rung(RungKind.KILL, 0),))


async def test_a_program_that_a_signal_killed_says_so(tmp_path: Path) -> None:
    async with room(tmp_path) as it:
        it.launcher.code, it.launcher.signal, it.launcher.stderr = None, signal.SIGSEGV, b"oops"
        reason = f"{it.program} was killed by SIGSEGV before it told its version; it wrote: oops"
        assert await it.probe() == ("", reason)


async def test_whoever_leaves_a_probe_does_not_end_it(tmp_path: Path) -> None:
    async with room(tmp_path) as it:
        it.launcher.code = None
        with anyio.move_on_after(0.05) as left:
            await it.agents.probe_all()
        assert left.cancelled_caught
        (process,) = it.launcher.started
        assert not process.exited
        process.exit(0)
        assert await it.probe() == ("2.1.332", "")
        assert len(it.launcher.asked) == 1


async def test_whoever_needs_an_agent_waits_for_its_probe_within_bounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_KILL_SECONDS", 0.0)
    async with room(tmp_path, seconds=0.02) as it:
        it.starts_tasks = False
        assert await it.refusal() == "agent 'claude': its program was not probed within 0.06 s"


async def test_those_who_wait_at_the_same_time_share_one_probe(tmp_path: Path) -> None:
    async with room(tmp_path) as it, anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(it.agents.require, "claude")
        tasks.start_soon(it.agents.probe_all)
    assert len(it.launcher.asked) == 1


async def test_an_agent_that_is_not_configured_is_unknown(tmp_path: Path) -> None:
    async with room(tmp_path) as it:
        with pytest.raises(Invalid, match=r"AGENT_UNKNOWN: .* it names: claude"):
            await it.agents.require("codex")


async def test_a_version_that_is_not_supported_is_told_with_it(tmp_path: Path) -> None:
    async with room(tmp_path) as it:
        it.launcher.output = b"1.0.0 (Claude Code)\n"
        version, reason = await it.probe()
        assert version == "1.0.0"
        assert reason.startswith("version 1.0.0 is not supported; accepted: ")
