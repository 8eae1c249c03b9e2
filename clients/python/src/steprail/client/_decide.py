"""What callables give to say how a run goes on, and the requests that it becomes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from steprail.v1 import decisions_pb2, runs_pb2, steps_pb2

T = TypeVar("T")
_MaybeAwaitable: TypeAlias = T | Awaitable[T]

_CONTINUE, _STOP = decisions_pb2.DECISION_ACTION_CONTINUE, decisions_pb2.DECISION_ACTION_STOP
_ONCE, _SESSION = decisions_pb2.PERMISSION_ANSWER_ALLOW_ONCE, decisions_pb2.PERMISSION_ANSWER_ALLOW_SESSION
_DENY = decisions_pb2.PERMISSION_ANSWER_DENY


@dataclass(frozen=True)
class Decision:
    """How a run goes on after a step.

    Going on, `guidance` is text that the model gets with its next step, and `model` the one from then on, both where
    the agent can. `reason` is for people and never shown to the model.
    """

    go_on: bool
    guidance: str = ""
    model: str = ""
    reason: str = ""


@dataclass(frozen=True)
class Allow:
    """Leave for a tool call; with `session` also for later calls of this tool with these arguments."""

    session: bool = False
    reason: str = ""


@dataclass(frozen=True)
class Deny:
    """No leave for a tool call. The model may see the `reason`, where the agent passes it on."""

    reason: str = ""


@dataclass(frozen=True)
class Instead:
    """What is to be done in place of a tool call, where the agent can: another command, or other arguments in JSON."""

    command: str | None = None
    arguments_json: str | None = None
    reason: str = ""


#: True goes on, False stops, a text goes on with that guidance.
DecideAnswer: TypeAlias = bool | str | Decision
#: True or "allow" allows once, "session" for the session, False or "deny" denies.
PermitAnswer: TypeAlias = bool | str | Allow | Deny | Instead
#: One text for a question of one item, or by item id a text or the chosen options; None or False declines.
QuestionAnswer: TypeAlias = str | Mapping[str, str | Sequence[str]] | bool | None

Decide: TypeAlias = Callable[[steps_pb2.Step], _MaybeAwaitable[DecideAnswer]]
Permit: TypeAlias = Callable[[decisions_pb2.Permission], _MaybeAwaitable[PermitAnswer]]
Answer: TypeAlias = Callable[[decisions_pb2.Question], _MaybeAwaitable[QuestionAnswer]]

_WORDS: Mapping[object, Allow | Deny] = {
    True: Allow(),
    "allow": Allow(),
    "session": Allow(session=True),
    False: Deny(),
    "deny": Deny(),
}


def decision(step: steps_pb2.Step, given: object) -> runs_pb2.SubmitDecisionRequest:
    """Give the request of an answer of `decide`.

    Raises:
        TypeError: it is none; None too, which a function without `return` gives.
        ValueError: it is a text that is empty.
    """
    if isinstance(given, bool):
        given = Decision(given)
    elif isinstance(given, str):
        if not given:
            raise ValueError("decide gave an empty text; accepted are True, False, a text of guidance and a Decision")
        given = Decision(go_on=True, guidance=given)
    if not isinstance(given, Decision):
        raise TypeError(_unfit("decide", given, "True (go on), False (stop), a text of guidance and a Decision"))
    return runs_pb2.SubmitDecisionRequest(
        run_id=step.run_id,
        step_id=step.step_id,
        action=_CONTINUE if given.go_on else _STOP,
        guidance=given.guidance,
        model=given.model,
        reason=given.reason,
    )


def no_decision(step: steps_pb2.Step, error: BaseException) -> runs_pb2.SubmitDecisionRequest:
    """Give the request that says that no decision could be made; its text is cut to the 4 KiB that are accepted."""
    text = f"{type(error).__name__}: {error}".encode()[:4096].decode(errors="ignore")
    return runs_pb2.SubmitDecisionRequest(run_id=step.run_id, step_id=step.step_id, error=text)


def permission(asked: decisions_pb2.Permission, given: object) -> runs_pb2.AnswerPermissionRequest:
    """Give the request of an answer of `permissions`.

    Raises:
        TypeError: it is none.
        ValueError: it is an `Instead` that does not say one thing.
    """
    if isinstance(given, bool | str):
        given = _WORDS.get(given, given)
    request = runs_pb2.AnswerPermissionRequest(run_id=asked.run_id, permission_id=asked.permission_id)
    if isinstance(given, Allow):
        request.answer = _SESSION if given.session else _ONCE
    elif isinstance(given, Deny):
        request.answer = _DENY
    elif isinstance(given, Instead):
        if (given.command is None) == (given.arguments_json is None):
            raise ValueError("Instead has both or neither of command and arguments_json; accepted is one of them")
        if given.command is not None:
            request.alternative.command = given.command
        elif given.arguments_json is not None:
            request.alternative.arguments_json = given.arguments_json
    else:
        accepted = 'True, False, "allow", "session", "deny", Allow, Deny and Instead'
        raise TypeError(_unfit("permissions", given, accepted))
    request.reason = given.reason
    return request


def denied(asked: decisions_pb2.Permission, _error: BaseException) -> runs_pb2.AnswerPermissionRequest:
    """Give the request that denies for want of an answer. The model may see its reason, so it tells nothing."""
    return permission(asked, Deny("nobody could answer"))


def question(asked: decisions_pb2.Question, given: object) -> runs_pb2.AnswerQuestionRequest:
    """Give the request of an answer of `questions`. Options are named by their id or by what they show.

    Raises:
        TypeError: it is none.
        ValueError: it names an item that was not asked, or does not answer each.
    """
    request = runs_pb2.AnswerQuestionRequest(run_id=asked.run_id, question_id=asked.question_id)
    if given is None or given is False:
        request.decline = True
        return request
    if isinstance(given, str) and len(asked.items) == 1:
        given = {asked.items[0].item_id: given}
    if not isinstance(given, Mapping):
        accepted = "a text where one item is asked, a mapping of item ids, and None (decline)"
        raise TypeError(_unfit("questions", given, accepted))
    wanted = [item.item_id for item in asked.items]
    if set(given) != set(wanted):
        raise ValueError(f"questions answered the items {sorted(given)}; asked are {sorted(wanted)}")
    request.answers.extend(_item(item, given[item.item_id]) for item in asked.items)
    return request


def declined(asked: decisions_pb2.Question, _error: BaseException) -> runs_pb2.AnswerQuestionRequest:
    """Give the request that declines."""
    return question(asked, None)


def _item(item: decisions_pb2.QuestionItem, given: str | Sequence[str]) -> decisions_pb2.QuestionItemAnswer:
    by_name = {name: option.option_id for option in item.options for name in (option.label, option.option_id)}
    if isinstance(given, str):
        chosen = by_name.get(given)
        if chosen is None:
            return decisions_pb2.QuestionItemAnswer(item_id=item.item_id, text=given)
        return decisions_pb2.QuestionItemAnswer(item_id=item.item_id, option_ids=[chosen])
    unknown = [name for name in given if name not in by_name]
    if unknown:
        raise ValueError(f"item {item.item_id} has no option {unknown[0]!r}; accepted are {sorted(by_name)}")
    return decisions_pb2.QuestionItemAnswer(item_id=item.item_id, option_ids=[by_name[name] for name in given])


def _unfit(name: str, given: Any, accepted: str) -> str:
    return f"{name} gave {given!r:.200}; accepted are {accepted}"
