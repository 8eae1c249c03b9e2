"""Answers to permissions and questions are read or refused field by field."""

from typing import Any

import pytest

from steprail.v1 import decisions_pb2, runs_pb2
from steprail_daemon.core.errors import Invalid
from steprail_daemon.core.model import PermissionAlternative, PermissionAnswer, QuestionItemAnswer
from steprail_daemon.service import decode_asks
from steprail_daemon.service.decode_asks import PermissionReply

DENY = decisions_pb2.PERMISSION_ANSWER_DENY


def permission(**fields: Any) -> PermissionReply:
    return decode_asks.permission_reply(runs_pb2.AnswerPermissionRequest(**{"permission_id": "p", **fields}))


def instead(**fields: Any) -> PermissionReply:
    return permission(alternative=decisions_pb2.PermissionAlternative(**fields))


def question(*answers: decisions_pb2.QuestionItemAnswer, **fields: Any) -> Any:
    request = runs_pb2.AnswerQuestionRequest(**{"question_id": "q", "answers": answers, **fields})
    return decode_asks.question_reply(request)


def item(**fields: Any) -> decisions_pb2.QuestionItemAnswer:
    return decisions_pb2.QuestionItemAnswer(**{"item_id": "i", **fields})


def steer(text: str) -> str:
    return decode_asks.steer_text(runs_pb2.SteerRunRequest(text=text))


def test_a_permission_is_answered_or_something_else_is_done_instead() -> None:
    assert permission(answer=DENY, reason="r") == PermissionReply("p", PermissionAnswer.DENY, None, "r")
    assert instead(command="ls -l") == PermissionReply(
        "p", PermissionAnswer.ALLOW_ONCE, PermissionAlternative(command="ls -l"), ""
    )
    assert instead(arguments_json='{"path": "a"}') == PermissionReply(
        "p", PermissionAnswer.ALLOW_ONCE, PermissionAlternative(arguments_json='{"path": "a"}'), ""
    )


def test_a_question_is_answered_item_by_item_or_declined() -> None:
    assert question(item(option_ids=["a", "b"]), item(item_id="j", text="mine")) == (
        "q",
        (QuestionItemAnswer("i", ("a", "b")), QuestionItemAnswer("j", (), "mine")),
    )
    assert question(decline=True) == ("q", None)


def test_a_text_for_the_running_turn_passes_as_it_is() -> None:
    assert steer("  mind\nthe gap ") == "  mind\nthe gap "
    assert len(steer("x" * 65536)) == 65536


LONG = "x" * 65537
BAD = [
    (lambda: permission(permission_id="", answer=DENY), "permission_id"),
    (lambda: permission(permission_id="x" * 65, answer=DENY), "permission_id"),
    (permission, "reply"),
    (lambda: permission(answer=0), "answer"),
    (lambda: permission(answer=9), "answer"),
    (lambda: permission(answer=DENY, reason="x" * 4097), "reason"),
    (instead, "alternative"),
    (lambda: instead(command=" "), "alternative.command"),
    (lambda: instead(command=LONG), "alternative.command"),
    (lambda: instead(arguments_json=LONG), "alternative.arguments_json"),
    (lambda: instead(arguments_json="{"), "alternative.arguments_json"),
    (lambda: instead(arguments_json="[]"), "alternative.arguments_json"),
    (lambda: question(item(), question_id=""), "question_id"),
    (question, "answers"),
    (lambda: question(item(), decline=True), "decline"),
    (lambda: question(*[item(item_id=str(n)) for n in range(9)]), "answers"),
    (lambda: question(item(), item()), "answers"),
    (lambda: question(item(item_id="")), "answers[0].item_id"),
    (lambda: question(item(option_ids=["x"] * 33)), "answers[0].option_ids"),
    (lambda: question(item(option_ids=["x" * 257])), "answers[0].option_ids[0]"),
    (lambda: question(item(text=LONG)), "answers[0].text"),
    (lambda: steer(" \n"), "text"),
    (lambda: steer(LONG), "text"),
]


@pytest.mark.parametrize(("ask", "field"), BAD, ids=[f"{number}-{field}" for number, (_, field) in enumerate(BAD)])
def test_a_bad_field_is_refused_by_its_path_with_what_is_accepted(ask: Any, field: str) -> None:
    with pytest.raises(Invalid) as caught:
        ask()

    assert (caught.value.reason, caught.value.field) == ("FIELD_INVALID", field)
    assert caught.value.message.startswith(f"{field} ")
