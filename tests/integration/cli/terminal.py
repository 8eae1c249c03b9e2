"""The command line on a terminal of its own."""

import contextlib
import os
import pty
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from tests.framework.daemon import STEPRAIL
from tests.integration.cli.conftest import LIMIT, Steprail


class Screen:
    """A command on a terminal of its own."""

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
        os.write(self._master, text.encode())

    def end(self) -> tuple[int, str]:
        """Give the status, and what came last."""
        while block := self._block():
            self._seen += block
        return self._process.wait(LIMIT), self._seen

    def _block(self) -> str:
        with contextlib.suppress(OSError):
            return os.read(self._master, 65536).decode(errors="replace")
        return ""


@contextmanager
def on_a_terminal(steprail: Steprail, *arguments: str, program: str = STEPRAIL) -> Iterator[Screen]:
    """Run a command as the foreground of a terminal of its own."""
    master, slave = pty.openpty()
    # Nothing but a program that takes it as its controlling terminal makes it send a signal for Ctrl-C.
    process = subprocess.Popen(
        ["setsid", "--ctty", "--wait", program, *arguments],
        env={**steprail.environment, "NO_COLOR": "1"},
        cwd=steprail.cwd,
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
        process.wait(LIMIT)
