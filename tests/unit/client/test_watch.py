"""A watch over connections that break."""

from collections.abc import Callable

import grpc
import grpc.aio
import pytest
from tests.unit.client.statuses import rpc_error
from tests.unit.client.streams import FakeDaemon, FakeStream, Silent

from steprail.client import _backoff
from steprail.client._backoff import Comeback, Lost
from steprail.client._watch import EventsWatch, Watch
from steprail.errors import ConnectionFailed, CursorInvalid, NotFound, StepRailError
from steprail.v1 import events_pb2, runs_pb2, sessions_pb2

pytestmark = pytest.mark.anyio


def batch(*seqs: int) -> runs_pb2.WatchRunResponse:
    return runs_pb2.WatchRunResponse(events=[events_pb2.Event(seq=seq) for seq in seqs])


def heartbeat(epoch: str) -> runs_pb2.WatchRunResponse:
    return runs_pb2.WatchRunResponse(heartbeat=events_pb2.Heartbeat(epoch=epoch))


UNAVAILABLE = rpc_error(grpc.StatusCode.UNAVAILABLE, "Socket closed")
DRAINING = rpc_error(grpc.StatusCode.UNAVAILABLE, "goes down", reason="DRAINING")
STALLED = rpc_error(grpc.StatusCode.RESOURCE_EXHAUSTED, "slow", reason="READER_STALLED")
FULL = rpc_error(grpc.StatusCode.RESOURCE_EXHAUSTED, "full", reason="QUEUE_FULL")
GONE = rpc_error(grpc.StatusCode.OUT_OF_RANGE, "compacted", reason="CURSOR_INVALID")


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_backoff, "_FIRST_PAUSE", 0.0)


def comeback(patience: float = 60.0, tell: Callable[[Lost], None] | None = None) -> Comeback:
    return Comeback("WatchRun", "run_1", patience, tell)


async def seqs(daemon: FakeDaemon, *, patience: float = 60.0) -> list[int]:
    watch = Watch(daemon.open, "unix:/x", comeback(patience))
    return [event.seq async for event in watch.events()]


@pytest.mark.parametrize("lost", [UNAVAILABLE, DRAINING, STALLED])
async def test_it_goes_on_where_a_lost_stream_ended(lost: Exception) -> None:
    daemon = FakeDaemon([heartbeat("e1"), batch(1, 2), batch(3), lost], [heartbeat("e1"), lost], [batch(4)])

    assert await seqs(daemon) == [1, 2, 3, 4]
    assert daemon.asked == [(0, ""), (3, "e1"), (3, "e1")]
    assert all(stream.cancelled_by_client for stream in daemon.streams)


async def test_an_event_that_comes_again_is_passed_over() -> None:
    daemon = FakeDaemon([heartbeat("e1"), batch(1, 2), UNAVAILABLE], [batch(2, 3)])

    assert await seqs(daemon) == [1, 2, 3]


@pytest.mark.parametrize("refused", [FULL, rpc_error(grpc.StatusCode.NOT_FOUND, "no run", reason="RUN_NOT_FOUND")])
async def test_what_is_refused_is_not_tried_again(refused: Exception) -> None:
    daemon = FakeDaemon([batch(1), refused])

    with pytest.raises(StepRailError, match=r"QUEUE_FULL|RUN_NOT_FOUND"):
        await seqs(daemon)

    assert len(daemon.asked) == 1
    assert daemon.streams[0].cancelled_by_client


async def test_a_place_that_is_no_more_is_told_and_not_skipped() -> None:
    daemon = FakeDaemon([heartbeat("e1"), batch(1), UNAVAILABLE], [GONE])

    with pytest.raises(CursorInvalid):
        await seqs(daemon)


async def test_it_gives_up_on_a_daemon_that_does_not_come_back() -> None:
    daemon = FakeDaemon(then=[UNAVAILABLE])

    with pytest.raises(ConnectionFailed, match="unix:/x"):
        await seqs(daemon, patience=0.02)


async def test_each_loss_is_told_with_how_often_it_happened_since_the_last_answer() -> None:
    told: list[Lost] = []
    daemon = FakeDaemon([UNAVAILABLE], [UNAVAILABLE], [batch(1), DRAINING], [batch(2)])
    watch = Watch(daemon.open, "unix:/x", comeback(tell=told.append))

    assert [event.seq async for event in watch.events()] == [1, 2]
    assert [(lost.stream, lost.subject, lost.attempt) for lost in told] == [
        ("WatchRun", "run_1", 1),
        ("WatchRun", "run_1", 2),
        ("WatchRun", "run_1", 1),
    ]
    assert [type(lost.error).__name__ for lost in told] == ["ConnectionFailed", "ConnectionFailed", "Unavailable"]


async def test_a_stream_that_is_silent_for_too_long_is_left_for_another() -> None:
    daemon = FakeDaemon([], [batch(1)])
    silent = Silent([])

    def open_stream(after_seq: int, epoch: str) -> FakeStream:
        opened = daemon.open(after_seq, epoch)
        return silent if len(daemon.asked) == 1 else opened

    watch = Watch(open_stream, "unix:/x", comeback(), silence=0.02)

    assert [event.seq async for event in watch.events()] == [1]
    assert silent.cancelled_by_client


async def test_a_refusal_keeps_its_class() -> None:
    with pytest.raises(NotFound):
        await seqs(FakeDaemon([rpc_error(grpc.StatusCode.NOT_FOUND, "no run", reason="RUN_NOT_FOUND")]))


# --- many sessions ---


def of(*places: tuple[str, int]) -> sessions_pb2.WatchEventsResponse:
    return sessions_pb2.WatchEventsResponse(events=[events_pb2.Event(session_id=s, seq=seq) for s, seq in places])


def stands(*places: tuple[str, int]) -> sessions_pb2.WatchEventsResponse:
    cursors = [events_pb2.SessionCursor(session_id=s, after_seq=seq, epoch=f"epoch-{s}") for s, seq in places]
    return sessions_pb2.WatchEventsResponse(heartbeat=events_pb2.Heartbeat(cursors=cursors))


def events_watch(daemon: FakeDaemon, sessions: list[str]) -> EventsWatch:
    async def epoch_of(session_id: str) -> str:
        return f"epoch-{session_id}"

    async def ids() -> list[str]:
        return sessions

    return EventsWatch(daemon.open, epoch_of, ids, "unix:/x", comeback())


def told(asked: object) -> dict[str, tuple[int, str]]:
    assert isinstance(asked, list)
    return {place.session_id: (place.after_seq, place.epoch) for place in asked}


async def test_each_session_goes_on_at_its_own_place() -> None:
    daemon = FakeDaemon([stands(("a", 3), ("b", 1)), of(("a", 4)), of(("b", 2), ("a", 5)), UNAVAILABLE], [of(("b", 3))])

    seen = [(event.session_id, event.seq) async for event in events_watch(daemon, ["a", "b"]).events()]

    assert seen == [("a", 4), ("b", 2), ("a", 5), ("b", 3)]
    assert daemon.asked[0] == []
    assert told(daemon.asked[1]) == {"a": (5, "epoch-a"), "b": (2, "epoch-b")}


async def test_a_session_that_began_since_the_last_heartbeat_goes_on_too_in_its_own_epoch() -> None:
    daemon = FakeDaemon([stands(("a", 3)), of(("new", 1), ("new", 2)), UNAVAILABLE], [])

    assert len([event async for event in events_watch(daemon, ["a", "new"]).events()]) == 2
    assert told(daemon.asked[1]) == {"a": (3, "epoch-a"), "new": (2, "epoch-new")}


async def test_a_session_that_was_made_while_there_was_no_stream_is_followed_from_its_beginning() -> None:
    daemon = FakeDaemon([stands(("a", 3)), UNAVAILABLE], [of(("meanwhile", 1))])

    seen = [event.session_id async for event in events_watch(daemon, ["a", "meanwhile"]).events()]

    assert seen == ["meanwhile"]
    assert told(daemon.asked[1])["meanwhile"] == (0, "")


async def test_a_session_that_was_deleted_is_left_out_and_the_others_go_on() -> None:
    refusal = rpc_error(
        grpc.StatusCode.NOT_FOUND, "no session", reason="SESSION_NOT_FOUND", metadata={"session_id": "a"}
    )
    daemon = FakeDaemon([stands(("a", 3), ("b", 1)), UNAVAILABLE], [refusal], [of(("b", 2))])

    assert [event.seq async for event in events_watch(daemon, ["b"]).events()] == [2]
    assert told(daemon.asked[2]) == {"b": (1, "epoch-b")}


async def test_events_that_came_before_a_heartbeat_told_the_place_do_not_come_again() -> None:
    daemon = FakeDaemon([stands(("a", 3)), of(("a", 4)), stands(("a", 4)), UNAVAILABLE], [of(("a", 4), ("a", 5))])

    assert [event.seq async for event in events_watch(daemon, ["a"]).events()] == [4, 5]
