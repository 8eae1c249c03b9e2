"""The last line of a terminal, which is rewritten in place while a command goes on."""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final

import anyio
import click

from steprail_daemon.cli.progress import fit

_ERASE: Final = "\r\x1b[K"
#: Seconds after which the clock may have changed the words.
TICK: Final = 1.0
#: What comes in one go is drawn once: seconds between a change and its drawing.
_PAUSE: Final = 0.05
#: Terminals that cannot take a line back.
_PLAIN: Final = ("", "dumb", "unknown")
_FEWEST_COLUMNS: Final = 8


class StatusLine:
    """A line on stderr with the words that `words` gives for a time of `clock`, in seconds; empty for none.

    It is looked at again after `tick` seconds, and when it is refreshed.

    Whatever else writes on the terminal does so within `gone`. Nothing is ever shown outside of `shown`, in the
    background, where stderr is no terminal that can take a line back, or where stdout goes through a pipe, which may
    end on the same terminal.
    """

    def __init__(
        self, words: Callable[[float], str], clock: Callable[[], float] = time.monotonic, tick: float = TICK
    ) -> None:
        self._words = words
        self._clock = clock
        self._tick = tick
        self._changed: anyio.Event | None = None
        self._drawn = ""
        self._away = 0

    @asynccontextmanager
    async def shown(self) -> AsyncIterator[None]:
        """Show it within, and keep its clocks going."""
        if not possible():
            yield
            return
        self._changed = anyio.Event()
        self._changed.set()
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._keep_up)
                yield
                tasks.cancel_scope.cancel()
        finally:
            self._changed = None
            self._erase()

    @contextmanager
    def gone(self) -> Iterator[None]:
        """Keep the line away within. It may be entered again meanwhile, also by another task."""
        self._away += 1
        self._erase()
        try:
            yield
        finally:
            self._away -= 1
            self.refresh()

    def refresh(self) -> None:
        """Have the words shown as they are now, in a moment."""
        if self._changed is not None:
            self._changed.set()

    async def _keep_up(self) -> None:
        """Draw whatever has changed, and what the clock has changed."""
        while self._changed is not None:
            with anyio.move_on_after(self._tick):
                await self._changed.wait()
                await anyio.sleep(_PAUSE)
            self._changed = anyio.Event()
            self._draw()

    def _draw(self) -> None:
        at = self._clock()
        if self._away or not _in_foreground():
            return
        columns = _columns()
        line = fit(self._words(at), columns - 1) if columns >= _FEWEST_COLUMNS else ""
        if line != self._drawn:
            self._write(_ERASE + _dimmed(line))
            self._drawn = line

    def _erase(self) -> None:
        if self._drawn:
            self._write(_ERASE)
            self._drawn = ""

    def _write(self, text: str) -> None:
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except OSError:  # the terminal is gone, which whoever prints a line will learn too
            self._changed = None


def possible() -> bool:
    """Whether a line can stand below what is printed: see `StatusLine`."""
    if os.environ.get("TERM", "") in _PLAIN or not _is_terminal(sys.stderr):
        return False
    try:
        mode = os.fstat(sys.stdout.fileno()).st_mode
    except (OSError, ValueError, AttributeError):
        return False
    return not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode))


def _is_terminal(stream: object) -> bool:
    try:
        return os.isatty(stream.fileno())  # type: ignore[attr-defined] # what has none is none
    except (OSError, ValueError, AttributeError):
        return False


def _in_foreground() -> bool:
    try:
        return os.tcgetpgrp(sys.stderr.fileno()) == os.getpgrp()
    except (OSError, ValueError):  # not the terminal of this session: nobody else has it either
        return True


def _columns() -> int:
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80
    except (OSError, ValueError):
        return 80


def _dimmed(line: str) -> str:
    context = click.get_current_context(silent=True)
    plain = context is not None and context.color is False
    return line if plain or not line else click.style(line, dim=True)
