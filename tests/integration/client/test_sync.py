"""The blocking client on a real daemon."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.framework.daemon import Daemon, running_daemon
from tests.integration.client.conftest import AGENTS, THREE_STEPS, command, says, script

from steprail.client import Client, SyncClient, steps
from steprail.errors import CallbackFailed, ConnectionFailed, NotFound
from steprail.v1 import events_pb2, steps_pb2

pytestmark = pytest.mark.timeout(120)

STOPPED = events_pb2.RUN_STATE_STOPPED
WAIT = 30.0


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with running_daemon(["true"], settings=AGENTS) as made:
        yield made


@pytest.fixture
def workspace(daemon: Daemon, tmp_path: Path) -> Path:
    made = daemon.workspace / tmp_path.name
    made.mkdir()
    return made


@pytest.fixture
def client(daemon: Daemon) -> Iterator[SyncClient]:
    with SyncClient(daemon.address, wait_for_ready=WAIT) as made:
        yield made


def test_a_run_is_decided_about_watched_and_continued(client: SyncClient, workspace: Path) -> None:
    asked: list[int] = []

    def decide(step: steps_pb2.Step) -> bool:
        asked.append(step.number)
        return step.number < 3

    with client.run(THREE_STEPS, agent="scripted", cwd=workspace, decide=decide) as run:
        numbers = [step.number for step in run.steps()]
        stopped = run.wait()
        rest = run.continue_run()
    assert (stopped.state, asked, numbers) == (STOPPED, [1, 2, 3], [1, 2, 3])
    assert rest.wait().continued_from == stopped.run_id
    with client.control(attach=stopped.run_id) as control:
        assert [message.WhichOneof("body") for message in control][-1] == "finished"
    seqs = [event.seq for event in client.watch_run(stopped.run_id)]
    assert seqs == sorted(set(seqs))
    assert client.close_session(run.session_id).state == events_pb2.SESSION_STATE_CLOSED


def test_what_a_callable_raises_and_what_is_refused_reach_the_caller(client: SyncClient, workspace: Path) -> None:
    async def decide(_: steps_pb2.Step) -> bool:
        raise LookupError("no")

    with pytest.raises(CallbackFailed) as caught:
        client.run(THREE_STEPS, agent="scripted", cwd=workspace, decide=decide).wait()
    assert isinstance(caught.value.__cause__, LookupError)
    with pytest.raises(NotFound):
        client.get_run("run_none")


def test_threads_share_a_client(client: SyncClient, workspace: Path) -> None:
    ended: list[int] = []

    def work() -> None:
        run = client.run(script(command("true"), says("x")), agent="scripted", cwd=workspace, stop_when=[steps(1)])
        ended.append(run.wait().state)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
    assert ended == [STOPPED] * 3


def test_it_works_beside_an_asynchronous_client_in_one_process_without_noise(
    daemon: Daemon, workspace: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def watch(run_id: str) -> int:
        async with Client(daemon.address) as client:
            return len([event async for event in client.watch_run(run_id)])

    with SyncClient(daemon.address) as client:
        run = client.run(script(command("true"), says("x")), agent="scripted", cwd=workspace).wait()
        assert asyncio.run(watch(run.run_id)) == len(list(client.watch_run(run.run_id)))
    assert [record.message for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")] == []


def test_without_a_daemon_it_says_so_and_leaves_no_thread(tmp_path: Path) -> None:
    before = threading.active_count()
    with SyncClient(f"unix:{tmp_path}/none.sock") as client, pytest.raises(ConnectionFailed, match="no such socket"):
        client.get_run("r")
    assert not [thread for thread in threading.enumerate() if thread.name == "steprail-client"]
    assert threading.active_count() <= before + 1
