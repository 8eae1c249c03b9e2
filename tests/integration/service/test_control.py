"""ControlRun as a conversation."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel
import grpc
import grpc.aio
import pytest
from tests.integration.service.conftest import Rig, RigFactory

from steprail import errors
from steprail.client import Client, Control, steps
from steprail.v1 import decisions_pb2, events_pb2, runs_pb2, runs_pb2_grpc
from steprail_daemon.core.events import MessageDelta
from steprail_daemon.core.model import RunState
from steprail_daemon.engine.facade import LOCAL

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("one_loop")]

CONTINUE = decisions_pb2.DECISION_ACTION_CONTINUE
STOP = decisions_pb2.DECISION_ACTION_STOP


class Talk:
    """A control stream, read message by message."""

    def __init__(self, control: Control) -> None:
        self.control = control
        self._messages = aiter(control)

    @property
    def run_id(self) -> str:
        return self.control.run_id

    async def next(self, kind: str) -> runs_pb2.ControlRunResponse:
        """Give the next message that is no heartbeat; it must be of this kind."""
        with anyio.fail_after(10):
            while True:
                message = await anext(self._messages)
                if message.WhichOneof("body") == "events" and message.events.HasField("heartbeat"):
                    continue
                assert message.WhichOneof("body") == kind, message
                return message

    async def events(self) -> list[str | None]:
        return [event.WhichOneof("body") for event in (await self.next("events")).events.events]

    async def end(self) -> None:
        with anyio.fail_after(10), pytest.raises(StopAsyncIteration):
            await anext(self._messages)


@asynccontextmanager
async def talk(
    client: Client, session_id: str, events: runs_pb2.ControlEvents.ValueType = runs_pb2.CONTROL_EVENTS_STEPS
) -> AsyncIterator[Talk]:
    request = client.start_request(
        session_id,
        "go",
        stop_rules=[steps(9)],
        decider=decisions_pb2.Decider(mode=decisions_pb2.DECIDER_MODE_CLIENT),
    )
    async with client.control(start=request, decide=True, events=events) as control:
        yield Talk(control)


async def test_a_conversation_from_the_start_of_a_run_to_its_end(rig: Rig, client: Client, session_id: str) -> None:
    async with talk(client, session_id) as stream:
        opened = stream.control.opened
        assert opened.decider_registered
        assert (opened.run.session_id, opened.epoch, opened.last_seq) == (session_id, "epoch-1", 2)
        assert await stream.events() == ["run_state_changed"]

        step = rig.facade.complete_step(stream.run_id)
        assert await stream.events() == ["step_end", "decision_requested", "run_state_changed"]
        asked = (await stream.next("decision_requested")).decision_requested
        assert (asked.step.step_id, asked.step.number, asked.step.run_id) == (step.step_id, 1, stream.run_id)
        assert asked.step.tool_results[0].output.value == "done"
        assert [verdict.rule_id for verdict in asked.verdicts] == ["rule-1"]
        assert asked.default == decisions_pb2.ON_TIMEOUT_STOP
        assert 0 < asked.remaining.seconds < 600
        assert asked.deadline.seconds > 0

        await stream.control.decide(step.step_id, CONTINUE, reason="fine")
        assert await stream.events() == ["decision_recorded"]
        recorded = (await stream.next("decision_recorded")).decision_recorded
        assert (recorded.step_id, recorded.decision.action) == (step.step_id, CONTINUE)
        assert (recorded.decision.reason, recorded.decision.identity) == ("fine", "local")

        second = rig.facade.complete_step(stream.run_id)
        await stream.events()
        await stream.next("decision_requested")
        await stream.control.decide(second.step_id, STOP)
        bodies = await stream.events()
        assert bodies == ["decision_recorded", "run_state_changed", "agent_end"]
        await stream.next("decision_recorded")
        finished = (await stream.next("finished")).finished
        assert finished.run.state == events_pb2.RUN_STATE_STOPPED
        await stream.end()


async def test_a_late_a_wrong_and_a_foreign_decision_are_rejected_and_the_stream_goes_on(
    rig: Rig, client: Client, session_id: str
) -> None:
    async with talk(client, session_id, runs_pb2.CONTROL_EVENTS_NO_EVENTS) as stream:
        first = rig.facade.complete_step(stream.run_id)
        await stream.next("decision_requested")

        await stream.control.decide("step_unknown", CONTINUE)
        wrong = (await stream.next("rejected")).rejected
        await stream.control.decide(first.step_id, CONTINUE)
        await stream.next("decision_recorded")
        await stream.control.decide(first.step_id, STOP)
        late = (await stream.next("rejected")).rejected

        assert (wrong.reason, late.reason) == ("DECISION_NOT_PENDING", "DECISION_NOT_PENDING")
        assert wrong.code == grpc.StatusCode.FAILED_PRECONDITION.value[0]
        assert wrong.metadata["step_id"] == "step_unknown"
        assert late.request_id != ""
        assert rig.facade.get_run(LOCAL, stream.run_id).state is RunState.RUNNING
        rig.facade.end_run(stream.run_id, RunState.COMPLETED)
        await stream.next("finished")
        await stream.end()


def message(**fields: object) -> runs_pb2.ControlRunRequest:
    return runs_pb2.ControlRunRequest(request_id="key", **fields)  # type: ignore[arg-type]


REJECTED = [
    (message(), "FIELD_INVALID"),
    (message(attach=runs_pb2.AttachRun(run_id="r")), "FIELD_INVALID"),
    (message(stop=runs_pb2.StopRunRequest(run_id="another")), "FIELD_INVALID"),
    (message(stop=runs_pb2.StopRunRequest(request_id="other")), "FIELD_INVALID"),
    (message(stop=runs_pb2.StopRunRequest(reason="x" * 5000)), "FIELD_INVALID"),
    (message(stop=runs_pb2.StopRunRequest(), decide=True), "FIELD_INVALID"),
    (message(decision=runs_pb2.SubmitDecisionRequest(step_id="s")), "FIELD_INVALID"),
    (message(decision=runs_pb2.SubmitDecisionRequest(step_id="s", action=CONTINUE, error="e")), "FIELD_INVALID"),
    (message(decision=runs_pb2.SubmitDecisionRequest(step_id="s", action=STOP, guidance="g")), "FIELD_INVALID"),
    (message(permission_answer=runs_pb2.AnswerPermissionRequest(permission_id="p")), "FIELD_INVALID"),
    (
        message(permission_answer=runs_pb2.AnswerPermissionRequest(permission_id="p", run_id="another")),
        "FIELD_INVALID",
    ),
    (message(question_answer=runs_pb2.AnswerQuestionRequest(question_id="q")), "FIELD_INVALID"),
    (
        message(question_answer=runs_pb2.AnswerQuestionRequest(question_id="q", decline=True, request_id="other")),
        "FIELD_INVALID",
    ),
    (
        message(question_answer=runs_pb2.AnswerQuestionRequest(question_id="q", decline=True)),
        "QUESTION_NOT_PENDING",
    ),
    (message(steer=runs_pb2.SteerRunRequest(text=" ")), "FIELD_INVALID"),
]


@pytest.mark.parametrize(("sent", "reason"), REJECTED, ids=lambda value: str(value).replace("\n", " ")[:60])
async def test_a_message_that_cannot_be_honoured_is_rejected_with_its_reason(
    rig: Rig, client: Client, session_id: str, sent: runs_pb2.ControlRunRequest, reason: str
) -> None:
    stub = runs_pb2_grpc.RunServiceStub(await rig.channel())
    run_id = (await client.start_run(session_id, "go")).run_id
    call = stub.ControlRun(timeout=10)
    await call.write(runs_pb2.ControlRunRequest(attach=runs_pb2.AttachRun(run_id=run_id)))
    await call.write(sent)

    rejected: runs_pb2.ControlRejected | None = None
    while rejected is None:
        answer = await call.read()
        assert isinstance(answer, runs_pb2.ControlRunResponse)
        if answer.WhichOneof("body") == "rejected":
            rejected = answer.rejected
    call.cancel()

    assert (rejected.reason, rejected.request_id) == (reason, "key")
    assert rejected.message


async def test_a_request_id_within_the_body_is_enough(rig: Rig, client: Client, session_id: str) -> None:
    stub = runs_pb2_grpc.RunServiceStub(await rig.channel())
    run_id = (await client.start_run(session_id, "go")).run_id
    call = stub.ControlRun(timeout=10)
    await call.write(runs_pb2.ControlRunRequest(attach=runs_pb2.AttachRun(run_id=run_id)))
    await call.write(runs_pb2.ControlRunRequest(stop=runs_pb2.StopRunRequest(request_id="inner")))

    await rig.until(lambda: rig.facade.get_run(LOCAL, run_id).stop_requested is not None)
    call.cancel()


OPENINGS = [
    (runs_pb2.ControlRunRequest(), grpc.StatusCode.INVALID_ARGUMENT),
    (runs_pb2.ControlRunRequest(stop=runs_pb2.StopRunRequest(run_id="r")), grpc.StatusCode.INVALID_ARGUMENT),
    (runs_pb2.ControlRunRequest(attach=runs_pb2.AttachRun(run_id="r")), grpc.StatusCode.NOT_FOUND),
    (runs_pb2.ControlRunRequest(attach=runs_pb2.AttachRun(run_id="r", after_seq=1)), grpc.StatusCode.INVALID_ARGUMENT),
    (
        runs_pb2.ControlRunRequest(attach=runs_pb2.AttachRun(run_id="r"), events=17),  # type: ignore[arg-type]
        grpc.StatusCode.INVALID_ARGUMENT,
    ),
    (runs_pb2.ControlRunRequest(start=runs_pb2.StartRunRequest()), grpc.StatusCode.INVALID_ARGUMENT),
    (
        runs_pb2.ControlRunRequest(continue_run=runs_pb2.ContinueRunRequest(run_id="r")),
        grpc.StatusCode.NOT_FOUND,
    ),
]


@pytest.mark.parametrize(("opening", "code"), OPENINGS, ids=lambda value: str(value).replace("\n", " ")[:60])
async def test_a_refused_opening_ends_the_stream_with_the_status_of_the_matching_call(
    rig: Rig, client: Client, opening: runs_pb2.ControlRunRequest, code: grpc.StatusCode
) -> None:
    stub = runs_pb2_grpc.RunServiceStub(await rig.channel())
    call = stub.ControlRun(timeout=10)
    await call.write(opening)

    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call.read()

    assert caught.value.code() is code


async def test_a_stream_without_a_first_message_is_refused(rig: Rig, client: Client) -> None:
    stub = runs_pb2_grpc.RunServiceStub(await rig.channel())
    call = stub.ControlRun(timeout=10)
    await call.done_writing()

    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call.read()

    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_the_run_is_told_by_the_first_message_and_a_refusal_is_an_error_of_the_client(
    client: Client, session_id: str
) -> None:
    await client.start_run(session_id, "go")

    with pytest.raises(errors.FailedPrecondition) as caught:
        async with talk(client, session_id):
            pass

    assert caught.value.reason == "SESSION_BUSY"


async def test_all_events_or_those_of_steps_or_none_are_sent(rig: Rig, client: Client, session_id: str) -> None:
    wanted = {
        runs_pb2.CONTROL_EVENTS_ALL: ["run_state_changed", "message_delta", "step_end", "decision_recorded"],
        runs_pb2.CONTROL_EVENTS_STEPS: ["run_state_changed", "step_end", "decision_recorded"],
        runs_pb2.CONTROL_EVENTS_NO_EVENTS: [],
    }
    for events, before_end in wanted.items():
        async with talk(client, session_id, events) as stream:
            rig.facade.emit(stream.run_id, MessageDelta("m", "x"))
            rig.facade.complete_step(stream.run_id, ask=False)
            rig.facade.end_run(stream.run_id, RunState.COMPLETED)
            bodies: list[str | None] = []
            seqs: list[int] = []
            async for answer in stream.control:
                bodies += [event.WhichOneof("body") for event in answer.events.events]
                seqs += [event.seq for event in answer.events.events]
        assert bodies == (before_end and [*before_end, "run_state_changed", "agent_end"])
        assert seqs == sorted(seqs)


async def test_one_who_attaches_behind_the_boundary_is_asked_at_once(rig: Rig, client: Client, session_id: str) -> None:
    run_id = (await client.start_run(session_id, "go")).run_id
    step = rig.facade.complete_step(run_id)

    for events in (runs_pb2.CONTROL_EVENTS_NO_EVENTS, runs_pb2.CONTROL_EVENTS_STEPS):
        last_seq = (await client.get_session(session_id)).last_seq
        async with client.control(attach=run_id, after_seq=last_seq, epoch="epoch-1", events=events) as control:
            assert control.opened.run.pending_decision.step_id == step.step_id
            asked = (await Talk(control).next("decision_requested")).decision_requested
            assert asked.step.step_id == step.step_id


async def test_one_who_replays_is_asked_about_what_waits_now_alone_and_after_its_batch(
    rig: Rig, client: Client, session_id: str
) -> None:
    run_id = (await client.start_run(session_id, "go")).run_id
    past = rig.facade.complete_step(run_id)
    await client.submit_decision(run_id, past.step_id, CONTINUE)
    now = rig.facade.complete_step(run_id)

    async with client.control(attach=run_id, events=runs_pb2.CONTROL_EVENTS_STEPS) as control:
        stream = Talk(control)
        bodies = await stream.events()
        assert bodies.count("decision_requested") == 2
        asked = (await stream.next("decision_requested")).decision_requested
        assert asked.step.step_id == now.step_id
        await control.decide(now.step_id, CONTINUE)
        assert await stream.events() == ["decision_recorded"]
        await stream.next("decision_recorded")


async def test_two_deciders_are_asked_the_first_answer_wins_and_both_hear_of_it(
    rig: Rig, client: Client, session_id: str
) -> None:
    async with (
        talk(client, session_id, runs_pb2.CONTROL_EVENTS_NO_EVENTS) as one,
        client.control(attach=one.run_id, decide=True, events=runs_pb2.CONTROL_EVENTS_NO_EVENTS) as control,
    ):
        two = Talk(control)
        step = rig.facade.complete_step(one.run_id)
        await one.next("decision_requested")
        await two.next("decision_requested")
        await two.control.decide(step.step_id, CONTINUE)
        await one.next("decision_recorded")
        await two.next("decision_recorded")
        await one.control.decide(step.step_id, STOP)
        assert (await one.next("rejected")).rejected.reason == "DECISION_NOT_PENDING"


async def test_a_decision_that_came_the_unary_way_is_told_to_the_stream(
    rig: Rig, client: Client, session_id: str
) -> None:
    async with talk(client, session_id, runs_pb2.CONTROL_EVENTS_NO_EVENTS) as stream:
        step = rig.facade.complete_step(stream.run_id)
        await stream.next("decision_requested")
        await client.submit_decision(stream.run_id, step.step_id, CONTINUE)
        recorded = (await stream.next("decision_recorded")).decision_recorded
        assert recorded.step_id == step.step_id


async def test_what_rules_decided_is_no_dedicated_message(rig: Rig, client: Client, session_id: str) -> None:
    async with talk(client, session_id, runs_pb2.CONTROL_EVENTS_NO_EVENTS) as stream:
        for _ in range(3):
            rig.facade.complete_step(stream.run_id, ask=False)
        rig.facade.end_run(stream.run_id, RunState.COMPLETED)
        await stream.next("finished")


async def test_stop_and_abort_come_over_the_stream(rig: Rig, client: Client, session_id: str) -> None:
    async with talk(client, session_id, runs_pb2.CONTROL_EVENTS_NO_EVENTS) as stream:
        await stream.control.stop("enough")
        await rig.until(lambda: rig.facade.get_run(LOCAL, stream.run_id).stop_requested is not None)
        await stream.control.abort("now")
        finished = (await stream.next("finished")).finished
        assert finished.run.state == events_pb2.RUN_STATE_ABORTED
        assert finished.run.stop_requested.reason == "enough"


async def test_a_client_that_says_no_more_is_still_told_everything(rig: Rig, client: Client, session_id: str) -> None:
    stub = runs_pb2_grpc.RunServiceStub(await rig.channel())
    run_id = (await client.start_run(session_id, "go")).run_id
    call = stub.ControlRun(timeout=10)
    await call.write(
        runs_pb2.ControlRunRequest(attach=runs_pb2.AttachRun(run_id=run_id), events=runs_pb2.CONTROL_EVENTS_NO_EVENTS)
    )
    await call.done_writing()
    await call.read()
    rig.facade.complete_step(run_id)
    rig.facade.end_run(run_id, RunState.COMPLETED)

    bodies: list[str | None] = []
    while (answer := await call.read()) is not grpc.aio.EOF:
        assert isinstance(answer, runs_pb2.ControlRunResponse)
        bodies.append(answer.WhichOneof("body"))

    assert bodies[-1] == "finished"
    assert await call.code() is grpc.StatusCode.OK


async def test_losing_the_stream_ends_neither_the_run_nor_leaves_anything_behind(
    rig: Rig, client: Client, session_id: str
) -> None:
    async with talk(client, session_id) as stream:
        run_id = stream.run_id
        rig.facade.complete_step(run_id)
        assert rig.facade.followers(session_id) == 1

    await rig.until(lambda: rig.facade.followers(session_id) == 0)
    assert rig.facade.get_run(LOCAL, run_id).state is RunState.AWAITING_DECISION


async def test_a_retried_opening_finds_the_run_that_it_started(rig: Rig, client: Client, session_id: str) -> None:
    request = client.start_request(session_id, "go")
    async with client.control(start=request) as control:
        first = control.run_id
    async with client.control(start=request) as control:
        assert control.run_id == first


async def test_a_client_that_reads_nothing_is_given_up_with_its_cursor(make_rig: RigFactory) -> None:
    rig = await make_rig(stalled_reader_ns=300_000_000)
    await rig.serve()
    client = await rig.client()
    session_id = (await client.create_session("claude", "/work")).session_id
    run_id = (await client.start_run(session_id, "go")).run_id
    stub = runs_pb2_grpc.RunServiceStub(await rig.channel())
    call = stub.ControlRun(timeout=30)
    await call.write(runs_pb2.ControlRunRequest(attach=runs_pb2.AttachRun(run_id=run_id)))
    await call.read()
    for _ in range(400):
        rig.facade.emit(run_id, MessageDelta("m", "x" * 60_000))
        await anyio.lowlevel.checkpoint()

    await rig.until(lambda: rig.facade.followers(session_id) == 0)
    seqs: list[int] = []

    async def read_on() -> None:
        with anyio.fail_after(10):
            while (answer := await call.read()) is not grpc.aio.EOF:
                assert isinstance(answer, runs_pb2.ControlRunResponse)
                seqs.extend(event.seq for event in answer.events.events)

    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await read_on()
    refused = errors.from_rpc(caught.value, rig.address)
    assert isinstance(refused, errors.ResourceExhausted)
    assert (refused.reason, refused.metadata["session_id"]) == ("READER_STALLED", session_id)
    assert int(refused.metadata["after_seq"]) <= max(seqs) < 403


async def test_a_pause_between_two_messages_is_no_stall(make_rig: RigFactory) -> None:
    rig = await make_rig(stalled_reader_ns=50_000_000, heartbeat_ns=120_000_000)
    await rig.serve()
    client = await rig.client()
    session_id = (await client.create_session("claude", "/work")).session_id
    async with talk(client, session_id, runs_pb2.CONTROL_EVENTS_NO_EVENTS) as stream:
        beats = 0
        async for answer in stream.control:
            beats += answer.events.HasField("heartbeat")
            if beats == 3:
                break
    assert beats == 3


async def test_heartbeats_come_over_the_stream(make_rig: RigFactory) -> None:
    rig = await make_rig(heartbeat_ns=30_000_000)
    await rig.serve()
    client = await rig.client()
    session_id = (await client.create_session("claude", "/work")).session_id
    async with talk(client, session_id, runs_pb2.CONTROL_EVENTS_NO_EVENTS) as stream:
        beats = 0
        async for answer in stream.control:
            assert answer.events.HasField("heartbeat")
            assert answer.events.heartbeat.run_state == events_pb2.RUN_STATE_RUNNING
            beats += 1
            if beats == 3:
                break


async def test_a_client_that_never_opens_is_given_up(make_rig: RigFactory) -> None:
    rig = await make_rig(stalled_reader_ns=50_000_000)
    await rig.serve()
    stub = runs_pb2_grpc.RunServiceStub(await rig.channel())

    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.ControlRun(timeout=10).read()

    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "start, continue_run or attach" in str(caught.value.details())
