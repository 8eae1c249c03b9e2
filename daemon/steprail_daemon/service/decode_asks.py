"""Answers to permissions and questions, and texts for the running turn, as what the facade takes; see `decode`."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec

from steprail.v1 import decisions_pb2, runs_pb2
from steprail_daemon.core.model import PermissionAlternative, PermissionAnswer, QuestionItemAnswer
from steprail_daemon.service import checks
from steprail_daemon.service.asks import MAX_ITEMS, MAX_OPTIONS
from steprail_daemon.service.bounds import MAX_TEXT_BYTES, NAME

_REPLY: Final = "is required: answer or alternative"


class PermissionReply(NamedTuple):
    """An answer to a permission. With `alternative` the call is allowed, changed."""

    permission_id: str
    answer: PermissionAnswer
    alternative: PermissionAlternative | None
    reason: str


def permission_reply(request: runs_pb2.AnswerPermissionRequest) -> PermissionReply:
    """Read an answer to a permission.

    Raises:
        Invalid: FIELD_INVALID.
    """
    permission_id = checks.identifier("permission_id", request.permission_id)
    reason = checks.reason(request.reason)
    reply = request.WhichOneof("reply")
    if reply is None:
        raise checks.invalid("reply", _REPLY)
    if reply == "alternative":
        return PermissionReply(permission_id, PermissionAnswer.ALLOW_ONCE, _alternative(request.alternative), reason)
    answer = checks.choice("answer", request.answer, PermissionAnswer, None)
    return PermissionReply(permission_id, answer, None, reason)


def _alternative(message: decisions_pb2.PermissionAlternative) -> PermissionAlternative:
    replacement = message.WhichOneof("replacement")
    if replacement is None:
        raise checks.invalid("alternative", "is empty; accepted are command and arguments_json")
    path = f"alternative.{replacement}"
    value = checks.text(path, getattr(message, replacement), MAX_TEXT_BYTES)
    if replacement == "command":
        if not value.strip():
            raise checks.invalid(path, "is empty; deny the call instead")
        return PermissionAlternative(command=value)
    try:
        msgspec.json.decode(value, type=dict[str, Any])
    except (msgspec.DecodeError, ValueError):
        raise checks.invalid(path, "is no JSON object, which arguments of a tool are") from None
    return PermissionAlternative(arguments_json=value)


def question_reply(request: runs_pb2.AnswerQuestionRequest) -> tuple[str, tuple[QuestionItemAnswer, ...] | None]:
    """Read an answer to a question: its id, and an answer to each item or None where it is declined.

    Raises:
        Invalid: FIELD_INVALID.
    """
    question_id = checks.identifier("question_id", request.question_id)
    found = request.answers
    if request.decline:
        if found:
            raise checks.invalid("decline", "is set beside answers; one of both is accepted")
        return question_id, None
    if not found:
        raise checks.invalid("answers", "is required, or decline")
    if len(found) > MAX_ITEMS:
        raise checks.invalid("answers", f"has {len(found)} entries; at most {MAX_ITEMS} are accepted")
    answers = tuple(_item_answer(f"answers[{index}]", item) for index, item in enumerate(found))
    if len({answer.item_id for answer in answers}) < len(answers):
        raise checks.invalid("answers", "answers an item twice; one answer for each item is accepted")
    return question_id, answers


def _item_answer(path: str, message: decisions_pb2.QuestionItemAnswer) -> QuestionItemAnswer:
    options = message.option_ids
    if len(options) > MAX_OPTIONS:
        raise checks.invalid(f"{path}.option_ids", f"has {len(options)} entries; at most {MAX_OPTIONS} are accepted")
    return QuestionItemAnswer(
        checks.identifier(f"{path}.item_id", message.item_id),
        tuple(checks.text(f"{path}.option_ids[{index}]", option, NAME) for index, option in enumerate(options)),
        checks.text(f"{path}.text", message.text, MAX_TEXT_BYTES),
    )


def steer_text(request: runs_pb2.SteerRunRequest) -> str:
    """Read a text for the running turn.

    Raises:
        Invalid: FIELD_INVALID.
    """
    if not request.text.strip():
        raise checks.invalid("text", "is empty; accepted are 1 to 65536 bytes")
    return checks.text("text", request.text, MAX_TEXT_BYTES)
