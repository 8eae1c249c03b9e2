"""Ctrl-C on a terminal, at moments when no run is followed."""

import json

from tests.framework.daemon import Daemon
from tests.framework.liveness import marked
from tests.integration.cli.conftest import Steprail
from tests.integration.cli.terminal import on_a_terminal

CTRL_C = "\x03"


def test_serve_is_left_while_it_starts_without_a_traceback(daemon: Daemon, alone: Steprail) -> None:
    with on_a_terminal(alone, "serve") as screen:
        started = screen.until("worker started")
        screen.type(CTRL_C)
        status, rest = screen.end()
    # A worker that was ready before it was told drains, and a daemon that has drained ends well.
    assert status in {0, 130}
    assert "Traceback" not in rest
    assert "[info]" in started, "lines for people, on a terminal"
    assert marked(f"{(daemon.state / 'instance').read_text().strip()}.") == set()


def test_serve_on_a_terminal_writes_what_is_configured(alone: Steprail) -> None:
    with on_a_terminal(alone, "serve", "--set", "logging.format=json") as screen:
        line = screen.until("ready, listening").splitlines()[-1]
        screen.type(CTRL_C)
        status, _ = screen.end()
    assert line.startswith("{")
    assert status == 0


def test_a_run_is_left_while_its_daemon_starts(daemon: Daemon, alone: Steprail) -> None:
    with on_a_terminal(alone, "run", "{}") as screen:
        screen.until("one is started for the length of this command")
        screen.type(CTRL_C)
        status, rest = screen.end()
    assert status == 130
    assert "Traceback" not in rest
    instance = daemon.state / "instance"
    assert not instance.exists() or marked(f"{instance.read_text().strip()}.") == set()


def test_ctrl_c_after_the_end_changes_nothing(alone: Steprail) -> None:
    with on_a_terminal(alone, "run", json.dumps({"steps": 1})) as screen:
        screen.until("completed after 1 step")
        for _ in range(3):
            screen.type(CTRL_C)
        status, rest = screen.end()
    assert status == 0
    assert "stopping" not in rest
