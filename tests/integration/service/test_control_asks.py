"""Permissions, questions, steering and deciders over a control stream."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import grpc.aio
import pytest
from tests.integration.service.conftest import Rig
from tests.integration.service.stubs import Stubs
from tests.integration.service.test_control import Talk, talk

from steprail.client import Client
from steprail.v1 import decisions_pb2, runs_pb2
from steprail_daemon.core.events import MessageDelta
from steprail_daemon.core.model import QuestionItemAnswer, RunState
from steprail_daemon.core.records import SteerDelivered
from steprail_daemon.engine.facade import LOCAL

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("one_loop")]
ALLOW = decisions_pb2.PERMISSION_ANSWER_ALLOW_ONCE
CONTINUE = decisions_pb2.DECISION_ACTION_CONTINUE
NO_EVENTS = runs_pb2.CONTROL_EVENTS_NO_EVENTS
EVENTS = (runs_pb2.CONTROL_EVENTS_ALL, runs_pb2.CONTROL_EVENTS_STEPS, NO_EVENTS)


async def say(stream: Talk, **body: object) -> None:
    await stream.control._send(runs_pb2.ControlRunRequest(**body))  # type: ignore[arg-type]


@asynccontextmanager
async def attached(client: Client, run_id: str, after_seq: int, events: int) -> AsyncIterator[Talk]:
    epoch = "epoch-1" if after_seq else ""
    async with client.control(
        attach=run_id,
        after_seq=after_seq,
        epoch=epoch,
        events=events,  # type: ignore[arg-type]
    ) as control:
        yield Talk(control)


@pytest.mark.parametrize("events", EVENTS)
async def test_a_permission_and_a_question_are_told_after_their_events_and_answered(
    rig: Rig, client: Client, session_id: str, events: runs_pb2.ControlEvents.ValueType
) -> None:
    async with talk(client, session_id, events) as stream:
        if events != NO_EVENTS:
            await stream.events()
        permission = rig.facade.ask_permission(stream.run_id, arguments_json='{"command":"ls"}')
        if events == runs_pb2.CONTROL_EVENTS_ALL:
            assert await stream.events() == ["permission_requested", "run_state_changed"]
        elif events == runs_pb2.CONTROL_EVENTS_STEPS:
            assert await stream.events() == ["run_state_changed"]
        asked = (await stream.next("permission_requested")).permission_requested.permission
        assert (asked.permission_id, asked.run_id) == (permission.permission_id, stream.run_id)
        assert asked.arguments_json.value == '{"command":"ls"}'
        assert 0 < asked.remaining.seconds < 300
        question = rig.facade.ask_question(stream.run_id)
        if events == runs_pb2.CONTROL_EVENTS_ALL:
            assert await stream.events() == ["question_requested"]
        told = (await stream.next("question_requested")).question_requested.question
        assert told.question_id == question.question_id

        answer = runs_pb2.AnswerPermissionRequest(permission_id=permission.permission_id, answer=ALLOW)
        await say(stream, permission_answer=answer, request_id="one")
        reply = runs_pb2.AnswerQuestionRequest(question_id=question.question_id, decline=True)
        await say(stream, question_answer=reply)
        await rig.until(lambda: rig.facade.get_run(LOCAL, stream.run_id).state is RunState.RUNNING)
        await say(stream, permission_answer=answer, request_id="two")
        if events == runs_pb2.CONTROL_EVENTS_ALL:
            assert "permission_resolved" in await stream.events()


async def test_late_and_malformed_answers_are_rejected_and_the_stream_goes_on(
    rig: Rig, client: Client, session_id: str
) -> None:
    async with talk(client, session_id, NO_EVENTS) as stream:
        late = runs_pb2.AnswerPermissionRequest(permission_id="run.p1", answer=ALLOW)
        await say(stream, permission_answer=late, request_id="one")
        first = (await stream.next("rejected")).rejected
        await say(stream, question_answer=runs_pb2.AnswerQuestionRequest(question_id="q"), request_id="two")
        second = (await stream.next("rejected")).rejected
        rig.facade.complete_step(stream.run_id)
        await stream.next("decision_requested")
        await say(stream, steer=runs_pb2.SteerRunRequest(text="x"), request_id="three")
        third = (await stream.next("rejected")).rejected

    assert [(one.request_id, one.reason) for one in (first, second, third)] == [
        ("one", "PERMISSION_NOT_PENDING"),
        ("two", "FIELD_INVALID"),
        ("three", "STEER_NOT_POSSIBLE"),
    ]
    assert first.metadata["permission_id"] == "run.p1"


async def test_an_answer_that_is_sent_twice_with_one_id_counts_once_and_is_not_rejected(
    rig: Rig, client: Client, session_id: str
) -> None:
    async with talk(client, session_id, NO_EVENTS) as stream:
        permission = rig.facade.ask_permission(stream.run_id)
        await stream.next("permission_requested")
        answer = runs_pb2.AnswerPermissionRequest(permission_id=permission.permission_id, answer=ALLOW)
        await say(stream, permission_answer=answer, request_id="one")
        await say(stream, permission_answer=answer, request_id="one")
        await say(stream, permission_answer=answer, request_id="two")
        assert (await stream.next("rejected")).rejected.request_id == "two"


async def test_text_for_the_running_turn_comes_over_the_stream(rig: Rig, client: Client, session_id: str) -> None:
    async with talk(client, session_id, runs_pb2.CONTROL_EVENTS_ALL) as stream:
        await stream.events()
        await say(stream, steer=runs_pb2.SteerRunRequest(text="Mind the tests."))
        assert await stream.events() == ["steer_accepted"]
        rig.facade.emit(stream.run_id, SteerDelivered("str_1"))
        assert await stream.events() == ["steer_delivered"]


async def test_a_decision_tells_the_text_and_the_model_that_went_along(
    rig: Rig, client: Client, session_id: str
) -> None:
    async with talk(client, session_id, NO_EVENTS) as stream:
        step = rig.facade.complete_step(stream.run_id)
        await stream.next("decision_requested")
        await say(
            stream,
            decision=runs_pb2.SubmitDecisionRequest(
                step_id=step.step_id, action=CONTINUE, guidance="Mind the tests.", model="m"
            ),
        )
        recorded = (await stream.next("decision_recorded")).decision_recorded.decision

    assert (recorded.guidance, recorded.model) == ("Mind the tests.", "m")


@pytest.mark.parametrize("events", EVENTS)
async def test_one_who_attaches_behind_what_was_asked_is_told_at_once(
    rig: Rig, client: Client, session_id: str, events: runs_pb2.ControlEvents.ValueType
) -> None:
    run_id = (await client.start_run(session_id, "go")).run_id
    resolved = rig.facade.ask_permission(run_id)
    permission, question = rig.facade.ask_permission(run_id), rig.facade.ask_question(run_id)
    rig.facade.answer_question(LOCAL, run_id, rig.facade.ask_question(run_id).question_id, (QuestionItemAnswer("i"),))
    last_seq = (await client.get_session(session_id)).last_seq

    async with attached(client, run_id, last_seq, events) as stream:
        opened = stream.control.opened.run
        told = [
            (await stream.next("permission_requested")).permission_requested.permission.permission_id,
            (await stream.next("permission_requested")).permission_requested.permission.permission_id,
            (await stream.next("question_requested")).question_requested.question.question_id,
        ]
        rig.facade.end_run(run_id, RunState.COMPLETED)
        if events != NO_EVENTS:
            await stream.events()
        await stream.next("finished")

    assert told == [resolved.permission_id, permission.permission_id, question.question_id]
    assert [item.permission_id for item in opened.pending_permissions] == told[:2]
    assert [item.question_id for item in opened.pending_questions] == told[2:]


async def test_one_who_replays_is_told_what_waits_now_alone_once_and_after_its_batch(
    rig: Rig, client: Client, session_id: str
) -> None:
    run_id = (await client.start_run(session_id, "go")).run_id
    before = rig.facade.ask_permission(run_id)
    seen = (await client.get_session(session_id)).last_seq
    past = rig.facade.ask_permission(run_id)
    now = rig.facade.ask_permission(run_id)
    rig.facade.answer_permission(LOCAL, run_id, past.permission_id, ALLOW, alternative=None, reason="")  # type: ignore[arg-type]

    async with attached(client, run_id, seen, runs_pb2.CONTROL_EVENTS_ALL) as stream:
        assert await stream.events() == ["permission_requested", "permission_requested", "permission_resolved"]
        told = [
            (await stream.next("permission_requested")).permission_requested.permission.permission_id for _ in range(2)
        ]
        rig.facade.emit(run_id, MessageDelta("m", "x"))
        assert await stream.events() == ["message_delta"]

    assert told == [now.permission_id, before.permission_id]


async def test_a_decider_is_registered_as_long_as_the_stream_lasts(rig: Rig, client: Client, session_id: str) -> None:
    async with talk(client, session_id) as one:
        run_id = one.run_id
        assert rig.facade.deciders[run_id] == 1
        async with client.control(attach=run_id, decide=True) as control:
            assert control.opened.decider_registered
            assert rig.facade.deciders[run_id] == 2
        await rig.until(lambda: rig.facade.deciders[run_id] == 1)
        async with client.control(attach=run_id) as control:
            assert not control.opened.decider_registered
            assert rig.facade.deciders[run_id] == 1
    await rig.until(lambda: rig.facade.deciders[run_id] == 0)


async def test_a_decider_that_says_no_more_stays_registered_until_its_stream_ends(
    rig: Rig, stubs: Stubs, client: Client, session_id: str
) -> None:
    run_id = (await client.start_run(session_id, "go")).run_id
    call = stubs.runs.ControlRun(timeout=10)
    await call.write(
        runs_pb2.ControlRunRequest(attach=runs_pb2.AttachRun(run_id=run_id), decide=True, events=NO_EVENTS)
    )
    await call.done_writing()
    await call.read()
    rig.facade.complete_step(run_id)
    while (answer := await call.read()) is not grpc.aio.EOF:
        assert isinstance(answer, runs_pb2.ControlRunResponse)
        if answer.HasField("decision_requested"):
            break
    assert rig.facade.deciders[run_id] == 1

    call.cancel()

    await rig.until(lambda: rig.facade.deciders[run_id] == 0)


async def test_a_decider_leaves_with_the_end_of_the_run(rig: Rig, client: Client, session_id: str) -> None:
    async with talk(client, session_id, NO_EVENTS) as stream:
        rig.facade.end_run(stream.run_id, RunState.COMPLETED)
        await stream.next("finished")
        await stream.end()
        await rig.until(lambda: rig.facade.deciders[stream.run_id] == 0)
