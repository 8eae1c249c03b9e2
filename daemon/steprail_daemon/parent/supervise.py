"""The parent itself: one worker at a time, its CLIs, and the decision what follows when the worker is gone."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket

from steprail_daemon.parent import launch, wire
from steprail_daemon.parent.channel import Channel, ChannelClosed
from steprail_daemon.parent.sweep import Sweeper
from steprail_daemon.parent.trees import Tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess

    from steprail_daemon.parent.launch import Launcher
    from steprail_daemon.parent.log import Log
    from steprail_daemon.parent.loop import Loop, Timer
    from steprail_daemon.parent.options import Options

EX_CONFIG = 78
_FINAL_CODES = (0, EX_CONFIG)
_KILLED_AT_END_OF_GRACE = 1

_LONG_QUEUE = 256
_REQUESTS_PER_ROUND = 64
_ORPHANS_REPORT_PAUSE = 1.0
_FAREWELL_LIMIT = 5.0
_LONGEST_MESSAGE = 1000


class Worker:
    """One life of the worker: its tree, our end of its control socket (None once lost), when it began."""

    __slots__ = ("channel", "number", "started", "tree")

    def __init__(self, number: int, tree: Tree, channel: Channel, started: float) -> None:
        self.number = number
        self.tree = tree
        self.channel: Channel | None = channel
        self.started = started


class Parent:
    """Runs until the worker is done, refuses its configuration, or was told to end; `run` gives the exit code."""

    def __init__(self, options: Options, loop: Loop, launcher: Launcher, log: Log) -> None:
        self._options = options
        self._loop = loop
        self._launcher = launcher
        self._log = log
        self._sweeper = Sweeper(loop, options.instance, self._root_exited, self._tree_gone, self._all_settled)
        self._worker: Worker | None = None
        self._lives = 0
        self._trees_made = 0
        self._clis: dict[int, Tree] = {}
        self._backoff = options.backoff_first
        self._restart: Timer | None = None
        self._restart_at = 0.0
        self._shutting_down = False
        self._shut_down_by = 0
        self._code: int | None = None
        self._last_code = 0
        self._reported = (0, 0)
        self._orphans_timer: Timer | None = None

    def run(self) -> int:
        """Clean up, start the worker, and supervise."""
        self._loop.on_signal(signal.SIGCHLD, self._children_changed)
        for signum in (signal.SIGTERM, signal.SIGINT):
            self._loop.on_signal(signum, lambda signum=signum: self._shut_down(signum))  # type: ignore[misc]
        self._loop.on_signal(signal.SIGHUP, lambda: self._forward(signal.SIGHUP))
        # Whoever started us may have held it back until now.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        self._sweeper.clean_up(self._cleaned_up)
        self._loop.run()
        return self._last_code if self._code is None else self._code

    def _cleaned_up(self) -> None:
        if self._sweeper.strays_killed:
            self._log.warning("killed what an earlier life left", processes=self._sweeper.strays_killed)
        if self._shutting_down:
            self._loop.stop()
        else:
            self._start_worker()

    # The worker's life

    def _start_worker(self) -> None:
        self._restart = None
        self._lives += 1
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        argv = [*self._options.worker, wire.CONTROL_OPTION, str(theirs.fileno())]
        mark = self._next_mark()
        try:
            popen = self._start_process(argv, {**os.environ, wire.MARK: mark}, theirs.fileno())
        except OSError as error:
            ours.close()
            self._log.warning("the worker could not be started", error=_describe(error))
            self._last_code = EX_CONFIG
            self._loop.stop()
            return
        finally:
            theirs.close()
        tree = Tree(self._trees_made, popen, mark)
        self._sweeper.add(tree)
        self._worker = Worker(self._lives, tree, Channel(ours, max_descriptors=0), self._loop.now())
        leftovers = self._sweeper.strays_killed
        self._send(type="welcome", instance=self._options.instance, life=self._lives, leftovers_killed=leftovers)
        self._log.info("worker started", pid=tree.pid, life=self._lives)

    def _start_process(self, argv: list[str], environment: dict[str, str], control: int) -> subprocess.Popen[bytes]:
        # Until the worker has a handler, a reload must not kill it; an ignored signal stays ignored over exec.
        handler = signal.signal(signal.SIGHUP, signal.SIG_IGN)
        try:
            return self._launcher.start_worker(argv, environment, control)
        finally:
            signal.signal(signal.SIGHUP, handler)

    def _next_mark(self) -> str:
        self._trees_made += 1
        return f"{self._options.instance}.{self._trees_made}"

    def _root_exited(self, tree: Tree) -> None:
        worker = self._worker
        if worker is None or tree is not worker.tree:
            return
        status = os.waitstatus_to_exitcode(tree.status or 0)
        self._last_code = status if status >= 0 else 128 - status
        if self._shutting_down and status == -signal.SIGTERM:
            self._last_code = 128 + self._shut_down_by
        self._lose_channel()
        for other in self._sweeper.trees:
            other.doom()
        lived = self._loop.now() - worker.started
        if lived >= self._options.settled:
            self._backoff = self._options.backoff_first
        self._restart_at = self._loop.now() + self._backoff
        say = self._log.info if status in _FINAL_CODES or self._shutting_down else self._log.warning
        say("worker ended", pid=tree.pid, code=max(status, 0), signal=max(-status, 0), lived_seconds=round(lived, 3))

    def _all_settled(self) -> None:
        """Nothing is left to kill: if the worker is gone too, end or start it again."""
        worker = self._worker
        if worker is None or not worker.tree.is_over or self._restart is not None:
            return
        if self._shutting_down or self._last_code in _FINAL_CODES:
            self._loop.stop()
            return
        pause = max(0.0, self._restart_at - self._loop.now())
        self._log.info("worker will be started again", seconds=round(pause, 3))
        self._backoff = min(self._backoff * 2, self._options.backoff_longest)
        self._restart = self._loop.call_later(pause, self._start_worker)

    # Signals

    def _shut_down(self, signum: int) -> None:
        if not self._shutting_down:
            self._shutting_down = True
            self._shut_down_by = signum
            self._loop.call_later(self._options.grace, self._end_of_grace)
        if self._restart is not None:
            self._restart.cancel()
            self._loop.stop()
        # A worker that only comes up has no handler yet: Python answers TERM by its end, INT by a traceback.
        self._forward(signal.SIGTERM)

    def _forward(self, signum: int) -> None:
        if self._worker is not None and not self._worker.tree.is_over:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._worker.tree.pid, signum)

    def _end_of_grace(self) -> None:
        self._log.warning("the worker did not end in its grace time; everything is killed", seconds=self._options.grace)
        self._code = _KILLED_AT_END_OF_GRACE
        self._sweeper.kill(*self._sweeper.trees)
        # What even SIGKILL does not end must not keep us: whoever supervises us waits for this exit.
        self._loop.call_later(_FAREWELL_LIMIT, self._loop.stop)

    def _children_changed(self) -> None:
        self._sweeper.reap()
        if self._orphans_timer is None and self._orphans() != self._reported:
            self._orphans_timer = self._loop.call_later(_ORPHANS_REPORT_PAUSE, self._report_orphans)

    def _orphans(self) -> tuple[int, int]:
        return (self._sweeper.orphans_reaped, self._sweeper.orphans_killed)

    def _report_orphans(self) -> None:
        self._orphans_timer = None
        if self._worker is None or self._worker.channel is None:
            return  # they are told to the next worker
        (reaped, killed), (reaped_before, killed_before) = self._orphans(), self._reported
        self._reported = (reaped, killed)
        self._send(type="orphans", reaped=reaped - reaped_before, killed=killed - killed_before)

    # The control socket

    def _send(self, descriptors: tuple[int, ...] = (), **message: object) -> None:
        channel = self._worker.channel if self._worker is not None else None
        if channel is None:
            for descriptor in descriptors:
                os.close(descriptor)
            return
        try:
            channel.send(wire.encode(message), descriptors)
        except ChannelClosed:
            self._abandon_worker()
        self._watch_channel()

    def _watch_channel(self) -> None:
        channel = self._worker.channel if self._worker is not None else None
        if channel is not None:
            calm = channel.backlog < _LONG_QUEUE
            self._loop.watch(channel.fileno(), self._channel_ready, read=calm, write=channel.backlog > 0)

    def _channel_ready(self, readable: bool, writable: bool) -> None:
        channel = self._worker.channel if self._worker is not None else None
        if channel is None:
            return
        try:
            if writable:
                channel.flush()
            if readable:
                self._read_requests(channel)
        except ChannelClosed:
            self._abandon_worker()
        self._watch_channel()

    def _read_requests(self, channel: Channel) -> None:
        for _ in range(_REQUESTS_PER_ROUND):
            if channel.backlog >= _LONG_QUEUE or channel.fileno() < 0:
                return
            try:
                received = channel.receive()
                if received is None:
                    return
                self._answer(wire.read_request(received[0]))
            except wire.Malformed as error:
                self._refuse(error)

    def _refuse(self, error: wire.Malformed) -> None:
        self._log.warning("refused a packet of the worker", error=error.message)
        if error.request_id is not None:
            self._send(type="spawn_failed", id=error.request_id, errno=errno.EINVAL, message=error.message)
        else:
            self._send(type="refused", message=error.message[:_LONGEST_MESSAGE])

    def _lose_channel(self) -> None:
        if self._worker is not None and self._worker.channel is not None:
            self._loop.forget(self._worker.channel.fileno())
            self._worker.channel.close()
            self._worker.channel = None

    def _abandon_worker(self) -> None:
        """The worker hung up: nobody commands its CLIs any more. It may still be writing its last words."""
        self._lose_channel()
        worker = self._worker
        if worker is None or worker.tree.is_over:
            return
        self._sweeper.kill(*self._clis.values())

        def give_up() -> None:
            if not worker.tree.is_over:
                self._log.warning("the worker hung up and did not end", pid=worker.tree.pid)
                self._sweeper.kill(worker.tree)

        self._loop.call_later(_FAREWELL_LIMIT, give_up)

    # Requests

    def _answer(self, request: wire.SpawnRequest | wire.CloseRequest | wire.SignalRequest) -> None:
        if isinstance(request, wire.SpawnRequest):
            self._spawn(request)
            return
        tree = self._clis.get(request.id)
        if tree is None or tree.is_over:
            return
        if isinstance(request, wire.CloseRequest):
            tree.close_stdin()
        else:
            self._signal(tree, request.signal, request.scope)

    def _spawn(self, request: wire.SpawnRequest) -> None:
        if request.id in self._clis:
            raise wire.Malformed(f"id is {request.id}, which a living CLI has", request.id)
        mark = self._next_mark()
        large = launch.may_have_large_pipe(len(self._clis))
        try:
            environment = {**request.env, wire.MARK: mark}
            popen, pipes = self._launcher.start_cli(request.argv, environment, request.cwd, large_pipe=large)
        except OSError as error:
            self._send(type="spawn_failed", id=request.id, errno=error.errno or 0, message=_describe(error))
            return
        tree = Tree(self._trees_made, popen, mark, request.id, stdin=pipes.kept_stdin)
        self._clis[request.id] = tree
        self._sweeper.add(tree)
        self._send((pipes.stdin, pipes.stdout, pipes.stderr), type="spawned", id=request.id, pid=tree.pid)

    def _signal(self, tree: Tree, signum: int, scope: str) -> None:
        if scope == "tree":
            self._sweeper.signal_tree(tree, signum)
            return
        with contextlib.suppress(OSError):
            # The root is our child and not reaped, so its number is still its own.
            (os.killpg if scope == "group" else os.kill)(tree.pid, signum)

    def _tree_gone(self, tree: Tree, survivors: int) -> None:
        if survivors:
            self._log.warning("processes did not die", pid=tree.pid, survivors=survivors)
        if tree.request_id is None:
            return
        del self._clis[tree.request_id]
        if self._worker is None or self._worker.tree.is_over:
            return
        status = os.waitstatus_to_exitcode(tree.status or 0)
        self._send(
            type="exited",
            id=tree.request_id,
            code=status if status >= 0 else None,
            signal=-status if status < 0 else None,
            leftovers_killed=tree.leftovers_killed,
            survivors=survivors,
        )


def _describe(error: OSError) -> str:
    return str(error.strerror or error)[:_LONGEST_MESSAGE]
