"""Processes of a command's own: how they are ended, and how their end is waited for."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress

import anyio
import pytest

from steprail_daemon.cli import serving
from steprail_daemon.cli.problems import Problem
from steprail_daemon.cli.processes import left_after, watched

pytestmark = pytest.mark.anyio

#: Says that it is there, and waits for its input.
WAITING = [sys.executable, "-S", "-E", "-c", "print(flush=True); input()"]
#: Likewise, and does not end by SIGTERM.
STUBBORN = [*WAITING[:-1], f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {WAITING[-1]}"]
BOUND = 20.0


class Held(subprocess.Popen[bytes]):
    """A process whose signals do not come through, as one that the kernel holds."""

    def send_signal(self, sig: int) -> None:
        """Send nothing."""


class Children:
    """Starts processes, and ends what is left of them."""

    def __init__(self) -> None:
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self, argv: list[str], kind: type[subprocess.Popen[bytes]] = subprocess.Popen) -> subprocess.Popen[bytes]:
        process = kind(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"\n"
        return process


@pytest.fixture
def children() -> Iterator[Children]:
    made = Children()
    yield made
    for process in made.started:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
        with process:
            process.wait(BOUND)


@pytest.mark.parametrize(("argv", "number"), [(WAITING, signal.SIGTERM), (STUBBORN, signal.SIGKILL)])
async def test_a_process_is_ended_by_sigterm_or_else_by_sigkill(
    children: Children, argv: list[str], number: int
) -> None:
    process = children.start(argv)
    await serving.end(process, BOUND if argv is WAITING else 0.1)
    assert process.returncode == -number


async def test_a_process_that_not_even_sigkill_ends_is_a_problem_and_is_not_waited_for(
    children: Children, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "KILLED_LIMIT", 0.1)
    process = children.start(WAITING, Held)
    with anyio.CancelScope(shield=True), pytest.raises(Problem) as caught:
        await serving.end(process, 0.1)
    assert caught.value.message.startswith(f"process {process.pid} is still there 0.1 s after SIGKILL: ")


async def test_processes_that_are_watched_are_counted_until_they_are_gone(children: Children) -> None:
    stays, goes = children.start(WAITING), children.start(WAITING)
    with watched([stays.pid, goes.pid, 2**22 + 1]) as descriptors:
        assert len(descriptors) == 2, "one of them is not there"
        goes.kill()
        # The one that stays is waited for first, and does not hide that the other went.
        goes.wait(BOUND)
        assert await left_after(descriptors, 0.05) == 1
        stays.kill()
        assert await left_after(descriptors, BOUND) == 0
