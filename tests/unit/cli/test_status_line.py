"""The line that is rewritten in place, seen on a terminal."""

import io
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import anyio.lowlevel
import click
import pytest
from tests.unit.cli.fakes import FakeDaemon
from tests.unit.cli.screen import ERASE, Screen, standing, started
from tests.unit.cli.screen import follow as shown_on
from tests.unit.cli.test_asked import PERMISSION

from steprail_daemon.cli.attend import Attendant
from steprail_daemon.cli.client import Message
from steprail_daemon.cli.follow import Following, Lines, follow_new
from steprail_daemon.cli.main import cli
from steprail_daemon.cli.status_line import StatusLine, possible

pytestmark = pytest.mark.anyio

RUNS: Message = {"run_state_changed": {"state": "RUN_STATE_RUNNING"}}
TOOL: Message = {"step_number": "1", "tool_start": {"call": {"call_id": "1", "tool": "Bash"}}}
MESSAGE: Message = {"message_end": {"kind": "MESSAGE_KIND_TEXT", "content": {"value": "Hello."}}}
ASKED: Message = {"permission_requested": {"permission": PERMISSION}}
#: Seconds between two looks of the line, short so that no test waits for long.
TICK = 0.01
PROMPT = "allow? [y]es once, [s]ession, [n]o: "


@pytest.fixture(autouse=True)
def xterm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a terminal that takes lines back."""
    monkeypatch.setenv("TERM", "xterm")


@dataclass
class Clock:
    """A clock that stands still until it is set, and counts the looks at it."""

    now: float = 100.0
    looks: int = 0
    looked: anyio.Event = field(default_factory=anyio.Event)

    def __call__(self) -> float:
        self.looks += 1
        self.looked.set()
        self.looked = anyio.Event()
        return self.now

    async def ticks(self, count: int) -> None:
        """Wait until it was looked at so often from now on."""
        last = self.looks + count
        with anyio.fail_after(5):
            while self.looks < last:
                await self.looked.wait()


@pytest.fixture
def clock() -> Clock:
    return Clock()


async def follow(daemon: FakeDaemon, screen: Screen, clock: Clock) -> None:
    """Follow a run on a terminal."""
    with anyio.fail_after(10), screen.written_on():
        lines = Lines(screen.slave, clock=clock, tick=TICK)
        attendant = Attendant(daemon, lines.note, "ask", lines.terminal)
        await follow_new(Following(daemon, lines, lines.terminal, attendant), started)


@asynccontextmanager
async def followed(screen: Screen, clock: Clock, *events: Message) -> AsyncIterator[FakeDaemon]:
    """Follow a run with these events within, which ends afterwards."""
    daemon = FakeDaemon(list(events), wait_for="stop run_1")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(follow, daemon, screen, clock)
        yield daemon
        await daemon.stop_run("run_1", "")


async def test_it_stands_below_what_is_printed_and_is_gone_before_each_line_and_at_the_end(
    screen: Screen, clock: Clock
) -> None:
    async with followed(screen, clock, RUNS, TOOL, MESSAGE):
        await screen.until("0s step 1: Bash")
    shown = screen.rest()
    assert shown.startswith("\x1b[0m" + ERASE)
    assert standing(shown)[-2:] == ["completed after 1 step", ""]


async def test_its_clock_goes_on_while_nothing_happens(screen: Screen, clock: Clock) -> None:
    async with followed(screen, clock, RUNS, TOOL):
        await screen.until(f"{ERASE}\x1b[2m0s step 1: Bash\x1b[0m")
        clock.now += 61
        await screen.until(f"{ERASE}\x1b[2m1m 01s step 1: Bash\x1b[0m")


async def test_it_is_as_wide_as_the_terminal_is_then(screen: Screen, clock: Clock) -> None:
    screen.resize(20)
    long: Message = {"step_number": "1", "tool_start": {"call": {"call_id": "1", "tool": "a_tool_with_a_name"}}}
    async with followed(screen, clock, RUNS, long):
        await screen.until("0s step 1: a_tool_~\x1b[0m")
        screen.resize(12)
        await screen.until("0s step 1:~\x1b[0m")
        screen.resize(4)
        await screen.until(ERASE)
        screen.resize(80)
        await screen.until("0s step 1: a_tool_with_a_name\x1b[0m")


async def test_it_does_not_stand_while_a_person_is_asked(screen: Screen, clock: Clock) -> None:
    async with followed(screen, clock, RUNS, TOOL, ASKED) as daemon:
        await screen.until(PROMPT)
        clock.now += 1
        await clock.ticks(2)
        assert screen.rest() == ""
        screen.type("y\n")
        await screen.until("1s step 1: Bash")
    assert daemon.asked[0].endswith("allow_once")


async def test_a_terminal_without_it_gets_the_same_lines(
    screen: Screen, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "dumb")
    async with followed(screen, clock, RUNS, TOOL, MESSAGE):
        await screen.until("Hello.")
    assert standing(rest := screen.rest())[-2:] == ["completed after 1 step", ""]
    assert ERASE not in rest


async def test_no_color_takes_the_colour_and_not_the_line(
    screen: Screen, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    with click.Context(cli, color=False):
        async with followed(screen, clock, RUNS, TOOL):
            await screen.until(f"{ERASE}0s step 1: Bash")


@contextmanager
def output(kind: str, tmp_path: Path) -> Iterator[io.TextIOWrapper]:
    if kind == "file":
        with (tmp_path / "out").open("w") as file:
            yield file
        return
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as file:
        yield file
    os.close(reading)


@pytest.mark.parametrize(("kind", "stands"), [("file", True), ("pipe", False)])
def test_where_the_output_goes_through_a_pipe_nothing_is_rewritten(
    kind: str, stands: bool, screen: Screen, tmp_path: Path
) -> None:
    with screen.written_on(), output(kind, tmp_path) as file, redirect_stdout(file):
        assert possible() is stands


@pytest.mark.parametrize(
    ("term", "stands"), [("xterm", True), ("vt100", True), ("dumb", False), ("unknown", False), ("", False)]
)
async def test_a_terminal_that_takes_no_line_back_is_written_nothing(
    term: str, stands: bool, screen: Screen, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", term)
    line = StatusLine(lambda at: f"at {at:g}", clock, tick=0)
    with screen.written_on():
        assert possible() is stands
        async with line.shown():
            for _ in range(10):
                await anyio.lowlevel.checkpoint()
    assert (screen.rest(), bool(clock.looks)) == (
        (f"{ERASE}\x1b[2mat 100\x1b[0m{ERASE}", True) if stands else ("", False)
    )


def test_what_is_no_terminal_has_no_such_line(tmp_path: Path) -> None:
    with output("file", tmp_path) as file, redirect_stderr(file):
        assert not possible()


async def test_json_has_no_such_line(screen: Screen) -> None:
    daemon = FakeDaemon([RUNS, TOOL])
    await shown_on(daemon, screen, as_json=True)
    assert ERASE not in screen.rest()
