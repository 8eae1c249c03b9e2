"""WatchEvents end to end: many sessions in one stream."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import grpc
import grpc.aio
import pytest
from tests.integration.service.callers import Site, token_of
from tests.integration.service.conftest import Rig, RigFactory
from tests.integration.service.stubs import Stubs, refused

from steprail import errors
from steprail.client import Client
from steprail.v1 import events_pb2, sessions_pb2, sessions_pb2_grpc
from steprail_daemon.core.events import MessageDelta
from steprail_daemon.core.model import RunState

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("one_loop")]
EPOCH = "epoch-1"


class Stream:
    """An open WatchEvents, and what came of it."""

    def __init__(self, call: Any) -> None:
        self.call = call
        self.events: list[events_pb2.Event] = []
        self.places: dict[str, int] = {}
        self.beats = 0

    async def read(self) -> bool:
        """Take one message; false at the end."""
        with anyio.fail_after(10):
            message = await self.call.read()
        if message is grpc.aio.EOF:
            return False
        assert message.ByteSize() < 1024 * 1024
        self.events += message.events
        if message.HasField("heartbeat"):
            self.beats += 1
            assert all(place.epoch == EPOCH for place in message.heartbeat.cursors)
            self.places |= {place.session_id: place.after_seq for place in message.heartbeat.cursors}
        return True

    async def read_on(self) -> None:
        """Take messages until the end."""
        while await self.read():
            pass

    async def until(self, count: int) -> list[events_pb2.Event]:
        """Take messages until so many events came; there are never more."""
        while len(self.events) < count:
            assert await self.read()
        assert len(self.events) == count
        return self.events

    async def beat(self) -> dict[str, int]:
        """Take messages until the next heartbeat; give where the stream stands."""
        beats = self.beats
        while self.beats == beats:
            assert await self.read()
        return self.places

    @property
    def seqs(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for event in self.events:
            found.setdefault(event.session_id, []).append(event.seq)
        return found

    @property
    def bodies(self) -> list[str | None]:
        return [event.WhichOneof("body") for event in self.events]


@asynccontextmanager
async def watching(stubs: Stubs, **fields: Any) -> AsyncIterator[Stream]:
    call = stubs.sessions.WatchEvents(sessions_pb2.WatchEventsRequest(**fields), timeout=30)
    stream = Stream(call)
    await stream.beat()
    yield stream
    call.cancel()


def cursor(session_id: str, after_seq: int = 0, epoch: str = "") -> events_pb2.SessionCursor:
    return events_pb2.SessionCursor(session_id=session_id, after_seq=after_seq, epoch=epoch)


async def test_all_sessions_are_followed_new_ones_from_their_beginning(
    rig: Rig, stubs: Stubs, client: Client, session_id: str
) -> None:
    async with watching(stubs) as stream:
        assert stream.places == {session_id: 1}
        first = await client.start_run(session_id, "go")
        await stream.until(1)
        other = (await client.create_session("claude", "/work")).session_id
        second = await client.start_run(other, "go")
        await stream.until(3)
        rig.facade.end_run(first.run_id, RunState.COMPLETED)
        rig.facade.end_run(second.run_id, RunState.COMPLETED)
        await stream.until(7)

    assert stream.seqs == {session_id: [2, 3, 4], other: [1, 2, 3, 4]}
    assert {event.run_id for event in stream.events if event.session_id == other} == {"", second.run_id}


async def test_a_stream_goes_on_at_its_cursors_and_misses_nothing(
    rig: Rig, stubs: Stubs, client: Client, session_id: str
) -> None:
    other = (await client.create_session("claude", "/work")).session_id
    run_id = (await client.start_run(session_id, "go")).run_id
    await client.start_run(other, "go")
    rig.facade.emit(run_id, MessageDelta("m", "x"))

    async with watching(stubs, cursors=[cursor(session_id, 1, EPOCH), cursor(other)]) as stream:
        await stream.until(4)

    assert stream.seqs == {session_id: [2, 3], other: [1, 2]}


async def test_only_wanted_kinds_agents_and_labels_are_sent(rig: Rig, stubs: Stubs, client: Client) -> None:
    ours = (await client.create_session("claude", "/work", labels={"team": "a"})).session_id
    others = (await client.create_session("claude", "/work", labels={"team": "b"})).session_id
    places = [cursor(ours), cursor(others)]
    runs = [await client.start_run(session_id, "go") for session_id in (ours, others)]
    for run in runs:
        rig.facade.emit(run.run_id, MessageDelta("m", "x"))
        rig.facade.complete_step(run.run_id, ask=False)

    async with watching(stubs, cursors=places, kinds=["step_end", "run_state_changed"], labels={"team": "a"}) as stream:
        await stream.until(2)
        rig.facade.end_run(runs[1].run_id, RunState.COMPLETED)
        rig.facade.end_run(runs[0].run_id, RunState.COMPLETED)
        await stream.until(3)
    async with watching(stubs, cursors=places, agents=["another"]) as none:
        assert none.places == {}

    assert stream.bodies == ["run_state_changed", "step_end", "run_state_changed"]
    assert {event.session_id for event in stream.events} == {ours}


async def test_heartbeats_tell_where_the_stream_stands_also_behind_what_a_filter_left_out(
    make_rig: RigFactory,
) -> None:
    rig = await make_rig(heartbeat_ns=50_000_000)
    await rig.serve()
    client, stubs = await rig.client(), Stubs(await rig.channel())
    session_id = (await client.create_session("claude", "/work")).session_id
    run_id = (await client.start_run(session_id, "go")).run_id

    async with watching(stubs, kinds=["step_end"]) as stream:
        assert stream.places == {session_id: 2}
        rig.facade.emit(run_id, MessageDelta("m", "x"))
        while stream.places != {session_id: 3}:
            await stream.beat()
        assert stream.events == []
        stream.places.clear()
        assert await stream.beat() == {}

    async with watching(stubs, cursors=[cursor(session_id, 3, EPOCH)]) as again:
        rig.facade.emit(run_id, MessageDelta("m", "y"))
        assert [event.seq for event in await again.until(1)] == [4]


async def test_events_that_never_cease_put_no_heartbeat_off(make_rig: RigFactory) -> None:
    rig = await make_rig(heartbeat_ns=50_000_000)
    await rig.serve()
    client, stubs = await rig.client(), Stubs(await rig.channel())
    session_id = (await client.create_session("claude", "/work")).session_id
    run_id = (await client.start_run(session_id, "go")).run_id

    async with watching(stubs) as stream:
        rig.facade.emit(run_id, MessageDelta("m", "x"))
        while stream.beats < 4:
            before = len(stream.events)
            await stream.read()
            if len(stream.events) > before:
                rig.facade.emit(run_id, MessageDelta("m", "x"))

    assert len(stream.events) >= 3
    assert stream.seqs == {session_id: list(range(3, 3 + len(stream.events)))}


async def test_a_large_backlog_of_several_sessions_comes_in_messages_under_a_mebibyte(
    rig: Rig, stubs: Stubs, client: Client
) -> None:
    places = []
    for _ in range(2):
        session_id = (await client.create_session("claude", "/work")).session_id
        run_id = (await client.start_run(session_id, "go")).run_id
        for _ in range(40):
            rig.facade.emit(run_id, MessageDelta("m", "x" * 60_000))
        places.append(cursor(session_id))

    async with watching(stubs, cursors=places) as stream:
        await stream.until(84)

    assert list(stream.seqs.values()) == [list(range(1, 43))] * 2


async def test_a_cursor_that_is_no_place_is_refused(stubs: Stubs, session_id: str) -> None:
    async def open_at(place: events_pb2.SessionCursor) -> errors.Refused:
        request = sessions_pb2.WatchEventsRequest(cursors=[place])
        return await refused(stubs.sessions.WatchEvents(request, timeout=10).read())

    ahead = await open_at(cursor(session_id, 17, EPOCH))
    elsewhere = await open_at(cursor(session_id, 1, "other"))
    unknown = await open_at(cursor("ses_unknown", 1, EPOCH))
    malformed = await open_at(cursor(session_id, 1))

    assert [error.reason for error in (ahead, elsewhere, unknown, malformed)] == [
        "CURSOR_INVALID",
        "CURSOR_INVALID",
        "SESSION_NOT_FOUND",
        "FIELD_INVALID",
    ]
    assert ahead.metadata == {"earliest_seq": "1", "last_seq": "1", "epoch": EPOCH}
    assert list(malformed.fields) == ["cursors[0].epoch"]


async def test_an_unknown_kind_is_refused(stubs: Stubs) -> None:
    error = await refused(stubs.sessions.WatchEvents(sessions_pb2.WatchEventsRequest(kinds=["steps"])).read())

    assert (error.reason, list(error.fields)) == ("FIELD_INVALID", ["kinds[0]"])


async def test_a_watch_that_is_left_is_cleaned_up(rig: Rig, stubs: Stubs, session_id: str) -> None:
    async with watching(stubs):
        assert rig.facade.followers(session_id) == 1

    await rig.until(lambda: rig.facade.followers(session_id) == 0)


async def test_a_reader_that_stalls_is_ended_with_a_cursor_of_what_it_left(make_rig: RigFactory) -> None:
    rig = await make_rig(stalled_reader_ns=300_000_000)
    await rig.serve()
    client, stubs = await rig.client(), Stubs(await rig.channel())
    session_id = (await client.create_session("claude", "/work")).session_id
    run_id = (await client.start_run(session_id, "go")).run_id

    async with watching(stubs) as stream:
        for _ in range(400):
            rig.facade.emit(run_id, MessageDelta("m", "x" * 60_000))
            await anyio.lowlevel.checkpoint()
        await rig.until(lambda: rig.facade.followers(session_id) == 0)
        error = await refused(stream.read_on())

    assert error.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert (error.reason, error.metadata["session_id"], error.metadata["epoch"]) == (
        "READER_STALLED",
        session_id,
        EPOCH,
    )
    assert 2 <= int(error.metadata["after_seq"]) <= stream.events[-1].seq < 402


async def test_a_daemon_that_goes_down_ends_the_stream_as_draining(make_rig: RigFactory) -> None:
    rig = await make_rig()
    server = await rig.serve()
    stubs = Stubs(await rig.channel())
    async with watching(stubs) as stream:
        await server.stop(1)
        error = await refused(stream.read_on())

    assert (error.code, error.reason) == (grpc.StatusCode.UNAVAILABLE, "DRAINING")


async def test_a_caller_follows_what_is_of_its_tenant_alone(open_site: Site) -> None:
    stub = sessions_pb2_grpc.SessionServiceStub(await open_site.channel())
    owner, stranger = await open_site.client("payments"), await open_site.client("stranger")
    theirs = (await stranger.create_session("claude", "/work")).session_id
    metadata = (("authorization", f"Bearer {token_of('looker')}"),)
    call = stub.WatchEvents(sessions_pb2.WatchEventsRequest(), metadata=metadata, timeout=30)
    stream = Stream(call)
    await stream.beat()
    await stranger.start_run(theirs, "go")

    ours = (await owner.create_session("claude", "/work")).session_id
    await stream.until(1)
    request = sessions_pb2.WatchEventsRequest(cursors=[cursor(theirs, 1, EPOCH)])
    foreign = await refused(stub.WatchEvents(request, metadata=metadata, timeout=30).read())
    call.cancel()

    assert stream.seqs == {ours: [1]}
    assert theirs not in stream.places
    assert foreign.reason == "SESSION_NOT_FOUND"
