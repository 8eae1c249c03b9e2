"""What becomes of a command whose output cannot be written: status 1, with a sentence unless the reader went away."""

from __future__ import annotations

import io
import os
import sys

import click

from steprail_daemon.cli.problems import Problem


class Stdout(io.TextIOWrapper):
    """Standard output whose failures end the command. What was not written is lost."""

    def write(self, text: str, /) -> int:
        """Write a text.

        Raises:
            Problem: it cannot be written.
            click.exceptions.Exit: nobody reads any more; status 1.
        """
        try:
            return super().write(text)
        except OSError as error:
            raise self._ended_by(error) from None

    def flush(self) -> None:
        """Write what is kept; raises as `write` does."""
        try:
            super().flush()
        except OSError as error:
            raise self._ended_by(error) from None

    def _ended_by(self, error: OSError) -> Exception:
        # What is still kept would fail again, with a traceback, when Python flushes at its end.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.fileno())
        os.close(nowhere)
        if isinstance(error, BrokenPipeError):
            return click.exceptions.Exit(1)
        return Problem(f"the output cannot be written: {error.strerror}")


def guard_stdout() -> None:
    """Put `Stdout` in place of the process's standard output, if it has one."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        plain = sys.stdout
        sys.stdout = Stdout(
            plain.buffer, encoding=plain.encoding, errors=plain.errors, line_buffering=plain.line_buffering
        )
