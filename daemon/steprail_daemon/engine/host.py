"""The agent's process of one session: started when it is needed, at most one at a time, ended in order.

The host turns bytes into events and commands into bytes through the driver's codec; what the events mean is the
runner's affair. Everything runs on the loop's thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from steprail_daemon.core.commands import AgentCommand
from steprail_daemon.core.errors import StepRailError
from steprail_daemon.core.events import AgentEvent, AgentExited, AgentReady, TurnEnded
from steprail_daemon.core.model import Failure, FailureFault
from steprail_daemon.core.shutdown import Ladder, RungKind
from steprail_daemon.core.views import SessionView
from steprail_daemon.drivers.base import Channel, Codec, CodecSettings, LaunchSpec
from steprail_daemon.engine.ports import AgentProcess, ExitStatus
from steprail_daemon.engine.world import World

#: What of the agent's stderr goes into a failure, in bytes.
STDERR_SHOWN = 2048

log = logging.getLogger("steprail.engine")


class HostListener(Protocol):
    """Who hears of the agent."""

    def agent_said(self, events: list[AgentEvent]) -> None:
        """Take events in their order."""

    def agent_failed_to_start(self, failure: Failure) -> None:
        """The agent did not come up; nothing of it is left, or will be soon."""

    def agent_exited(self, event: AgentExited) -> None:
        """The agent that was up is gone."""


class AgentHost:
    """Owns the process; see the module docstring."""

    def __init__(self, world: World, view: SessionView, listener: HostListener) -> None:
        self._world = world
        self._view = view
        self._listener = listener
        self._process: AgentProcess | None = None
        self._codec: Codec | None = None
        self._starting = False
        self._resumed = False
        self._failure: Failure | None = None
        self._start_began_at = 0
        self._start_timer: asyncio.TimerHandle | None = None
        self._handlers = _Handlers(self, world.crash)
        self._gone = asyncio.Event()
        self._gone.set()
        self._ending = False
        self._handshaken = False
        self._read_size = 128 * 1024
        self.version = ""
        #: Variables that the session's maker set. They are kept in memory alone.
        self.environment: dict[str, str] = {}
        #: How often anything was read of the agent.
        self.reads = 0

    @property
    def up(self) -> bool:
        """Whether there is a process, or will be."""
        return self._starting or self._process is not None

    @property
    def ready(self) -> bool:
        """Whether the agent takes prompts: it answered its handshake and is not being ended."""
        return self._handshaken and not self._ending

    @property
    def ending(self) -> bool:
        """Whether the process is being ended by us."""
        return self._ending

    @property
    def resumed(self) -> bool:
        """Whether the present process took up an earlier conversation."""
        return self._resumed

    @property
    def home(self) -> str:
        """The directory that `~` stands for to the agent; empty if it is given none."""
        agent = self._world.agent(self._view.agent)
        if agent is None:
            return ""
        return agent.isolated_home or {**agent.environment, **self.environment}.get("HOME", "")

    @property
    def pid(self) -> int | None:
        """Process id, if there is a process."""
        return self._process.pid if self._process is not None else None

    def start(self, *, resume: bool) -> None:
        """Begin to start the agent. The listener hears `AgentReady` or of the failure."""
        if self.up:
            return
        self._starting = True
        self._start_began_at = self._world.clock.now()
        self._failure = None
        self._ending = False
        self._resumed = resume
        self._gone.clear()
        self._world.start_task(self._start, f"start agent of {self._view.session_id}")

    async def _start(self) -> None:
        world, view = self._world, self._view
        try:
            # Asked again for each process: the program may have been replaced since.
            agent, _ = await world.require_agent(view.agent)
        except StepRailError as error:
            self._not_started(error.message)
            return
        driver = world.drivers[agent.driver]
        spec = LaunchSpec(
            command=agent.command,
            cwd=view.cwd,
            agent_session_id=view.agent_session_id,
            resume=self._resumed,
            model=view.model,
            permission_mode=view.permission_mode,
            isolated_home=agent.isolated_home,
            plan_mode=view.plan_mode,
            allowed_tools=view.allowed_tools,
            disallowed_tools=view.disallowed_tools,
            instructions=view.instructions,
        )
        plan = driver.plan(spec)
        self._codec = driver.codec(
            CodecSettings(
                agent_session_id=view.agent_session_id,
                permission_mode=view.permission_mode,
                line_bytes=world.settings.line_bytes,
                resume=self._resumed,
                plan_mode=view.plan_mode,
            )
        )
        handlers = self._handlers = _Handlers(self, world.crash)
        try:
            _make_directories(plan.directories)
            process = await world.launcher.spawn(
                plan.argv, {**agent.environment, **self.environment, **plan.environment}, view.cwd, handlers
            )
        except OSError as error:
            self._not_started(f"{agent.command[0]} could not be started: {_why(error)}")
            return
        self._started(process)

    def _not_started(self, message: str) -> None:
        self._codec = None
        self._starting = False
        self._gone.set()
        self._count_start("failed")
        self._listener.agent_failed_to_start(_start_failure(message))

    def _count_start(self, outcome: str) -> None:
        self._world.observe("agent_starts_total", 1, {"agent": self._view.agent, "outcome": outcome})

    def _started(self, process: AgentProcess) -> None:
        self._process = process
        self._starting = False
        process.read_size = self._read_size
        seconds = self._world.settings.start_timeout_ns / 1e9
        self._start_timer = self._world.loop.call_later(seconds, self._world.guarded(self._start_timed_out))
        if self._ending:
            self._climb_down(process)
        elif self._codec is not None:
            self._codec.start()
            self._write(process, self._codec)

    def _start_timed_out(self) -> None:
        seconds = self._world.settings.start_timeout_ns // 1_000_000_000
        self._failure = _start_failure(f"the agent did not answer its handshake within {seconds} s")
        self.end()

    def _write(self, process: AgentProcess, codec: Codec) -> None:
        data = codec.data_to_send()
        if data:
            self._put(process, data)

    def _put(self, process: AgentProcess, data: bytes) -> None:
        try:
            process.write(data)
        except BufferError as error:
            self._does_not_read(error)

    def _does_not_read(self, error: BufferError) -> None:
        log.warning("agent of %s does not read its input and is ended: %s", self._view.session_id, error)
        self.end()

    def send(self, commands: list[AgentCommand]) -> None:
        """Give the agent commands, in their order. Without a process they come to nothing; its exit was told."""
        codec, process = self._codec, self._process
        if codec is None or process is None:
            return
        for command in commands:
            codec.send(command)
        # `_write` written out, as this is on the way to every answer.
        data = codec.data_to_send()
        if data:
            try:
                process.write(data)
            except BufferError as error:
                self._does_not_read(error)

    def set_read_size(self, size: int) -> None:
        """Set how much is read at a time: large when this session is alone, small when others must get their turn."""
        self._read_size = size
        if self._process is not None:
            self._process.read_size = size

    def pause(self) -> None:
        """Stop to read the agent for a while."""
        if self._process is not None:
            self._process.pause_reading()

    def resume(self) -> None:
        """Read the agent again."""
        if self._process is not None:
            self._process.resume_reading()

    def end(self) -> None:
        """Begin to end the agent's process tree by the ladder; the listener hears of the exit."""
        if self._ending or not self.up:
            return
        self._ending = True
        if self._process is not None:
            self._climb_down(self._process)

    def _climb_down(self, process: AgentProcess) -> None:
        ladder: Ladder = self._world.settings.ladder
        if self._codec is None or not self._codec.eof_is_safe():
            ladder = ladder.without(RungKind.EOF)

        handlers = self._handlers

        async def climb_down() -> None:
            await process.shut_down(ladder)
            if self._process is process:
                # Even the kill was not confirmed. Whoever waits for the exit must not wait for ever; what the process
                # may still say is no affair of the next one's.
                handlers.silence()
                log.error("the agent of %s did not die: process %d", self._view.session_id, process.pid)
                self.on_exit(_UNKNOWN)

        self._world.start_task(climb_down, f"end agent of {self._view.session_id}")

    async def gone(self) -> None:
        """Wait until there is no process, or until it cannot be ended.

        Once `end` was called it is bounded by the ladder, and before that by what is left of the start.
        """
        await self._gone.wait()

    # --- what the process calls ---

    def on_stdout(self, data: bytes) -> None:
        """Take bytes: what the protocol owes at once is written at once, the rest is the listener's."""
        codec, process = self._codec, self._process
        if codec is None:
            return
        self.reads += 1
        events = codec.receive(Channel.STDOUT, data)
        if process is not None:
            # Protocol chores have timers of their own in the CLI and wait for no commit.
            owed = codec.data_to_send()
            if owed:
                self._put(process, owed)
        if events:
            if not self._handshaken:
                events = self._before_handshake(events)
            self._listener.agent_said(events)

    def _before_handshake(self, events: list[AgentEvent]) -> list[AgentEvent]:
        """Look for the handshake's answer, or for why there will be none; gives what is the listener's affair."""
        passed: list[AgentEvent] = []
        for event in events:
            if isinstance(event, TurnEnded):
                # No turn was begun: this is how a CLI says that it cannot take the conversation up. Some stay after it.
                self._failure = event.failure or self._failure
                if self._start_timer is not None:
                    self._start_timer.cancel()
                self.end()
            elif isinstance(event, AgentReady):
                self._ready(event)
                passed.append(event)
            else:
                passed.append(event)
        return passed

    def _ready(self, event: AgentReady) -> None:
        if self._start_timer is not None:
            self._start_timer.cancel()
        if event.gate_held:
            # Some protocols do not tell it.
            self.version = event.version or self._world.version_of(self._view.agent)
            self._handshaken = True
            self._count_start("ready")
            seconds = (self._world.clock.now() - self._start_began_at) / 1e9
            self._world.observe("agent_start_seconds", seconds, {"agent": self._view.agent})
        else:
            self._failure = _start_failure("the agent did not confirm that it waits at step boundaries")
            self.end()

    def on_stdout_eof(self) -> None:
        """Take the end of stdout; a last line without its end may be complete all the same."""
        if self._codec is not None:
            events = self._codec.receive_eof(Channel.STDOUT)
            if events:
                self._listener.agent_said(events)

    def on_exit(self, status: ExitStatus) -> None:
        """Take the exit, and tell it as what it was: a failed start or the end of an agent that was up."""
        process = self._process
        stderr = process.stderr_tail[-STDERR_SHOWN:].decode("utf-8", "replace").strip() if process is not None else ""
        was_up, failure = self._handshaken, self._failure
        labels = {"agent": self._view.agent, "cause": _cause(status, by_us=self._ending)}
        self._world.observe("agent_exits_total", 1, labels)
        if not was_up:
            self._count_start("failed")
        if self._start_timer is not None:
            self._start_timer.cancel()
        self._process = None
        self._codec = None
        self._starting = False
        self._handshaken = False
        self._gone.set()
        if was_up or (self._ending and failure is None):
            self._listener.agent_exited(AgentExited(status.code, status.signal, stderr))
            return
        how = how_ended(status.code, status.signal)
        told = f"the agent ended before it was ready: {how}" + (f"; it wrote: {stderr}" if stderr else "")
        self._listener.agent_failed_to_start(failure or _start_failure(told))


class _Handlers:
    """Ties the callbacks of one process to its host. An exception there is a bug, and nobody else would hear of it."""

    __slots__ = ("_crash", "_host", "_silenced")

    def __init__(self, host: AgentHost, crash: Callable[[Exception], None]) -> None:
        self._host = host
        self._crash = crash
        self._silenced = False

    def silence(self) -> None:
        """Pass nothing on any more: the process was given up."""
        self._silenced = True

    def on_stdout(self, data: bytes) -> None:
        try:
            if not self._silenced:
                self._host.on_stdout(data)
        except Exception as error:  # noqa: BLE001 - whatever it is, it ends the daemon
            self._crash(error)

    def on_stdout_eof(self) -> None:
        try:
            if not self._silenced:
                self._host.on_stdout_eof()
        except Exception as error:  # noqa: BLE001
            self._crash(error)

    def on_exit(self, status: ExitStatus) -> None:
        try:
            if not self._silenced:
                self._host.on_exit(status)
        except Exception as error:  # noqa: BLE001
            self._crash(error)


def how_ended(code: int | None, signal: int | None) -> str:
    """Say how a process ended, for people."""
    if code is not None:
        return f"exit code {code}"
    return "it is not known how" if signal is None else f"signal {signal}"


def _cause(status: ExitStatus, *, by_us: bool) -> str:
    """Say in one word how a process came to its end."""
    if by_us:
        return "ended"
    if status.signal is not None:
        return "signal"
    return "unknown" if status.code is None else "error" if status.code else "exit"


class _UnknownExit:
    """The exit of a process of which nobody knows how, or whether, it ended."""

    code: int | None = None
    signal: int | None = None


_UNKNOWN = _UnknownExit()


def _why(error: OSError) -> str:
    # A TimeoutError is an OSError, and anyio's has no text.
    return error.strerror or str(error) or "there was no answer in time"


def _start_failure(message: str) -> Failure:
    return Failure(reason="AGENT_START_FAILED", message=message, fault=FailureFault.ENVIRONMENT, retryable=False)


def _make_directories(paths: tuple[str, ...]) -> None:
    for path in paths:
        Path(path).mkdir(mode=0o700, parents=True, exist_ok=True)
