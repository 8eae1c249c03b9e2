"""Unary calls end to end: resources, refusals with their details, pages, retries."""

import logging

import anyio
import anyio.lowlevel
import grpc
import grpc.aio
import pytest
from google.protobuf.duration_pb2 import Duration
from google.rpc import status_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from tests.integration.service.conftest import Rig

from steprail import errors
from steprail.client import Client, steps
from steprail.v1 import (
    agents_pb2,
    decisions_pb2,
    events_pb2,
    rules_pb2,
    runs_pb2,
    runs_pb2_grpc,
    sessions_pb2,
    sessions_pb2_grpc,
)
from steprail_daemon.core.events import ToolEnded
from steprail_daemon.core.model import RunState, ToolOutcome, ToolResult
from steprail_daemon.engine.facade import Caller

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("one_loop")]


async def test_the_server_tells_its_version_limits_and_agents(client: Client) -> None:
    info = await client.get_server_info()

    assert info.version
    assert info.limits.max_prompt_bytes == 16 * 1024 * 1024
    assert info.limits.heartbeat_interval == Duration(seconds=10)
    assert (info.cel_view_version, info.draining) == (1, False)
    assert [(agent.name, agent.available, agent.unavailable_reason) for agent in info.agents] == [
        ("claude", True, ""),
        ("gone", False, "no such program"),
    ]
    assert info.agents[0].capabilities.step_gate == agents_pb2.STEP_GATE_EXACT
    assert list(await client.list_agents()) == list(info.agents)


async def test_a_session_is_made_shown_listed_and_closed(client: Client) -> None:
    made = await client.create_session(
        "claude", "/work", labels={"team": "a"}, permission_mode=sessions_pb2.PERMISSION_MODE_READ_ONLY, model="m"
    )

    assert (made.agent, made.cwd, dict(made.labels), made.model) == ("claude", "/work", {"team": "a"}, "m")
    assert (made.state, made.owner, made.epoch, made.last_seq) == (events_pb2.SESSION_STATE_IDLE, "local", "epoch-1", 1)
    assert made.permission_mode == sessions_pb2.PERMISSION_MODE_READ_ONLY
    assert await client.get_session(made.session_id) == made
    assert [session.session_id for session in await client.list_sessions()] == [made.session_id]
    closed = await client.close_session(made.session_id)
    assert closed.state == events_pb2.SESSION_STATE_CLOSED


async def test_a_run_shows_what_it_was_started_with(client: Client, session_id: str) -> None:
    run = await client.start_run(
        session_id,
        "Fix the test",
        stop_rules=[steps(3), steps(5, rule_id="mine")],
        decider=decisions_pb2.Decider(
            mode=decisions_pb2.DECIDER_MODE_CLIENT,
            timeout=Duration(seconds=20),
            on_timeout=decisions_pb2.ON_TIMEOUT_CONTINUE,
        ),
        limits=rules_pb2.RunLimits(max_steps=7),
        labels={"a": "b"},
    )

    assert run.state == events_pb2.RUN_STATE_RUNNING
    assert [part.text for part in run.spec.prompt.parts] == ["Fix the test"]
    assert run.spec.prompt.parts[0].full_size == 12
    assert [(rule.id, rule.step_count.at_least) for rule in run.spec.stop_rules] == [("rule-1", 3), ("mine", 5)]
    assert run.spec.decider.timeout == Duration(seconds=20)
    assert run.spec.decider.on_timeout == decisions_pb2.ON_TIMEOUT_CONTINUE
    assert run.spec.limits.max_steps == 7
    assert dict(run.spec.labels) == {"a": "b"}
    assert not run.HasField("end_time")
    assert not run.HasField("usage")
    assert (await client.get_run(run.run_id)).create_time == run.create_time


async def test_the_spans_of_a_run_are_together_its_time(rig: Rig, client: Client, session_id: str) -> None:
    run_id = (await client.start_run(session_id, "go")).run_id
    rig.facade.end_run(run_id, RunState.COMPLETED)

    run = await client.get_run(run_id)

    assert run.HasField("end_time")
    assert run.HasField("active")


async def test_a_continued_run_inherits_what_is_absent(rig: Rig, client: Client, session_id: str) -> None:
    first = await client.start_run(session_id, "go", stop_rules=[steps(3)])
    rig.facade.end_run(first.run_id, RunState.STOPPED)

    inherited = await client.continue_run(first.run_id)
    rig.facade.end_run(inherited.run_id, RunState.STOPPED)
    without = await client.continue_run(inherited.run_id, "and now this", stop_rules=[])

    assert [rule.step_count.at_least for rule in inherited.spec.stop_rules] == [3]
    assert (inherited.prompt_synthesized, inherited.continued_from) == (True, first.run_id)
    assert list(without.spec.stop_rules) == []
    assert not without.prompt_synthesized


async def test_an_unknown_id_is_not_found_and_the_status_says_what(client: Client) -> None:
    with pytest.raises(errors.NotFound) as caught:
        await client.get_run("run_unknown")

    assert caught.value.reason == "RUN_NOT_FOUND"
    assert caught.value.metadata == {"run_id": "run_unknown"}
    assert caught.value.code is grpc.StatusCode.NOT_FOUND


async def test_a_bad_field_is_named(client: Client) -> None:
    with pytest.raises(errors.InvalidArgument) as caught:
        await client.create_session("claude", "/work", labels={"k": "v" * 300})

    assert caught.value.reason == "FIELD_INVALID"
    assert caught.value.fields == {"labels['k']": "labels['k'] has 300 bytes; at most 256 are accepted"}


async def test_a_busy_session_refuses_and_names_the_run(client: Client, session_id: str) -> None:
    run = await client.start_run(session_id, "go")

    with pytest.raises(errors.FailedPrecondition) as caught:
        await client.start_run(session_id, "again")

    assert caught.value.reason == "SESSION_BUSY"
    assert caught.value.metadata == {"active_run_id": run.run_id}


async def test_a_request_that_is_no_message_is_refused_as_such(rig: Rig, client: Client) -> None:
    channel = await rig.channel()
    method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary("/steprail.v1.RunService/GetRun")

    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await method(b"\xff\xff\xff", timeout=10)

    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "steprail.v1.GetRunRequest" in str(caught.value.details())


async def test_what_is_not_implemented_is_unimplemented(rig: Rig, client: Client) -> None:
    stub = runs_pb2_grpc.RunServiceStub(await rig.channel())

    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.TestStopRules(runs_pb2.TestStopRulesRequest(), timeout=10).read()

    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_an_exception_of_ours_is_internal_without_its_text_and_is_logged(
    rig: Rig, client: Client, session_id: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(caller: Caller, session_id: str) -> None:
        raise RuntimeError("secret")

    monkeypatch.setattr(rig.facade, "get_session", broken)
    with pytest.raises(errors.Refused) as caught:
        await client.get_session(session_id)

    assert caught.value.code is grpc.StatusCode.INTERNAL
    assert "secret" not in str(caught.value)
    assert "secret" in caplog.text


async def test_each_call_is_logged_with_method_code_duration_and_reason_and_without_contents(
    client: Client, session_id: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "steprail.calls")
    await client.start_run(session_id, "a private prompt")
    with pytest.raises(errors.NotFound):
        await client.get_run("run_unknown")

    lines = [record.__dict__ for record in caplog.records if record.name == "steprail.calls"]
    assert [(line["method"], line["code"], line["reason"]) for line in lines] == [
        ("steprail.v1.RunService.StartRun", "OK", ""),
        ("steprail.v1.RunService.GetRun", "NOT_FOUND", "RUN_NOT_FOUND"),
    ]
    assert all(line["ms"] >= 0 for line in lines)
    assert "private" not in str(lines)


async def test_the_same_request_id_makes_one_session_also_at_the_same_time(rig: Rig, client: Client) -> None:
    stub = sessions_pb2_grpc.SessionServiceStub(await rig.channel())
    request = sessions_pb2.CreateSessionRequest(agent="claude", cwd="/work", request_id="key-1")
    made: list[str] = []

    async def create() -> None:
        made.append((await stub.CreateSession(request, timeout=10)).session.session_id)

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(create)

    assert len(set(made)) == 1
    assert len(await client.list_sessions()) == 1


async def test_a_request_id_with_another_body_is_refused(rig: Rig, client: Client) -> None:
    stub = sessions_pb2_grpc.SessionServiceStub(await rig.channel())
    await stub.CreateSession(sessions_pb2.CreateSessionRequest(agent="claude", cwd="/a", request_id="key"), timeout=10)

    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.CreateSession(
            sessions_pb2.CreateSessionRequest(agent="claude", cwd="/b", request_id="key"), timeout=10
        )

    refused = errors.from_rpc(caught.value, rig.address)
    assert isinstance(refused, errors.AlreadyExists)
    assert refused.reason == "REQUEST_ID_REUSED"


async def test_a_refused_request_can_be_tried_again_with_its_id(rig: Rig, client: Client, session_id: str) -> None:
    stub = runs_pb2_grpc.RunServiceStub(await rig.channel())
    live = await client.start_run(session_id, "first")
    request = client.start_request(session_id, "second")
    with pytest.raises(grpc.aio.AioRpcError):
        await stub.StartRun(request, timeout=10)

    rig.facade.end_run(live.run_id, RunState.COMPLETED)
    second = (await stub.StartRun(request, timeout=10)).run
    again = (await stub.StartRun(request, timeout=10)).run

    assert second.run_id == again.run_id != live.run_id


async def test_a_decision_that_is_sent_twice_with_one_id_is_given_again(
    rig: Rig, client: Client, session_id: str
) -> None:
    stub = runs_pb2_grpc.RunServiceStub(await rig.channel())
    run_id = (await client.start_run(session_id, "go")).run_id
    step = rig.facade.complete_step(run_id)
    request = runs_pb2.SubmitDecisionRequest(
        run_id=run_id, step_id=step.step_id, action=decisions_pb2.DECISION_ACTION_CONTINUE, request_id="d"
    )

    first = (await stub.SubmitDecision(request, timeout=10)).decision
    second = (await stub.SubmitDecision(request, timeout=10)).decision

    assert first == second
    assert (first.source, first.identity) == (decisions_pb2.DECISION_SOURCE_CLIENT, "local")


async def test_a_late_decision_is_refused_and_never_taken(rig: Rig, client: Client, session_id: str) -> None:
    run_id = (await client.start_run(session_id, "go")).run_id
    step = rig.facade.complete_step(run_id)
    await client.submit_decision(run_id, step.step_id, decisions_pb2.DECISION_ACTION_CONTINUE)

    with pytest.raises(errors.FailedPrecondition) as caught:
        await client.submit_decision(run_id, step.step_id, decisions_pb2.DECISION_ACTION_STOP)

    assert caught.value.reason == "DECISION_NOT_PENDING"
    assert (await client.get_run(run_id)).state == events_pb2.RUN_STATE_RUNNING


async def test_pages_give_every_session_once_newest_first(rig: Rig, client: Client) -> None:
    made = [(await client.create_session("claude", "/work")).session_id for _ in range(7)]
    stub = sessions_pb2_grpc.SessionServiceStub(await rig.channel())
    request = sessions_pb2.ListSessionsRequest(page_size=3)
    pages: list[list[str]] = []
    while not pages or request.page_token:
        reply = await stub.ListSessions(request, timeout=10)
        pages.append([session.session_id for session in reply.sessions])
        request.page_token = reply.next_page_token

    assert [len(page) for page in pages] == [3, 3, 1]
    assert [session_id for page in pages for session_id in page] == made[::-1]


async def test_a_page_token_of_another_query_is_refused(rig: Rig, client: Client) -> None:
    for _ in range(3):
        await client.create_session("claude", "/work")
    stub = sessions_pb2_grpc.SessionServiceStub(await rig.channel())
    token = (await stub.ListSessions(sessions_pb2.ListSessionsRequest(page_size=1), timeout=10)).next_page_token

    for other in (
        sessions_pb2.ListSessionsRequest(page_token=token, agents=["claude"]),
        sessions_pb2.ListSessionsRequest(page_token="%%%"),
        sessions_pb2.ListSessionsRequest(page_token="e30="),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.ListSessions(other, timeout=10)
        refused = errors.from_rpc(caught.value, rig.address)
        assert isinstance(refused, errors.InvalidArgument)
        assert refused.reason == "PAGE_TOKEN_INVALID"


async def test_lists_are_filtered_by_state_agent_and_labels(rig: Rig, client: Client) -> None:
    stub = runs_pb2_grpc.RunServiceStub(await rig.channel())
    one = await client.create_session("claude", "/work")
    two = await client.create_session("claude", "/work")
    red = await client.start_run(one.session_id, "go", labels={"colour": "red"})
    blue = await client.start_run(two.session_id, "go", labels={"colour": "blue"})
    rig.facade.end_run(blue.run_id, RunState.COMPLETED)

    async def found(request: runs_pb2.ListRunsRequest) -> list[str]:
        return [run.run_id for run in (await stub.ListRuns(request, timeout=10)).runs]

    assert await found(runs_pb2.ListRunsRequest()) == [blue.run_id, red.run_id]
    assert await found(runs_pb2.ListRunsRequest(labels={"colour": "red"})) == [red.run_id]
    assert await found(runs_pb2.ListRunsRequest(states=[events_pb2.RUN_STATE_COMPLETED])) == [blue.run_id]
    assert await found(runs_pb2.ListRunsRequest(agents=["other"])) == []
    assert await found(runs_pb2.ListRunsRequest(session_id=one.session_id)) == [red.run_id]


async def test_pages_of_large_steps_stay_under_a_mebibyte(rig: Rig, client: Client, session_id: str) -> None:
    stub = runs_pb2_grpc.RunServiceStub(await rig.channel())
    run_id = (await client.start_run(session_id, "go")).run_id
    for _ in range(40):
        rig.facade.complete_step(run_id, output="x" * 65_000, ask=False)

    request = runs_pb2.ListStepsRequest(run_id=run_id)
    numbers: list[int] = []
    pages = 0
    while not pages or request.page_token:
        reply = await stub.ListSteps(request, timeout=10)
        assert reply.ByteSize() < 1024 * 1024
        numbers += [step.number for step in reply.steps]
        request.page_token = reply.next_page_token
        pages += 1

    assert numbers == list(range(1, 41))
    assert [step.number for step in await client.list_steps(run_id)] == numbers


async def test_a_step_is_found_by_number_and_by_id_with_its_decision(rig: Rig, client: Client, session_id: str) -> None:
    stub = runs_pb2_grpc.RunServiceStub(await rig.channel())
    run_id = (await client.start_run(session_id, "go", stop_rules=[steps(9)])).run_id
    rig.facade.complete_step(run_id, ask=False)
    second = rig.facade.complete_step(run_id)

    by_number = (await stub.GetStep(runs_pb2.GetStepRequest(run_id=run_id, number=2), timeout=10)).step
    by_id = (await stub.GetStep(runs_pb2.GetStepRequest(run_id=run_id, step_id=second.step_id), timeout=10)).step
    first = await client.get_step(run_id, 1)

    assert by_number == by_id
    assert (by_id.step_id, by_id.run_id, len(by_id.verdicts)) == (second.step_id, run_id, 1)
    assert not by_id.HasField("decision")
    assert first.decision.source == decisions_pb2.DECISION_SOURCE_AUTO
    for missing in (
        runs_pb2.GetStepRequest(run_id=run_id, number=3),
        runs_pb2.GetStepRequest(run_id=run_id, number=-1),
        runs_pb2.GetStepRequest(run_id=run_id, step_id="step_unknown"),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.GetStep(missing, timeout=10)
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND


async def test_waiting_ends_with_the_run_or_with_the_time_and_gives_the_run_as_it_is(
    rig: Rig, client: Client, session_id: str
) -> None:
    run_id = (await client.start_run(session_id, "go")).run_id
    waiting = await client.wait_run(run_id, timeout=0.05)
    assert waiting.state == events_pb2.RUN_STATE_RUNNING

    async with anyio.create_task_group() as tasks:

        async def wait() -> None:
            run = await client.wait_run(run_id, until=runs_pb2.WAIT_UNTIL_NEEDS_ATTENTION, timeout=10)
            assert run.state == events_pb2.RUN_STATE_AWAITING_DECISION
            assert run.pending_decision.step_id
            assert run.pending_decision.remaining.seconds > 0
            assert run.pending_decision.default == decisions_pb2.ON_TIMEOUT_STOP

        tasks.start_soon(wait)
        await anyio.lowlevel.checkpoint()
        rig.facade.complete_step(run_id)

    await client.stop_run(run_id, "enough")
    ended = await client.wait_run(run_id, timeout=10)
    assert ended.state == events_pb2.RUN_STATE_STOPPED
    assert (ended.stop_requested.identity, ended.stop_requested.reason) == ("local", "enough")


async def test_a_wait_without_a_time_answers_before_the_deadline_of_the_call(
    rig: Rig, client: Client, session_id: str
) -> None:
    stub = runs_pb2_grpc.RunServiceStub(await rig.channel())
    run_id = (await client.start_run(session_id, "go")).run_id

    reply = await stub.WaitRun(runs_pb2.WaitRunRequest(run_id=run_id), timeout=1)

    assert reply.run.state == events_pb2.RUN_STATE_RUNNING


async def test_a_blob_is_read_whole_and_from_an_offset(rig: Rig, client: Client, session_id: str) -> None:
    run_id = (await client.start_run(session_id, "go")).run_id
    whole = "é" * 400_000
    rig.facade.emit(run_id, ToolEnded(ToolResult("c", ToolOutcome.SUCCEEDED, whole)))
    rig.facade.end_run(run_id, RunState.COMPLETED)
    texts = [event.tool_end.result.output async for event in client.watch_run(run_id) if event.HasField("tool_end")]

    assert texts[0].full_size == 800_000
    assert await client.read_blob(texts[0].blob_id) == whole.encode()
    stub = runs_pb2_grpc.RunServiceStub(await rig.channel())
    call = stub.ReadBlob(runs_pb2.ReadBlobRequest(blob_id=texts[0].blob_id, offset=700_000), timeout=10)
    parts = [part async for part in call]
    assert [(part.offset, part.full_size, part.mime_type) for part in parts] == [(700_000, 800_000, "text/plain")]
    with pytest.raises(errors.NotFound):
        await client.read_blob("sha256-unknown")


async def test_health_and_reflection_answer(rig: Rig) -> None:
    channel = await rig.channel()
    health = health_pb2_grpc.HealthStub(channel)
    for name in ("", "steprail.v1.RunService"):
        reply = await health.Check(health_pb2.HealthCheckRequest(service=name), timeout=10)
        assert reply.status == health_pb2.HealthCheckResponse.SERVING
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await health.Check(health_pb2.HealthCheckRequest(service="other"), timeout=10)
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    # The protocol knows no details.
    status = dict(caught.value.trailing_metadata() or ())["grpc-status-details-bin"]
    assert isinstance(status, bytes)
    assert not status_pb2.Status.FromString(status).details

    call = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(timeout=10)
    await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
    names = {service.name for service in (await call.read()).list_services_response.service}
    call.cancel()
    assert {"steprail.v1.RunService", "steprail.v1.SessionService", "grpc.health.v1.Health"} <= names


async def test_a_prompt_of_the_size_that_is_promised_gets_through(client: Client, session_id: str) -> None:
    run = await client.start_run(session_id, "x" * (16 * 1024 * 1024))

    (part,) = run.spec.prompt.parts
    assert (len(part.text), part.full_size) == (65_536, 16 * 1024 * 1024)


async def test_no_daemon_is_a_sentence_that_says_what_to_do(rig: Rig) -> None:
    async with Client("unix:/nowhere/steprail.sock", timeout=10) as client:
        with pytest.raises(
            errors.ConnectionFailed, match=r"no daemon answers at unix:/nowhere/steprail\.sock"
        ) as caught:
            await client.list_sessions()

    assert "steprail serve" in str(caught.value)


async def test_two_thousand_calls_at_the_same_time_are_all_answered(client: Client) -> None:
    answered = 0

    async def ask() -> None:
        nonlocal answered
        await client.get_server_info(timeout=30)
        answered += 1

    async with anyio.create_task_group() as tasks:
        for _ in range(2_000):
            tasks.start_soon(ask)

    assert answered == 2_000
