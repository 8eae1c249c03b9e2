"""The real Claude Code with its driver does what the daemon promises with every driver."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.e2e.claude_rig import WorkScript, claude_rig
from tests.framework.daemon import short_directory

from steprail_daemon.testing.driver_kit import Check, Parentage, checks_for, conform, parentage
from steprail_daemon.testing.messages_endpoint import MessagesEndpoint


@pytest.fixture(scope="module")
async def parents() -> AsyncIterator[Parentage]:
    async with parentage() as started:
        yield started


@pytest.fixture(scope="module")
def endpoint() -> Iterator[MessagesEndpoint]:
    with MessagesEndpoint(WorkScript([])) as serving:
        yield serving


@pytest.mark.anyio
@pytest.mark.parametrize("check", checks_for("claude", codec_too=False), ids=lambda check: check.name)
async def test_the_real_program_conforms(
    check: Check, claude: Path, endpoint: MessagesEndpoint, parents: Parentage
) -> None:
    with short_directory() as directory:
        await conform(check, partial(claude_rig, claude, endpoint), parents, directory)
