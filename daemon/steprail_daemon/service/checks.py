"""Checks of single fields of requests. Each refusal names the field, what was wrong, and what is accepted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Final, TypeVar

from google.protobuf.duration_pb2 import Duration

from steprail_daemon.core.errors import Invalid
from steprail_daemon.service.bounds import ID, NAME, REASON

MAX_LABELS: Final = 64
#: Names in a filter.
MAX_AGENTS: Final = 64
#: The longest span that is accepted anywhere: about 292 years, what 64 bits hold in nanoseconds.
_LONGEST_NS: Final = 2**63 - 1
#: Bytes of UTF-8 that a character has at most.
_LONGEST_CHARACTER: Final = 4

E = TypeVar("E", bound=IntEnum)


def invalid(field: str, problem: str) -> Invalid:
    """Give the error for a field with a bad value."""
    return Invalid("FIELD_INVALID", f"{field} {problem}", field=field)


def text(field: str, value: str, limit: int) -> str:
    """Give a text of at most `limit` bytes.

    Raises:
        Invalid: FIELD_INVALID.
    """
    if len(value) * _LONGEST_CHARACTER <= limit:
        return value
    size = len(value.encode())
    if size > limit:
        raise invalid(field, f"has {size} bytes; at most {limit} are accepted")
    return value


def printable(field: str, value: str, limit: int) -> str:
    """Give a text of at most `limit` bytes without control characters, such as one that goes into a command line.

    Raises:
        Invalid: FIELD_INVALID.
    """
    if any(character < " " or character == "\x7f" for character in value):
        raise invalid(field, "has a control character; none are accepted")
    return text(field, value, limit)


def identifier(field: str, value: str) -> str:
    """Give an id, which must be there.

    Raises:
        Invalid: FIELD_INVALID.
    """
    if not value:
        raise invalid(field, "is required")
    return text(field, value, ID)


def request_id(value: str) -> str:
    """Give the key of a request, which may be empty."""
    return text("request_id", value, ID)


def reason(value: str) -> str:
    """Give a reason for people, which may be empty."""
    return text("reason", value, REASON)


def choice(field: str, value: int, members: type[E], default: E | None) -> E:
    """Give a member of an enumeration; `default` for UNSPECIFIED, which is refused without one.

    Raises:
        Invalid: FIELD_INVALID.
    """
    if value:
        try:
            return members(value)
        except ValueError:
            pass
    elif default is not None:
        return default
    accepted = ", ".join(member.name for member in members if member.value)
    raise invalid(field, f"is {value or 'UNSPECIFIED'}; accepted are {accepted}")


def span(field: str, value: Duration) -> int:
    """Give a span in nanoseconds.

    Raises:
        Invalid: FIELD_INVALID for one that is malformed, below zero, or out of range.
    """
    nanoseconds = value.seconds * 1_000_000_000 + value.nanos
    if not -1_000_000_000 < value.nanos < 1_000_000_000 or not 0 <= nanoseconds <= _LONGEST_NS:
        raise invalid(
            field, f"is {value.seconds} s and {value.nanos} ns; accepted are spans from 0 to {_LONGEST_NS} ns"
        )
    return nanoseconds


def labels(field: str, value: Mapping[str, str]) -> dict[str, str]:
    """Give labels.

    Raises:
        Invalid: FIELD_INVALID.
    """
    if len(value) > MAX_LABELS:
        raise invalid(field, f"has {len(value)} entries; at most {MAX_LABELS} are accepted")
    for key, held in value.items():
        if not key:
            raise invalid(field, "has an empty key; keys have 1 to 64 bytes")
        text(f"{field}[{key[:ID]!r}]", key, ID)
        text(f"{field}[{key!r}]", held, NAME)
    return dict(value)


def agent_names(names: Sequence[str]) -> frozenset[str]:
    """Give a filter by agents.

    Raises:
        Invalid: FIELD_INVALID.
    """
    if len(names) > MAX_AGENTS:
        raise invalid("agents", f"has {len(names)} names; at most {MAX_AGENTS} are accepted")
    return frozenset(text(f"agents[{index}]", name, NAME) for index, name in enumerate(names))
