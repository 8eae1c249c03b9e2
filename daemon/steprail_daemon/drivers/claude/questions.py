"""The tool `AskUserQuestion`: what 2.1.332 asks a person, and how it wants the answer.

It arrives as a `can_use_tool` whose input holds one to four questions with two to four options each. The answer allows
the call with an input to which `answers` is added: an object from each question's text to the labels chosen, joined by
a comma, or to a text of the person's own, which the CLI always offers. A denial is what it takes for "nobody answered".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from steprail_daemon.core.model import QuestionItem, QuestionItemAnswer, QuestionOption

TOOL: Final = "AskUserQuestion"

#: What the model is told where nobody answers.
UNANSWERED: Final = "Nobody answered. Go on without an answer."


class _Option(msgspec.Struct, gc=False):
    label: str
    description: str = ""


class _Question(msgspec.Struct, rename="camel", gc=False):
    question: str
    header: str = ""
    options: list[_Option] = []
    multi_select: bool = False


class _Input(msgspec.Struct, gc=False):
    questions: list[_Question]


_decode_input = msgspec.json.Decoder(_Input).decode
_decode_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def read_items(arguments: bytes) -> tuple[QuestionItem, ...] | None:
    """Read the questions of an input; None if they cannot be told apart or are of an unknown shape."""
    try:
        questions = _decode_input(arguments).questions
    except msgspec.DecodeError:
        return None
    if not questions or len({question.question for question in questions}) < len(questions):
        return None
    return tuple([_item(number, question) for number, question in enumerate(questions, 1)])


def _item(number: int, question: _Question) -> QuestionItem:
    options = [
        QuestionOption(str(place), option.label, option.description) for place, option in enumerate(question.options, 1)
    ]
    return QuestionItem(
        item_id=str(number),
        text=question.question,
        header=question.header,
        options=tuple(options),
        multiple=question.multi_select,
        free_text=True,
    )


def answered_input(
    arguments: bytes, items: Sequence[QuestionItem], answers: Sequence[QuestionItemAnswer]
) -> Mapping[str, object]:
    """Give the input with the answers in it, everything else as it came."""
    by_id = {answer.item_id: answer for answer in answers}
    given = {item.text: _words(item, by_id[item.item_id]) for item in items if item.item_id in by_id}
    return {**_decode_object(arguments), "answers": given}


def _words(item: QuestionItem, answer: QuestionItemAnswer) -> str:
    labels = [option.label for option in item.options if option.option_id in answer.option_ids]
    return ", ".join([*labels, *([answer.text] if answer.text else [])])
