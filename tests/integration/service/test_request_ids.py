"""The same request twice, one after the other, at once, and after the worker was killed: it is carried out once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import anyio
import pytest
from tests.framework.daemon import Daemon, running_daemon
from tests.integration.service.stubs import Stubs, refused

from steprail.client._channel import open_channel
from steprail.v1 import events_pb2, runs_pb2, sessions_pb2

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("one_loop"), pytest.mark.timeout(120)]

WAIT = 30.0
AGENTS = """
[agents.scripted]
home = "isolated"
permission_mode = "bypass"
"""
HANG = "#!scripted\nturns:\n- replies:\n  - {text: one, hang: true}\n"


@pytest.fixture(scope="module")
def built() -> Iterator[Daemon]:
    """One built daemon for the tests of this file."""
    with running_daemon(["true"], settings=AGENTS) as made:
        yield made


@pytest.fixture
async def stubs(built: Daemon) -> AsyncIterator[Stubs]:
    async with open_channel(built.address) as channel:
        yield Stubs(channel)


def start(session_id: str, request_id: str, text: str = HANG) -> runs_pb2.StartRunRequest:
    prompt = runs_pb2.Prompt(parts=[runs_pb2.PromptPart(text=text)])
    return runs_pb2.StartRunRequest(session_id=session_id, prompt=prompt, request_id=request_id)


async def a_session(built: Daemon, stubs: Stubs, name: str) -> str:
    request = sessions_pb2.CreateSessionRequest(agent="scripted", cwd=str(built.workspace), request_id=f"create {name}")
    answer = await stubs.sessions.CreateSession(request, timeout=WAIT)
    return str(answer.session.session_id)


async def runs_of(stubs: Stubs, session_id: str) -> list[Any]:
    answer = await stubs.runs.ListRuns(runs_pb2.ListRunsRequest(session_id=session_id), timeout=WAIT)
    return list(answer.runs)


async def running(stubs: Stubs, run_id: str) -> None:
    """Wait until the agent has the prompt: before, the run would outlive the worker."""
    stream = stubs.runs.WatchRun(runs_pb2.WatchRunRequest(run_id=run_id), timeout=WAIT)
    async for response in stream:
        if any(event.run_state_changed.state == events_pb2.RUN_STATE_RUNNING for event in response.events):
            break
    stream.cancel()


async def test_a_run_is_started_once_whoever_asks_again_and_whenever(built: Daemon, stubs: Stubs) -> None:
    session_id = await a_session(built, stubs, "once")
    request = start(session_id, "once")
    twins: list[str] = []

    async def ask() -> None:
        twins.append((await stubs.runs.StartRun(request, timeout=WAIT)).run.run_id)

    async with anyio.create_task_group() as tasks:
        for _ in range(4):
            tasks.start_soon(ask)
    await ask()
    assert len(set(twins)) == 1

    await built.kill_worker()
    again = await stubs.runs.StartRun(request, timeout=WAIT, wait_for_ready=True)
    assert again.run.run_id == twins[0]
    assert again.run.failure.reason in ("DAEMON_RESTARTED", "")
    assert [run.run_id for run in await runs_of(stubs, session_id)] == [twins[0]]
    error = await refused(stubs.runs.StartRun(start(session_id, "once", "another"), timeout=WAIT))
    assert error.reason == "REQUEST_ID_REUSED"
    abort = runs_pb2.AbortRunRequest(run_id=twins[0], request_id="once")
    assert (await refused(stubs.runs.AbortRun(abort, timeout=WAIT))).reason == "REQUEST_ID_REUSED"


async def test_a_session_is_made_closed_and_deleted_once_over_restarts(built: Daemon, stubs: Stubs) -> None:
    session_id = await a_session(built, stubs, "session")
    create = sessions_pb2.CreateSessionRequest(agent="scripted", cwd=str(built.workspace), request_id="create session")
    close = sessions_pb2.CloseSessionRequest(session_id=session_id, force=True, request_id="close")
    delete = sessions_pb2.DeleteSessionRequest(session_id=session_id, request_id="delete")
    await stubs.sessions.CloseSession(close, timeout=WAIT)
    await built.kill_worker()
    again = await stubs.sessions.CreateSession(create, timeout=WAIT, wait_for_ready=True)
    assert again.session.session_id == session_id
    assert (await stubs.sessions.CloseSession(close, timeout=WAIT)).session.session_id == session_id
    await stubs.sessions.DeleteSession(delete, timeout=WAIT)
    await built.kill_worker()
    await stubs.sessions.DeleteSession(delete, timeout=WAIT, wait_for_ready=True)
    error = await refused(stubs.sessions.GetSession(sessions_pb2.GetSessionRequest(session_id=session_id)))
    assert error.reason == "SESSION_NOT_FOUND"


async def test_a_refusal_is_not_remembered_over_a_restart(built: Daemon, stubs: Stubs) -> None:
    session_id = await a_session(built, stubs, "refusal")
    first = (await stubs.runs.StartRun(start(session_id, "first"), timeout=WAIT)).run
    await running(stubs, first.run_id)
    assert (await refused(stubs.runs.StartRun(start(session_id, "second"), timeout=WAIT))).reason == "SESSION_BUSY"
    await built.kill_worker()
    run = (await stubs.runs.StartRun(start(session_id, "second"), timeout=WAIT, wait_for_ready=True)).run
    assert len(await runs_of(stubs, session_id)) == 2
    await stubs.runs.AbortRun(runs_pb2.AbortRunRequest(run_id=run.run_id), timeout=WAIT)
