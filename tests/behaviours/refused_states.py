"""Requests that are refused for how things stand: cases of `test_refusals.py`."""

from __future__ import annotations

from functools import partial

from tests.behaviours import refused_calls
from tests.behaviours.refusal_status import Refused, refused, rejection_of
from tests.behaviours.refused_calls import Code
from tests.behaviours.scene import Scene, text_prompt
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
)

#: What the daemon is configured with.
QUEUE_LENGTH, MAX_SESSIONS = 1, 6

CASES: dict[str, refused_calls.Case] = {}
case = partial(refused_calls.case, table=CASES)


# --- FAILED_PRECONDITION ---------------------------------------------------------------------------------------------


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
    session_id = await scene.session_without_conversation()
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


# --- RESOURCE_EXHAUSTED ----------------------------------------------------------------------------------------------


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
