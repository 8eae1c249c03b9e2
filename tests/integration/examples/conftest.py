"""A daemon as it is built, for the examples to work with."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.framework.daemon import Daemon, running_daemon
from tests.framework.examples import Examples

AGENTS = "".join(
    f'[agents.{name}]\ndriver = "scripted"\nhome = "isolated"\npermission_mode = "{mode}"\n'
    for name, mode in (("scripted", "bypass"), ("asking", "ask"))
)


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    """One daemon for the tests of a file."""
    with running_daemon(settings=AGENTS) as made:
        yield made


@pytest.fixture
def examples(daemon: Daemon, tmp_path: Path) -> Examples:
    """The examples, in a directory that the daemon's agents may work in."""
    workspace = daemon.workspace / tmp_path.name
    workspace.mkdir()
    (workspace / "notes.txt").write_text("remember the milk\n")
    return Examples(sys.executable, daemon.environment, workspace)
