"""What commands print: lines for people, one JSON object a line for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click


def say_json(content: Mapping[str, Any]) -> None:
    """Print one object on one line. Where stdout is not in UTF-8, what is not ASCII is written as JSON's escapes."""
    encoding = str(getattr(sys.stdout, "encoding", None) or "utf-8").lower()
    click.echo(json.dumps(content, ensure_ascii=not encoding.startswith("utf"), separators=(",", ":")))


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows under heads, in columns. Nothing but the heads if there are no rows."""
    lines = [list(heads), *map(list, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    for line in lines:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def readable_lines(text: str) -> list[str]:
    """Give a text's lines without what a terminal would obey: control characters but the tab."""
    return ["".join(char if char.isprintable() or char == "\t" else " " for char in line) for line in text.splitlines()]


def shorten(text: str, limit: int = 100) -> str:
    """Give a text as one line of at most `limit` characters, without control characters."""
    line = "".join(char if char.isprintable() else " " for char in " ".join(text.split()))
    return line if len(line) <= limit else line[: limit - 3] + "..."
