"""Streams of events end to end."""

import time
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import anyio
import anyio.lowlevel
import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tests.integration.service.conftest import Rig, RigFactory

from steprail import errors
from steprail.client import Client
from steprail.v1 import events_pb2, runs_pb2, runs_pb2_grpc, sessions_pb2, sessions_pb2_grpc
from steprail_daemon.core.events import MessageDelta, ToolEnded
from steprail_daemon.core.model import RunState, ToolOutcome, ToolResult

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("one_loop")]

QUICK_HEARTBEAT = 50_000_000


async def first(stream: AsyncIterator[events_pb2.Event], count: int) -> list[events_pb2.Event]:
    found: list[events_pb2.Event] = []
    with anyio.fail_after(10):
        async for event in stream:
            found.append(event)
            if len(found) == count:
                break
    return found


async def the_error_of(
    call: grpc.aio.UnaryStreamCall[Any, runs_pb2.WatchRunResponse]
    | grpc.aio.UnaryStreamCall[Any, sessions_pb2.WatchSessionResponse],
    rig: Rig,
    seen: list[int],
) -> errors.StepRailError:
    """Read a stream to its bad end, taking down what comes before."""
    try:
        while isinstance(message := await call.read(), runs_pb2.WatchRunResponse | sessions_pb2.WatchSessionResponse):
            seen += [event.seq for event in message.events]
    except grpc.aio.AioRpcError as error:
        return errors.from_rpc(error, rig.address)
    raise AssertionError("the stream ended well")


async def test_a_watcher_sees_what_was_recorded_then_what_comes_and_ends_with_the_run(
    rig: Rig, client: Client, session_id: str
) -> None:
    run_id = (await client.start_run(session_id, "go")).run_id
    rig.facade.emit(run_id, MessageDelta("m", "recorded"))
    seen: list[events_pb2.Event] = []

    async def watch() -> None:
        seen.extend([event async for event in client.watch_run(run_id)])

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch)
            await rig.until(lambda: rig.facade.followers(session_id) == 1)
            for number in range(50):
                rig.facade.emit(run_id, MessageDelta("m", str(number)))
                await anyio.lowlevel.checkpoint()
            rig.facade.end_run(run_id, RunState.COMPLETED)

    assert [event.seq for event in seen] == list(range(2, 2 + len(seen)))
    assert [e.message_delta.text for e in seen if e.HasField("message_delta")] == ["recorded", *map(str, range(50))]
    assert seen[-1].WhichOneof("body") == "agent_end"
    assert {(event.session_id, event.run_id) for event in seen} == {(session_id, run_id)}


async def test_one_who_comes_late_still_sees_the_whole_run(rig: Rig, client: Client, session_id: str) -> None:
    run_id = (await client.start_run(session_id, "go")).run_id
    rig.facade.complete_step(run_id, ask=False)
    rig.facade.end_run(run_id, RunState.COMPLETED)

    bodies = [event.WhichOneof("body") async for event in client.watch_run(run_id)]

    assert bodies == ["run_state_changed", "step_end", "decision_recorded", "run_state_changed", "agent_end"]


async def test_a_watch_goes_on_after_its_cursor(rig: Rig, client: Client, session_id: str) -> None:
    run_id = (await client.start_run(session_id, "go")).run_id
    for number in range(5):
        rig.facade.emit(run_id, MessageDelta("m", str(number)))
    rig.facade.end_run(run_id, RunState.COMPLETED)

    texts = [e.message_delta.text async for e in client.watch_run(run_id, after_seq=5, epoch="epoch-1")]

    assert texts == ["3", "4", "", ""]


@pytest.mark.parametrize(("after_seq", "epoch"), [(99, "epoch-1"), (1, "epoch-0")])
async def test_a_cursor_that_is_no_place_is_refused_with_what_there_is(
    client: Client, session_id: str, after_seq: int, epoch: str
) -> None:
    with pytest.raises(errors.OutOfRange) as caught:
        await first(client.watch_session(session_id, after_seq=after_seq, epoch=epoch), 1)

    assert caught.value.reason == "CURSOR_INVALID"
    assert caught.value.metadata == {"earliest_seq": "1", "last_seq": "1", "epoch": "epoch-1"}


async def test_a_cursor_without_epoch_is_refused(rig: Rig, client: Client, session_id: str) -> None:
    stub = sessions_pb2_grpc.SessionServiceStub(await rig.channel())

    for request in (
        sessions_pb2.WatchSessionRequest(session_id=session_id, after_seq=1),
        sessions_pb2.WatchSessionRequest(session_id=session_id, after_seq=-1, epoch="epoch-1"),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.WatchSession(request, timeout=10).read()
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_session_is_followed_over_its_runs_until_it_is_closed(
    rig: Rig, client: Client, session_id: str
) -> None:
    for _ in range(2):
        run_id = (await client.start_run(session_id, "go")).run_id
        rig.facade.end_run(run_id, RunState.COMPLETED)
    await client.close_session(session_id)

    with anyio.fail_after(10):
        events = [event async for event in client.watch_session(session_id)]

    assert [event.seq for event in events] == list(range(1, 9))
    assert events[-1].session_state_changed.state == events_pb2.SESSION_STATE_CLOSED


async def test_a_heartbeat_comes_at_the_beginning_and_in_silence(make_rig: RigFactory) -> None:
    rig = await make_rig(heartbeat_ns=QUICK_HEARTBEAT)
    await rig.serve()
    client = await rig.client()
    session_id = (await client.create_session("claude", "/work")).session_id
    run_id = (await client.start_run(session_id, "go")).run_id
    stub = runs_pb2_grpc.RunServiceStub(await rig.channel())

    call = stub.WatchRun(runs_pb2.WatchRunRequest(run_id=run_id, after_seq=2, epoch="epoch-1"), timeout=10)
    beats: list[events_pb2.Heartbeat] = []
    for _ in range(4):
        message = await call.read()
        assert isinstance(message, runs_pb2.WatchRunResponse)
        assert list(message.events) == []
        beats.append(message.heartbeat)
    call.cancel()

    assert {(beat.last_seq, beat.epoch) for beat in beats} == {(2, "epoch-1")}
    assert {beat.run_state for beat in beats} == {events_pb2.RUN_STATE_RUNNING}
    assert {beat.session_state for beat in beats} == {events_pb2.SESSION_STATE_IDLE}
    times = [beat.time.ToNanoseconds() for beat in beats]
    assert times == sorted(set(times))


async def test_events_put_heartbeats_off(make_rig: RigFactory) -> None:
    rig = await make_rig(heartbeat_ns=10_000_000_000)
    await rig.serve()
    client = await rig.client()
    session_id = (await client.create_session("claude", "/work")).session_id
    run_id = (await client.start_run(session_id, "go")).run_id
    stub = runs_pb2_grpc.RunServiceStub(await rig.channel())
    call = stub.WatchRun(runs_pb2.WatchRunRequest(run_id=run_id), timeout=10)
    await call.read()
    await call.read()

    rig.facade.emit(run_id, MessageDelta("m", "x"))
    message = await call.read()
    call.cancel()

    assert isinstance(message, runs_pb2.WatchRunResponse)
    assert not message.HasField("heartbeat")
    assert [event.message_delta.text for event in message.events] == ["x"]


async def test_a_large_backlog_comes_in_messages_under_a_mebibyte(rig: Rig, client: Client, session_id: str) -> None:
    run_id = (await client.start_run(session_id, "go")).run_id
    for _ in range(60):
        rig.facade.emit(run_id, ToolEnded(ToolResult("c", ToolOutcome.SUCCEEDED, "x" * 60_000)))
    rig.facade.end_run(run_id, RunState.COMPLETED)
    stub = runs_pb2_grpc.RunServiceStub(await rig.channel())

    sizes: list[int] = []
    seqs: list[int] = []
    async for message in stub.WatchRun(runs_pb2.WatchRunRequest(run_id=run_id), timeout=30):
        sizes.append(message.ByteSize())
        seqs += [event.seq for event in message.events]

    assert max(sizes) <= 900 * 1024
    assert seqs == list(range(2, 65))


async def test_a_reader_that_stalls_is_ended_with_its_cursor_and_a_new_watch_loses_nothing(
    make_rig: RigFactory,
) -> None:
    rig = await make_rig(stalled_reader_ns=300_000_000)
    await rig.serve()
    client = await rig.client()
    session_id = (await client.create_session("claude", "/work")).session_id
    run_id = (await client.start_run(session_id, "go")).run_id
    stub = runs_pb2_grpc.RunServiceStub(await rig.channel())
    call = stub.WatchRun(runs_pb2.WatchRunRequest(run_id=run_id), timeout=30)
    await call.read()
    for _ in range(400):
        rig.facade.emit(run_id, ToolEnded(ToolResult("c", ToolOutcome.SUCCEEDED, "x" * 60_000)))
        await anyio.lowlevel.checkpoint()

    # The stream is given up once nothing was taken for the time it has.
    await rig.until(lambda: rig.facade.followers(session_id) == 0)
    seen: list[int] = []
    refused = await the_error_of(call, rig, seen)
    assert isinstance(refused, errors.ResourceExhausted)
    assert refused.reason == "READER_STALLED"
    assert (refused.metadata["session_id"], refused.metadata["epoch"]) == (session_id, "epoch-1")
    cursor = int(refused.metadata["after_seq"])
    assert cursor <= seen[-1] < 403
    rig.facade.end_run(run_id, RunState.COMPLETED)
    rest = [event.seq async for event in client.watch_run(run_id, after_seq=cursor, epoch="epoch-1")]
    assert rest == list(range(cursor + 1, 405))


async def test_a_slow_reader_slows_nobody(rig: Rig, client: Client, session_id: str) -> None:
    run_id = (await client.start_run(session_id, "go")).run_id
    stub = runs_pb2_grpc.RunServiceStub(await rig.channel())
    slow = stub.WatchRun(runs_pb2.WatchRunRequest(run_id=run_id), timeout=30)
    await slow.read()
    for _ in range(200):
        rig.facade.emit(run_id, ToolEnded(ToolResult("c", ToolOutcome.SUCCEEDED, "x" * 60_000)))
        await anyio.lowlevel.checkpoint()
    rig.facade.end_run(run_id, RunState.COMPLETED)

    with anyio.fail_after(10):
        quick = [event.seq async for event in client.watch_run(run_id)]
    behind: list[int] = []
    while (message := await slow.read()) is not grpc.aio.EOF:
        assert isinstance(message, runs_pb2.WatchRunResponse)
        behind += [event.seq for event in message.events]

    assert quick == behind == list(range(2, 205))


async def test_a_watch_that_is_left_is_cleaned_up(rig: Rig, client: Client, session_id: str) -> None:
    run_id = (await client.start_run(session_id, "go")).run_id
    stream = client.watch_run(run_id)
    await anext(stream)
    assert rig.facade.followers(session_id) == 1

    assert isinstance(stream, AsyncGenerator)
    await stream.aclose()

    await rig.until(lambda: rig.facade.followers(session_id) == 0)


async def test_the_deadline_of_a_watch_does_not_touch_the_run(rig: Rig, client: Client, session_id: str) -> None:
    run_id = (await client.start_run(session_id, "go")).run_id
    stub = runs_pb2_grpc.RunServiceStub(await rig.channel())
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        async for _ in stub.WatchRun(runs_pb2.WatchRunRequest(run_id=run_id), timeout=0.2):
            pass

    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    await rig.until(lambda: rig.facade.followers(session_id) == 0)
    assert (await client.get_run(run_id)).state == events_pb2.RUN_STATE_RUNNING


async def test_a_hundred_watchers_see_the_same(rig: Rig, client: Client, session_id: str) -> None:
    run_id = (await client.start_run(session_id, "go")).run_id
    seen: list[list[int]] = []

    async def watch() -> None:
        seen.append([event.seq async for event in client.watch_run(run_id)])

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            for _ in range(100):
                tasks.start_soon(watch)
            await rig.until(lambda: rig.facade.followers(session_id) == 100)
            for number in range(100):
                rig.facade.emit(run_id, MessageDelta("m", str(number)))
                if number % 10 == 0:
                    await anyio.lowlevel.checkpoint()
            rig.facade.end_run(run_id, RunState.COMPLETED)

    assert len(seen) == 100
    assert all(seqs == list(range(2, 105)) for seqs in seen)
    await rig.until(lambda: rig.facade.followers(session_id) == 0)


async def test_a_daemon_that_goes_down_ends_streams_as_draining_and_is_not_serving(
    rig: Rig, make_rig: RigFactory
) -> None:
    other = await make_rig()
    other.socket = other.socket.with_name("other.sock")
    server = await other.serve()
    client = await other.client()
    session_id = (await client.create_session("claude", "/work")).session_id
    stub = sessions_pb2_grpc.SessionServiceStub(await other.channel())
    call = stub.WatchSession(sessions_pb2.WatchSessionRequest(session_id=session_id), timeout=10)
    await call.read()

    health = health_pb2_grpc.HealthStub(await other.channel())
    whole = health.Watch(health_pb2.HealthCheckRequest(), timeout=10)
    assert (await whole.read()).status == health_pb2.HealthCheckResponse.SERVING

    server.refuse_new()
    assert (await whole.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
    runs = await health.Check(health_pb2.HealthCheckRequest(service="steprail.v1.RunService"), timeout=10)
    assert runs.status == health_pb2.HealthCheckResponse.SERVING
    assert (await client.get_server_info()).draining
    before = time.monotonic()
    await server.stop(5)

    refused = await the_error_of(call, other, [])
    assert isinstance(refused, errors.Unavailable)
    assert (refused.reason, refused.retry_after) == ("DRAINING", 1.0)
    assert time.monotonic() - before < 4
    assert other.facade.followers(session_id) == 0


async def test_a_client_comes_back_to_a_daemon_that_was_away_and_misses_nothing(make_rig: RigFactory) -> None:
    rig = await make_rig()
    server = await rig.serve()
    client = await rig.client()
    session_id = (await client.create_session("claude", "/work")).session_id
    run_id = (await client.start_run(session_id, "go")).run_id
    stream = client.watch_run(run_id)
    rig.facade.emit(run_id, MessageDelta("m", "before"))
    early = await first(stream, 2)

    await server.stop(0)
    rig.facade.emit(run_id, MessageDelta("m", "while away"))
    await rig.serve()
    rig.facade.end_run(run_id, RunState.COMPLETED)
    with anyio.fail_after(20):
        late = [event async for event in client.watch_run(run_id, after_seq=early[-1].seq, epoch="epoch-1")]

    assert [e.message_delta.text for e in early + late] == ["", "before", "while away", "", ""]


async def test_one_watch_resumes_by_itself_over_a_restart(make_rig: RigFactory) -> None:
    rig = await make_rig()
    server = await rig.serve()
    client = await rig.client()
    session_id = (await client.create_session("claude", "/work")).session_id
    run_id = (await client.start_run(session_id, "go")).run_id
    seen: list[int] = []

    async def watch() -> None:
        seen.extend([event.seq async for event in client.watch_run(run_id)])

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch)
            await rig.until(lambda: rig.facade.followers(session_id) == 1)
            rig.facade.emit(run_id, MessageDelta("m", "before"))
            await server.stop(0)
            rig.facade.emit(run_id, MessageDelta("m", "while away"))
            await rig.serve()
            await rig.until(lambda: rig.facade.followers(session_id) == 1)
            rig.facade.end_run(run_id, RunState.COMPLETED)

    assert seen == list(range(2, 7))
