"""Errors that are expected: a sentence on stderr and an exit status, never a traceback."""

from __future__ import annotations

from typing import IO, Any

import click

EX_CONFIG = 78


class Problem(click.ClickException):
    """Ends the command. `message` is a clear sentence."""

    def __init__(self, message: str, *, status: int = 1) -> None:
        super().__init__(message)
        self.exit_code = status

    def show(self, file: IO[Any] | None = None) -> None:
        """Write the sentence to stderr."""
        click.echo(f"steprail: {self.format_message()}", file=file, err=file is None)
