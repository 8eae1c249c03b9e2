"""What waits for people, as public messages: permissions, questions, and the answers to them."""

from __future__ import annotations

from steprail.v1 import decisions_pb2, errors_pb2, events_pb2, rules_pb2
from steprail_daemon.core.model import (
    Permission,
    PermissionAlternative,
    PermissionAnswer,
    Question,
    QuestionItem,
    QuestionItemAnswer,
)
from steprail_daemon.core.records import PermissionResolved, QuestionResolved
from steprail_daemon.service.bounds import MAX_TEXT_BYTES, NAME, REASON, TITLE, identifier, mended
from steprail_daemon.service.contents import Contents
from steprail_daemon.service.fields import duration, short, timestamp

MAX_ITEMS = 8
MAX_OPTIONS = 32
#: Arguments of a permission up to this size, in bytes, are given in any list, however many there are.
ARGUMENTS_KEPT = 4 * 1024
_DESCRIPTION = 512


def json_text(text: str, contents: Contents) -> errors_pb2.Text:
    """Give JSON as a `Text`; the whole of one that is too large is left in `contents`."""
    sized = contents.json(mended(text))
    at = 0
    while sized[at] & 0x80:
        at += 1
    return errors_pb2.Text.FromString(sized[at + 1 :])


def permission(
    value: Permission, session_id: str, run_id: str, now: int, contents: Contents
) -> decisions_pb2.Permission:
    """Give a `Permission` as it is at `now`."""
    return decisions_pb2.Permission(
        permission_id=value.permission_id,
        session_id=session_id,
        run_id=run_id,
        step_number=value.step_number,
        subagent_id=identifier(value.subagent_id),
        call_id=identifier(value.call_id),
        tool=short(value.tool, NAME),
        tool_kind=rules_pb2.ToolKind.ValueType(value.tool_kind),
        title=short(value.title, TITLE),
        arguments_json=json_text(value.arguments_json, contents) if value.arguments_json else None,
        request_time=timestamp(value.asked_at),
        deadline=timestamp(value.deadline_at),
        remaining=duration(max(0, value.deadline_at - now)),
        default=decisions_pb2.PERMISSION_ANSWER_DENY,
    )


def question(value: Question, session_id: str, run_id: str, now: int) -> decisions_pb2.Question:
    """Give a `Question` as it is at `now`."""
    return decisions_pb2.Question(
        question_id=value.question_id,
        session_id=session_id,
        run_id=run_id,
        step_number=value.step_number,
        subagent_id=identifier(value.subagent_id),
        call_id=identifier(value.call_id),
        items=[_item(item) for item in value.items[:MAX_ITEMS]],
        request_time=timestamp(value.asked_at),
        deadline=timestamp(value.deadline_at),
        remaining=duration(max(0, value.deadline_at - now)),
    )


def _item(value: QuestionItem) -> decisions_pb2.QuestionItem:
    options = [
        decisions_pb2.QuestionOption(
            option_id=short(option.option_id, NAME),
            label=short(option.label, NAME),
            description=short(option.description, _DESCRIPTION),
        )
        for option in value.options[:MAX_OPTIONS]
    ]
    return decisions_pb2.QuestionItem(
        item_id=identifier(value.item_id),
        header=short(value.header, NAME),
        text=short(value.text, REASON),
        options=options,
        multiple=value.multiple,
        free_text=value.free_text,
        secret=value.secret,
    )


def item_answer(value: QuestionItemAnswer) -> decisions_pb2.QuestionItemAnswer:
    """Give the answer to one item."""
    return decisions_pb2.QuestionItemAnswer(
        item_id=identifier(value.item_id),
        option_ids=[short(option, NAME) for option in value.option_ids],
        text=short(value.text, MAX_TEXT_BYTES),
    )


def answer(value: PermissionAnswer | None) -> decisions_pb2.PermissionAnswer.ValueType:
    """Give an answer to a permission; UNSPECIFIED if nobody gave one."""
    return decisions_pb2.PermissionAnswer.ValueType(value or 0)


def alternative(value: PermissionAlternative) -> decisions_pb2.PermissionAlternative:
    """Give what the agent does instead."""
    if value.command is not None:
        return decisions_pb2.PermissionAlternative(command=short(value.command, MAX_TEXT_BYTES))
    return decisions_pb2.PermissionAlternative(arguments_json=short(value.arguments_json or "", MAX_TEXT_BYTES))


def resolved_permission(fact: PermissionResolved) -> events_pb2.PermissionResolved:
    """Tell how a permission was resolved."""
    return events_pb2.PermissionResolved(
        permission_id=identifier(fact.permission_id),
        answer=answer(fact.answer),
        alternative=None if fact.alternative is None else alternative(fact.alternative),
        source=decisions_pb2.ResolutionSource.ValueType(fact.source),
        identity=short(fact.identity, NAME),
        reason=short(fact.reason, REASON),
    )


def resolved_question(fact: QuestionResolved) -> events_pb2.QuestionResolved:
    """Tell how a question was resolved."""
    return events_pb2.QuestionResolved(
        question_id=identifier(fact.question_id),
        answers=[item_answer(item) for item in fact.answers or ()],
        declined=fact.answers is None,
        source=decisions_pb2.ResolutionSource.ValueType(fact.source),
        identity=short(fact.identity, NAME),
    )
