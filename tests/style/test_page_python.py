"""The Python in pages has the types that the client has."""

import re
import textwrap
from pathlib import Path

import pytest
from mypy import api
from tests.framework.pages import PAGES, ROOT, Block, blocks

#: What a snippet may use without saying where it comes from.
PRELUDE = """
import os
from google.protobuf.duration_pb2 import Duration
from steprail.client import *
from steprail.v1 import decisions_pb2, rules_pb2, steps_pb2

client: Client
run_id: str
session_id: str
step: steps_pb2.Step

def decide(step: steps_pb2.Step) -> bool: return True
def permissions(asked: decisions_pb2.Permission) -> Allow: return Allow()
"""
#: The driver's page has a sketch of a test file.
SKETCHES = {"docs/writing-a-driver.md"}


def found() -> list[Block]:
    return [block for page in PAGES for block in blocks(page, "python") if block.page not in SKETCHES]


def module(snippets: list[Block]) -> str:
    """Give a module with each snippet as the body of a function of its own."""
    functions = [
        f"async def snippet_{n}() -> None:\n{textwrap.indent(each.text, '    ')}" for n, each in enumerate(snippets)
    ]
    return "\n".join([PRELUDE, *functions])


def problems(snippets: list[Block], directory: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Give what mypy finds in snippets, each with the place of its snippet."""
    path = directory / "snippets.py"
    path.write_text(module(snippets))
    monkeypatch.setenv("MYPYPATH", str(ROOT / "clients" / "python" / "src"))
    monkeypatch.chdir(ROOT)
    options = ["--config-file=", "--check-untyped-defs", "--no-error-summary", "--show-traceback"]
    said, failed, _ = api.run([*options, "--cache-dir", str(directory / "cache"), str(path)])
    assert not failed, failed
    begins = [
        text[: found.start()].count("\n") + 1
        for text in [path.read_text()]
        for found in re.finditer(r"^async def snippet", text, re.MULTILINE)
    ]
    told = []
    for line, what in re.findall(r"snippets\.py:(\d+): error: (.*)", said):
        number = sum(begin <= int(line) for begin in begins) - 1
        told.append(f"{snippets[number]}, its line {int(line) - begins[number]}: {what}")
    return told


@pytest.mark.timeout(180)
def test_the_types_of_every_snippet_are_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snippets = found()
    assert len(snippets) > 30
    assert {block.page for block in snippets} > {"README.md", "clients/python/README.md", "docs/stop-rules.md"}
    wrong = Block("planted", 1, "python", "run = await client.run('x', agent='claude', stop_wen=[steps('3')])\n")
    told = problems([*snippets, wrong], tmp_path, monkeypatch)
    assert [line for line in told if not line.startswith("planted")] == []
    assert len(told) == 2, told
