"""The pages of the documentation, and the snippets in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]

#: Pages whose snippets a reader is meant to use as they are.
PAGES = (
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "deploy" / "README.md",
    ROOT / "clients" / "python" / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
)

_FENCED = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_RUNS = re.compile(r"(?:^|[;&|]\s*)(?:\$ |\w+=\S+ |sudo -u \w+ )*(?:steprail|make)\s")
_INDENTED = re.compile(r"(?:^(?: {4}[^\n]*)?\n)*(?:^ {4}[^\n]*\n)", re.MULTILINE)


class Block(NamedTuple):
    """A snippet: its page as seen from the root, the line on which it begins, its language, and its text."""

    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(path: Path, *languages: str) -> Iterator[Block]:
    """Give the fenced blocks of a page that have one of these languages."""
    text = path.read_text()
    for found in _FENCED.finditer(text):
        indent, language, body = found.groups()
        if language in languages:
            line = text.count("\n", 0, found.start(3)) + 1
            lines = [each.removeprefix(indent) for each in body.splitlines(keepends=True)]
            yield Block(str(path.relative_to(ROOT)), line, language, "".join(lines))


def shell_lines(path: Path) -> Iterator[Block]:
    """Give each command line of a page that runs `steprail` or `make`, in blocks of the language `sh` and indented."""
    for block in blocks(path, "sh"):
        yield from _lines(block)
    # What is left of fenced blocks keeps its lines, so that the others keep their numbers.
    text = _FENCED.sub(lambda found: "\n" * found.group().count("\n"), path.read_text())
    for found in _INDENTED.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        unindented = re.sub(r"^ {4}", "", found.group(), flags=re.MULTILINE)
        yield from _lines(Block(str(path.relative_to(ROOT)), line, "", unindented))


def _lines(block: Block) -> Iterator[Block]:
    whole = ""
    for number, line in enumerate(block.text.splitlines()):
        whole += line
        if whole.endswith("\\"):
            whole = whole[:-1]
            continue
        if _RUNS.search(whole):
            yield Block(block.page, block.line + number, "sh", whole.removeprefix("$ "))
        whole = ""


def prose(path: Path) -> str:
    """Give a page without its fenced blocks."""
    return _FENCED.sub("", path.read_text())


def anchors(path: Path) -> set[str]:
    """Give the anchors of a page's headings, as GitHub makes them."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.*)$", prose(path), re.MULTILINE):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-")
        number = 0
        while (anchor := f"{slug}-{number}" if number else slug) in found:
            number += 1
        found.add(anchor)
    return found
