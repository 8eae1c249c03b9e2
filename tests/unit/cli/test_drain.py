"""`steprail drain` against a daemon that follows a script."""

import json
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial

import anyio
import pytest
from click.testing import CliRunner, Result
from tests.unit.cli.fakes import FakeDaemon

from steprail_daemon.cli.client import Message
from steprail_daemon.cli.commands.drain import wait_until_gone
from steprail_daemon.cli.main import cli
from steprail_daemon.cli.problems import Problem, Refused

Invoke = Callable[..., Result]
IDLE = {"phase": "DRAIN_PHASE_NOT_DRAINING", "live_runs": "3", "processes": "2"}
BEGAN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
GRACE = timedelta(minutes=6)


def status(phase: str, **fields: str) -> Message:
    times = {"start_time": BEGAN.isoformat(), "deadline": (BEGAN + timedelta(seconds=60)).isoformat()}
    return {"phase": f"DRAIN_PHASE_{phase}", **times, **fields}


STOPPING = status("STOPPING_RUNS", live_runs="4", queued_runs="1", awaiting_decision_runs="1", processes="1")
ABORTING = status("ABORTING_RUNS", live_runs="1", stopped_runs="2", aborted_runs="1")


@pytest.fixture
def invoke(monkeypatch: pytest.MonkeyPatch) -> Invoke:
    monkeypatch.setenv("STEPRAIL_ADDRESS", "unix:/nowhere")

    def run(daemon: FakeDaemon, *arguments: str) -> Result:
        return CliRunner().invoke(cli, ["drain", *arguments], obj=lambda address: nullcontext(daemon))

    return run


def test_it_begins_a_drain_and_says_what_is_live(invoke: Invoke) -> None:
    daemon = FakeDaemon(drains=[IDLE, STOPPING])
    result = invoke(daemon, "--reason", "a new version", "--window", "20s")
    assert (result.exit_code, result.stderr, daemon.asked) == (0, "", ["drain 20.0 a new version"])
    assert result.stdout.splitlines() == [
        "draining: no new runs are taken; what is live in 1m is aborted",
        "  runs stop at their next boundary, 3 live, 1 of them waiting for somebody, 1 queued, which stay, "
        "1 agent process",
    ]


def test_a_drain_that_is_under_way_is_told_and_left_alone(invoke: Invoke) -> None:
    daemon = FakeDaemon(drains=[status("STOPPING_RUNS", identity="ann", reason="update")])
    result = invoke(daemon)
    since = BEGAN.astimezone().strftime("%H:%M:%S")
    assert (result.exit_code, daemon.asked) == (0, [])
    assert result.stdout.splitlines()[0] == (
        f"it is draining already, since {since} by ann, update; this changes nothing"
    )
    signalled = invoke(FakeDaemon(drains=[status("SHUTTING_DOWN")])).stdout.splitlines()
    assert signalled == [
        f"it is draining already, since {since} by a signal; this changes nothing",
        "  no run is live, the daemon ends, 0 live, 0 agent processes",
    ]


@dataclass
class Time:
    """A clock that only goes on while somebody pauses."""

    now: datetime = BEGAN

    def clock(self) -> datetime:
        return self.now

    async def pause(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


def wait(daemon: FakeDaemon, time: Time, *, as_json: bool = False) -> None:
    """Wait for the end of a drain that has begun with a minute to its deadline."""
    waiting = partial(wait_until_gone, as_json=as_json, clock=time.clock, pause=time.pause)
    anyio.run(waiting, daemon, "unix:/nowhere", STOPPING)


def test_waiting_shows_each_change_until_the_daemon_is_gone(capsys: pytest.CaptureFixture[str]) -> None:
    wait(FakeDaemon(drains=[STOPPING, STOPPING, ABORTING, None]), Time())
    assert capsys.readouterr().out.splitlines() == [
        "  what is left is aborted, 1 live, 2 stopped, 1 aborted, 0 agent processes",
        "the daemon has drained and is gone",
    ]


def test_as_json_each_status_is_an_object_and_the_end_too(capsys: pytest.CaptureFixture[str]) -> None:
    wait(FakeDaemon(drains=[STOPPING, ABORTING, None]), Time(), as_json=True)
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [
        {"drain_status": ABORTING},
        {"drained": {"address": "unix:/nowhere"}},
    ]


def test_waiting_ends_where_a_supervisor_has_started_the_next_daemon(capsys: pytest.CaptureFixture[str]) -> None:
    wait(FakeDaemon(drains=[IDLE]), Time())
    said = "the daemon has drained, and another one listens there by now\n"
    assert capsys.readouterr().out == said


def test_waiting_is_given_up_long_after_the_deadline() -> None:
    time = Time()
    with pytest.raises(Problem) as caught:
        wait(FakeDaemon(drains=[STOPPING] * 10_000), time)
    assert GRACE <= time.now - BEGAN < GRACE + timedelta(seconds=1)
    assert caught.value.message.startswith("the daemon is still there 5 minutes after its deadline")


def test_a_daemon_that_tells_no_deadline_is_not_late_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    untold: Message = {"phase": "DRAIN_PHASE_STOPPING_RUNS"}
    time = Time()
    anyio.run(
        partial(wait_until_gone, as_json=False, clock=time.clock, pause=time.pause),
        FakeDaemon(drains=[untold, None]),
        "unix:/nowhere",
        untold,
    )
    assert capsys.readouterr().out == "the daemon has drained and is gone\n"


def test_with_wait_the_command_ends_when_the_daemon_is_gone(invoke: Invoke) -> None:
    now = datetime.now(UTC)
    begun = {**STOPPING, "deadline": (now + timedelta(minutes=1)).isoformat()}
    result = invoke(FakeDaemon(drains=[IDLE, begun, None]), "--wait", "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    assert [json.loads(line) for line in result.stdout.splitlines()] == [
        {"drain_status": begun},
        {"drained": {"address": "unix:/nowhere"}},
    ]


def test_a_refusal_is_one_sentence(invoke: Invoke) -> None:
    refusal = Refused("FORBIDDEN", "Drain needs the role admin")
    result = invoke(FakeDaemon(drains=[IDLE], refuses=refusal))
    assert (result.exit_code, result.stderr) == (1, "steprail: Drain needs the role admin (FORBIDDEN)\n")


@pytest.mark.parametrize("window", ["soon", "-1s", "1y", "800h"])
def test_a_window_that_is_none_is_wrong_usage(invoke: Invoke, window: str) -> None:
    daemon = FakeDaemon()
    result = invoke(daemon, "--window", window)
    assert (result.exit_code, daemon.asked) == (2, [])
    assert "accepted: a number with a unit" in result.stderr
