"""A terminal, and a run that is followed on it."""

import fcntl
import os
import re
import select
import struct
import termios
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout
from dataclasses import dataclass

import anyio
from tests.unit.cli.fakes import RUN, FakeDaemon

from steprail_daemon.cli.client import Message
from steprail_daemon.cli.follow import Following, follow_new

#: What takes the last line back.
ERASE = "\r\x1b[K"
_MARK = "\x00"


@dataclass
class Screen:
    """A terminal seen from its other side."""

    master: int
    slave: int
    seen: str = ""

    async def until(self, text: str) -> None:
        """Read until a text has come since the last one."""
        with anyio.fail_after(5):
            while text not in self.seen:
                await anyio.wait_readable(self.master)
                self.seen += os.read(self.master, 4096).decode()
        self.seen = self.seen.partition(text)[2]

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def rest(self) -> str:
        """Give all that was written since. A terminal hands on what was written in its own time, and in order."""
        os.write(self.slave, _MARK.encode())
        while _MARK not in self.seen:
            assert select.select([self.master], [], [], 5)[0]
            self.seen += os.read(self.master, 4096).decode()
        rest, _, self.seen = self.seen.partition(_MARK)
        return rest

    @contextmanager
    def written_on(self) -> Iterator[None]:
        """Write there within, as a process does that was started on it."""
        writing = os.fdopen(os.dup(self.slave), "w", buffering=1)
        with writing, redirect_stdout(writing), redirect_stderr(writing):
            yield

    def resize(self, columns: int) -> None:
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))


def standing(shown: str) -> list[str]:
    """Give the lines that stand on a terminal after all that was written there, without colours."""
    rows = [""]
    for part in re.split(r"(\r\x1b\[K|\r\n)", re.sub(r"\x1b\[[0-9;]*m", "", shown)):
        if part == ERASE:
            rows[-1] = ""
        elif part == "\r\n":
            rows.append("")
        else:
            rows[-1] += part
    return rows


async def started() -> Message:
    return dict(RUN)


async def follow(
    daemon: FakeDaemon, screen: Screen | None = None, permissions: str = "ask", *, as_json: bool = False
) -> int:
    descriptor = screen.slave if screen else 0
    with anyio.fail_after(10), screen.written_on() if screen else nullcontext():
        return await follow_new(
            Following.by(daemon, permissions=permissions, as_json=as_json, descriptor=descriptor), started
        )
