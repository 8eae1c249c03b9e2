"""The parent's own death: what dies with it, what the next start finds, and who may start."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from tests.framework import liveness
from tests.integration.processes.harness import AGENT, BOUND, Harness

TOLERABLE = 5.0


@pytest.mark.parametrize("path", [os.environ["PATH"], "/nonexistent"], ids=["setpriv", "wrapper"])
def test_worker_and_clis_die_with_the_parent_and_the_next_start_finds_the_rest(path: str) -> None:
    with Harness(environment={"PATH": path}) as first:
        up = first.expect("up")
        first.tell("spawn", name="cli", argv=[*AGENT, "family"])
        cli = first.expect("spawned", name="cli")
        forked, sessioned, detached, scrubbed = first.said("cli", "children")
        first.process.kill()
        assert liveness.wait_gone([up["pid"], cli["pid"]], TOLERABLE) == set()
        assert {forked, sessioned, detached} <= liveness.marked(f"{first.instance}.")
        with Harness(first.instance) as second:
            # The scrubbed child shares a session with one that bears the mark.
            assert second.expect("up")["leftovers"] == 4
            assert liveness.wait_gone([forked, sessioned, detached, scrubbed], 0) == set()


def test_a_start_kills_neither_other_instances_nor_its_own_ancestors() -> None:
    with Harness() as other, Harness(f"{other.instance}x") as prefixed:
        other.expect("up")
        prefixed.expect("up")
        mark = f"{uuid.uuid4().hex}"
        # This shell bears the mark of the very instance that it starts.
        script = f"{sys.executable} -m steprail_daemon.parent --instance {mark} -- {sys.executable} -c '' x; echo alive"
        done = subprocess.run(
            ["sh", "-c", script],
            env={**os.environ, "STEPRAIL_PROCESS": f"{mark}.1"},
            capture_output=True,
            timeout=BOUND,
            check=False,
        )
        assert done.stdout == b"alive\n"
        for harness in (other, prefixed):
            harness.spawn("cli", "echo")
            assert harness.said("cli", "ready")


def test_children_that_the_parent_had_before_it_became_the_parent_are_reaped_but_never_killed(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    script = f"setsid sh -c 'echo >{gate}; exec {sys.executable} -S {AGENT[-1]} stay' & read line <{gate}; exec \"$@\""
    with Harness(before=["sh", "-c", script, "sh"]) as harness:
        harness.expect("up")
        (child,) = (
            int(pid)
            for pid in Path(f"/proc/{harness.process.pid}/task/{harness.process.pid}/children").read_text().split()
            if b"stay" in Path(f"/proc/{pid}/cmdline").read_bytes()
        )
        harness.spawn("cli", "exit", "0")
        harness.expect("exit", name="cli")
        assert liveness.is_alive(child)
        os.kill(child, signal.SIGKILL)
        assert liveness.wait_gone([child], TOLERABLE) == set()
        harness.spawn("again", "exit", "0")
        harness.expect("exit", name="again")
        assert liveness.zombies_of(harness.process.pid) == 0


def test_a_second_parent_on_the_same_lock_is_refused_and_harms_nobody(tmp_path: Path) -> None:
    lock = str(tmp_path / "lock")
    with Harness(options=["--lock", lock]) as first:
        first.expect("up")
        first.spawn("cli", "echo")
        first.said("cli", "ready")
        with Harness(first.instance, options=["--lock", lock]) as second:
            assert second.exit_code() == 78
            assert second.process.stderr is not None
            assert f"is held by process {first.process.pid}".encode() in second.process.stderr.read()
            first.tell("write", name="cli", text="alive\n")
            first.expect("stdout", name="cli", text="alive\n")
        # Leaving `second` kills what bears the instance's mark, so `first` ends here.


def test_the_lock_is_free_once_its_holder_was_killed(tmp_path: Path) -> None:
    lock = str(tmp_path / "lock")
    with Harness(options=["--lock", lock]) as first:
        first.expect("up")
        cli = first.spawn("cli", "family")
        first.said("cli", "children")
        first.process.kill()
        first.process.wait(BOUND)
        with Harness(first.instance, options=["--lock", lock]) as second:
            second.expect("up")
            assert liveness.wait_gone([cli["pid"]], 0) == set()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], b"--instance is missing"),
        (["--instance", "a b", "--", "x"], b"--instance is 'a b', expected 1 to 64 letters"),
        (["--instance", "a"], b"the worker's command line is missing"),
        (["--instance", "a", "--grace", "soon", "--", "x"], b"--grace has 'soon', expected seconds"),
    ],
)
def test_a_wrong_command_line_is_explained(arguments: list[str], message: bytes) -> None:
    argv = [sys.executable, "-m", "steprail_daemon.parent", *arguments]
    done = subprocess.run(argv, capture_output=True, timeout=BOUND, check=False)
    assert done.returncode == 64
    assert done.stderr.startswith(message)
