"""T6, a slow reader: it slows nobody down, costs no memory, and gets everything in the end."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest
from tests.behaviours.stage import COMPLETED, PlayedDaemon, Stage, daemon_of_its_own, kinds, play
from tests.framework.memory import resident_mib

from steprail.v1 import events_pb2, runs_pb2

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

DELTAS = 200_000
#: Characters in each.
EACH = 20
#: What the worker may grow by, in MiB: the answer as text, what is on its way, and no copy for each reader.
GROWTH = 128
READERS = 8
#: How often the memory is looked at, in events.
LOOKS = 1_000


def answer(deltas: int) -> str:
    """Give a prompt whose answer comes in so many small parts."""
    return json.dumps({"steps": 0, "deltas": deltas, "text": "0123456789" * (deltas * EACH // 10)})


def rate(run: runs_pb2.Run, deltas: int) -> float:
    """Give how many deltas a second a run has had."""
    return deltas / (run.active.ToNanoseconds() / 1e9)


async def drain(call: Any) -> list[events_pb2.Event]:
    """Read what a call that was left alone has to say after all."""
    return [event async for message in call for event in message.events]


async def test_readers_that_stop_reading_slow_nobody_down_and_find_everything_when_they_go_on() -> None:
    """T6: 200,000 deltas, one reader that reads and eight that do not."""
    with daemon_of_its_own() as daemon:
        await daemon.start()
        async with play(daemon) as stage:
            session_id = await stage.session("claude")
            alone = rate(await stage.run(session_id, answer(DELTAS // 4)), DELTAS // 4)
            await slow_beside_fast(daemon, stage, session_id, alone)


async def slow_beside_fast(daemon: PlayedDaemon, stage: Stage, session_id: str, alone: float) -> None:
    """Let readers open a stream each and leave it; then compare. `alone` is the rate without readers."""
    worker = daemon.worker_pid()
    before = peak = resident_mib(worker)
    started = await stage.client.start_run(session_id, answer(DELTAS))
    calls = [stage.runs.WatchRun(runs_pb2.WatchRunRequest(run_id=started.run_id)) for _ in range(READERS)]
    for call in calls:
        await call.initial_metadata()
    fast: list[events_pb2.Event] = []
    async for event in stage.client.watch_run(started.run_id):
        fast.append(event)
        if len(fast) % LOOKS == 0:
            peak = max(peak, resident_mib(worker))
    run = await stage.ended(started.run_id)
    assert run.state == COMPLETED
    assert rate(run, DELTAS) > alone / 4, f"{rate(run, DELTAS):.0f} a second beside slow readers, {alone:.0f} alone"
    assert peak - before < GROWTH, f"from {before:.0f} to {peak:.0f} MiB"
    assert "".join(event.message_delta.text for event in fast) == "0123456789" * (DELTAS * EACH // 10)
    assert len({event.seq for event in fast}) == len(fast)
    with anyio.fail_after(60):
        for call in calls[:2]:
            assert await drain(call) == fast
    for call in calls[2:]:
        call.cancel()
    epoch = (await stage.client.get_session(session_id)).epoch
    middle = fast[len(fast) // 2].seq
    rest = [event async for event in stage.client.watch_run(run.run_id, after_seq=middle, epoch=epoch)]
    assert rest == [event for event in fast if event.seq > middle]
    assert kinds(rest)[-1] == "agent_end"
