"""T8, no orphans: whoever dies, and whatever an agent's children did to get away, within 5 s nothing is left."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.behaviours.stage import (
    COMPLETED,
    FAILED,
    WAIT,
    PlayedDaemon,
    Stage,
    client_decides,
    daemon_of_its_own,
    play,
    read,
    says,
    script,
)
from tests.framework.liveness import is_alive, marked, wait_gone
from tests.framework.waiting import until

from steprail.v1 import events_pb2

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(90)]

#: Seconds within which nothing may be left.
TOLERABLE = 5.0
QUICK = '[processes]\nworker_backoff = ["0.1s", "0.2s"]\nladder = ["end:300ms", "term:300ms", "kill"]\n'

ESCAPES: list[dict[str, Any]] = [
    {"ignore_term": True},
    {"setsid": True, "ignore_term": True},
    {"double_fork": True, "ignore_term": True},
    {"double_fork": True, "setsid": True, "ignore_term": True, "keep_stdout": True},
]


def family(at: str = "tool_end") -> list[dict[str, Any]]:
    """Give faults that start children which do all that there is to get away."""
    return [
        {"at": at, "orphan": {**escape, "seconds": 600, "pid_file": f"child-{number}"}}
        for number, escape in enumerate(ESCAPES)
    ]


def children(workspace: Path) -> list[int]:
    """Give the process ids that the children wrote down."""
    return [int((workspace / f"child-{number}").read_text()) for number in range(len(ESCAPES))]


async def held_with_children(stage: Stage) -> tuple[str, str, list[int]]:
    """Bring a run to its gate with a family below the agent; gives session, run and the family's ids."""
    session_id = await stage.session()
    prompt = script(read(faults=family()), says("never"))
    run = await stage.client.start_run(session_id, prompt, decider=client_decides())
    await stage.asked(run.run_id)
    found = children(stage.workspace)
    assert all(is_alive(pid) for pid in found)
    return session_id, run.run_id, found


async def test_a_killed_worker_leaves_nothing_and_the_session_goes_on() -> None:
    """T8: SIGKILL of the worker; the parent process lives on and sweeps."""
    with daemon_of_its_own(QUICK) as daemon:
        await daemon.start()
        async with play(daemon) as stage:
            session_id, run_id, found = await held_with_children(stage)
            tree = daemon.descendants() | set(found)
            os.kill(daemon.worker_pid(), signal.SIGKILL)
            assert wait_gone(tree, TOLERABLE) == set()
            await daemon.answering()
            run = await stage.client.get_run(run_id)
            assert (run.state, run.failure.reason) == (FAILED, "DAEMON_RESTARTED")
            assert (await stage.run(session_id, script(says("again")))).state == COMPLETED


async def test_a_killed_parent_process_leaves_nothing_that_the_next_start_does_not_clean_up() -> None:
    """T8: SIGKILL of the parent process, as when a container is killed: what was below it is gone, or is found."""
    with daemon_of_its_own(QUICK) as daemon:
        await daemon.start()
        async with play(daemon) as stage:
            session_id, run_id, found = await held_with_children(stage)
            worker, mark = daemon.worker_pid(), daemon.instance()
            agents = {pid for pid in marked(mark) if pid not in found}
            assert agents
            daemon.crash()
            # Worker and agents carry a death signal; what the agents' children did, nobody is there to see.
            assert wait_gone({worker, *agents}, TOLERABLE) == set()
            await daemon.start()
            assert wait_gone(found, TOLERABLE) == set()
            # The mark names the state directory, so the new life's own processes carry it too.
            assert marked(mark) <= daemon.descendants()
            run = await stage.client.get_run(run_id)
            assert (run.state, run.failure.reason) == (FAILED, "DAEMON_RESTARTED")
            assert (await stage.run(session_id, script(says("again")))).state == COMPLETED


@pytest.mark.parametrize("end", [{"exit": 3}, {"signal": "SEGV"}, {"signal": "KILL"}])
async def test_an_agent_that_crashes_takes_its_children_along(end: dict[str, Any]) -> None:
    """T8: the CLI crashes."""
    with daemon_of_its_own(QUICK) as daemon:
        await daemon.start()
        async with play(daemon) as stage:
            session_id = await stage.session()
            prompt = script(read(faults=[*family(), {"at": "step_end", **end}]), says("never"))
            run = await stage.run(session_id, prompt, decider=client_decides())
            assert (run.state, run.failure.reason) == (FAILED, "AGENT_EXITED")
            assert wait_gone(children(stage.workspace), TOLERABLE) == set()
            assert (await stage.run(session_id, script(says("again")))).state == COMPLETED


async def test_a_closed_session_takes_everything_along() -> None:
    """T8: the ordinary end, of an agent whose process is deaf."""
    with daemon_of_its_own(QUICK) as daemon:
        await daemon.start()
        async with play(daemon) as stage:
            session_id, _, found = await held_with_children(stage)
            await stage.client.close_session(session_id, force=True)
            assert wait_gone(found, TOLERABLE) == set()
            assert daemon.descendants() == {daemon.worker_pid(), *others(daemon)}


def others(daemon: PlayedDaemon) -> set[int]:
    """Give what the daemon keeps for itself: the process for expressions and its like."""
    return {pid for pid in daemon.descendants() if "expressions" in Path(f"/proc/{pid}/cmdline").read_text()}


async def test_the_end_of_the_daemon_leaves_nothing_although_an_agent_is_at_work() -> None:
    """T8: SIGTERM, twice; then nobody is left at once."""
    with daemon_of_its_own(QUICK) as daemon:
        await daemon.start()
        async with play(daemon) as stage:
            _, _, found = await held_with_children(stage)
            tree, mark = daemon.descendants() | set(found), daemon.instance()
            os.kill(daemon.pid, signal.SIGTERM)
            await until(lambda: "draining" in daemon.log.read_text())
            os.kill(daemon.pid, signal.SIGTERM)
        assert daemon.stop() == 0
        assert wait_gone(tree, 0) == set()
        assert marked(mark) == set()


async def test_tools_that_were_left_behind_by_a_run_end_with_the_session_of_an_idle_agent() -> None:
    """T8: a background command of a run that completed; the idle agent is ended, and the command too."""
    with daemon_of_its_own(QUICK + 'idle_timeout = "1s"\n') as daemon:
        await daemon.start()
        async with play(daemon) as stage:
            session_id = await stage.session()
            run = await stage.run(session_id, script(read(faults=family()), says("left them")))
            assert run.state == COMPLETED
            found = children(stage.workspace)
            session = events_pb2.SESSION_STATE_SUSPENDED
            async for event in stage.client.watch_session(session_id):
                if event.session_state_changed.state == session:
                    break
            await until(lambda: not any(is_alive(pid) for pid in found), WAIT)
