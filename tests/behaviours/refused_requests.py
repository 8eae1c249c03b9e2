"""Requests that are refused for what they are or for who sends them: cases of `test_refusals.py`."""

from __future__ import annotations

from functools import partial

import grpc
import grpc.aio
from tests.behaviours import refused_calls
from tests.behaviours.refusal_status import Refused, refused, stream_refused
from tests.behaviours.refused_calls import Code
from tests.behaviours.refusing import bearer
from tests.behaviours.scene import Scene
from tests.behaviours.stage import (
    WAIT,
    read,
    says,
    script,
)

from steprail.v1 import (
    rules_pb2,
    runs_pb2,
    sessions_pb2,
    sessions_pb2_grpc,
)

#: What the daemon is configured with.
PROMPT_BYTES = 64 * 1024

CASES: dict[str, refused_calls.Case] = {}
case = partial(refused_calls.case, table=CASES)


# --- NOT_FOUND -------------------------------------------------------------------------------------------------------


@case("SESSION_NOT_FOUND", Code.NOT_FOUND, "session_id", resource="session")
async def no_such_session(scene: Scene) -> Refused:
    request = sessions_pb2.GetSessionRequest(session_id="ses_none")
    found = await refused(scene.sessions.GetSession(request, timeout=WAIT))
    assert found.metadata == {"session_id": "ses_none"}
    return found


@case("SESSION_NOT_FOUND", Code.NOT_FOUND, "session_id", resource="session")
async def a_session_of_another_tenant(scene: Scene) -> Refused:
    request = sessions_pb2.GetSessionRequest(session_id=await scene.session())
    theirs = await refused(scene.sessions.GetSession(request, timeout=WAIT, metadata=bearer("stranger")))
    absent = await refused(
        scene.sessions.GetSession(sessions_pb2.GetSessionRequest(session_id="ses_none"), timeout=WAIT)
    )
    assert theirs.message.replace(request.session_id, "ses_none") == absent.message
    return theirs


@case("RESUME_UNKNOWN", Code.NOT_FOUND, "agent_session_id", resource="agent_session")
async def a_conversation_that_the_agent_does_not_know(scene: Scene) -> Refused:
    found = await refused(scene.create(resume="nowhere"))
    assert found.metadata == {"agent_session_id": "nowhere"}
    return found


@case("RUN_NOT_FOUND", Code.NOT_FOUND, "run_id", resource="run")
async def no_such_run(scene: Scene) -> Refused:
    return await refused(scene.runs.GetRun(runs_pb2.GetRunRequest(run_id="run_none"), timeout=WAIT))


@case("RUN_NOT_FOUND", Code.NOT_FOUND, "run_id", resource="run")
async def no_such_run_to_watch(scene: Scene) -> Refused:
    return await stream_refused(scene.runs.WatchRun(runs_pb2.WatchRunRequest(run_id="run_none"), timeout=WAIT))


@case("STEP_NOT_FOUND", Code.NOT_FOUND, "step_id", resource="step")
async def no_such_step(scene: Scene) -> Refused:
    run = await scene.ran(await scene.session(), script(read(), says("done")))
    return await refused(scene.runs.GetStep(runs_pb2.GetStepRequest(run_id=run.run_id, number=2), timeout=WAIT))


@case("BLOB_NOT_FOUND", Code.NOT_FOUND, "blob_id", resource="blob")
async def no_such_blob(scene: Scene) -> Refused:
    return await stream_refused(scene.runs.ReadBlob(runs_pb2.ReadBlobRequest(blob_id="0" * 64), timeout=WAIT))


# --- INVALID_ARGUMENT ------------------------------------------------------------------------------------------------


@case("AGENT_UNKNOWN", Code.INVALID_ARGUMENT, field="agent")
async def no_such_agent(scene: Scene) -> Refused:
    found = await refused(scene.create("nobody"))
    assert "scripted" in found.message, "it names those that there are"
    return found


@case("RULE_INVALID", Code.INVALID_ARGUMENT, field="stop_rules[1].step_count.at_least")
async def a_rule_out_of_range(scene: Scene) -> Refused:
    rules = [rules_pb2.StopRule(step_count=rules_pb2.StepCountRule(at_least=count)) for count in (1, 0)]
    return await refused(scene.start(await scene.session(), "x", stop_rules=rules))


@case("RULE_INVALID", Code.INVALID_ARGUMENT, field="stop_rules[0].expression.cel")
async def an_expression_that_does_not_compile(scene: Scene) -> Refused:
    rules = [rules_pb2.StopRule(expression=rules_pb2.ExpressionRule(cel="step.number >\n nothing"))]
    found = await refused(scene.start(await scene.session(), "x", stop_rules=rules))
    assert "2:2" in found.message or ("line 2" in found.message and "column 2" in found.message), found.message
    return found


@case("PROMPT_INVALID", Code.INVALID_ARGUMENT, field="prompt")
async def a_prompt_without_parts(scene: Scene) -> Refused:
    request = runs_pb2.StartRunRequest(session_id=await scene.session(), prompt=runs_pb2.Prompt())
    return await refused(scene.runs.StartRun(request, timeout=WAIT))


@case("PROMPT_INVALID", Code.INVALID_ARGUMENT, field="prompt")
async def a_command_of_the_agents_own(scene: Scene) -> Refused:
    return await refused(scene.start(await scene.session(), "/help"))


@case("PROMPT_INVALID", Code.INVALID_ARGUMENT, field="prompt")
async def nothing_to_go_on_with(scene: Scene) -> Refused:
    run = await scene.ran(await scene.session(), script(says("done")))
    request = runs_pb2.ContinueRunRequest(run_id=run.run_id)
    return await refused(scene.runs.ContinueRun(request, timeout=WAIT))


@case("PROMPT_TOO_LARGE", Code.INVALID_ARGUMENT, "limit", "size", field="prompt")
async def a_prompt_over_the_limit(scene: Scene) -> Refused:
    found = await refused(scene.start(await scene.session(), "x" * (PROMPT_BYTES + 1)))
    assert found.metadata == {"limit": str(PROMPT_BYTES), "size": str(PROMPT_BYTES + 1)}
    return found


@case("CWD_INVALID", Code.INVALID_ARGUMENT, field="cwd")
async def a_relative_directory(scene: Scene) -> Refused:
    return await refused(scene.create(cwd="notes"))


@case("CWD_INVALID", Code.INVALID_ARGUMENT, field="cwd")
async def a_directory_that_is_not_there(scene: Scene) -> Refused:
    return await refused(scene.create(cwd=str(scene.workspace / "absent")))


@case("CWD_INVALID", Code.INVALID_ARGUMENT, field="cwd")
async def a_directory_that_is_a_file(scene: Scene) -> Refused:
    return await refused(scene.create(cwd=str(scene.workspace / "notes.txt")))


@case("PAGE_TOKEN_INVALID", Code.INVALID_ARGUMENT, field="page_token")
async def a_malformed_page_token(scene: Scene) -> Refused:
    request = sessions_pb2.ListSessionsRequest(page_token="?")
    return await refused(scene.sessions.ListSessions(request, timeout=WAIT))


@case("PAGE_TOKEN_INVALID", Code.INVALID_ARGUMENT, field="page_token")
async def a_page_token_of_another_query(scene: Scene) -> Refused:
    await scene.session()
    first = await scene.sessions.ListSessions(sessions_pb2.ListSessionsRequest(page_size=1), timeout=WAIT)
    assert first.next_page_token
    request = sessions_pb2.ListSessionsRequest(page_token=first.next_page_token, agents=["scripted"])
    return await refused(scene.sessions.ListSessions(request, timeout=WAIT))


@case("FIELD_INVALID", Code.INVALID_ARGUMENT, field="request_id")
async def a_field_that_is_too_long(scene: Scene) -> Refused:
    return await refused(scene.create(request_id="x" * 65))


@case("FIELD_INVALID", Code.INVALID_ARGUMENT, field="limits.max_steps")
async def a_field_over_its_ceiling(scene: Scene) -> Refused:
    limits = rules_pb2.RunLimits(max_steps=1_000_001)
    return await refused(scene.start(await scene.session(), "x", limits=limits))


@case("FIELD_INVALID", Code.INVALID_ARGUMENT)
async def bytes_that_are_no_message(scene: Scene) -> Refused:
    call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = scene.channel.unary_unary("/steprail.v1.RunService/GetRun")
    return await refused(call(b"\xff\xff", timeout=WAIT))


# --- ALREADY_EXISTS --------------------------------------------------------------------------------------------------


@case("REQUEST_ID_REUSED", Code.ALREADY_EXISTS, "request_id", field="request_id")
async def a_request_id_with_another_body(scene: Scene) -> Refused:
    session_id = await scene.session(request_id=scene.workspace.name)
    again = await scene.create(request_id=scene.workspace.name)
    assert again.session.session_id == session_id
    return await refused(scene.create(request_id=scene.workspace.name, labels={"another": "body"}))


# --- OUT_OF_RANGE ----------------------------------------------------------------------------------------------------


@case("CURSOR_INVALID", Code.OUT_OF_RANGE, "earliest_seq", "last_seq", "epoch")
async def a_cursor_ahead(scene: Scene) -> Refused:
    run = await scene.ran(await scene.session(), script(says("done")))
    epoch = (await scene.get_session(run.session_id)).epoch
    return await _from(scene, run, 1_000_000, epoch)


@case("CURSOR_INVALID", Code.OUT_OF_RANGE, "earliest_seq", "last_seq", "epoch")
async def a_cursor_of_another_epoch(scene: Scene) -> Refused:
    run = await scene.ran(await scene.session(), script(says("done")))
    return await _from(scene, run, 1, "another")


async def _from(scene: Scene, run: runs_pb2.Run, after_seq: int, epoch: str) -> Refused:
    """Watch from a place that is none, then from the one that the refusal names."""
    request = runs_pb2.WatchRunRequest(run_id=run.run_id, after_seq=after_seq, epoch=epoch)
    found = await stream_refused(scene.runs.WatchRun(request, timeout=WAIT))
    assert found.metadata["earliest_seq"] == "1"
    last = (await scene.events(run.run_id))[-1]
    assert int(found.metadata["last_seq"]) >= last.seq
    request.after_seq, request.epoch = last.seq - 1, found.metadata["epoch"]
    rest = [event async for answer in scene.runs.WatchRun(request, timeout=WAIT) for event in answer.events]
    assert rest == [last]
    return found


# --- PERMISSION_DENIED -----------------------------------------------------------------------------------------------


@case("CWD_NOT_ALLOWED", Code.PERMISSION_DENIED)
async def a_directory_outside_the_roots(scene: Scene) -> Refused:
    return await refused(scene.create(cwd="/"))


@case("CWD_NOT_ALLOWED", Code.PERMISSION_DENIED)
async def a_link_that_leads_outside(scene: Scene) -> Refused:
    (scene.workspace / "out").symlink_to("/")
    return await refused(scene.create(cwd=str(scene.workspace / "out")))


@case("FORBIDDEN", Code.PERMISSION_DENIED, "role", "identity")
async def a_viewer_who_wants_a_session(scene: Scene) -> Refused:
    request = scene.session_request()
    async with grpc.aio.insecure_channel(scene.tcp) as channel:
        sessions = sessions_pb2_grpc.SessionServiceStub(channel)
        found = await refused(sessions.CreateSession(request, timeout=WAIT, metadata=bearer("looker")))
        await sessions.ListSessions(sessions_pb2.ListSessionsRequest(), timeout=WAIT, metadata=bearer("looker"))
    assert found.metadata == {"role": "operator", "identity": "looker"}
    return found


@case("FORBIDDEN", Code.PERMISSION_DENIED, field="permission_mode")
async def a_mode_that_the_role_may_not_choose(scene: Scene) -> Refused:
    request = scene.session_request(permission_mode=sessions_pb2.PERMISSION_MODE_BYPASS)
    return await refused(scene.sessions.CreateSession(request, timeout=WAIT, metadata=bearer("doer")))


@case("FORBIDDEN", Code.PERMISSION_DENIED)
async def a_variable_that_callers_may_not_set(scene: Scene) -> Refused:
    return await refused(scene.create(environment={"SOMETHING": "else"}))


# --- UNAUTHENTICATED -------------------------------------------------------------------------------------------------


async def _over_tcp(scene: Scene, *metadata: tuple[str, str]) -> Refused:
    async with grpc.aio.insecure_channel(scene.tcp) as channel:
        sessions = sessions_pb2_grpc.SessionServiceStub(channel)
        request = sessions_pb2.GetSessionRequest(session_id="ses_none")
        found = await refused(sessions.GetSession(request, timeout=WAIT, metadata=metadata))
        known = await refused(sessions.GetSession(request, timeout=WAIT, metadata=bearer("looker")))
    assert known.reason == "SESSION_NOT_FOUND"
    return found


@case("TOKEN_MISSING", Code.UNAUTHENTICATED)
async def no_token(scene: Scene) -> Refused:
    return await _over_tcp(scene)


@case("TOKEN_INVALID", Code.UNAUTHENTICATED)
async def a_token_of_nobody(scene: Scene) -> Refused:
    found = await _over_tcp(scene, ("authorization", "Bearer of-nobody-0123456789"))
    assert "of-nobody" not in found.message
    return found


@case("TOKEN_INVALID", Code.UNAUTHENTICATED)
async def two_tokens(scene: Scene) -> Refused:
    return await _over_tcp(scene, *bearer("looker"), *bearer("doer"))


@case("TOKEN_INVALID", Code.UNAUTHENTICATED)
async def another_scheme(scene: Scene) -> Refused:
    return await _over_tcp(scene, ("authorization", "Basic bG9va2VyOg=="))
