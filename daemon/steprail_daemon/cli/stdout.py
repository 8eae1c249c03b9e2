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


def fill_standard_descriptors() -> None:
    """Put /dev/null where standard input, output or errors are closed: no file that is opened may get there."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != descriptor:
                os.dup2(opened, descriptor)
                os.close(opened)


def guard_stdout() -> None:
    """Put `Stdout` in place of the process's standard output, if it has one.

    What its encoding does not have is written as an escape: one such character must not end the command.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        plain = sys.stdout
        sys.stdout = Stdout(
            plain.buffer, encoding=plain.encoding, errors="backslashreplace", line_buffering=plain.line_buffering
        )
