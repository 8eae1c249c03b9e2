"""The installed command line in processes of its own, with a daemon whose agent is a fake."""

import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import anyio
import pytest
from tests.framework.daemon import FAKE_CLAUDE, STEPRAIL, Daemon, running_daemon, short_directory

#: Seconds that a command may take on a busy machine.
LIMIT = 45


class Steprail:
    """Runs commands with one environment."""

    def __init__(self, environment: Mapping[str, str], cwd: Path) -> None:
        self.environment = dict(environment)
        self.cwd = cwd

    def run(self, *arguments: str, typed: str = "") -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return subprocess.run(
            [STEPRAIL, *arguments],
            env=self.environment,
            cwd=self.cwd,
            input=typed,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a command with pipes."""
        return subprocess.Popen(
            [STEPRAIL, *arguments],
            env={**self.environment, "PYTHONUNBUFFERED": "1"},
            cwd=self.cwd,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


def lines_until(process: subprocess.Popen[str], begin: str) -> list[str]:
    """Read lines up to the first that begins like this. The test's own timeout is the bound."""
    assert process.stdout is not None
    assert process.stderr is not None
    lines: list[str] = []
    for line in process.stdout:
        lines.append(line.rstrip("\n"))
        if line.startswith(begin):
            return lines
    raise AssertionError(f"no line begins with {begin!r}: {lines}, and on stderr {process.stderr.read()}")


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    """A daemon of one test, not started yet."""
    with short_directory() as directory:
        made = Daemon(directory, FAKE_CLAUDE)
        yield made
        if made.log.exists():
            made.stop()


@pytest.fixture
def steprail(daemon: Daemon) -> Steprail:
    """Commands with a running daemon of their own."""
    anyio.run(daemon.start)
    return Steprail(daemon.environment, daemon.workspace)


@pytest.fixture(scope="module")
def shared() -> Iterator[Steprail]:
    """Commands with a running daemon that all tests of a file use."""
    with running_daemon() as made:
        yield Steprail(made.environment, made.workspace)


@pytest.fixture
def alone(daemon: Daemon) -> Steprail:
    """Commands without a daemon, whose configuration has the daemon's address as its default."""
    environment = daemon.environment
    del environment["STEPRAIL_ADDRESS"]
    return Steprail(environment, daemon.workspace)
