"""As the reaper of all its descendants, and as process 1 of a container."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from tests.framework import liveness
from tests.integration.processes.harness import Harness

ORPHANS = 2000
# As process 1 in namespaces of its own, and with every capability dropped.
AS_INIT = ["unshare", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc"]
WITHOUT_CAPABILITIES = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"]


@pytest.mark.parametrize("before", [[], [*AS_INIT, *WITHOUT_CAPABILITIES]], ids=["subreaper", "process 1"])
def test_thousands_of_orphans_leave_no_zombies_and_steal_no_exit_code(before: list[str]) -> None:
    with Harness(before=before, worker=["--observe"]) as harness:
        up = harness.expect("up")
        assert up["parent"] == (1 if before else harness.process.pid)
        harness.spawn("bystander", "echo")
        share = ORPHANS // 4
        for number in range(4):
            harness.spawn(str(number), "brood", str(share), str(40 + number))
        assert [harness.expect("exit", name=str(number))["code"] for number in range(4)] == [40, 41, 42, 43]
        reaped = 0
        while reaped < ORPHANS:
            reaped += harness.expect("observed", name="orphans_reaped_total")["value"]
        assert reaped == ORPHANS
        assert liveness.zombies_of(parent_pid(harness, before)) == 0
        harness.tell("close_stdin", name="bystander")
        assert harness.expect("exit", name="bystander")["code"] == 0


def test_process_1_passes_signals_on_kills_trees_and_ends() -> None:
    with Harness(before=AS_INIT) as harness:
        harness.expect("up")
        harness.spawn("cli", "family")
        harness.said("cli", "children")
        harness.tell("shut_down", name="cli", ladder=["kill"])
        harness.expect("down", name="cli")
        harness.expect("exit", name="cli", signal=9)
        # Seen from outside, only the worker is left.
        assert len(liveness.marked(f"{harness.instance}.")) == 1
        os.kill(parent_pid(harness, AS_INIT), signal.SIGTERM)
        assert harness.exit_code() == 0


def parent_pid(harness: Harness, before: list[str]) -> int:
    """Give the parent's number as seen from here: unshare forks once."""
    pid = harness.process.pid
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text()) if before else pid
