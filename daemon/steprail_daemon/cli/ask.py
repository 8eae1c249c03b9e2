"""Asks a person on the terminal, or whatever stands behind stdin."""

from __future__ import annotations

import contextlib
import os
import sys
import termios
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol, TypeVar

import anyio
import click

from steprail_daemon.cli.asked import answer_to, item_lines

T = TypeVar("T")

_BLOCK = 4096
_ONCE, _SESSION, _DENY = "allow_once", "allow_session", "deny"


class Person(Protocol):
    """Who is asked."""

    def attends(self) -> bool:
        """Whether somebody sits there who sees what is shown and can be asked at any time."""

    async def goes_on(self, step: str) -> bool | None:
        """Ask whether the run goes on after a step; None if there is nobody to answer any more."""

    async def permits(self, about: Sequence[str]) -> str | None:
        """Ask for leave, which lines are `about`: allow_once, allow_session or deny; None as above."""

    async def replies(self, items: Sequence[Mapping[str, Any]], about: Sequence[str]) -> list[dict[str, Any]] | None:
        """Ask each item of a question; None if it is declined."""


class Terminal:
    """Asks with a line on stderr and reads lines from a descriptor. Cancelling while it waits loses no input.

    It asks one thing at a time; the next waits its turn. `alone` is entered while a question is open or something is
    printed, for whatever else stands on the terminal.
    """

    def __init__(self, descriptor: int = 0, alone: Callable[[], AbstractContextManager[None]] = nullcontext) -> None:
        self._descriptor = descriptor
        self._alone = alone
        self._read = b""
        self._turn = anyio.Lock()
        self._open = ""

    def attends(self) -> bool:
        """Whether input and stderr are a terminal, and this process is in its foreground."""
        if not (os.isatty(self._descriptor) and sys.stderr.isatty()):
            return False
        try:
            return os.tcgetpgrp(self._descriptor) == os.getpgrp()
        except OSError:  # not the terminal of this session: nothing keeps us from reading it
            return True

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """Print something within, also while a question is open on a terminal, which is then asked again."""
        again = self._open if os.isatty(self._descriptor) else ""
        with self._alone():
            if again:
                click.echo(err=True)
            yield
            if again:
                self._show(again)

    async def goes_on(self, step: str) -> bool | None:
        """Ask until the answer is one."""
        words = {"continue": True, "stop": False}
        async with self._asking():
            return await self._answer(f"step {step}: [c]ontinue or [s]top? ", lambda line: _one_of(words, line))

    async def permits(self, about: Sequence[str]) -> str | None:
        """Ask until the answer is one. What was typed before it was asked is no answer to it."""
        words = {"yes": _ONCE, "session": _SESSION, "no": _DENY}
        async with self._asking():
            self._begin(about)
            return await self._answer("allow? [y]es once, [s]ession, [n]o: ", lambda line: _one_of(words, line))

    async def replies(self, items: Sequence[Mapping[str, Any]], about: Sequence[str]) -> list[dict[str, Any]] | None:
        """Ask each item until the answer is one; an empty line declines the whole question."""
        answers: list[dict[str, Any]] = []
        async with self._asking():
            self._begin(about)
            for item in items:
                if len(items) > 1:
                    click.echo("\n".join(item_lines(item)), err=True)
                answer = await self._reply(item)
                if not answer:
                    return None
                answers.append(answer)
        return answers

    @contextlib.asynccontextmanager
    async def _asking(self) -> AsyncIterator[None]:
        async with self._turn:
            with self._alone():
                yield

    async def _reply(self, item: Mapping[str, Any]) -> dict[str, Any] | None:
        accepted = "number" if item.get("options") else "text"
        if item.get("options") and item.get("free_text"):
            accepted = "number or text"
        with self._unseen() if item.get("secret") else nullcontext():
            return await self._answer(
                f"answer ({accepted}; nothing declines): ", lambda line: answer_to(item, line) if line.strip() else {}
            )

    def _begin(self, about: Sequence[str]) -> None:
        """Forget what was typed so far, and tell what it is about where stdout, which has it too, is not seen."""
        self._read = b""
        with contextlib.suppress(termios.error):
            termios.tcflush(self._descriptor, termios.TCIFLUSH)
        if not sys.stdout.isatty():
            for line in about:
                click.echo(line, err=True)

    @contextlib.contextmanager
    def _unseen(self) -> Iterator[None]:
        """Show nothing of what is typed within."""
        if not os.isatty(self._descriptor):
            yield
            return
        before = termios.tcgetattr(self._descriptor)
        silent = [*before]
        silent[3] = before[3] & ~termios.ECHO | termios.ECHONL
        termios.tcsetattr(self._descriptor, termios.TCSADRAIN, silent)
        try:
            yield
        finally:
            termios.tcsetattr(self._descriptor, termios.TCSADRAIN, before)

    async def _answer(self, question: str, read: Callable[[str], T]) -> T | None:
        """Ask until `read` takes the answer, which says what is wrong by `ValueError`; None at the end of the input."""
        while True:
            self._show(question)
            try:
                line = await self._line()
            except BaseException:
                click.echo(err=True)
                raise
            finally:
                self._open = ""
            if line is None:
                return None
            try:
                return read(line)
            except ValueError as error:
                click.echo(str(error), err=True)

    def _show(self, question: str) -> None:
        click.echo(question, nl=False, err=True)
        self._open = question

    async def _line(self) -> str | None:
        while b"\n" not in self._read:
            # A regular file is always readable, and epoll refuses it.
            with contextlib.suppress(PermissionError):
                await anyio.wait_readable(self._descriptor)
            block = self._block()
            if not block:
                line, self._read = self._read, b""
                return line.decode(errors="replace") if line else None
            self._read += block
        line, _, self._read = self._read.partition(b"\n")
        return line.decode(errors="replace")

    def _block(self) -> bytes:
        try:
            return os.read(self._descriptor, _BLOCK)
        except OSError:  # EIO of a terminal that is gone
            return b""


def _one_of(words: Mapping[str, T], line: str) -> T:
    """Give what a word or its beginning stands for."""
    answer = line.strip().lower()
    for word, meaning in words.items():
        if answer and word.startswith(answer):
            return meaning
    accepted = ", ".join(f"{word[0]}, {word}" for word in words)
    neither = "neither" if len(words) == 2 else "none of them"
    raise ValueError(f"{answer!r} is {neither}; accepted: {accepted}")
