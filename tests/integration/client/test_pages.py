"""The Python in pages, run as a reader would: with a daemon, whose Claude Code is a fake."""

from __future__ import annotations

import ast
import inspect
import os
import sys
from collections.abc import Iterator
from typing import Any

import anyio
import pytest
from google.protobuf.duration_pb2 import Duration
from tests.framework.daemon import Daemon, running_daemon
from tests.framework.pages import PAGES, Block, blocks

import steprail.client
from steprail.client import Client
from steprail.v1 import decisions_pb2, rules_pb2

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]

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


#: Pages whose snippets end the daemon.
ENDING = [page for page, found in BY_PAGE.items() if any(".drain(" in block.text for block in found)]


@pytest.fixture(scope="module")
def shared(one_loop: None) -> Iterator[Daemon]:
    """A daemon that all but one use."""
    with running_daemon() as daemon:
        yield daemon


@pytest.fixture
def daemon(one_loop: None) -> Iterator[Daemon]:
    """A daemon of one test."""
    with running_daemon() as daemon:
        yield daemon


def test_there_are_programs_and_snippets() -> None:
    assert {block.page for block in PROGRAMS} == {"README.md", "clients/python/README.md", "docs/start.md"}
    assert sum(len(found) for found in BY_PAGE.values()) > 25


async def test_each_program_says_why_its_run_was_stopped_or_what_the_agent_said(shared: Daemon) -> None:
    for program in PROGRAMS:
        with anyio.fail_after(LIMIT):
            done = await anyio.run_process(
                [sys.executable, "-c", program.text], env=shared.environment, cwd=shared.workspace, check=False
            )
        assert (done.returncode, done.stdout.decode()) == (0, "All done.\n"), (program, done.stderr)


@pytest.mark.parametrize("page", [page for page, found in BY_PAGE.items() if found and page not in ENDING])
async def test_the_snippets_of_a_page_run_one_after_the_other(
    page: str, shared: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    await run_page(page, shared, monkeypatch)


@pytest.mark.parametrize("page", ENDING)
async def test_so_do_those_that_end_the_daemon(page: str, daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    await run_page(page, daemon, monkeypatch)


async def run_page(page: str, daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the snippets of a page, with what its reader has at hand."""
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
