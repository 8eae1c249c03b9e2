"""The worker's end of the control socket (`steprail_daemon.parent` is its law): starts agents, tells of their ends."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
from collections.abc import Callable, Mapping, Sequence

import anyio

from steprail_daemon.parent import wire
from steprail_daemon.parent.channel import Channel, ChannelClosed
from steprail_daemon.supervisor.process import AgentProcess
from steprail_daemon.supervisor.status import ExitStatus, ProcessHandlers, SpawnFailed

START_LIMIT = 30.0

Observe = Callable[[str, float, Mapping[str, str]], None]

_SIGNAL_NAMES = {signal.SIGINT: "INT", signal.SIGTERM: "TERM", signal.SIGKILL: "KILL"}
_LONG_QUEUE = 1024
_LONGEST_QUEUE = 4096
_PACKETS_PER_ROUND = 64


class _Pending:
    """A spawn that waits for its answer."""

    __slots__ = ("answer", "handlers", "on_stderr")

    def __init__(
        self,
        answer: asyncio.Future[AgentProcess],
        handlers: ProcessHandlers,
        on_stderr: Callable[[bytes], None] | None,
    ) -> None:
        self.answer = answer
        self.handlers = handlers
        self.on_stderr = on_stderr


class ParentLink:
    """Speaks with the parent over descriptor `fd`, which it owns, on `loop`.

    `on_lost` is called once if the parent is gone; the worker must then exit, as its agents already do. `observe` is
    told `orphans_reaped_total` and `processes_killed_total`. `life` (which worker of this parent we are, from 1) and
    `leftovers_killed` (processes of earlier lives that the parent's start killed) are None until the parent has told
    them.
    """

    def __init__(
        self,
        fd: int,
        loop: asyncio.AbstractEventLoop,
        on_lost: Callable[[], None] | None = None,
        observe: Observe | None = None,
    ) -> None:
        self.life: int | None = None
        self.leftovers_killed: int | None = None
        self._loop = loop
        self._on_lost = on_lost
        self._observe = observe
        self._channel = Channel(socket.socket(fileno=fd), max_descriptors=3)
        self._is_open = True
        self._next_id = 0
        self._pending: dict[int, _Pending] = {}
        self._processes: dict[int, AgentProcess] = {}
        os.set_inheritable(fd, False)
        loop.add_reader(fd, self._readable)

    @property
    def processes(self) -> int:
        """How many agents run."""
        return len(self._processes)

    async def spawn(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        cwd: str,
        handlers: ProcessHandlers,
        *,
        timeout: float = START_LIMIT,
        on_stderr: Callable[[bytes], None] | None = None,
    ) -> AgentProcess:
        """Start a program in a session of its own, looked up in the PATH of `environment`; `cwd` is absolute.

        No handler is called before the caller has the process and waits for something again.

        Raises:
            SpawnFailed: it could not be started; `errno` and `message` say why.
            TimeoutError: there was no answer within `timeout` seconds; if it starts later, it is killed.
        """
        self._next_id += 1
        process_id = self._next_id
        pending = _Pending(self._loop.create_future(), handlers, on_stderr)
        self._ask_spawn(process_id, argv, environment, cwd)
        self._pending[process_id] = pending
        try:
            with anyio.fail_after(timeout):
                process = await pending.answer
        except BaseException:
            self._give_up(process_id, pending)
            raise
        process.start()
        return process

    def close(self) -> None:
        """Hang up. The parent takes this for the worker's end and kills every agent."""
        if self._is_open:
            self._is_open = False
            self._loop.remove_reader(self._channel.fileno())
            self._loop.remove_writer(self._channel.fileno())
            self._channel.close()

    # What processes ask

    def close_stdin(self, process_id: int) -> None:
        """Close the parent's duplicate of an agent's stdin."""
        self._send({"type": "close_stdin", "id": process_id})

    def send_signal(self, process_id: int, signum: int, scope: str) -> None:
        """Send a signal to an agent, its group or its tree."""
        if self._observe is not None:
            self._observe("processes_killed_total", 1, {"signal": _SIGNAL_NAMES.get(signal.Signals(signum), "other")})
        self._send({"type": "signal", "id": process_id, "signal": signum, "scope": scope})

    def _ask_spawn(self, process_id: int, argv: Sequence[str], environment: Mapping[str, str], cwd: str) -> None:
        if self._channel.backlog >= _LONG_QUEUE:
            raise SpawnFailed(errno.EAGAIN, f"{self._channel.backlog} requests already wait for the parent process")
        request = {"type": "spawn", "id": process_id, "argv": list(argv), "env": dict(environment), "cwd": cwd}
        try:
            self._send(request)
        except wire.PacketTooLarge as error:
            message = f"arguments and environment are too large: {error}"
            raise SpawnFailed(errno.E2BIG, message) from error
        if not self._is_open:
            raise SpawnFailed(errno.ECONNRESET, "the parent process is gone")

    def _send(self, message: dict[str, object]) -> None:
        if not self._is_open:
            return
        packet = wire.encode(message)
        try:
            self._channel.send(packet)
        except ChannelClosed:
            self._lost()
            return
        if self._channel.backlog > _LONGEST_QUEUE:
            self._lost()
        elif self._channel.backlog:
            self._loop.add_writer(self._channel.fileno(), self._writable)

    # What the parent tells

    def _writable(self) -> None:
        try:
            self._channel.flush()
        except ChannelClosed:
            self._lost()
            return
        if not self._channel.backlog:
            self._loop.remove_writer(self._channel.fileno())

    def _readable(self) -> None:
        for _ in range(_PACKETS_PER_ROUND):
            if not self._is_open:
                return
            try:
                received = self._channel.receive()
            except ChannelClosed:
                self._lost()
                return
            if received is None:
                return
            self._take(wire.decode(received[0]), received[1])

    def _take(self, message: dict[str, object], descriptors: tuple[int, ...]) -> None:
        kind = message.get("type")
        process_id = _whole(message.get("id"))
        if kind == "spawned":
            self._spawned(process_id, _whole(message["pid"]), descriptors)
        elif kind == "spawn_failed":
            pending = self._pending.pop(process_id, None)
            if pending is not None and not pending.answer.done():
                failure = SpawnFailed(_whole(message["errno"]), str(message["message"]))
                pending.answer.set_exception(failure)
        elif kind == "exited":
            self._exited(process_id, message)
        elif kind == "orphans":
            self._count("orphans_reaped_total", message["reaped"], {})
            self._count("processes_killed_total", message["killed"], {"signal": "KILL"})
        elif kind == "welcome":
            self.life = _whole(message["life"])
            self.leftovers_killed = _whole(message["leftovers_killed"])
            if self.life == 1:
                # The parent counts from its own start: to a later worker it tells what the first one has counted.
                self._count("processes_killed_total", self.leftovers_killed, {"signal": "KILL"})

    def _spawned(self, process_id: int, pid: int, descriptors: tuple[int, ...]) -> None:
        pending = self._pending.pop(process_id, None)
        if pending is None or pending.answer.done() or len(descriptors) != 3:
            for descriptor in descriptors:
                os.close(descriptor)
            self.send_signal(process_id, signal.SIGKILL, "tree")
            if pending is not None and not pending.answer.done():
                message = "the worker has no descriptors left for the pipes of a process"
                pending.answer.set_exception(SpawnFailed(errno.EMFILE, message))
            return
        stdin, stdout, stderr = descriptors
        process = AgentProcess(
            self._loop,
            self,
            process_id,
            pid=pid,
            descriptors=(stdin, stdout, stderr),
            handlers=pending.handlers,
            on_stderr=pending.on_stderr,
        )
        self._processes[process_id] = process
        pending.answer.set_result(process)

    def _exited(self, process_id: int, message: dict[str, object]) -> None:
        self._count("processes_killed_total", message["leftovers_killed"], {"signal": "KILL"})
        process = self._processes.pop(process_id, None)
        if process is not None:
            code, signum = message["code"], message["signal"]
            status = ExitStatus(None if code is None else _whole(code), None if signum is None else _whole(signum))
            process.exit_noticed(status)

    def _count(self, name: str, value: object, labels: Mapping[str, str]) -> None:
        number = _whole(value)
        if number and self._observe is not None:
            self._observe(name, number, labels)

    def _give_up(self, process_id: int, pending: _Pending) -> None:
        """The caller left. What was started already is killed now, what starts later is killed then."""
        self._pending.pop(process_id, None)
        if pending.answer.done() and not pending.answer.cancelled() and pending.answer.exception() is None:
            self._processes.pop(process_id, None)
            pending.answer.result().discard()

    def _lost(self) -> None:
        self.close()
        for pending in self._pending.values():
            if not pending.answer.done():
                pending.answer.set_exception(SpawnFailed(errno.ECONNRESET, "the parent process is gone"))
        self._pending.clear()
        for process in self._processes.values():
            process.link_lost()
        self._processes.clear()
        if self._on_lost is not None:
            self._on_lost()


def _whole(value: object) -> int:
    assert isinstance(value, int) or value is None, f"the parent sent {value!r} where a number belongs"
    return -1 if value is None else value
