"""What is read from standard input, by commands that are told `-`."""

from __future__ import annotations

import sys

import click


def whole(name: str) -> str:
    """Give all of it. `name` is what it is read for, such as PROMPT.

    Raises:
        click.BadParameter: there is none, or it is no UTF-8.
    """
    return _text(None if sys.stdin is None else sys.stdin.buffer.read(), name)


def line(name: str) -> str:
    """Give its next line, without the end of the line; raises as `whole` does."""
    return _text(None if sys.stdin is None else sys.stdin.buffer.readline(), name).removesuffix("\n")


def _text(read: bytes | None, name: str) -> str:
    if read is None:
        raise click.BadParameter("it is to be read from standard input, which is closed", param_hint=name)
    try:
        return read.decode()
    except UnicodeDecodeError as error:
        wrong = f"byte {error.start + 1} of standard input, {read[error.start]:#04x}, is no UTF-8 there"
        raise click.BadParameter(f"{wrong}; accepted: text in UTF-8", param_hint=name) from None
