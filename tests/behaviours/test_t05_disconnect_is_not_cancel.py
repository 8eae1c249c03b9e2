"""T5, a disconnect is no cancel: whoever leaves, at whatever moment, the run goes on and can be watched from there."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.behaviours.stage import (
    COMPLETED,
    CONTINUE,
    STEPS_ONLY,
    STOPPED,
    TERMINAL,
    Stage,
    bodies,
    client_decides,
    command,
    gapless,
    read,
    says,
    script,
)
from tests.framework.daemon import STEPRAIL

from steprail.client import Client
from steprail.v1 import decisions_pb2, events_pb2, runs_pb2

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

SMALL = script(read(delay=0.05), says("the end", delay=0.05))
#: Clients at one time; each is a process.
AT_ONCE = 3


async def seen_by_client(stage: Stage, arguments: list[str], until: int, log: Path) -> list[dict[str, Any]]:
    """Run the command line as a client and kill it when it has shown so many events; gives them."""
    events: list[dict[str, Any]] = []
    with log.open("wb") as errors:
        async with await anyio.open_process(
            [STEPRAIL, *arguments], env=stage.daemon.environment, stderr=errors, stdin=subprocess.DEVNULL
        ) as process:
            assert process.stdout is not None
            rest = b""
            with anyio.fail_after(30):
                async for data in process.stdout:
                    *whole, rest = (rest + data).split(b"\n")
                    events += [shown["event"] for line in whole if "event" in (shown := json.loads(line))]
                    if len(events) >= until:
                        break
            process.kill()
            await process.wait()
    return events


async def last_run(stage: Stage, known: set[str]) -> runs_pb2.Run:
    """Give the run that a client began."""
    found: list[runs_pb2.Run] = []
    with anyio.fail_after(20):
        while not found:
            found = [run for run in await stage.client.list_runs() if run.run_id not in known]
    (run,) = found
    return run


async def test_a_client_that_is_killed_at_any_event_leaves_a_run_that_goes_on_and_is_there_from_its_cursor(
    stage: Stage,
) -> None:
    """T5: one real client for each event of a run, killed when it has seen that event."""
    plain = await stage.events((await stage.run(await stage.session(), SMALL)).run_id)
    limit = anyio.CapacityLimiter(AT_ONCE)
    cut_short = 0

    async def leave_at(index: int) -> None:
        nonlocal cut_short
        async with limit:
            session_id = await stage.session()
            started = await stage.client.start_run(session_id, SMALL)
            arguments = ["watch", "--json", started.run_id]
            seen = await seen_by_client(stage, arguments, index, stage.workspace / f"errors-{index}")
            assert len(seen) >= index, (stage.workspace / f"errors-{index}").read_text()
            run = await stage.ended(started.run_id)
            assert (run.state, run.text) == (COMPLETED, "the end")
            whole = await stage.events(started.run_id)
            assert len(bodies(whole, "agent_end")) == 1
            cut_short += len(seen) < len(whole)
            last = int(seen[-1]["seq"])
            assert [int(line["seq"]) for line in seen] == [event.seq for event in whole[: len(seen)]]
            epoch = (await stage.client.get_session(session_id)).epoch
            rest = [event async for event in stage.client.watch_run(started.run_id, after_seq=last, epoch=epoch)]
            assert whole[: len(seen)] + rest == whole

    async with anyio.create_task_group() as group:
        for index in range(1, len(plain)):
            group.start_soon(leave_at, index)
    assert cut_short > 0


async def test_a_stream_that_breaks_off_at_any_event_is_taken_up_without_gap_and_without_repetition(
    stage: Stage,
) -> None:
    """T5: channels that are closed under a live watch, also before the terminal event is sent."""
    session_id = await stage.session()
    started = await stage.client.start_run(session_id, SMALL)
    pieces: list[events_pb2.Event] = []
    epoch = (await stage.client.get_session(session_id)).epoch
    with anyio.fail_after(60):
        while not any(event.HasField("agent_end") for event in pieces):
            async with Client(stage.daemon.address) as client:
                after = pieces[-1].seq if pieces else 0
                async for event in client.watch_run(started.run_id, after_seq=after, epoch=epoch if after else ""):
                    pieces.append(event)
                    break
    assert pieces == await stage.events(started.run_id)
    whole = []
    async for event in stage.client.watch_session(session_id):
        whole.append(event)
        if event.seq >= pieces[-1].seq:
            break
    assert gapless(whole)
    assert [event for event in whole if event.run_id] == pieces
    late = [event async for event in stage.client.watch_run(started.run_id, after_seq=pieces[-2].seq, epoch=epoch)]
    assert [event.WhichOneof("body") for event in late] == ["agent_end"]


async def test_the_client_that_began_a_run_is_killed_and_the_run_goes_on(stage: Stage) -> None:
    """T5: `steprail run`, which started it, dies without a word."""
    known = {run.run_id for run in await stage.client.list_runs()}
    prompt = script(command("while test ! -e go; do sleep 0.02; done"), says("went on"))
    arguments = ["run", "-a", "scripted", "-C", str(stage.workspace), "--json", prompt]
    await seen_by_client(stage, arguments, 2, stage.workspace / "errors")
    run = await last_run(stage, known)
    assert run.state not in TERMINAL
    (stage.workspace / "go").touch()
    run = await stage.ended(run.run_id)
    assert (run.state, run.text) == (COMPLETED, "went on")


async def test_a_decider_that_leaves_lets_the_run_wait_and_another_one_decides(stage: Stage) -> None:
    """T5: with a decision pending; the default is to wait."""
    start = stage.client.start_request(await stage.session(), SMALL, decider=client_decides())
    async with (
        Client(stage.daemon.address) as gone,
        gone.control(start=start, decide=True, events=STEPS_ONLY) as control,
    ):
        run_id = control.run_id
        async for message in control:
            if message.WhichOneof("body") == "decision_requested":
                break
    pending = (await stage.asked(run_id)).pending_decision
    async with stage.client.control(attach=run_id, decide=True, events=STEPS_ONLY) as control:
        async for message in control:
            if message.WhichOneof("body") == "decision_requested":
                assert message.decision_requested.step.step_id == pending.step_id
                await control.decide(pending.step_id, CONTINUE)
    assert (await stage.ended(run_id)).state == COMPLETED


async def test_a_run_that_wants_to_stop_when_its_decider_is_lost_stops_after_the_grace(stage: Stage) -> None:
    """T5: policy, by the run's own word."""
    decider = client_decides(on_disconnect=decisions_pb2.ON_DISCONNECT_STOP)
    decider.disconnect_grace.FromMilliseconds(300)
    start = stage.client.start_request(await stage.session(), SMALL, decider=decider)
    async with (
        Client(stage.daemon.address) as gone,
        gone.control(start=start, decide=True, events=STEPS_ONLY) as control,
    ):
        run_id = control.run_id
        async for message in control:
            if message.WhichOneof("body") == "decision_requested":
                break
    run = await stage.ended(run_id)
    assert (run.state, run.stop_reason.source) == (STOPPED, decisions_pb2.DECISION_SOURCE_DISCONNECT)


async def test_the_deadline_of_a_watch_is_not_the_deadline_of_the_run(stage: Stage) -> None:
    """T5: a watch with a deadline of half a second on a run that takes longer."""
    started = await stage.client.start_run(await stage.session(), script(command("sleep 1"), says("in time")))
    call: Any = stage.runs.WatchRun(runs_pb2.WatchRunRequest(run_id=started.run_id), timeout=0.5)
    with pytest.raises(Exception, match="DEADLINE_EXCEEDED"):
        async for _ in call:
            pass
    assert (await stage.ended(started.run_id)).text == "in time"
