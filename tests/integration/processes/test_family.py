"""Whom a process has below it: the worker of a parent process, and its agents."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from steprail_daemon.parent.family import agents, children, workers

ME = os.getpid()
#: The number of no process: above the largest that the kernel gives.
NOBODY = 2**22 + 1
WAIT = 20


@contextmanager
def child(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start a program that stays until its input ends."""
    program = "import sys; print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-S", "-E", "-c", program, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process


def test_a_worker_is_told_from_agents_by_its_control_socket() -> None:
    with child("--control-fd", "7") as worker, child("mind --control-fd") as agent:
        assert worker.pid in workers(ME)
        assert worker.pid not in agents(ME)
        assert agent.pid in agents(ME)
        assert agent.pid not in workers(ME)
        assert {worker.pid, agent.pid} <= set(children(ME))


def test_children_of_each_thread_count() -> None:
    started, leave = threading.Event(), threading.Event()
    found: list[int] = []

    def start() -> None:
        with child() as process:
            found.append(process.pid)
            started.set()
            leave.wait(WAIT)

    thread = threading.Thread(target=start)
    thread.start()
    try:
        assert started.wait(WAIT)
        assert found[0] in children(ME)
    finally:
        leave.set()
        thread.join(WAIT)


def test_who_has_ended_is_no_agent_even_before_it_was_waited_for() -> None:
    with child() as process:
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert process.pid in children(ME)
        assert process.pid not in agents(ME)


def test_nobody_has_children() -> None:
    assert (children(NOBODY), workers(NOBODY), agents(NOBODY)) == ([], [], [])
