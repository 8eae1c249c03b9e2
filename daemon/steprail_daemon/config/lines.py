"""Finds the lines on which the keys of a TOML text stand, which the standard library's parser does not tell.

It relies on the text being valid TOML: it is used for messages about texts that the parser took.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_STRING = r'"""(?:\\.|[^\\])*?"""|' + r"'''.*?'''|" + r'"(?:\\.|[^"\\\n])*"|' + r"'[^'\n]*'"
_TOKEN = re.compile(_STRING + r"|#[^\n]*|[\[\]{}\n]|[^\[\]{}\n\"'#]+", re.DOTALL)
_KEY_PART = re.compile(r'\s*(?:([A-Za-z0-9_-]+)|"((?:\\.|[^"\\])*)"|\'([^\']*)\')\s*(\.?)')

Path = tuple[str, ...]


def key_lines(text: str) -> dict[Path, int]:
    """Give the line, from 1, on which each table and each key outside inline tables is first named.

    The entries of an array of tables are numbered from 1: the first `[[identities]]` is `("identities", "1")`.
    """
    found: dict[Path, int] = {}
    table: Path = ()
    lengths: dict[Path, int] = {}
    for line, statement in _statements(text):
        header = statement.strip()
        if header.startswith("[["):
            array = _placed(_path(header.lstrip("[")), lengths)
            lengths[array] = lengths.get(array, 0) + 1
            table = path = (*array, str(lengths[array]))
        elif header.startswith("["):
            table = path = _placed(_path(header.lstrip("[")), lengths)
        else:
            path = table + _path(header)
        for end in range(1, len(path) + 1) if header else ():
            found.setdefault(path[:end], line)
    return found


def line_of(path: Path, lines: dict[Path, int]) -> int | None:
    """Give the line of a key, or of the nearest thing around it that has one."""
    return next((lines[path[:end]] for end in range(len(path), 0, -1) if path[:end] in lines), None)


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """Give each header and each key with its value, and the line where it begins."""
    depth, line, start, statement = 0, 1, 1, ""
    for match in _TOKEN.finditer(text):
        part = match[0]
        depth += (part in {"[", "{"}) - (part in {"]", "}"})
        line += part.count("\n")
        if part == "\n" and depth == 0:
            yield start, statement
            start, statement = line, ""
        elif not part.startswith("#"):
            statement += part
    yield start, statement


def _placed(path: Path, lengths: dict[Path, int]) -> Path:
    """Put the number of the last entry behind each array of tables that a path goes through."""
    placed: Path = ()
    for part in path:
        length = lengths.get(placed)
        placed = (*placed, part) if length is None else (*placed, str(length), part)
    return placed


def _path(text: str) -> Path:
    """Read a dotted key at the beginning of a text."""
    parts: list[str] = []
    position = 0
    while match := _KEY_PART.match(text, position):
        parts.append(match[1] or match[2] or match[3] or "")
        position = match.end()
        if not match[4]:
            break
    return tuple(parts)
