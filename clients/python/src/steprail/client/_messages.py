"""Requests made of plain values, and what is read of answers."""

from __future__ import annotations

from collections.abc import Iterable

from google.protobuf.duration_pb2 import Duration

from steprail.v1 import decisions_pb2, rules_pb2, runs_pb2

#: A prompt is a text, or the whole message with images and files.
Prompt = str | runs_pb2.Prompt


def prompt(given: Prompt) -> runs_pb2.Prompt:
    """Give the message of a prompt."""
    return given if isinstance(given, runs_pb2.Prompt) else runs_pb2.Prompt(parts=[runs_pb2.PromptPart(text=given)])


def span(seconds: float | None) -> Duration | None:
    """Give a span, None for None."""
    if seconds is None:
        return None
    made = Duration()
    made.FromNanoseconds(round(seconds * 1e9))
    return made


def limits(
    *,
    max_steps: int | None = None,
    hard_timeout: float | None = None,
    permission_timeout: float | None = None,
    queue_timeout: float | None = None,
) -> rules_pb2.RunLimits | None:
    """Give the ceilings of a run, None if there are none. Times are in seconds; what is None the configuration says."""
    if max_steps is hard_timeout is permission_timeout is queue_timeout is None:
        return None
    return rules_pb2.RunLimits(
        max_steps=max_steps,
        hard_timeout=span(hard_timeout),
        permission_timeout=span(permission_timeout),
        queue_timeout=span(queue_timeout),
    )


def permission_answer(
    permission_id: str,
    answer: decisions_pb2.PermissionAnswer.ValueType | None,
    *,
    command: str | None,
    arguments_json: str | None,
    reason: str,
) -> runs_pb2.AnswerPermissionRequest:
    """Give the answer to a permission.

    Raises:
        ValueError: not exactly one of answer, command and arguments_json is given.
    """
    given = [name for name, value in _replies(answer, command, arguments_json) if value is not None]
    if len(given) != 1:
        found = " and ".join(given) or "nothing"
        raise ValueError(f"{found} given; accepted is exactly one of answer, command and arguments_json")
    request = runs_pb2.AnswerPermissionRequest(permission_id=permission_id, reason=reason)
    if answer is not None:
        request.answer = answer
    elif command is not None:
        request.alternative.command = command
    elif arguments_json is not None:
        request.alternative.arguments_json = arguments_json
    return request


def _replies(answer: object, command: object, arguments_json: object) -> Iterable[tuple[str, object]]:
    return ("answer", answer), ("command", command), ("arguments_json", arguments_json)


def question_answer(
    question_id: str, answers: Iterable[decisions_pb2.QuestionItemAnswer] | None
) -> runs_pb2.AnswerQuestionRequest:
    """Give the answer to a question; without answers it is declined."""
    items = list(answers or ())
    return runs_pb2.AnswerQuestionRequest(question_id=question_id, answers=items, decline=not items)


def asked_id(message: runs_pb2.ControlRunResponse) -> str:
    """Give the id of the step, the permission or the question that a message asks about."""
    body = message.WhichOneof("body")
    if body == "decision_requested":
        return message.decision_requested.step.step_id
    if body == "permission_requested":
        return message.permission_requested.permission.permission_id
    return message.question_requested.question.question_id


def answered_id(message: runs_pb2.ControlRunRequest) -> str:
    """Give the id of the step, the permission or the question that a message answers; empty for other messages."""
    return message.decision.step_id or message.permission_answer.permission_id or message.question_answer.question_id
