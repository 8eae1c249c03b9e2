"""What WatchEvents is asked for, and what its heartbeats tell."""

from typing import Any

import anyio
import pytest

from steprail.v1 import events_pb2, sessions_pb2
from steprail_daemon.core.errors import Exhausted, Invalid
from steprail_daemon.engine.facade import LOCAL, CreateSession, Cursor, EventFilter, Slice
from steprail_daemon.service.kinds import KIND_NAMES
from steprail_daemon.service.watch_events import EventsWatch, selection
from steprail_daemon.testing.fake_facade import FakeFacade


def wanted(**fields: Any) -> tuple[list[Cursor], EventFilter]:
    return selection(sessions_pb2.WatchEventsRequest(**fields))


def cursor(session_id: str = "s", after_seq: int = 1, epoch: str = "e") -> events_pb2.SessionCursor:
    return events_pb2.SessionCursor(session_id=session_id, after_seq=after_seq, epoch=epoch)


def test_kinds_are_named_as_the_fields_of_the_body_of_an_event() -> None:
    cursors, chosen = wanted(
        cursors=[cursor("a", 3), cursor("b", 0, "")],
        kinds=["step_end", "agent_end", "step_end"],
        agents=["claude"],
        labels={"team": "a"},
    )

    assert cursors == [Cursor("a", 3, "e"), Cursor("b", 0, "")]
    assert chosen == EventFilter(
        kinds=frozenset({events_pb2.Event.STEP_END_FIELD_NUMBER, events_pb2.Event.AGENT_END_FIELD_NUMBER}),
        agents=frozenset({"claude"}),
        labels={"team": "a"},
    )
    assert wanted(kinds=list(KIND_NAMES.values()))[1].kinds == set(KIND_NAMES)
    assert wanted() == ([], EventFilter())


BAD = [
    (lambda: wanted(kinds=["step_end", "steps"]), "kinds[1]"),
    (lambda: wanted(kinds=["seq"]), "kinds[0]"),
    (lambda: wanted(cursors=[cursor(str(number)) for number in range(10_001)]), "cursors"),
    (lambda: wanted(cursors=[cursor(), cursor()]), "cursors"),
    (lambda: wanted(cursors=[cursor(), cursor("")]), "cursors[1].session_id"),
    (lambda: wanted(cursors=[cursor(after_seq=-1)]), "cursors[0].after_seq"),
    (lambda: wanted(cursors=[cursor(epoch="")]), "cursors[0].epoch"),
    (lambda: wanted(cursors=[cursor(epoch="x" * 65)]), "cursors[0].epoch"),
    (lambda: wanted(agents=["x"] * 65), "agents"),
    (lambda: wanted(labels={"": "x"}), "labels"),
]


@pytest.mark.parametrize(("ask", "field"), BAD, ids=[field for _, field in BAD])
def test_a_bad_field_is_refused_by_its_path(ask: Any, field: str) -> None:
    with pytest.raises(Invalid) as caught:
        ask()

    assert (caught.value.reason, caught.value.field) == ("FIELD_INVALID", field)


def test_an_unknown_kind_is_told_which_there_are() -> None:
    with pytest.raises(Invalid, match=r"steps.*accepted are.*session_state_changed.*step_end.*raw"):
        wanted(kinds=["steps"])


class Many:
    """A subscription to very many sessions, which all stand still."""

    def __init__(self, count: int) -> None:
        self.places = {f"{number:064}": number for number in range(count)}

    async def next(self, timeout_ns: int) -> Slice | None:
        """Give nothing."""
        await anyio.sleep(timeout_ns / 1e9)
        return None

    def cursors(self) -> list[Cursor]:
        """Give all places."""
        return [Cursor(session_id, seq, "e" * 64) for session_id, seq in self.places.items()]

    def close(self) -> None:
        """Nothing is to be done."""


@pytest.mark.anyio
async def test_a_heartbeat_tells_the_places_that_moved_in_messages_under_a_mebibyte() -> None:
    subscription = Many(20_000)
    watch = EventsWatch(FakeFacade(), subscription)

    first = list(watch.heartbeats())
    still = list(watch.heartbeats())
    subscription.places["0" * 64] = 7
    moved = list(watch.heartbeats())

    assert sum(len(heartbeat.cursors) for heartbeat in first) == 20_000
    assert len({place.session_id for heartbeat in first for place in heartbeat.cursors}) == 20_000
    assert max(heartbeat.ByteSize() for heartbeat in first) < 900 * 1024
    assert [len(heartbeat.cursors) for heartbeat in still] == [0]
    assert [(place.session_id, place.after_seq) for place in moved[0].cursors] == [("0" * 64, 7)]
    assert all(heartbeat.HasField("time") and not heartbeat.last_seq and not heartbeat.epoch for heartbeat in first)


@pytest.mark.anyio
async def test_a_reader_that_stalls_is_told_where_the_session_is_that_it_left() -> None:
    facade = FakeFacade()
    session = await facade.create_session(LOCAL, CreateSession(agent="claude", cwd="/w"))
    watch = EventsWatch(facade, facade.watch_events(LOCAL, [Cursor(session.session_id, 0, "")], EventFilter()))
    error = Exhausted("READER_STALLED", "m")
    assert watch.stalled(error) is error

    with anyio.fail_after(5):
        assert await watch.next() is not None
    watch.close()

    assert watch.stalled(error).metadata == {"session_id": session.session_id, "after_seq": "0", "epoch": "epoch-1"}
    assert facade.followers(session.session_id) == 0
