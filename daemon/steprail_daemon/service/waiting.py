"""What waits for somebody, as lists: within a run, and over all that a caller sees."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from google.protobuf.message import Message

from steprail.v1 import decisions_pb2, runs_pb2
from steprail_daemon.core.model import PendingDecision, Permission, Question
from steprail_daemon.core.views import RunView
from steprail_daemon.engine.facade import PendingView
from steprail_daemon.service import asks
from steprail_daemon.service.asks import ARGUMENTS_KEPT
from steprail_daemon.service.bounds import MAX_TEXT_BYTES
from steprail_daemon.service.contents import Contents
from steprail_daemon.service.fields import duration, timestamp

#: Arguments of a run's permissions have this size together, unless each of them is short.
_ARGUMENTS_BYTES: Final = 256 * 1024
#: What a run lists of permissions, and of questions, so that it stays well under 1 MiB. ListPending has the rest.
_LIST_BYTES: Final = 320 * 1024

T = TypeVar("T")
M = TypeVar("M", bound=Message)


def decision(pending: PendingDecision, now: int) -> decisions_pb2.PendingDecision:
    """Give a `PendingDecision` as it is at `now`."""
    return decisions_pb2.PendingDecision(
        step_id=pending.step_id,
        deadline=timestamp(pending.deadline_at),
        remaining=duration(max(0, pending.deadline_at - now)),
        default=decisions_pb2.OnTimeout.ValueType(pending.default),
    )


def of_run(view: RunView, now: int) -> tuple[list[decisions_pb2.Permission], list[decisions_pb2.Question]]:
    """Give what waits in a run, oldest first. Where permissions are many, their long arguments are left out."""
    total = sum(len(item.arguments_json.encode("utf-8", "surrogatepass")) for item in view.pending_permissions)
    contents = Contents(MAX_TEXT_BYTES if total <= _ARGUMENTS_BYTES else ARGUMENTS_KEPT)
    names = view.session_id, view.run_id
    permissions = _fitting(view.pending_permissions, lambda item: asks.permission(item, *names, now, contents))
    questions = _fitting(view.pending_questions, lambda item: asks.question(item, *names, now))
    return permissions, questions


def _fitting(items: Iterable[T], encode: Callable[[T], M]) -> list[M]:
    """Encode items as long as they fit; the first one always does."""
    found: list[M] = []
    total = 0
    for item in items:
        message = encode(item)
        total += message.ByteSize()
        if found and total > _LIST_BYTES:
            break
        found.append(message)
    return found


def pending_item(view: PendingView, now: int) -> runs_pb2.PendingItem:
    """Give something that waits, as it is at `now`."""
    run, item = view.run, view.item
    message = runs_pb2.PendingItem(
        session_id=view.session.session_id, run_id=run.run_id, agent=view.session.agent, labels=run.spec.labels
    )
    if isinstance(item, PendingDecision):
        message.decision.CopyFrom(decision(item, now))
    elif isinstance(item, Permission):
        message.permission.CopyFrom(asks.permission(item, run.session_id, run.run_id, now, Contents()))
    else:
        message.question.CopyFrom(asks.question(item, run.session_id, run.run_id, now))
    return message


def pending_key(view: PendingView) -> str:
    """Give what orders the things that wait: by deadline, the nearest first."""
    return f"{view.item.deadline_at:020} {_id_of(view.item)}"


def _id_of(item: PendingDecision | Permission | Question) -> str:
    if isinstance(item, PendingDecision):
        return item.step_id
    return item.permission_id if isinstance(item, Permission) else item.question_id
