"""Messages as plain objects, for programs that read the API without touching protobuf.

Objects are proto JSON with the proto field names: a field with its default is absent, 64-bit integers are text, enums
are names, times are RFC 3339, spans are seconds with an `s`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from google.protobuf import json_format
from google.protobuf.message import Message

from steprail.v1 import decisions_pb2, rules_pb2, sessions_pb2


def to_plain(message: Message) -> dict[str, Any]:
    """Give a message as an object that `json.dumps` takes."""
    plain: dict[str, Any] = json_format.MessageToDict(message, preserving_proto_field_name=True)
    return plain


def permission_mode(name: str) -> sessions_pb2.PermissionMode.ValueType:
    """Give a mode by its name in the configuration: ask, accept_edits, read_only or bypass; empty for the agent's own.

    Raises:
        ValueError: there is no such mode.
    """
    return sessions_pb2.PermissionMode.Value(f"PERMISSION_MODE_{name.upper() or 'UNSPECIFIED'}")


def on_unknown(name: str) -> rules_pb2.OnUnknown.ValueType:
    """Give what becomes of a rule whose figures are not known, by its name: refuse, ignore or stop.

    Raises:
        ValueError: there is no such name.
    """
    return rules_pb2.OnUnknown.Value(f"ON_UNKNOWN_{name.upper()}")


def action(*, go_on: bool) -> decisions_pb2.DecisionAction.ValueType:
    """Give the action that goes on, or the one that stops."""
    return decisions_pb2.DECISION_ACTION_CONTINUE if go_on else decisions_pb2.DECISION_ACTION_STOP


def decider(*, asks: bool) -> decisions_pb2.Decider:
    """Give a decider that asks a client at each boundary, with the defaults; or one that asks nobody."""
    mode = decisions_pb2.DECIDER_MODE_CLIENT if asks else decisions_pb2.DECIDER_MODE_NO_DECIDER
    return decisions_pb2.Decider(mode=mode)


def permission_answer(name: str) -> decisions_pb2.PermissionAnswer.ValueType:
    """Give an answer to a permission by its name: allow_once, allow_session or deny.

    Raises:
        ValueError: there is no such answer.
    """
    return decisions_pb2.PermissionAnswer.Value(f"PERMISSION_ANSWER_{name.upper()}")


def question_answers(answers: Iterable[Mapping[str, Any]]) -> list[decisions_pb2.QuestionItemAnswer]:
    """Give the answers to the items of a question, from objects with `item_id`, `option_ids` and `text`.

    Raises:
        google.protobuf.json_format.ParseError: one has another field, or a value of another type.
    """
    return [json_format.ParseDict(dict(answer), decisions_pb2.QuestionItemAnswer()) for answer in answers]
