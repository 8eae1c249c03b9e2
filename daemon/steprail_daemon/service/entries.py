"""Finds parts of recorded events in their wire form, where parsing the whole of an event would cost too much.

Only what `translate` wrote is read here. A field is given as its **key**: its number times eight, plus two.
"""

from __future__ import annotations

from typing import Final

from steprail.v1 import events_pb2
from steprail_daemon.core.model import PendingDecision
from steprail_daemon.service.wire import VARINTS, delimited, sized, tag, timespan


def key(field: int) -> int:
    """Give the key of a field that is a message or a text."""
    return field << 3 | 2


_STEP_END: Final = key(events_pb2.Event.STEP_END_FIELD_NUMBER)
_DECISION_RECORDED: Final = key(events_pb2.Event.DECISION_RECORDED_FIELD_NUMBER)
_EVENT: Final = key(1)
_STEP: Final = key(1)
_STEP_ID: Final = key(1)
_VERDICTS: Final = key(17)
_VERDICTS_TAG: Final = tag(17)

_join: Final = b"".join


def find(data: bytes, wanted: int, start: int = 0, end: int | None = None) -> tuple[int, int]:
    """Give where the inside of the first field with this key begins and ends; an empty range at the end if none is.

    Raises:
        ValueError: this is no message.
        IndexError: it ends within a field.
    """
    at, end = start, len(data) if end is None else end
    while at < end:
        found, at = _varint(data, at)
        kind = found & 7
        if kind == 2:
            size, at = _varint(data, at)
            if found == wanted:
                return at, at + size
            at += size
        elif kind == 0:
            _, at = _varint(data, at)
        elif kind in _FIXED:
            at += _FIXED[kind]
        else:
            raise ValueError(f"wire type {kind} is none that is written here")
    return end, end


#: Sizes of the wire types that have no length.
_FIXED: Final = {1: 8, 5: 4}


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = data[at]
    at += 1
    if number < 0x80:
        return number, at
    number &= 0x7F
    shift = 7
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7


def step_of_entry(wire: bytes, start: int, end: int) -> bytes:
    """Give the `Step` of an entry of a batch that is a `step_end`."""
    return _cut(wire, _STEP, *find(wire, _STEP_END, *find(wire, _EVENT, start, end)))


def step_of_event(event: bytes) -> bytes:
    """Give the `Step` of an `Event` that is a `step_end`."""
    return _cut(event, _STEP, *find(event, _STEP_END))


def asks_about(wire: bytes, start: int, end: int, step_id: str) -> bool:
    """Whether an entry of a batch, a `decision_requested`, is about this step."""
    # With its length before it, no other id of the entry can be taken for it.
    return wire.find(b"\x0a" + sized(step_id.encode()), start, end) >= 0


def decision_of_entry(wire: bytes, start: int, end: int) -> bytes:
    """Give the `DecisionRecorded` of an entry of a batch."""
    return _cut(wire, _DECISION_RECORDED, *find(wire, _EVENT, start, end))


def id_of_decision(recorded: bytes) -> bytes:
    """Give the id of the step that a `DecisionRecorded` is about."""
    return _cut(recorded, _STEP_ID)


def decision_request(step: bytes, pending: PendingDecision, now: int) -> bytes:
    """Encode a `DecisionRequest` about a `Step`."""
    remaining = max(0, pending.deadline_at - now)
    return _join(
        (
            b"\x0a", sized(step),
            # A step without verdicts is the common one where a client decides.
            _verdicts(step) if _VERDICTS_TAG in step else b"",
            b"\x1a", timespan(pending.deadline_at),
            b"\x22", timespan(remaining),
            b"\x28", VARINTS[pending.default],
        )
    )  # fmt: skip


def _verdicts(step: bytes) -> bytes:
    """Give the verdicts of a step as the field 2 of another message."""
    found: list[bytes] = []
    start, end = find(step, _VERDICTS)
    while start < end:
        found.append(delimited(b"\x12", step[start:end]))
        start, end = find(step, _VERDICTS, end)
    return _join(found)


def _cut(data: bytes, wanted: int, start: int = 0, end: int | None = None) -> bytes:
    first, last = find(data, wanted, start, end)
    return data[first:last]
