"""A daemon as it is built, with the built-in agent, and clients of it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.framework.daemon import Daemon, running_daemon

from steprail.client import Client

AGENTS = "".join(
    f'[agents.{name}]\ndriver = "scripted"\nhome = "isolated"\npermission_mode = "{mode}"\n'
    for name, mode in (("scripted", "bypass"), ("asking", "ask"))
)


def script(*replies: dict[str, Any]) -> str:
    """Give a prompt that is a script of one turn. JSON is YAML."""
    return "#!scripted\n" + json.dumps({"turns": [{"replies": list(replies)}]})


def command(text: str, **more: Any) -> dict[str, Any]:
    """Give a reply that runs one command."""
    return {"text": "run it", "calls": [{"run_command": {"command": text}}], **more}


def says(text: str, **more: Any) -> dict[str, Any]:
    """Give a reply that ends the turn."""
    return {"text": text, **more}


THREE_STEPS = script(command("echo one >> count"), command("echo two >> count"), command("echo three"), says("done"))


class Play:
    """A client of a daemon, and a directory for its agents to work in."""

    def __init__(self, daemon: Daemon, client: Client, workspace: Path) -> None:
        self.daemon = daemon
        self.client = client
        self.workspace = workspace

    @property
    def new(self) -> dict[str, Any]:
        """What `run` needs for a session of its own."""
        return {"agent": "scripted", "cwd": self.workspace}

    @property
    def asking(self) -> dict[str, Any]:
        """Likewise, with an agent that asks before it runs anything."""
        return {"agent": "asking", "cwd": self.workspace}

    def count(self) -> list[str]:
        """Give what the commands of a run wrote."""
        path = self.workspace / "count"
        return path.read_text().split() if path.exists() else []


@pytest.fixture(scope="module")
def daemon(one_loop: None) -> Iterator[Daemon]:
    """One daemon for the tests of a file."""
    with running_daemon(["true"], settings=AGENTS) as made:
        yield made


@pytest.fixture
async def play(daemon: Daemon, tmp_path: Path) -> AsyncIterator[Play]:
    workspace = daemon.workspace / tmp_path.name
    workspace.mkdir()
    async with Client(daemon.address) as client:
        yield Play(daemon, client, workspace)
