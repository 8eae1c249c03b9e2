"""Streams over a daemon that is killed in the middle, comes back, and goes down in order."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from tests.framework.daemon import Daemon, short_directory
from tests.integration.client.conftest import AGENTS, command, says, script

from steprail.client import Client, Lost
from steprail.errors import CallTimeout, ConnectionFailed
from steprail.v1 import events_pb2, runs_pb2, steps_pb2

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("one_loop"), pytest.mark.timeout(120)]

FAILED = events_pb2.RUN_STATE_FAILED
WAIT = 60.0


class Killed(Daemon):
    """A daemon that can be killed with all that is below it, and started again on the same state."""

    async def kill(self) -> None:
        assert self._process is not None
        for pid in (*self.descendants(), self.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait(WAIT)


@pytest.fixture
async def daemon() -> AsyncIterator[Killed]:
    with short_directory() as directory:
        made = Killed(directory, ["true"], settings=AGENTS)
        await made.start()
        try:
            yield made
        finally:
            made.stop()


@pytest.fixture
def workspace(daemon: Killed) -> Path:
    return daemon.workspace


LONG = script(*(command(f"echo {number}; sleep 0.3") for number in range(20)), says("done"))


class Followers:
    """All the streams about one run, and the sequence numbers that each has given."""

    def __init__(self, client: Client, session_id: str, run_id: str) -> None:
        self.client = client
        self.session_id = session_id
        self.run_id = run_id
        self.run: list[int] = []
        self.session: list[int] = []
        self.all: list[int] = []
        self.control: list[int] = []
        self.under_way = anyio.Event()
        self.failure = ""

    async def watch_run(self) -> None:
        async for event in self.client.watch_run(self.run_id):
            self.run.append(event.seq)

    async def watch_session(self) -> None:
        async for event in self.client.watch_session(self.session_id):
            self.session.append(event.seq)

    async def watch_events(self) -> None:
        async for event in self.client.watch_events():
            self.all.append(event.seq)

    async def hold_control(self) -> None:
        async with self.client.control(attach=self.run_id) as stream:
            async for message in stream:
                self.control.extend(event.seq for event in message.events.events)
                self.failure = message.finished.run.failure.reason
                if len(self.control) > 12:
                    self.under_way.set()

    async def caught_up(self) -> None:
        """Wait until the streams that do not end have all that there is."""
        last = (await self.client.get_session(self.session_id)).last_seq
        with anyio.fail_after(WAIT):
            while min(self.session[-1:] + self.all[-1:]) < last:  # noqa: ASYNC110 - the streams tell by their lists
                await anyio.sleep(0.02)


async def test_every_stream_goes_on_over_a_kill_without_gap_and_without_repetition(
    daemon: Killed, workspace: Path
) -> None:
    lost: list[Lost] = []
    async with Client(daemon.address, patience=WAIT, on_lost=lost.append, wait_for_ready=WAIT) as client:
        session = await client.create_session("scripted", str(workspace))
        run = await client.start_run(session.session_id, LONG)
        found = Followers(client, session.session_id, run.run_id)
        async with anyio.create_task_group() as for_ever:
            for_ever.start_soon(found.watch_session)
            for_ever.start_soon(found.watch_events)
            async with anyio.create_task_group() as until_the_end:
                until_the_end.start_soon(found.watch_run)
                until_the_end.start_soon(found.hold_control)
                with anyio.fail_after(WAIT):
                    await found.under_way.wait()
                await daemon.kill()
                await daemon.start()
            again = await client.run(script(says("after")), session=session.session_id)
            await found.caught_up()
            for_ever.cancel_scope.cancel()
        whole = [event.seq async for event in client.watch_run(run.run_id)]

    assert (found.failure, again.text) == ("DAEMON_RESTARTED", "after")
    assert found.run == found.control == whole
    assert found.session == list(range(1, found.session[-1] + 1))
    assert found.all == list(range(found.all[0], found.all[-1] + 1))
    assert {one.stream for one in lost} == {"WatchRun", "WatchSession", "WatchEvents", "ControlRun"}
    assert all(isinstance(one.error, ConnectionFailed) for one in lost if one.attempt == 1)


async def test_a_run_that_is_decided_about_ends_with_what_the_restart_made_of_it(
    daemon: Killed, workspace: Path
) -> None:
    asked = anyio.Event()

    async def decide(step: steps_pb2.Step) -> bool:
        if step.number == 2:
            asked.set()
            await anyio.sleep_forever()
        return True

    async with (
        Client(daemon.address, patience=WAIT) as client,
        client.run(LONG, agent="scripted", cwd=workspace, decide=decide) as run,
    ):
        with anyio.fail_after(WAIT):
            await asked.wait()
        await daemon.kill()
        await daemon.start()
        ended = await run
    assert (ended.state, ended.failure.reason, ended.step_count) == (FAILED, "DAEMON_RESTARTED", 2)


async def test_an_orderly_exit_is_waited_out_too(daemon: Killed, workspace: Path) -> None:
    reasons: list[str] = []

    def note(lost: Lost) -> None:
        reasons.append(getattr(lost.error, "reason", ""))

    async with Client(daemon.address, patience=WAIT, on_lost=note) as client:
        run = await client.run(script(command("true"), says("x")), agent="scripted", cwd=workspace)
        seen: list[int] = []
        async with anyio.create_task_group() as tasks:

            async def watch() -> None:
                async for event in client.watch_session(run.session_id):
                    seen.append(event.seq)
                    if event.session_state_changed.state == events_pb2.SESSION_STATE_CLOSED:
                        break

            tasks.start_soon(watch)
            await client.get_run(run.run_id)
            assert await anyio.to_thread.run_sync(daemon.stop) == 0
            await daemon.start()
            await client.close_session(run.session_id)
    assert seen == list(range(1, seen[-1] + 1))
    assert "DRAINING" in reasons


async def test_patience_has_an_end_and_a_daemon_that_is_still_starting_is_waited_for(daemon: Killed) -> None:
    await daemon.kill()
    async with Client(daemon.address, patience=0.2) as client:
        with pytest.raises(ConnectionFailed):
            async for _ in client.watch_run("run_1"):
                pass
    with pytest.raises(CallTimeout):
        async with Client(daemon.address, wait_for_ready=0.3):
            pass
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(daemon.start)
        async with Client(daemon.address, wait_for_ready=WAIT) as client:
            assert (await client.get_server_info()).version


async def test_a_start_whose_answer_was_lost_is_found_again_and_not_made_twice(daemon: Killed, workspace: Path) -> None:
    async with Client(daemon.address, patience=WAIT) as client:
        session = await client.create_session("scripted", str(workspace))
        request = client.start_request(session.session_id, script(says("once")))
        # The daemon acts, and dies before the answer is read.
        first = (await client._stubs.runs.StartRun(request)).run
        await client.wait_run(first.run_id, timeout=WAIT)
        await daemon.kill()
        begun: list[runs_pb2.Run] = []
        async with anyio.create_task_group() as tasks:

            async def begin() -> None:
                begun.append(await client._begin(request))

            tasks.start_soon(begin)
            await daemon.start()
        assert [run.run_id for run in begun] == [first.run_id]
        assert len(await client.list_runs(session.session_id)) == 1
