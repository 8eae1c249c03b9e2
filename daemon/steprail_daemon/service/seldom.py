"""The bodies of events that come seldom, built with protobuf's own library: what waits for people, steering, notices.

To add such an event: one function here and one line in `BODIES`. What comes often is written by hand in `translate`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, Protocol

from google.protobuf.message import Message

from steprail.v1 import events_pb2
from steprail_daemon.core import events, records
from steprail_daemon.service import asks
from steprail_daemon.service.bounds import MAX_TEXT_BYTES, NAME, REASON, TITLE, identifier, mended
from steprail_daemon.service.contents import Contents
from steprail_daemon.service.fields import duration, short

#: Bytes of UTF-8 that a character has at most.
_LONGEST_CHARACTER: Final = 4


class Place(Protocol):
    """Where an event belongs; what an encoder of events knows."""

    contents: Contents

    @property
    def names(self) -> tuple[str, str]:
        """Ids of the session and of the run, empty for none."""


def _tool_updated(event: events.ToolUpdated, _: Place) -> Message:
    return events_pb2.ToolUpdate(
        call_id=identifier(event.call_id), title=short(event.title, TITLE), progress=short(event.progress, REASON)
    )


def _output_produced(event: events.OutputProduced, _: Place) -> Message:
    return events_pb2.OutputPart(
        call_id=identifier(event.call_id), offset=event.offset, text=short(event.text, MAX_TEXT_BYTES)
    )


def _file_modified(event: events.FileModified, _: Place) -> Message:
    return events_pb2.FileModified(
        path=short(event.path, REASON),
        change=events_pb2.FileChange.ValueType(event.change),
        call_id=identifier(event.call_id),
    )


def _plan_proposed(event: events.PlanProposed, _: Place) -> Message:
    return events_pb2.PlanProposed(
        text=short(event.text, MAX_TEXT_BYTES), permission_id=identifier(event.permission_id)
    )


def _rate_limited(event: events.RateLimited, _: Place) -> Message:
    return events_pb2.RateLimited(
        provider=short(event.provider, NAME),
        model=short(event.model, NAME),
        http_status=event.http_status,
        retry_after=None if event.retry_after_ns is None else duration(event.retry_after_ns),
        kind=events_pb2.RateLimitKind.ValueType(event.kind),
    )


def _context_window(event: events.ContextWindowChanged, _: Place) -> Message:
    return events_pb2.ContextWindow(
        kind=events_pb2.ContextWindowKind.ValueType(event.kind),
        used_tokens=event.used_tokens,
        limit_tokens=event.limit_tokens,
    )


def _permission_requested(fact: records.PermissionRequested, place: Place) -> Message:
    permission = fact.permission
    session_id, run_id = place.names
    if len(permission.arguments_json) > asks.ARGUMENTS_KEPT // _LONGEST_CHARACTER:
        place.contents.keep_json(mended(permission.arguments_json))
    return events_pb2.PermissionRequested(
        permission=asks.permission(permission, session_id, run_id, permission.asked_at, place.contents)
    )


def _permission_resolved(fact: records.PermissionResolved, _: Place) -> Message:
    return asks.resolved_permission(fact)


def _question_requested(fact: records.QuestionRequested, place: Place) -> Message:
    question = fact.question
    session_id, run_id = place.names
    return events_pb2.QuestionRequested(question=asks.question(question, session_id, run_id, question.asked_at))


def _question_resolved(fact: records.QuestionResolved, _: Place) -> Message:
    return asks.resolved_question(fact)


def _steer_accepted(fact: records.SteerAccepted, _: Place) -> Message:
    return events_pb2.SteerAccepted(
        steer_id=fact.steer_id, text=short(fact.text, MAX_TEXT_BYTES), identity=short(fact.identity, NAME)
    )


def _steer_delivered(fact: records.SteerDelivered, _: Place) -> Message:
    return events_pb2.SteerDelivered(steer_id=fact.steer_id)


def _steer_dropped(fact: records.SteerDropped, _: Place) -> Message:
    return events_pb2.SteerDropped(steer_id=fact.steer_id, reason=short(fact.reason, REASON))


# Each function takes the class it stands beside, which a mapping cannot tell the type checker.
BODIES: Final[Mapping[type, Callable[[Any, Place], Message]]] = MappingProxyType(
    {
        events.OutputProduced: _output_produced,
        events.ToolUpdated: _tool_updated,
        records.PermissionRequested: _permission_requested,
        records.PermissionResolved: _permission_resolved,
        records.QuestionRequested: _question_requested,
        records.QuestionResolved: _question_resolved,
        events.PlanProposed: _plan_proposed,
        records.SteerAccepted: _steer_accepted,
        records.SteerDelivered: _steer_delivered,
        records.SteerDropped: _steer_dropped,
        events.FileModified: _file_modified,
        events.RateLimited: _rate_limited,
        events.ContextWindowChanged: _context_window,
    }
)
