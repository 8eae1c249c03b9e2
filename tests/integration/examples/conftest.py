"""A daemon as it is built, for the examples to work with."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from tests.framework.daemon import Daemon, short_directory
from tests.framework.examples import Examples

from steprail_daemon.testing import fake_claude

AGENTS = "".join(
    f'[agents.{name}]\ndriver = "scripted"\nhome = "isolated"\npermission_mode = "{mode}"\n'
    for name, mode in (("scripted", "bypass"), ("asking", "ask"))
)
FAKE_CLAUDE = [sys.executable, "-S", "-E", str(Path(fake_claude.__file__))]


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    """One daemon for the tests of a file."""
    with short_directory() as directory:
        made = Daemon(directory, FAKE_CLAUDE, settings=AGENTS)
        anyio.run(made.start)
        try:
            yield made
        finally:
            assert made.stop() == 0


@pytest.fixture
def examples(daemon: Daemon, tmp_path: Path) -> Examples:
    """The examples, in a directory that the daemon's agents may work in."""
    workspace = daemon.workspace / tmp_path.name
    workspace.mkdir()
    (workspace / "notes.txt").write_text("remember the milk\n")
    return Examples(sys.executable, daemon.environment, workspace)
