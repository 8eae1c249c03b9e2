"""The Python in pages, run as a reader would: with a daemon, whose Claude Code is a fake."""

from __future__ import annotations

import ast
import inspect
import os
import sys
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from google.protobuf.duration_pb2 import Duration
from tests.framework.daemon import Daemon, short_directory
from tests.framework.pages import PAGES, Block, blocks

import steprail.client
from steprail.client import Client
from steprail.v1 import decisions_pb2, rules_pb2
from steprail_daemon.testing import fake_claude

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]

FAKE_CLAUDE = [sys.executable, "-S", "-E", str(Path(fake_claude.__file__))]
#: Seconds that a program may take on a busy machine.
LIMIT = 45
#: Snippets that name another machine, or files that an administrator makes: their types are checked elsewhere.
_ELSEWHERE = ("agents.example", "/etc/")
#: The driver's page has a sketch of a test file.
_SKETCHES = {"docs/writing-a-driver.md"}

SNIPPETS = [
    block
    for page in PAGES
    for block in blocks(page, "python")
    if block.page not in _SKETCHES and not any(name in block.text for name in _ELSEWHERE)
]
PROGRAMS = [block for block in SNIPPETS if "asyncio.run(" in block.text]
BY_PAGE = {
    page: [each for each in SNIPPETS if each.page == page and each not in PROGRAMS]
    for page in (block.page for block in SNIPPETS)
}


@pytest.fixture
async def daemon() -> Any:
    with short_directory() as directory:
        made = Daemon(directory, FAKE_CLAUDE)
        try:
            await made.start()
            yield made
        finally:
            await anyio.to_thread.run_sync(made.stop)


def test_there_are_programs_and_snippets() -> None:
    assert {block.page for block in PROGRAMS} == {"README.md", "clients/python/README.md", "docs/start.md"}
    assert sum(len(found) for found in BY_PAGE.values()) > 25


async def test_each_program_says_why_its_run_was_stopped_or_what_the_agent_said(daemon: Daemon) -> None:
    for program in PROGRAMS:
        done = await anyio.run_process(
            [sys.executable, "-c", program.text], env=daemon.environment, cwd=daemon.workspace, check=False
        )
        assert (done.returncode, done.stdout.decode()) == (0, "All done.\n"), (program, done.stderr)


@pytest.mark.parametrize("page", [page for page, found in BY_PAGE.items() if found])
async def test_the_snippets_of_a_page_run_one_after_the_other(
    page: str, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in daemon.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(daemon.workspace)
    async with Client() as client:
        names = {name: getattr(steprail.client, name) for name in steprail.client.__all__}
        names |= {
            "client": client,
            "decisions_pb2": decisions_pb2,
            "rules_pb2": rules_pb2,
            "Duration": Duration,
            "os": os,
        }
        ended = await client.run("Fix the failing test", agent="claude", stop_when=[steprail.client.steps(1)])
        names |= {"run_id": ended.run_id}
        closed = await client.create_session("claude", str(daemon.workspace))
        await client.close_session(closed.session_id)
        names |= {"session_id": closed.session_id, "step": (await client.list_steps(ended.run_id))[-1]}
        for block in BY_PAGE[page]:
            try:
                await execute(block, names)
            except Exception as error:
                error.add_note(f"{block}:\n{block.text}")
                raise


async def execute(block: Block, names: dict[str, Any]) -> None:
    """Run a snippet as if it stood within a coroutine, in a namespace that later ones see."""
    code = compile(block.text, str(block), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    given = eval(code, names)
    if inspect.iscoroutine(given):
        with anyio.fail_after(LIMIT):
            await given
