"""Holds an agent's command where the test wants it, so that nothing depends on how fast the machine is."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Gate:
    """A pipe with a name at which shell commands wait until the test lets them go on."""

    def __init__(self, path: Path) -> None:
        self._path = path
        os.mkfifo(path)
        # For reading too: so it opens without anybody at the other side, and keeps what nobody has read yet.
        self._pipe = os.open(path, os.O_RDWR)

    @property
    def command(self) -> str:
        """What waits, in the words of the shell."""
        return f"read line < {shlex.quote(str(self._path))}"

    def let(self, commands: int = 1) -> None:
        """Let so many commands go on, those that wait or those that come."""
        os.write(self._pipe, b"\n" * commands)

    def close(self) -> None:
        """Let everybody who waits go on; nobody is to come any more."""
        os.close(self._pipe)


@contextmanager
def gate(path: Path) -> Iterator[Gate]:
    """Make a gate, whose last ones go on when it is left."""
    made = Gate(path)
    try:
        yield made
    finally:
        made.close()
