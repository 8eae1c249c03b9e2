"""A tap between an agent's stdout and the daemon, by which a check makes happen what no agent does on demand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from steprail_daemon.engine.ports import AgentProcess, ExitStatus, Launcher, ProcessHandlers

#: Letters that an agent prints and that the tap turns into half a surrogate pair, escaped as JavaScript writes it.
HALF_PAIR: Final = "HALF-OF-A-PAIR"
_ESCAPE: Final = b"\\ud83d"


class Tap:
    """Lets everything through as it comes, until it is told otherwise."""

    def __init__(self) -> None:
        self.processes: list[AgentProcess] = []
        self.exits: list[ExitStatus] = []
        self._streams: list[_Stream] = []
        self._held = False
        self._piece = 0
        self._halves = False
        self._extra: list[bytes] = []

    @property
    def pid(self) -> int:
        """Process id of the agent that was started last."""
        return self.processes[-1].pid

    @property
    def plain(self) -> bool:
        """Whether nothing is to be done to what comes."""
        return not (self._held or self._piece or self._halves or self._extra)

    def hold(self) -> None:
        """Keep what the agent says from now on; if it ends meanwhile it never said it."""
        self._held = True

    def release(self) -> None:
        """Let through what was kept, and what comes."""
        self._held = False
        for stream in self._streams:
            stream.flush()

    def cut(self, size: int) -> None:
        """Let everything through in pieces of this many bytes."""
        self._piece = size

    def tear_pairs(self) -> None:
        """Turn `HALF_PAIR` into half a surrogate pair from now on."""
        self._halves = True

    def say(self, *lines: bytes) -> None:
        """Have the agent say these lines before its next one."""
        self._extra += lines

    def watch(self, handlers: ProcessHandlers) -> ProcessHandlers:
        """Stand before what takes a process's output."""
        stream = _Stream(self, handlers)
        self._streams.append(stream)
        return stream

    def lines(self, data: bytes) -> bytes:
        """Do to whole lines what is to be done."""
        extra, self._extra = self._extra, []
        data = b"".join(line + b"\n" for line in extra) + data
        return data.replace(HALF_PAIR.encode(), _ESCAPE) if self._halves else data

    def pieces(self, data: bytes) -> list[bytes]:
        """Cut what goes through."""
        size = self._piece or len(data)
        return [data[at : at + size] for at in range(0, len(data), size)]

    @property
    def held(self) -> bool:
        """Whether everything is kept at present."""
        return self._held


class _Stream:
    """The stdout of one process. Once anything was to be done to it, it goes through in whole lines."""

    def __init__(self, tap: Tap, handlers: ProcessHandlers) -> None:
        self._tap = tap
        self._handlers = handlers
        self._kept = b""

    def on_stdout(self, data: bytes) -> None:
        if self._tap.plain and not self._kept:
            self._handlers.on_stdout(data)
            return
        self._kept += data
        self.flush()

    def flush(self) -> None:
        """Let through what is whole, unless it is to be kept."""
        if self._tap.held:
            return
        whole, end, self._kept = self._kept.rpartition(b"\n")
        if end:
            for piece in self._tap.pieces(self._tap.lines(whole + end)):
                self._handlers.on_stdout(piece)

    def on_stdout_eof(self) -> None:
        kept, self._kept = self._kept, b""
        if kept and not self._tap.held:
            self._handlers.on_stdout(kept)
        self._handlers.on_stdout_eof()

    def on_exit(self, status: ExitStatus) -> None:
        self._tap.exits.append(status)
        self._handlers.on_exit(status)


class TappedLauncher:
    """Starts agents through another launcher, behind a tap; what only tells its version is let be."""

    def __init__(self, launcher: Launcher, tap: Tap) -> None:
        self._launcher = launcher
        self._tap = tap

    async def spawn(
        self, argv: tuple[str, ...], environment: Mapping[str, str], cwd: str, handlers: ProcessHandlers
    ) -> AgentProcess:
        """See `engine.ports.Launcher`."""
        if "--version" in argv:
            return await self._launcher.spawn(argv, environment, cwd, handlers)
        process = await self._launcher.spawn(argv, environment, cwd, self._tap.watch(handlers))
        self._tap.processes.append(process)
        return process
