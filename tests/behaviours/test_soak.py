"""What only many of a kind bring to light: watches that are cancelled, and starts of agents beside calls.

Both were bugs of gRPC in processes like the daemon: grpc/grpc#43360 kept memory of each cancelled stream, and with
grpc/grpc#37259 a process that was started beside calls could hang.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.behaviours.stage import Stage, daemon_of_its_own, play
from tests.framework.memory import resident_mib

from steprail.v1 import events_pb2, sessions_pb2
from steprail_daemon.testing.bench.idle import IDLE_SH

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

WATCHES = 10_000
AT_ONCE = 100
#: After so many, all that is kept for later calls is there.
SETTLED = 4_000
#: What the rest may add: MiB, which is a kilobyte and a half for each, and descriptors, of which gRPC has some more at
#: times.
GROWTH = 8
DESCRIPTORS = 8

STARTS = 1_000
STARTERS = 8
IDLE = f'[agents.idle]\ndriver = "claude"\ncommand = ["/bin/sh", "{IDLE_SH}"]\n'


async def test_ten_thousand_cancelled_watches_leave_nothing_behind() -> None:
    with daemon_of_its_own(IDLE) as daemon:
        await daemon.start()
        async with play(daemon) as stage:
            session_id = await stage.session("idle")
            await idle(stage, session_id)
            worker = daemon.worker_pid()
            before = descriptors = 0.0
            for count in range(0, WATCHES, AT_ONCE):
                if count == SETTLED:
                    before, descriptors = resident_mib(worker), open_descriptors(worker)
                await watch_and_cancel(stage, session_id)
            grown = resident_mib(worker) - before
            assert grown < GROWTH, f"{grown:.1f} MiB more"
            assert open_descriptors(worker) <= descriptors + DESCRIPTORS
            assert (await stage.client.get_session(session_id)).state == events_pb2.SESSION_STATE_IDLE


async def watch_and_cancel(stage: Stage, session_id: str) -> None:
    """Open streams, see that each is served, and cancel them."""
    request = sessions_pb2.WatchSessionRequest(session_id=session_id)
    calls: list[Any] = [stage.sessions.WatchSession(request) for _ in range(AT_ONCE)]
    for call in calls:
        assert (await call.read()).ByteSize()
    for call in calls:
        assert call.cancel()


def open_descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


async def test_a_thousand_agents_start_beside_calls_and_none_hangs() -> None:
    with daemon_of_its_own(IDLE) as daemon:
        await daemon.start()
        own = daemon.descendants()
        async with play(daemon) as stage:
            done = anyio.Event()
            calls = 0

            async def call() -> None:
                nonlocal calls
                while not done.is_set():
                    await stage.client.list_agents()
                    calls += 1

            async def start(count: int) -> None:
                for _ in range(count):
                    session_id = await stage.session("idle")
                    await idle(stage, session_id)
                    await stage.client.close_session(session_id)

            async with anyio.create_task_group() as callers:
                callers.start_soon(call)
                callers.start_soon(call)
                async with anyio.create_task_group() as starters:
                    for _ in range(STARTERS):
                        starters.start_soon(start, STARTS // STARTERS)
                done.set()
            assert calls > STARTS, "there was no load"
            sessions = await stage.client.list_sessions()
            assert [session.state for session in sessions] == [events_pb2.SESSION_STATE_CLOSED] * STARTS
        assert daemon.descendants() == own


async def idle(stage: Stage, session_id: str) -> None:
    """Wait until the agent of a session takes prompts."""
    async for event in stage.client.watch_session(session_id):
        assert event.session_state_changed.state != events_pb2.SESSION_STATE_BROKEN
        if event.session_state_changed.state == events_pb2.SESSION_STATE_IDLE:
            return
