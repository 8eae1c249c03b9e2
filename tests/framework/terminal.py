"""Runs a program on a terminal of its own, and types there."""

from __future__ import annotations

import contextlib
import os
import pty
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

#: Seconds within which a program has to be gone once it has said its last.
END_SECONDS = 45


class Screen:
    """A program on a terminal of its own."""

    def __init__(self, process: subprocess.Popen[bytes], master: int) -> None:
        self._process = process
        self._master = master
        self._seen = ""

    def until(self, text: str) -> str:
        """Give what comes up to a text, and with it. The test's own timeout is the bound."""
        while text not in self._seen:
            block = self._block()
            assert block, f"{text!r} did not come: {self._seen}"
            self._seen += block
        before, found, self._seen = self._seen.partition(text)
        return before + found

    def type(self, text: str) -> None:
        """Type something."""
        os.write(self._master, text.encode())

    def end(self) -> tuple[int, str]:
        """Give the status, and what came last."""
        while block := self._block():
            self._seen += block
        return self._process.wait(END_SECONDS), self._seen

    def _block(self) -> str:
        with contextlib.suppress(OSError):  # Linux reports the closed other side of a terminal as EIO
            return os.read(self._master, 65536).decode(errors="replace")
        return ""


@contextlib.contextmanager
def on_a_terminal(command: Sequence[str], *, environment: Mapping[str, str], cwd: Path) -> Iterator[Screen]:
    """Run a program as the foreground of a terminal of its own; what is left of it at the end is killed."""
    master, slave = pty.openpty()
    # Nothing but a program that takes it as its controlling terminal makes it send a signal for Ctrl-C.
    process = subprocess.Popen(
        ["setsid", "--ctty", "--wait", *command],
        env=environment,
        cwd=cwd,
        stdin=slave,
        stdout=slave,
        stderr=slave,
    )
    os.close(slave)
    try:
        yield Screen(process, master)
    finally:
        os.close(master)
        process.kill()
        process.wait(END_SECONDS)
