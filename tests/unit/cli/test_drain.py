"""`steprail drain` against a daemon that follows a script."""

import json
from collections.abc import Callable
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta

import pytest
from click.testing import CliRunner, Result
from tests.unit.cli.fakes import FakeDaemon

from steprail_daemon.cli.client import Message
from steprail_daemon.cli.commands import drain
from steprail_daemon.cli.main import cli
from steprail_daemon.cli.problems import Refused

Invoke = Callable[..., Result]
IDLE = {"phase": "DRAIN_PHASE_NOT_DRAINING", "live_runs": "3", "processes": "2"}
BEGAN = datetime.now(UTC)


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


def test_waiting_shows_each_change_until_the_daemon_is_gone(invoke: Invoke) -> None:
    result = invoke(FakeDaemon(drains=[IDLE, STOPPING, STOPPING, ABORTING, None]), "--wait")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[2:] == [
        "  what is left is aborted, 1 live, 2 stopped, 1 aborted, 0 agent processes",
        "the daemon has drained and is gone",
    ]


def test_as_json_each_status_is_an_object_and_the_end_too(invoke: Invoke) -> None:
    result = invoke(FakeDaemon(drains=[IDLE, STOPPING, ABORTING, None]), "--wait", "--json")
    assert [json.loads(line) for line in result.stdout.splitlines()] == [
        {"drain_status": STOPPING},
        {"drain_status": ABORTING},
        {"drained": {"address": "unix:/nowhere"}},
    ]


def test_waiting_ends_where_a_supervisor_has_started_the_next_daemon(invoke: Invoke) -> None:
    result = invoke(FakeDaemon(drains=[IDLE, STOPPING, IDLE]), "--wait")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1] == "the daemon has drained, and another one listens there by now"


def test_waiting_is_given_up_long_after_the_deadline(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drain, "_BEYOND_DEADLINE", timedelta(minutes=-5))
    result = invoke(FakeDaemon(drains=[IDLE, STOPPING]), "--wait")
    assert result.exit_code == 1
    assert result.stderr.startswith("steprail: the daemon is still there -5 minutes after its deadline")


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
