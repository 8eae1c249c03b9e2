"""Whether an answer fits what was asked. Each error names the field, what is wrong, and what is accepted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from steprail_daemon.core.errors import Invalid, WrongState
from steprail_daemon.core.events import PermissionAnswered
from steprail_daemon.core.model import (
    Capabilities,
    PermissionAnswer,
    Question,
    QuestionItem,
    QuestionItemAnswer,
)


def check_alternative(event: PermissionAnswered, capabilities: Capabilities) -> None:
    """See that an alternative to a call can be given.

    Raises:
        WrongState: CAPABILITY_MISSING; the agent cannot.
        Invalid: FIELD_INVALID.
    """
    alternative = event.alternative
    if not capabilities.permission_alternatives:
        raise WrongState(
            "CAPABILITY_MISSING",
            "this agent takes no alternative to the call that it asked for",
            capability="permission_alternatives",
        )
    if event.answer is not PermissionAnswer.ALLOW_ONCE:
        message = f"alternative goes with ALLOW_ONCE only, not with {event.answer.name}"
        raise Invalid("FIELD_INVALID", message, field="alternative")
    if alternative is None or (alternative.command is None) == (alternative.arguments_json is None):
        message = "alternative must have exactly one of command and arguments_json"
        raise Invalid("FIELD_INVALID", message, field="alternative")


def check_answers(question: Question, answers: Sequence[QuestionItemAnswer]) -> None:
    """See that each item of a question has one answer that fits it.

    Raises:
        Invalid: FIELD_INVALID.
    """
    items = {item.item_id: item for item in question.items}
    counts = Counter(answer.item_id for answer in answers)
    wrong = [item_id for item_id in counts if item_id not in items or counts[item_id] > 1]
    missing = [item_id for item_id in items if item_id not in counts]
    if wrong or missing:
        message = f"answers must have exactly one for each of the items {sorted(items)}; they are for {sorted(counts)}"
        raise Invalid("FIELD_INVALID", message, field="answers")
    for index, answer in enumerate(answers):
        problem = _problem(items[answer.item_id], answer)
        if problem:
            field = f"answers[{index}]"
            raise Invalid("FIELD_INVALID", f"{field}{problem}", field=field)


def _problem(item: QuestionItem, answer: QuestionItemAnswer) -> str:
    options = [option.option_id for option in item.options]
    unknown = [option_id for option_id in answer.option_ids if option_id not in options]
    if unknown:
        return f".option_ids has {unknown[0]!r}; accepted are {options}"
    if len(answer.option_ids) > 1 and not item.multiple:
        return f".option_ids has {len(answer.option_ids)} options; accepted is one"
    if answer.text and options and not item.free_text:
        return f".text is set; accepted are the options {options} only"
    if not answer.text and not answer.option_ids:
        return " is empty; accepted are an option or a text, as the item says"
    return ""


def without_secrets(question: Question, answers: Sequence[QuestionItemAnswer]) -> tuple[QuestionItemAnswer, ...]:
    """Give what of the answers may be recorded."""
    secret = {item.item_id for item in question.items if item.secret}
    return tuple([answer for answer in answers if answer.item_id not in secret])
