"""Calls that are refused, each with what it must be refused with: the cases of `test_refusals.py`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import grpc
import grpc.aio
from tests.behaviours.refusing import (
    Refused,
    Scene,
    bearer,
    refused,
    rejection_of,
    stream_refused,
    text_prompt,
)
from tests.behaviours.stage import (
    CONTINUE,
    FAILED,
    STEPS_ONLY,
    WAIT,
    client_decides,
    command,
    read,
    says,
    script,
)

from steprail.v1 import (
    decisions_pb2,
    events_pb2,
    rules_pb2,
    runs_pb2,
    sessions_pb2,
    sessions_pb2_grpc,
)

Code = grpc.StatusCode
Play = Callable[[Scene], Awaitable[Refused]]

#: What the daemon of these cases is configured with.
QUEUE_LENGTH, PROMPT_BYTES, MAX_SESSIONS = 1, 64 * 1024, 6


@dataclass(frozen=True)
class Case:
    """A refused call. `metadata` are the keys of ErrorInfo, `field` is the path in BadRequest, if there is one."""

    reason: str
    code: grpc.StatusCode
    play: Play
    metadata: frozenset[str]
    field: str
    resource: str
    quota: bool
    retry: bool

    @property
    def kinds(self) -> set[str]:
        """The kinds of details beside ErrorInfo."""
        applies = {
            "BadRequest": bool(self.field),
            "ResourceInfo": bool(self.resource),
            "QuotaFailure": self.quota,
            "PreconditionFailure": self.code is Code.FAILED_PRECONDITION,
            "RetryInfo": self.retry,
        }
        return {kind for kind, does in applies.items() if does}


CASES: dict[str, Case] = {}


def case(
    reason: str,
    code: grpc.StatusCode,
    *metadata: str,
    field: str = "",
    resource: str = "",
    quota: bool = False,
    retry: bool = False,
    table: dict[str, Case] = CASES,
) -> Callable[[Play], Play]:
    """Enter a case into a table."""

    def enter(play: Play) -> Play:
        name = f"{reason}-{play.__name__}"  # type: ignore[attr-defined]
        assert name not in table
        table[name] = Case(reason, code, play, frozenset(metadata), field, resource, quota, retry)
        return play

    return enter


def check(found: Refused, case: Case) -> None:
    """See that a refusal carries what its reason promises."""
    assert (found.code, found.domain, found.reason) == (case.code, "steprail", case.reason)
    assert found.message
    assert found.metadata.keys() == case.metadata
    assert all(found.metadata.values())
    assert found.details.keys() == case.kinds
    if case.field:
        (violation,) = found.details["BadRequest"].field_violations
        assert (violation.field, violation.reason) == (case.field, case.reason)
        assert violation.description
    if case.resource:
        named = found.details["ResourceInfo"]
        assert (named.resource_type, named.resource_name) == (
            case.resource,
            found.metadata[f"{case.resource}_id"],
        )
    if case.quota:
        (short,) = found.details["QuotaFailure"].violations
        assert short.subject
        assert short.description
    if "PreconditionFailure" in found.details:
        (failed,) = found.details["PreconditionFailure"].violations
        assert (failed.type, failed.subject in {"", *found.metadata.values()}) == (case.reason, True)
    if case.retry:
        assert found.retry_after > 0


# --- NOT_FOUND ------------------------------------------------------------------------------------------------------


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


# --- INVALID_ARGUMENT -----------------------------------------------------------------------------------------------


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


# --- ALREADY_EXISTS -------------------------------------------------------------------------------------------------


@case("REQUEST_ID_REUSED", Code.ALREADY_EXISTS, "request_id", field="request_id")
async def a_request_id_with_another_body(scene: Scene) -> Refused:
    session_id = await scene.session(request_id=scene.workspace.name)
    again = await scene.create(request_id=scene.workspace.name)
    assert again.session.session_id == session_id
    return await refused(scene.create(request_id=scene.workspace.name, labels={"another": "body"}))


# --- FAILED_PRECONDITION --------------------------------------------------------------------------------------------


@case("SESSION_BUSY", Code.FAILED_PRECONDITION, "active_run_id")
async def a_second_run_that_may_not_queue(scene: Scene) -> Refused:
    session_id = await scene.session()
    run = await scene.held(session_id)
    found = await refused(scene.start(session_id, "x"))
    assert found.metadata == {"active_run_id": run.run_id}
    await scene.goes_on(run)
    return found


@case("SESSION_BUSY", Code.FAILED_PRECONDITION, "active_run_id")
async def a_close_without_force(scene: Scene) -> Refused:
    session_id = await scene.session()
    run = await scene.held(session_id)
    request = sessions_pb2.CloseSessionRequest(session_id=session_id)
    found = await refused(scene.sessions.CloseSession(request, timeout=WAIT))
    assert found.metadata == {"active_run_id": run.run_id}
    await scene.goes_on(run)
    return found


@case("SESSION_CLOSED", Code.FAILED_PRECONDITION)
async def a_session_that_was_closed(scene: Scene) -> Refused:
    session_id = await scene.session()
    request = sessions_pb2.CloseSessionRequest(session_id=session_id)
    await scene.sessions.CloseSession(request, timeout=WAIT)
    return await refused(scene.start(session_id, "x"))


@case("SESSION_BROKEN", Code.FAILED_PRECONDITION, "broken_reason")
async def a_session_that_cannot_be_resumed(scene: Scene) -> Refused:
    session_id = await scene.session(resume="never-was")
    run = await scene.ran(session_id, script(says("x")))
    assert (run.state, run.failure.reason) == (FAILED, "RESUME_FAILED")
    found = await refused(scene.start(session_id, script(says("x"))))
    assert found.metadata == {"broken_reason": (await scene.get_session(session_id)).broken_reason}
    return found


@case("NOT_LATEST_RUN", Code.FAILED_PRECONDITION, "latest_run_id")
async def a_run_that_was_followed_by_another(scene: Scene) -> Refused:
    session_id = await scene.session()
    first, second = [await scene.ran(session_id, script(says("done"))) for _ in range(2)]
    request = runs_pb2.ContinueRunRequest(run_id=first.run_id, prompt=text_prompt("x"))
    found = await refused(scene.runs.ContinueRun(request, timeout=WAIT))
    assert found.metadata == {"latest_run_id": second.run_id}
    return found


@case("RULE_ALREADY_MET", Code.FAILED_PRECONDITION, "rule_id")
async def a_rule_that_is_met_before(scene: Scene) -> Refused:
    session_id = await scene.session()
    await scene.ran(session_id, script(read(), says("done")))
    count = rules_pb2.StepCountRule(at_least=1, scope=rules_pb2.RULE_SCOPE_SESSION)
    rules = [rules_pb2.StopRule(id="once", step_count=count)]
    found = await refused(scene.start(session_id, "x", stop_rules=rules))
    assert found.metadata == {"rule_id": "once"}
    return found


@case("DECISION_NOT_PENDING", Code.FAILED_PRECONDITION, "run_id", "step_id")
async def a_decision_about_another_step(scene: Scene) -> Refused:
    run = await scene.held(await scene.session())
    found = await refused(scene.decide(run, "another", action=CONTINUE))
    assert found.metadata == {"run_id": run.run_id, "step_id": "another"}
    await scene.goes_on(run)
    return found


@case("DECISION_NOT_PENDING", Code.FAILED_PRECONDITION, "run_id", "step_id")
async def a_decision_after_the_end(scene: Scene) -> Refused:
    run = await scene.held(await scene.session())
    await scene.goes_on(run)
    return await refused(scene.decide(run, action=CONTINUE))


@case("DECISION_NOT_PENDING", Code.FAILED_PRECONDITION, "run_id", "step_id")
async def a_decision_on_a_stream_that_goes_on(scene: Scene) -> Refused:
    run = await scene.held(await scene.session())
    call = scene.runs.ControlRun(timeout=2 * WAIT)
    attach = runs_pb2.AttachRun(run_id=run.run_id)
    await call.write(runs_pb2.ControlRunRequest(attach=attach, events=STEPS_ONLY))
    wrong = runs_pb2.SubmitDecisionRequest(step_id="another", action=CONTINUE)
    await call.write(runs_pb2.ControlRunRequest(decision=wrong, request_id="the-wrong-one"))
    right = runs_pb2.SubmitDecisionRequest(step_id=run.pending_decision.step_id, action=CONTINUE)
    await call.write(runs_pb2.ControlRunRequest(decision=right, request_id="the-right-one"))
    answers = [answer async for answer in call]
    (rejected,) = [answer.rejected for answer in answers if answer.HasField("rejected")]
    assert rejected.request_id == "the-wrong-one"
    assert answers[-1].finished.run.state == events_pb2.RUN_STATE_COMPLETED
    return rejection_of(rejected)


@case("PERMISSION_NOT_PENDING", Code.FAILED_PRECONDITION, "run_id", "permission_id")
async def an_answer_to_another_permission(scene: Scene) -> Refused:
    run_id = await scene.started(await scene.session("asking"), script(command("true"), says("done")))
    run = await scene.asked(run_id)
    answer = runs_pb2.AnswerPermissionRequest(run_id=run_id, answer=decisions_pb2.PERMISSION_ANSWER_ALLOW_ONCE)
    answer.permission_id = "another"
    found = await refused(scene.runs.AnswerPermission(answer, timeout=WAIT))
    answer.permission_id = run.pending_permissions[0].permission_id
    await scene.runs.AnswerPermission(answer, timeout=WAIT)
    assert (await scene.ended(run_id)).text == "done"
    return found


@case("PERMISSION_NOT_PENDING", Code.FAILED_PRECONDITION, "run_id", "permission_id")
async def an_answer_to_a_permission_of_a_run_that_ended(scene: Scene) -> Refused:
    run = await scene.ran(await scene.session("asking"), script(says("done")))
    answer = runs_pb2.AnswerPermissionRequest(
        run_id=run.run_id, permission_id="gone", answer=decisions_pb2.PERMISSION_ANSWER_DENY
    )
    return await refused(scene.runs.AnswerPermission(answer, timeout=WAIT))


@case("QUESTION_NOT_PENDING", Code.FAILED_PRECONDITION, "run_id", "question_id")
async def an_answer_to_another_question(scene: Scene) -> Refused:
    run_id = await scene.started(await scene.session("claude"), '{"steps": 1, "ask_question": true}')
    run = await scene.asked(run_id)
    answer = runs_pb2.AnswerQuestionRequest(run_id=run_id, question_id="another", decline=True)
    found = await refused(scene.runs.AnswerQuestion(answer, timeout=WAIT))
    answer.question_id = run.pending_questions[0].question_id
    await scene.runs.AnswerQuestion(answer, timeout=WAIT)
    assert (await scene.ended(run_id)).failure.reason == ""
    return found


@case("STEER_NOT_POSSIBLE", Code.FAILED_PRECONDITION, "run_id")
async def a_steer_at_a_boundary(scene: Scene) -> Refused:
    run_id = await scene.started(await scene.session("claude"), '{"steps": 1}', decider=client_decides())
    run = await scene.asked(run_id)
    request = runs_pb2.SteerRunRequest(run_id=run.run_id, text="to the left")
    found = await refused(scene.runs.SteerRun(request, timeout=WAIT))
    await scene.goes_on(run)
    return found


@case("CAPABILITY_MISSING", Code.FAILED_PRECONDITION, "capability", field="prompt.parts[0].image")
async def an_image_for_an_agent_that_takes_none(scene: Scene) -> Refused:
    image = runs_pb2.ImagePart(data=b"x", mime_type="image/png")
    prompt = runs_pb2.Prompt(parts=[runs_pb2.PromptPart(image=image)])
    request = runs_pb2.StartRunRequest(session_id=await scene.session(), prompt=prompt)
    found = await refused(scene.runs.StartRun(request, timeout=WAIT))
    assert found.metadata == {"capability": "images"}
    return found


@case("CAPABILITY_MISSING", Code.FAILED_PRECONDITION, "capability")
async def a_model_at_a_boundary_which_goes_on_waiting(scene: Scene) -> Refused:
    run = await scene.held(await scene.session())
    found = await refused(scene.decide(run, action=CONTINUE, model="another"))
    assert found.metadata == {"capability": "model_switch"}
    await scene.goes_on(run)
    return found


@case("AGENT_UNAVAILABLE", Code.FAILED_PRECONDITION, "agent")
async def an_agent_whose_program_is_missing(scene: Scene) -> Refused:
    found = await refused(scene.create("missing"))
    assert found.metadata == {"agent": "missing"}
    return found


@case("AGENT_SESSION_IN_USE", Code.FAILED_PRECONDITION)
async def a_conversation_that_another_session_holds(scene: Scene) -> Refused:
    first = await scene.session()
    await scene.ran(first, script(says("done")))
    held = (await scene.get_session(first)).agent_session_id
    return await refused(scene.create(resume=held))


# --- RESOURCE_EXHAUSTED ---------------------------------------------------------------------------------------------


@case("QUEUE_FULL", Code.RESOURCE_EXHAUSTED, quota=True)
async def one_more_than_may_queue(scene: Scene) -> Refused:
    session_id = await scene.session()
    run = await scene.held(session_id)
    prompt = script(says("my turn"))
    waiting = [await scene.started(session_id, prompt, queue=runs_pb2.QUEUE_MODE_QUEUE) for _ in range(QUEUE_LENGTH)]
    found = await refused(scene.start(session_id, prompt, queue=runs_pb2.QUEUE_MODE_QUEUE))
    await scene.goes_on(run)
    assert [(await scene.ended(run_id)).text for run_id in waiting] == ["my turn"] * QUEUE_LENGTH
    return found


@case("TOO_MANY_SESSIONS", Code.RESOURCE_EXHAUSTED, quota=True)
async def one_session_more_than_there_may_be(scene: Scene) -> Refused:
    for _ in range(MAX_SESSIONS - 1):
        await scene.session()
    found = await refused(scene.create())
    await scene.leave()
    await scene.session()
    return found


@case("RATE_LIMITED", Code.RESOURCE_EXHAUSTED, retry=True)
async def a_provider_that_refuses_for_a_while(scene: Scene) -> Refused:
    session_id = await scene.session("limited")
    error = {"status": 429, "message": "slow down", "retry_after": 60}
    run = await scene.ran(session_id, script({"error": error}))
    assert run.failure.reason == "RATE_LIMITED"
    found = await refused(scene.start(session_id, script(says("too early"))))
    assert 30 < found.retry_after < 90
    return found


# --- OUT_OF_RANGE ---------------------------------------------------------------------------------------------------


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


# --- PERMISSION_DENIED ----------------------------------------------------------------------------------------------


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
    async with grpc.aio.insecure_channel(scene.daemon.tcp) as channel:
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


# --- UNAUTHENTICATED ------------------------------------------------------------------------------------------------


async def _over_tcp(scene: Scene, *metadata: tuple[str, str]) -> Refused:
    async with grpc.aio.insecure_channel(scene.daemon.tcp) as channel:
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
