"""What waits for people is listed and answered, and a running turn is given text."""

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from tests.integration.service.conftest import Rig
from tests.integration.service.stubs import Stubs, refused

from steprail.client import Client
from steprail.v1 import decisions_pb2, errors_pb2, events_pb2, rules_pb2, runs_pb2
from steprail_daemon.core.model import SECOND, QuestionItem, QuestionOption, RunState
from steprail_daemon.engine.facade import LOCAL

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("one_loop")]
CONTINUE = decisions_pb2.DECISION_ACTION_CONTINUE
DENY = decisions_pb2.PERMISSION_ANSWER_DENY
ALLOW_SESSION = decisions_pb2.PERMISSION_ANSWER_ALLOW_SESSION
ITEMS = (
    QuestionItem(item_id="which", text="Which?", options=(QuestionOption("a", "A"), QuestionOption("b", "B"))),
    QuestionItem(item_id="key", text="Key?", free_text=True, secret=True),
)


@pytest.fixture
async def run_id(client: Client, session_id: str) -> str:
    return (await client.start_run(session_id, "go")).run_id


async def test_a_permission_is_answered_and_the_run_goes_on(
    rig: Rig, stubs: Stubs, client: Client, run_id: str
) -> None:
    permission = rig.facade.ask_permission(run_id, arguments_json='{"command":"ls"}')
    waiting = await client.get_run(run_id)

    request = runs_pb2.AnswerPermissionRequest(
        run_id=run_id, permission_id=permission.permission_id, answer=ALLOW_SESSION, reason="fine"
    )
    resolved = (await stubs.runs.AnswerPermission(request, timeout=10)).resolved

    assert waiting.state == events_pb2.RUN_STATE_AWAITING_PERMISSION
    assert [item.permission_id for item in waiting.pending_permissions] == [permission.permission_id]
    assert resolved == events_pb2.PermissionResolved(
        permission_id=permission.permission_id,
        answer=ALLOW_SESSION,
        source=decisions_pb2.RESOLUTION_SOURCE_CLIENT,
        identity="local",
        reason="fine",
    )
    after = await client.get_run(run_id)
    assert (after.state, list(after.pending_permissions)) == (events_pb2.RUN_STATE_RUNNING, [])


async def test_something_else_is_done_in_place_of_a_call(rig: Rig, stubs: Stubs, run_id: str) -> None:
    permission = rig.facade.ask_permission(run_id)
    alternative = decisions_pb2.PermissionAlternative(command="ls -l")

    request = runs_pb2.AnswerPermissionRequest(
        run_id=run_id, permission_id=permission.permission_id, alternative=alternative
    )
    resolved = (await stubs.runs.AnswerPermission(request, timeout=10)).resolved

    assert resolved.alternative == alternative


async def test_an_answer_to_a_permission_counts_once_and_a_retry_gives_it_again(
    rig: Rig, stubs: Stubs, run_id: str
) -> None:
    permission = rig.facade.ask_permission(run_id)
    request = runs_pb2.AnswerPermissionRequest(
        run_id=run_id, permission_id=permission.permission_id, answer=DENY, reason="no", request_id="one"
    )

    first = (await stubs.runs.AnswerPermission(request, timeout=10)).resolved
    again = (await stubs.runs.AnswerPermission(request, timeout=10)).resolved
    request.request_id = "two"
    late = await refused(stubs.runs.AnswerPermission(request, timeout=10))

    assert again == first
    assert (late.code, late.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "PERMISSION_NOT_PENDING")


async def test_a_question_is_answered_and_what_is_secret_is_shown_to_nobody(
    rig: Rig, stubs: Stubs, client: Client, run_id: str
) -> None:
    question = rig.facade.ask_question(run_id, *ITEMS)
    (shown,) = (await client.get_run(run_id)).pending_questions
    request = runs_pb2.AnswerQuestionRequest(
        run_id=run_id,
        question_id=question.question_id,
        answers=[
            decisions_pb2.QuestionItemAnswer(item_id="which", option_ids=["b"]),
            decisions_pb2.QuestionItemAnswer(item_id="key", text="very secret"),
        ],
        request_id="one",
    )

    first = (await stubs.runs.AnswerQuestion(request, timeout=10)).resolved
    again = (await stubs.runs.AnswerQuestion(request, timeout=10)).resolved
    request.request_id = ""
    late = await refused(stubs.runs.AnswerQuestion(request, timeout=10))

    assert [(item.item_id, item.secret, len(item.options)) for item in shown.items] == [
        ("which", False, 2),
        ("key", True, 0),
    ]
    assert [(answer.item_id, list(answer.option_ids)) for answer in first.answers] == [("which", ["b"])]
    assert (first.source, first.identity, first.declined) == (decisions_pb2.RESOLUTION_SOURCE_CLIENT, "local", False)
    assert again == first
    assert late.reason == "QUESTION_NOT_PENDING"


async def test_a_question_is_declined(rig: Rig, stubs: Stubs, run_id: str) -> None:
    question = rig.facade.ask_question(run_id)
    request = runs_pb2.AnswerQuestionRequest(run_id=run_id, question_id=question.question_id, decline=True)

    resolved = (await stubs.runs.AnswerQuestion(request, timeout=10)).resolved

    assert (resolved.declined, list(resolved.answers)) == (True, [])


async def test_text_is_given_to_the_running_turn_once(rig: Rig, stubs: Stubs, session_id: str, run_id: str) -> None:
    request = runs_pb2.SteerRunRequest(run_id=run_id, text="Mind the tests.", request_id="one")
    before = rig.facade.get_session(LOCAL, session_id).last_seq

    first = (await stubs.runs.SteerRun(request, timeout=10)).steer_id
    again = (await stubs.runs.SteerRun(request, timeout=10)).steer_id

    assert first == again
    assert first.startswith("str_")
    assert rig.facade.get_session(LOCAL, session_id).last_seq == before + 1
    rig.facade.complete_step(run_id)
    request.request_id = "two"
    assert (await refused(stubs.runs.SteerRun(request, timeout=10))).reason == "STEER_NOT_POSSIBLE"


async def test_a_decision_takes_text_and_a_model_along(rig: Rig, stubs: Stubs, client: Client, run_id: str) -> None:
    step = rig.facade.complete_step(run_id)
    request = runs_pb2.SubmitDecisionRequest(
        run_id=run_id, step_id=step.step_id, action=CONTINUE, guidance="é" * 32_768, model="m"
    )

    decision = (await stubs.runs.SubmitDecision(request, timeout=10)).decision

    assert (decision.action, decision.guidance, decision.model) == (CONTINUE, "é" * 32_768, "m")
    assert (await client.get_step(run_id, 1)).decision == decision


async def test_what_waits_is_listed_over_all_sessions_by_deadline_in_pages(
    rig: Rig, stubs: Stubs, client: Client, session_id: str, run_id: str
) -> None:
    other = await client.create_session("claude", "/work")
    other_run = await client.start_run(other.session_id, "go", labels={"team": "a"})
    later = rig.facade.ask_permission(run_id, wait_ns=200 * SECOND)
    sooner = rig.facade.ask_permission(run_id, wait_ns=100 * SECOND)
    question = rig.facade.ask_question(run_id, wait_ns=150 * SECOND)
    step = rig.facade.complete_step(other_run.run_id)

    items: list[runs_pb2.PendingItem] = []
    request = runs_pb2.ListPendingRequest(page_size=3)
    while True:
        page = await stubs.runs.ListPending(request, timeout=10)
        items += page.items
        if not page.next_page_token:
            break
        request.page_token = page.next_page_token

    assert [item.WhichOneof("item") for item in items] == ["permission", "question", "permission", "decision"]
    assert [item.permission.permission_id for item in items if item.HasField("permission")] == [
        sooner.permission_id,
        later.permission_id,
    ]
    assert items[1].question.question_id == question.question_id
    assert items[3].decision.step_id == step.step_id
    assert items[3].decision.remaining.seconds > 0
    assert [(item.session_id, item.run_id) for item in items[2:]] == [
        (session_id, run_id),
        (other.session_id, other_run.run_id),
    ]
    assert (items[3].agent, dict(items[3].labels)) == ("claude", {"team": "a"})

    of_one = await stubs.runs.ListPending(runs_pb2.ListPendingRequest(session_id=other.session_id), timeout=10)
    assert [item.run_id for item in of_one.items] == [other_run.run_id]
    rig.facade.end_run(other_run.run_id, RunState.COMPLETED)


async def test_pages_of_large_permissions_stay_under_a_mebibyte(rig: Rig, stubs: Stubs, run_id: str) -> None:
    for _ in range(40):
        rig.facade.ask_permission(run_id, arguments_json=f'"{"x" * 60_000}"')

    page = await stubs.runs.ListPending(runs_pb2.ListPendingRequest(), timeout=10)

    assert page.ByteSize() < 1024 * 1024
    assert 0 < len(page.items) < 40
    assert page.next_page_token


async def test_arguments_that_a_run_leaves_out_are_read_whole(
    rig: Rig, stubs: Stubs, client: Client, run_id: str
) -> None:
    large = f'"{"x" * 60_000}"'
    for _ in range(10):
        rig.facade.ask_permission(run_id, arguments_json=large)

    shown = (await client.get_run(run_id)).pending_permissions[0].arguments_json

    assert shown == errors_pb2.Text(full_size=60_002, blob_id=shown.blob_id)
    assert await client.read_blob(shown.blob_id) == large.encode()


async def test_a_run_is_started_with_every_limit_and_how_a_decider_may_leave(
    stubs: Stubs, client: Client, session_id: str
) -> None:
    request = runs_pb2.StartRunRequest(
        session_id=session_id,
        prompt=runs_pb2.Prompt(parts=[runs_pb2.PromptPart(text="go")]),
        decider=decisions_pb2.Decider(
            mode=decisions_pb2.DECIDER_MODE_CLIENT,
            on_disconnect=decisions_pb2.ON_DISCONNECT_STOP,
            disconnect_grace=Duration(seconds=7),
        ),
        limits=rules_pb2.RunLimits(permission_timeout=Duration(seconds=5), queue_timeout=Duration(seconds=6)),
        allow_inexact_stop=True,
    )

    spec = (await stubs.runs.StartRun(request, timeout=10)).run.spec

    assert (spec.decider.on_disconnect, spec.decider.disconnect_grace) == (
        decisions_pb2.ON_DISCONNECT_STOP,
        Duration(seconds=7),
    )
    assert (spec.limits.permission_timeout, spec.limits.queue_timeout) == (Duration(seconds=5), Duration(seconds=6))
    assert spec.allow_inexact_stop
    assert spec.queue == runs_pb2.QUEUE_MODE_REJECT
