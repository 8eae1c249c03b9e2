"""Expression workers as the daemon has them: started by the parent process, and gone with the daemon's worker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.framework import liveness

WORKER = Path(__file__).parent / "worker_main.py"
BOUND = 30.0

OVER = ["UNKNOWN", "over the bound: 50 ms of CPU time"]
RESULTS = [["MATCHED", ""], OVER, ["MATCHED", ""]]


class Parent:
    """The real parent process over the worker of this test."""

    def __init__(self, *arguments: str) -> None:
        self.instance = f"test-{uuid.uuid4().hex}"
        argv = [sys.executable, "-m", "steprail_daemon.parent", "--instance", self.instance, "--log-format", "console"]
        self.process = subprocess.Popen(
            [*argv, "--", sys.executable, str(WORKER), *arguments], stdout=subprocess.PIPE, text=True
        )

    def line(self) -> dict[str, Any]:
        """Give the next line of the worker; pytest's time-out bounds the wait."""
        assert self.process.stdout is not None
        told: dict[str, Any] = json.loads(self.process.stdout.readline())
        return told

    def end(self) -> None:
        """Kill the parent and whatever it started."""
        self.process.kill()
        self.process.wait(BOUND)
        for pid in liveness.marked(f"{self.instance}."):
            os.kill(pid, signal.SIGKILL)
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def parents() -> Iterator[list[Parent]]:
    made: list[Parent] = []
    yield made
    for parent in made:
        parent.end()


def test_the_parent_starts_the_worker_and_hostile_expressions_do_not_cost_it_its_life(parents: list[Parent]) -> None:
    parent = Parent()
    parents.append(parent)
    problem = "cel:1:6: Syntax error: token recognition error at: '= '"
    told = parent.line()
    assert (told["problems"][0], told["processes"]) == (problem, 1)
    assert parent.line() == {"results": RESULTS, "processes": 1}
    assert parent.line() == {"results": RESULTS, "processes": 1}
    assert parent.line() == {"processes": 0}
    assert parent.process.wait(BOUND) == 0
    assert liveness.marked(f"{parent.instance}.") == set()


def test_nothing_that_evaluates_outlives_the_daemon(parents: list[Parent]) -> None:
    parent = Parent("--stay")
    parents.append(parent)
    parent.line()
    assert parent.line()["processes"] == 1
    marked = liveness.marked(f"{parent.instance}.")
    assert len(marked) == 3, "the daemon's worker, that of the expressions and its child"
    parent.process.send_signal(signal.SIGTERM)
    parent.process.wait(BOUND)
    assert liveness.marked(f"{parent.instance}.") == set()
