"""The line that is rewritten in place, seen on a terminal."""

import io
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, redirect_stdout
from pathlib import Path

import anyio
import click
import pytest
from tests.unit.cli.fakes import FakeDaemon
from tests.unit.cli.screen import ERASE, Screen, follow, standing, started
from tests.unit.cli.test_asked import PERMISSION

from steprail_daemon.cli.client import Message
from steprail_daemon.cli.follow import Following, follow_new
from steprail_daemon.cli.main import cli

pytestmark = pytest.mark.anyio

RUNS: Message = {"run_state_changed": {"state": "RUN_STATE_RUNNING"}}
TOOL: Message = {"step_number": "1", "tool_start": {"call": {"call_id": "1", "tool": "Bash"}}}
MESSAGE: Message = {"message_end": {"kind": "MESSAGE_KIND_TEXT", "content": {"value": "Hello."}}}
ENDS: Message = {"run_state_changed": {"state": "RUN_STATE_COMPLETED"}}
ASKED: Message = {"permission_requested": {"permission": PERMISSION}}
PROMPT = "allow? [y]es once, [s]ession, [n]o: "
END = "completed after 1 step\r\n"


@pytest.fixture(autouse=True)
def xterm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a terminal that takes lines back."""
    monkeypatch.setenv("TERM", "xterm")


@asynccontextmanager
async def followed(screen: Screen, *events: Message) -> AsyncIterator[FakeDaemon]:
    """Follow a run with these events within, which ends afterwards."""
    daemon = FakeDaemon(list(events), wait_for="stop run_1")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(follow, daemon, screen)
        yield daemon
        await daemon.stop_run("run_1", "")


async def test_it_stands_below_what_is_printed_and_is_gone_before_each_line_and_at_the_end(screen: Screen) -> None:
    shown = ""
    async with followed(screen, RUNS, TOOL, MESSAGE):
        await screen.until("0s step 1: Bash")
    shown = screen.rest()
    assert shown.startswith("\x1b[0m" + ERASE)
    assert standing(shown)[-2:] == ["completed after 1 step", ""]


async def test_its_clock_goes_on_while_nothing_happens(screen: Screen) -> None:
    async with followed(screen, RUNS, TOOL):
        await screen.until(f"{ERASE}\x1b[2m0s step 1: Bash\x1b[0m")
        await screen.until(f"{ERASE}\x1b[2m1s step 1: Bash\x1b[0m")


async def test_it_is_as_wide_as_the_terminal_is_then(screen: Screen) -> None:
    screen.resize(20)
    long: Message = {"step_number": "1", "tool_start": {"call": {"call_id": "1", "tool": "a_tool_with_a_name"}}}
    async with followed(screen, RUNS, long):
        await screen.until("0s step 1: a_tool_~\x1b[0m")
        screen.resize(12)
        await screen.until("s step 1:~\x1b[0m")
        screen.resize(4)
        await screen.until(ERASE)
        screen.resize(80)
        await screen.until("s step 1: a_tool_with_a_name\x1b[0m")


async def test_it_does_not_stand_while_a_person_is_asked(screen: Screen) -> None:
    async with followed(screen, RUNS, TOOL, ASKED) as daemon:
        await screen.until(PROMPT)
        # Longer than its clock takes for a change: there is nothing else to wait for.
        with anyio.move_on_after(1.5):
            await screen.until("step 1")
        assert screen.seen == ""
        screen.type("y\n")
        await screen.until("s step 1: Bash")
    assert daemon.asked[0].endswith("allow_once")


async def test_a_terminal_without_it_gets_the_same_lines(screen: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    async with followed(screen, RUNS, TOOL, MESSAGE):
        await screen.until("Hello.")
        with anyio.move_on_after(0.5):
            await screen.until("step 1")
    assert ERASE not in screen.rest()


async def test_no_color_takes_the_colour_and_not_the_line(screen: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    with click.Context(cli, color=False):
        async with followed(screen, RUNS, TOOL):
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
async def test_where_the_output_goes_through_a_pipe_nothing_is_rewritten(
    kind: str, stands: bool, screen: Screen, tmp_path: Path
) -> None:
    daemon = FakeDaemon([RUNS, TOOL], wait_for="stop run_1")

    async def run() -> None:
        with screen.written_on(), output(kind, tmp_path) as file, redirect_stdout(file):
            following = Following.by(daemon, permissions="ask", as_json=False, descriptor=screen.slave)
            await follow_new(following, started)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        with anyio.move_on_after(5 if stands else 0.5) as waited:
            await screen.until("0s step 1: Bash")
        await daemon.stop_run("run_1", "")
    assert waited.cancelled_caught != stands


async def test_json_has_no_such_line(screen: Screen) -> None:
    daemon = FakeDaemon([RUNS, TOOL])
    await follow(daemon, screen, as_json=True)
    assert ERASE not in screen.rest()
