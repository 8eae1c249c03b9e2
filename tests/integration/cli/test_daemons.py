"""Daemons that the command line starts: for good, and for the length of a run."""

import json
import os
import pty
import signal
import subprocess
from pathlib import Path

import anyio
import pytest
from tests.framework.daemon import STEPRAIL, Daemon
from tests.framework.liveness import marked, wait_gone
from tests.framework.waiting import until
from tests.integration.cli.conftest import LIMIT, Steprail, lines_until

TWO_STEPS = json.dumps({"steps": 2})


def instance(daemon: Daemon) -> str:
    return (daemon.state / "instance").read_text().strip()


def test_serve_drains_on_sigterm_and_a_second_one_is_told_who_the_first_is(daemon: Daemon, steprail: Steprail) -> None:
    second = steprail.run("serve")
    assert second.returncode == 78
    assert second.stderr == (
        f"steprail: another daemon, process {daemon.pid}, uses the state directory {daemon.state}; stop it, or name "
        "another directory with --state-dir\n"
    )
    name = instance(daemon)
    assert daemon.stop() == 0
    assert marked(f"{name}.") == set()


def test_the_flags_of_serve_reach_the_worker(daemon: Daemon, alone: Steprail) -> None:
    address = f"unix:{daemon.root}/other.sock"
    serving = alone.start(
        "serve", "--listen", address, "--set", "limits.max_steps=1", "--state-dir", str(daemon.root / "s")
    )
    there = Steprail({**alone.environment, "STEPRAIL_ADDRESS": address}, alone.cwd)
    assert serving.stderr is not None
    while "ready" not in (line := serving.stderr.readline()):
        assert line, "the daemon ended"
    done = there.run("run", TWO_STEPS)
    serving.send_signal(signal.SIGTERM)
    serving.communicate(timeout=LIMIT)
    assert (serving.returncode, done.returncode) == (0, 10)
    assert "stopped after 1 step" in done.stdout
    assert (daemon.root / "s" / "journal.db").exists()


def test_a_run_without_a_daemon_has_its_own_and_can_be_continued_afterwards(daemon: Daemon, alone: Steprail) -> None:
    stopped = alone.run("run", "--json", "--stop-when", "steps=1", TWO_STEPS)
    assert (stopped.returncode, stopped.stderr) == (
        10,
        "no daemon listens; one is started for the length of this command\n",
    )
    assert marked(f"{instance(daemon)}.") == set()
    run = json.loads(stopped.stdout.splitlines()[-1])["run"]
    continued = alone.run("continue", run["run_id"], TWO_STEPS)
    assert continued.returncode == 0, continued.stderr
    assert "resumed" in continued.stdout
    assert marked(f"{instance(daemon)}.") == set()


@pytest.mark.parametrize("command", ["show RUN", "runs", "sessions", "agents"])
def test_what_was_recorded_is_shown_without_a_daemon(command: str, daemon: Daemon, alone: Steprail) -> None:
    run = json.loads(alone.run("run", "--json", TWO_STEPS).stdout.splitlines()[-1])["run"]
    shown = alone.run(*command.replace("RUN", run["run_id"]).split())
    said = "no daemon listens; one is started for the length of this command\n"
    assert (shown.returncode, shown.stderr) == (0, said)
    named = {"sessions": run["session_id"], "agents": "claude"}.get(command, run["run_id"])
    assert named in shown.stdout
    assert marked(f"{instance(daemon)}.") == set()


def test_a_daemon_that_listens_is_used(daemon: Daemon, alone: Steprail) -> None:
    anyio.run(daemon.start)
    done = alone.run("run", TWO_STEPS)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_daemon_for_a_run_ends_when_the_command_is_killed(daemon: Daemon, alone: Steprail) -> None:
    process = alone.start("run", json.dumps({"steps": 1, "tool_ms": 600_000}))
    lines_until(process, "  > Bash")
    processes = marked(f"{instance(daemon)}.")
    assert len(processes) >= 2, "a worker and an agent"
    process.kill()
    process.communicate(timeout=LIMIT)
    # The drain begins; the second signal hurries it, if it is one of its own and has not become one with the first.
    log = daemon.state / "own-daemon.log"
    anyio.run(until, lambda: "draining" in log.read_text())
    (parent,) = {int(line.split()[1]) for line in parents_of(processes)} - processes
    os.kill(parent, signal.SIGTERM)
    assert wait_gone(processes, 40) == set()


def parents_of(processes: set[int]) -> list[str]:
    lines = []
    for pid in processes:
        status = Path(f"/proc/{pid}/status").read_text().splitlines()
        lines += [line for line in status if line.startswith("PPid:")]
    return lines


def test_a_daemon_that_cannot_start_for_a_run_is_quoted(daemon: Daemon, alone: Steprail) -> None:
    anyio.run(daemon.start)
    elsewhere = {**alone.environment, "STEPRAIL_SERVER__LISTEN": f"unix:{daemon.root}/elsewhere.sock"}
    done = Steprail(elsewhere, alone.cwd).run("run", TWO_STEPS)
    assert done.returncode == 1
    assert "steprail: the daemon did not start:\n" in done.stderr
    assert f"another daemon, process {daemon.pid}, uses the state directory" in done.stderr


def test_a_named_address_where_nothing_listens_starts_nothing(daemon: Daemon, alone: Steprail) -> None:
    done = alone.run("run", "--address", f"unix:{daemon.root}/no.sock", TWO_STEPS)
    assert (done.returncode, done.stdout) == (1, "")
    address = f"unix:{daemon.root}/no.sock"
    assert done.stderr == (
        f"steprail: no daemon listens on {address} (there is no such socket); start one with `steprail serve`, or name "
        "another address with --address or $STEPRAIL_ADDRESS\n"
    )
    assert not daemon.state.exists()


def test_the_journal_of_a_run_verifies_and_a_damaged_one_does_not(daemon: Daemon, steprail: Steprail) -> None:
    steprail.run("run", TWO_STEPS)
    sound = steprail.run("journal", "verify")
    assert (sound.returncode, sound.stdout.splitlines()[1]) == (0, "no problems")
    daemon.stop()
    journal = daemon.state / "journal.db"
    content = journal.read_bytes()
    assert b"All done." in content
    journal.write_bytes(content.replace(b"All done.", b"All gone."))
    damaged = steprail.run("journal", "verify", "--json")
    assert damaged.returncode == 1
    assert json.loads(damaged.stdout)["problems"]


def test_a_journal_that_is_not_there_is_one_sentence(alone: Steprail) -> None:
    done = alone.run("journal", "verify", "nothing.db")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("steprail: ")
    assert len(done.stderr.splitlines()) == 1


def test_a_reader_that_goes_away_is_no_error(alone: Steprail) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [STEPRAIL, "config", "print"],
        env=alone.environment,
        stdout=writing,
        stderr=subprocess.PIPE,
        timeout=LIMIT,
        check=False,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, b"")


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["config", "print"], ["runs"], ["run", "{}"]])
def test_a_full_disk_is_one_sentence(arguments: list[str], steprail: Steprail) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [STEPRAIL, *arguments],
            env=steprail.environment,
            cwd=steprail.cwd,
            stdin=subprocess.DEVNULL,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=LIMIT,
            check=False,
        )
    said = "steprail: the output cannot be written: No space left on device\n"
    assert (done.returncode, done.stderr) == (1, said)


def shown_on_a_terminal(steprail: Steprail, **environment: str) -> bytes:
    controller, terminal = pty.openpty()
    subprocess.run(
        [STEPRAIL, "config", "print"],
        env={**steprail.environment, **environment},
        stdout=terminal,
        timeout=LIMIT,
        check=True,
    )
    os.close(terminal)
    content = b""
    try:
        while part := os.read(controller, 1 << 16):
            content += part
    except OSError:
        pass  # Linux reports the closed other side of a terminal as EIO
    os.close(controller)
    return content


def test_colours_are_for_terminals_and_not_with_no_color(alone: Steprail) -> None:
    alone.environment.pop("NO_COLOR", None)
    assert b"\x1b[" in shown_on_a_terminal(alone)
    assert b"\x1b[" not in shown_on_a_terminal(alone, NO_COLOR="1")


def test_commands_that_start_a_daemon_for_themselves_at_once_all_get_one(daemon: Daemon, alone: Steprail) -> None:
    processes = [alone.start(command) for command in ("runs", "sessions", "agents", "runs")]
    ended = [process.communicate(timeout=LIMIT) for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes), ended
    assert marked(f"{instance(daemon)}.") == set()
    assert [path.name for path in daemon.state.glob("*.sock")] == []
