"""A worker for tests: the real supervisor behind commands on stdin; tells what happens on stdout, in JSON lines."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import anyio
import anyio.abc
from anyio.lowlevel import checkpoint

from steprail_daemon.core.shutdown import parse_ladder
from steprail_daemon.supervisor import AgentProcess, ExitStatus, ParentLink, SpawnFailed

Command = dict[str, Any]


def tell(event: str, **fields: object) -> None:
    os.write(1, json.dumps({"event": event, **fields}).encode() + b"\n")


class Handlers:
    """Tells what a CLI does; counts its output instead if it is much."""

    def __init__(self, name: str, *, quiet: bool) -> None:
        self.name = name
        self.quiet = quiet
        self.received = 0

    def on_stdout(self, data: bytes) -> None:
        self.received += len(data)
        if not self.quiet:
            tell("stdout", name=self.name, text=data.decode())

    def on_stdout_eof(self) -> None:
        tell("stdout_eof", name=self.name, received=self.received)

    def on_exit(self, status: ExitStatus) -> None:
        tell("exit", name=self.name, code=status.code, signal=status.signal)


class Worker:
    def __init__(self, link: ParentLink, tasks: anyio.abc.TaskGroup, control_fd: int) -> None:
        self.link = link
        self.tasks = tasks
        self.control_fd = control_fd
        self.processes: dict[str, AgentProcess] = {}

    def take(self, command: Command) -> None:
        getattr(self, f"do_{command['do']}")(command)

    def do_spawn(self, command: Command) -> None:
        self.tasks.start_soon(self._spawn, command)

    async def _spawn(self, command: Command) -> None:
        name = command["name"]
        handlers = Handlers(name, quiet=command.get("quiet", False))
        began = time.perf_counter()
        try:
            process = await self.link.spawn(
                [*command["argv"], *["x" * 100_000 * command.get("repeat", 1)] * command.get("padding", 0)],
                command.get("env", {"PATH": os.environ.get("PATH", os.defpath)}),
                command.get("cwd", "/"),
                handlers,
                timeout=command.get("timeout", 20.0),
            )
        except SpawnFailed as error:
            tell("spawn_failed", name=name, errno=error.errno, message=error.message)
        except TimeoutError:
            tell("spawn_timeout", name=name)
        else:
            took = time.perf_counter() - began
            self.processes[name] = process
            tell("spawned", name=name, pid=process.pid, milliseconds=took * 1000)

    def do_write(self, command: Command) -> None:
        data = command["text"].encode() * command.get("times", 1)
        self.processes[command["name"]].write(data)
        tell("written", name=command["name"], pending=self.processes[command["name"]].stdin_pending)

    def do_close_stdin(self, command: Command) -> None:
        self.processes[command["name"]].close_stdin()

    def do_pause(self, command: Command) -> None:
        self.processes[command["name"]].pause_reading()

    def do_resume(self, command: Command) -> None:
        self.processes[command["name"]].resume_reading()

    def do_state(self, command: Command) -> None:
        process = self.processes[command["name"]]
        tail = base64.b64encode(process.stderr_tail).decode()
        tell("state", name=command["name"], stderr=tail, stdin_broken=process.stdin_broken)

    def do_shut_down(self, command: Command) -> None:
        self.tasks.start_soon(self._shut_down, command)

    async def _shut_down(self, command: Command) -> None:
        process = self.processes[command["name"]]
        goodbye = command.get("goodbye")
        end = (lambda: process.write(goodbye.encode())) if goodbye else None
        began = time.monotonic()
        await process.shut_down(parse_ladder(command["ladder"]), end)
        tell("down", name=command["name"], seconds=time.monotonic() - began)

    def do_raw(self, command: Command) -> None:
        """Send a packet past the link, as a broken worker would."""
        with socket.socket(fileno=os.dup(self.control_fd)) as control:
            control.send(command["packet"].encode() * command.get("times", 1))
        tell("sent")

    def do_hang_up(self, _command: Command) -> None:
        self.link.close()
        tell("hung_up")

    def do_environment(self, _command: Command) -> None:
        tell("environment", names=sorted(os.environ))

    def do_exit(self, command: Command) -> None:
        os._exit(command["code"])


async def read_commands(worker: Worker) -> None:
    """Take commands until stdin ends, byte by byte: a worker that is killed has taken nothing of the next one's."""
    line = b""
    while True:
        await anyio.wait_readable(0)
        byte = os.read(0, 1)
        if not byte:
            return
        line += byte
        if byte == b"\n":
            worker.take(json.loads(line))
            line = b""
            await checkpoint()


async def watch_signals(ready: Callable[[], None], ignore: bool) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
        ready()
        async for number in signals:
            tell("signal", number=number)
            if number == signal.SIGTERM and not ignore:
                os._exit(0)


def observe(name: str, value: float, labels: Mapping[str, str]) -> None:
    tell("observed", name=name, value=value, labels=dict(labels))


async def main() -> None:
    control_fd = int(sys.argv[sys.argv.index("--control-fd") + 1])
    link = ParentLink(
        control_fd,
        asyncio.get_running_loop(),
        on_lost=lambda: os._exit(99),
        observe=observe if "--observe" in sys.argv else None,
    )
    async with anyio.create_task_group() as tasks:
        worker = Worker(link, tasks, control_fd)

        def ready() -> None:
            tell("up", pid=os.getpid(), parent=os.getppid(), life=link.life, leftovers=link.leftovers_killed)
            tasks.start_soon(read_commands, worker)

        while link.life is None:
            await checkpoint()
        await watch_signals(ready, "--ignore-term" in sys.argv)


anyio.run(main)
