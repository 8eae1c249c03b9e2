"""A conversation over connections that break."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from tests.unit.client.statuses import rpc_error
from tests.unit.client.streams import FakeDaemon, Silent

from steprail.client import Client, Control, LiveRun, _backoff
from steprail.client._backoff import Comeback
from steprail.client._connection import Stubs
from steprail.errors import CallTimeout, ConnectionFailed, CursorInvalid, StepRailError
from steprail.v1 import decisions_pb2, events_pb2, runs_pb2, steps_pb2

pytestmark = pytest.mark.anyio

Response = runs_pb2.ControlRunResponse
CONTINUE = decisions_pb2.DECISION_ACTION_CONTINUE
LOST = rpc_error(grpc.StatusCode.UNAVAILABLE, "Socket closed")
GONE = rpc_error(grpc.StatusCode.OUT_OF_RANGE, "no place", reason="CURSOR_INVALID")
LIVE = runs_pb2.Run(run_id="run_1")
ENDED = runs_pb2.Run(run_id="run_1", end_time=Timestamp(seconds=1))


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_backoff, "_FIRST_PAUSE", 0.0)


def opened() -> Response:
    return Response(opened=runs_pb2.ControlOpened(run=runs_pb2.Run(run_id="run_1"), epoch="e1"))


def batch(*seqs: int) -> Response:
    return Response(events=events_pb2.EventBatch(events=[events_pb2.Event(seq=seq) for seq in seqs]))


def asks(step_id: str) -> Response:
    return Response(decision_requested=runs_pb2.DecisionRequest(step=steps_pb2.Step(step_id=step_id)))


def recorded(step_id: str) -> Response:
    return Response(decision_recorded=events_pb2.DecisionRecorded(step_id=step_id))


def finished() -> Response:
    return Response(finished=runs_pb2.ControlFinished(run=runs_pb2.Run(run_id="run_1")))


def control(daemon: FakeDaemon, *, patience: float = 60.0, silence: float = 30.0) -> Control:
    first = runs_pb2.ControlRunRequest(start=runs_pb2.StartRunRequest(session_id="s"), decide=True)
    return Control(daemon.open, first, "unix:/x", 5.0, Comeback("ControlRun", "", patience), silence=silence)


async def kinds(talk: Control) -> list[object]:
    return [
        [event.seq for event in message.events.events]
        if message.WhichOneof("body") == "events"
        else message.WhichOneof("body")
        async for message in talk
    ]


async def test_it_is_taken_up_again_by_attaching_where_it_ended_as_a_decider_and_starts_nothing_anew() -> None:
    daemon = FakeDaemon([opened(), batch(1, 2), LOST], [opened(), batch(2, 3), finished()])
    async with control(daemon) as talk:
        assert await kinds(talk) == [[1, 2], [3], "finished"]

    (again,) = daemon.streams[1].written
    assert isinstance(again, runs_pb2.ControlRunRequest)
    assert again.WhichOneof("body") == "attach"
    assert (again.attach.run_id, again.attach.after_seq, again.attach.epoch, again.decide) == ("run_1", 2, "e1", True)
    assert all(stream.cancelled_by_client for stream in daemon.streams)


async def test_a_stream_that_ends_before_the_run_is_taken_up_too() -> None:
    daemon = FakeDaemon([opened(), batch(1)], [opened(), finished()])
    async with control(daemon) as talk:
        assert await kinds(talk) == [[1], "finished"]


async def test_what_waits_is_asked_once_and_an_answer_that_may_be_lost_is_sent_again_under_its_id() -> None:
    daemon = FakeDaemon(
        [opened(), asks("step_1"), LOST], [opened(), asks("step_1"), recorded("step_1"), asks("step_2"), finished()]
    )
    asked = []
    async with control(daemon) as talk:
        async for message in talk:
            if message.WhichOneof("body") == "decision_requested":
                asked.append(message.decision_requested.step.step_id)
                if len(asked) == 1:
                    await talk.decide("step_1", CONTINUE, guidance="smaller steps")

    assert asked == ["step_1", "step_2"]
    first, again = daemon.streams[0].written[1], daemon.streams[1].written[1]
    assert first == again
    assert isinstance(again, runs_pb2.ControlRunRequest)
    assert (again.decision.guidance, bool(again.request_id)) == ("smaller steps", True)


async def test_an_answer_that_was_recorded_is_not_sent_again() -> None:
    daemon = FakeDaemon([opened(), asks("step_1"), recorded("step_1"), LOST], [opened(), finished()])
    async with control(daemon) as talk:
        async for message in talk:
            if message.WhichOneof("body") == "decision_requested":
                await talk.decide("step_1", CONTINUE)

    assert len(daemon.streams[1].written) == 1


async def test_opening_is_tried_once() -> None:
    daemon = FakeDaemon([LOST], [opened()])

    with pytest.raises(ConnectionFailed):
        async with control(daemon):
            pass

    assert len(daemon.streams) == 1


async def test_a_daemon_that_does_not_open_in_time_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    silent = Silent([])
    first = runs_pb2.ControlRunRequest(attach=runs_pb2.AttachRun(run_id="r"))
    with pytest.raises(CallTimeout, match="unix:/x"):
        async with Control(lambda: silent, first, "unix:/x", 0.02, Comeback("ControlRun", "r")):
            pass
    assert silent.cancelled_by_client


async def test_a_place_that_is_no_more_ends_it() -> None:
    daemon = FakeDaemon([opened(), batch(1), LOST], [GONE])
    async with control(daemon) as talk:
        with pytest.raises(CursorInvalid):
            await kinds(talk)


def followed(daemon: FakeDaemon, *shown: runs_pb2.Run | Exception) -> LiveRun:
    """Give a run that is attended to. Each question how it stands has its own answer, the first one its beginning."""
    left = iter(shown)

    async def get_run(_: runs_pb2.GetRunRequest, timeout: float) -> runs_pb2.GetRunResponse:
        answer = next(left)
        if isinstance(answer, Exception):
            raise answer
        return runs_pb2.GetRunResponse(run=answer)

    client = Client("unix:/x")
    client._opened = cast(Stubs, SimpleNamespace(runs=SimpleNamespace(ControlRun=daemon.open, GetRun=get_run)))
    return client.follow("run_1", permissions=lambda _: False)


async def test_a_run_that_ended_and_has_no_events_any_more_is_given_as_it_is() -> None:
    daemon = FakeDaemon([GONE], [opened(), finished()])

    assert await followed(daemon, LIVE, ENDED) == ENDED
    assert len(daemon.streams) == 1


async def test_a_place_that_is_no_more_is_left_for_the_beginning_of_a_run_that_goes_on() -> None:
    daemon = FakeDaemon(
        [opened(), batch(1), LOST], [GONE], [opened(), batch(1), LOST], [GONE], [opened(), batch(1), finished()]
    )

    assert await followed(daemon, LIVE, LIVE, LIVE) == LIVE
    openings = [cast(runs_pb2.ControlRunRequest, stream.written[0]) for stream in daemon.streams]
    assert [first.attach.after_seq for first in openings] == [0, 1, 0, 1, 0]


async def test_a_run_that_goes_on_and_has_no_place_twice_in_a_row_is_given_up_and_not_asked_for_ever() -> None:
    daemon = FakeDaemon([GONE], [GONE], [opened(), finished()])

    with pytest.raises(CursorInvalid):
        await followed(daemon, LIVE, LIVE, LIVE)


async def test_how_a_run_without_a_place_stands_is_asked_with_patience_however_long_it_was_attended_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    monkeypatch.setattr(_backoff, "time", SimpleNamespace(monotonic=lambda: now))

    def long_talk() -> Iterator[object]:
        nonlocal now
        yield opened()
        now += 3600.0
        yield GONE

    daemon = FakeDaemon(long_talk(), [GONE])

    assert await followed(daemon, LIVE, LOST, ENDED) == ENDED


async def test_it_gives_up_on_a_daemon_that_does_not_come_back() -> None:
    daemon = FakeDaemon([opened(), LOST], then=[LOST])
    async with control(daemon, patience=0.02) as talk:
        with pytest.raises(ConnectionFailed):
            await kinds(talk)


async def test_after_the_end_nothing_can_be_sent() -> None:
    daemon = FakeDaemon([opened(), finished()])
    async with control(daemon) as talk:
        assert await kinds(talk) == ["finished"]
        with pytest.raises(StepRailError, match="has ended"):
            await talk.stop()


async def test_every_message_of_a_client_has_its_body_and_a_request_id() -> None:
    daemon = FakeDaemon([opened(), finished()])
    async with control(daemon) as talk:
        await talk.answer_permission("p", decisions_pb2.PERMISSION_ANSWER_DENY, reason="no")
        await talk.answer_permission("p", command="ls")
        await talk.answer_question("q")
        await talk.stop("enough")
        await talk.steer("left")
        await talk.abort("now")
        with pytest.raises(ValueError, match="exactly one"):
            await talk.answer_permission("p")

    sent = [message for message in daemon.streams[0].written[1:] if isinstance(message, runs_pb2.ControlRunRequest)]
    assert [message.WhichOneof("body") for message in sent] == [
        "permission_answer",
        "permission_answer",
        "question_answer",
        "stop",
        "steer",
        "abort",
    ]
    assert sent[1].permission_answer.alternative.command == "ls"
    assert sent[2].question_answer.decline
    assert len({message.request_id for message in sent}) == len(sent)
