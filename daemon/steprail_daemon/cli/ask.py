"""Asks a person on the terminal, or whatever stands behind stdin."""

from __future__ import annotations

import contextlib
import os
from typing import Protocol

import anyio
import click

_BLOCK = 4096


class Person(Protocol):
    """Who is asked."""

    async def goes_on(self, step: str) -> bool | None:
        """Ask whether the run goes on after a step; None if there is nobody to answer any more."""


class Terminal:
    """Asks with a line on stderr and reads lines from a descriptor. Cancelling while it waits loses no input."""

    def __init__(self, descriptor: int = 0) -> None:
        self._descriptor = descriptor
        self._read = b""

    async def goes_on(self, step: str) -> bool | None:
        """Ask until the answer is one."""
        while True:
            click.echo(f"step {step}: [c]ontinue or [s]top? ", nl=False, err=True)
            line = await self._line()
            if line is None:
                return None
            answer = line.strip().lower()
            if answer and "continue".startswith(answer):
                return True
            if answer and "stop".startswith(answer):
                return False
            click.echo(f"{answer!r} is neither; accepted: c, continue, s, stop", err=True)

    async def _line(self) -> str | None:
        while b"\n" not in self._read:
            # A regular file is always readable, and epoll refuses it.
            with contextlib.suppress(PermissionError):
                await anyio.wait_readable(self._descriptor)
            block = os.read(self._descriptor, _BLOCK)
            if not block:
                line, self._read = self._read, b""
                return line.decode(errors="replace") if line else None
            self._read += block
        line, _, self._read = self._read.partition(b"\n")
        return line.decode(errors="replace")
