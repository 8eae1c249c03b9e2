"""The worker is restarted, its CLIs never outlive it, and its own end is passed on."""

from __future__ import annotations

import os
import signal
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from tests.framework import liveness
from tests.integration.processes.harness import Harness

TOLERABLE = 5.0


def test_sigkill_of_the_worker_ends_every_cli_without_an_eof_and_a_new_worker_starts(tmp_path: Path) -> None:
    log = tmp_path / "eof"
    with Harness(options=["--backoff", "0.01:1"]) as harness:
        first = harness.expect("up")
        pids = [harness.spawn(name, "family", str(log))["pid"] for name in ("a", "b", "c")]
        for name in ("a", "b", "c"):
            pids += harness.said(name, "children")
        os.kill(first["pid"], signal.SIGKILL)
        assert liveness.wait_gone(pids, TOLERABLE) == set()
        second = harness.expect("up")
        assert (first["life"], second["life"]) == (1, 2)
        assert second["pid"] != first["pid"]
        assert not log.exists()
        harness.spawn("again", "echo")
        assert harness.said("again", "ready")


def test_between_the_worker_s_death_and_the_kill_the_parent_holds_every_stdin_open() -> None:
    with Harness() as harness:
        up = harness.expect("up")
        cli = harness.spawn("cli", "echo")
        harness.said("cli", "ready")
        harness.process.send_signal(signal.SIGSTOP)
        os.kill(up["pid"], signal.SIGKILL)
        assert liveness.wait_gone([up["pid"]], TOLERABLE) == set()
        stdin = Path(f"/proc/{cli['pid']}/fd/0").readlink()
        holders = [entry for entry in Path(f"/proc/{harness.process.pid}/fd").iterdir() if entry.readlink() == stdin]
        assert len(holders) == 1
        harness.process.send_signal(signal.SIGCONT)
        assert liveness.wait_gone([cli["pid"]], TOLERABLE) == set()


def test_the_worker_s_death_ends_orphans_that_nothing_ties_to_a_cli() -> None:
    with Harness() as harness:
        up = harness.expect("up")
        harness.spawn("cli", "scrubbed-orphan")
        (orphan,) = harness.said("cli", "children")
        os.kill(up["pid"], signal.SIGKILL)
        assert liveness.wait_gone([orphan], TOLERABLE) == set()
        harness.expect("up")


def test_an_eof_is_seen_when_it_is_meant(tmp_path: Path) -> None:
    """The control of the test before: the same CLI does write its log."""
    log = tmp_path / "eof"
    with Harness() as harness:
        harness.spawn("cli", "echo", str(log))
        harness.said("cli", "ready")
        harness.tell("close_stdin", name="cli")
        assert harness.expect("exit", name="cli")["code"] == 0
        assert log.read_text() == "EOF"


def test_pauses_between_restarts_grow() -> None:
    script = 'import sys, time; print(\'{"event": "born", "at": %r}\' % time.monotonic(), flush=True); sys.exit(3)'
    with Harness(options=["--backoff", "0.1:10"], command=[sys.executable, "-S", "-c", script]) as harness:
        births = [harness.expect("born")["at"] for _ in range(4)]
        pauses = [later - earlier for earlier, later in pairwise(births)]
        assert pauses[0] >= 0.1
        assert pauses[1] >= 0.2
        assert pauses[2] >= 0.4


def test_a_worker_that_lived_long_enough_starts_the_pauses_anew() -> None:
    script = 'import sys, time; print(\'{"event": "born", "at": %r}\' % time.monotonic(), flush=True); sys.exit(3)'
    options = ["--backoff", "0.05:100", "--settled", "0"]
    with Harness(options=options, command=[sys.executable, "-S", "-c", script]) as harness:
        births = [harness.expect("born")["at"] for _ in range(9)]
        assert births[-1] - births[0] < sum(0.05 * 2**n for n in range(8))


@pytest.mark.parametrize("code", [0, 78])
def test_a_worker_that_is_done_or_refuses_its_configuration_is_not_restarted(code: int) -> None:
    with Harness() as harness:
        harness.expect("up")
        cli = harness.spawn("cli", "family")
        children = harness.said("cli", "children")
        harness.tell("exit", code=code)
        assert harness.exit_code() == code
        assert liveness.wait_gone([cli["pid"], *children], 0) == set()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signals_are_passed_on_each_time(number: signal.Signals) -> None:
    with Harness(worker=["--ignore-term"]) as harness:
        harness.expect("up")
        for _ in range(2):
            harness.process.send_signal(number)
            as_term = number == signal.SIGINT
            assert harness.expect("signal")["number"] == (signal.SIGTERM if as_term else number)


def test_sigterm_ends_the_worker_and_the_parent_with_its_code() -> None:
    with Harness() as harness:
        harness.expect("up")
        harness.process.send_signal(signal.SIGTERM)
        assert harness.exit_code() == 0


def test_a_worker_killed_while_shutting_down_is_not_restarted_and_its_signal_is_told() -> None:
    with Harness(worker=["--ignore-term"]) as harness:
        up = harness.expect("up")
        harness.process.send_signal(signal.SIGTERM)
        harness.expect("signal")
        os.kill(up["pid"], signal.SIGKILL)
        assert harness.exit_code() == 128 + signal.SIGKILL


def test_the_end_of_the_grace_time_kills_everything() -> None:
    with Harness(options=["--grace", "0.2"], worker=["--ignore-term"]) as harness:
        up = harness.expect("up")
        cli = harness.spawn("cli", "family")
        children = harness.said("cli", "children")
        harness.process.send_signal(signal.SIGTERM)
        assert harness.exit_code() == 1
        assert liveness.wait_gone([up["pid"], cli["pid"], *children], 0) == set()


def test_sigterm_during_a_pause_ends_the_parent() -> None:
    with Harness(options=["--backoff", "60:60"]) as harness:
        harness.expect("up")
        harness.tell("exit", code=9)
        assert harness.process.stderr is not None
        for line in harness.process.stderr:
            if b"started again" in line:
                break
        harness.process.send_signal(signal.SIGTERM)
        assert harness.exit_code() == 9


def test_a_worker_that_hangs_up_loses_its_clis() -> None:
    with Harness() as harness:
        harness.expect("up")
        cli = harness.spawn("cli", "family")
        children = harness.said("cli", "children")
        harness.tell("hang_up")
        harness.expect("hung_up")
        assert liveness.wait_gone([cli["pid"], *children], TOLERABLE) == set()


def test_a_stopped_worker_does_not_keep_the_parent_from_killing_and_ending() -> None:
    with Harness(options=["--grace", "0.2"]) as harness:
        up = harness.expect("up")
        os.kill(up["pid"], signal.SIGSTOP)
        harness.process.send_signal(signal.SIGTERM)
        assert harness.exit_code() == 1
        assert liveness.wait_gone([up["pid"]], 0) == set()


def test_a_worker_that_cannot_be_started_is_a_configuration_error() -> None:
    with Harness(command=["/nonexistent/worker"]) as harness:
        assert harness.exit_code() == 78
        assert harness.process.stderr is not None
        assert b"'/nonexistent/worker': No such file or directory" in harness.process.stderr.read()
