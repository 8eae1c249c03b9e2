"""The real Claude Code behind the real daemon, its model a scripted endpoint on loopback."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.framework.daemon import Daemon, short_directory

from steprail.client import Client
from steprail_daemon.testing.claude_binary import ensure_claude
from steprail_daemon.testing.messages_endpoint import MessagesEndpoint, Script


@pytest.fixture(scope="session")
def claude() -> Path:
    """The pinned program, fetched once and kept in the user's cache."""
    return ensure_claude()


@pytest.fixture
def directory() -> Iterator[Path]:
    with short_directory() as path:
        yield path


class Stage:
    """A daemon whose agent talks to an endpoint, and a client of it."""

    def __init__(self, daemon: Daemon, endpoint: MessagesEndpoint, client: Client) -> None:
        self.daemon = daemon
        self.endpoint = endpoint
        self.client = client

    @property
    def model_requests(self) -> int:
        """Requests of the main loop that the endpoint has seen."""
        return len(self.endpoint.main_requests())

    async def session(self) -> str:
        session = await self.client.create_session(agent="claude", cwd=str(self.daemon.workspace))
        return session.session_id


@asynccontextmanager
async def stage(
    directory: Path, claude: Path, script: Script, settings: str = "", *, permission_mode: str = "bypass"
) -> AsyncIterator[Stage]:
    """Set up endpoint, daemon and client, and end them in the right order."""
    with MessagesEndpoint(script) as endpoint:
        daemon = Daemon(
            directory,
            [str(claude)],
            environment={
                "ANTHROPIC_BASE_URL": endpoint.url,
                "ANTHROPIC_API_KEY": "sk-ant-not-a-key",
            },
            settings=settings,
            permission_mode=permission_mode,
        )
        try:
            await daemon.start()
            async with Client(daemon.address) as client:
                yield Stage(daemon, endpoint, client)
        finally:
            assert daemon.stop() == 0
