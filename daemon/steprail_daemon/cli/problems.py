"""Errors that are expected: a sentence on stderr and an exit status, never a traceback."""

from __future__ import annotations

from collections.abc import Mapping
from typing import IO, Any

import click

LEFT = 130  # as if SIGINT had ended us


class Problem(click.ClickException):
    """Ends the command with status 1. `message` is a clear sentence."""

    def show(self, file: IO[Any] | None = None) -> None:
        """Write the sentence to stderr."""
        click.echo(f"steprail: {self.format_message()}", file=file, err=file is None)


class ConfigProblem(Problem):
    """The configuration, or what it names, cannot be used. Starting again would not help: EX_CONFIG of sysexits.h."""

    exit_code = 78


class Unanswered(Problem):
    """Nobody answers at the address."""


class NobodyListens(Unanswered):
    """Nothing listens on `address`, and `why` not."""

    def __init__(self, address: str, why: str, advice: str) -> None:
        super().__init__(f"no daemon listens on {address} ({why}); {advice}")
        self.address = address
        self.why = why


class Refused(Problem):
    """The daemon refused a call. `reason` is the API's, such as RUN_NOT_FOUND; empty if there was none.

    `said` is its message, `about` its metadata, such as the `run_id` that it does not know.
    """

    def __init__(self, reason: str, message: str, about: Mapping[str, str] | None = None) -> None:
        super().__init__(f"{message} ({reason})" if reason else message)
        self.reason = reason
        self.said = message
        self.about = about or {}


class WrongRule(Refused):
    """The daemon refused a stop rule that was typed: wrong usage."""

    exit_code = 2
