"""How long texts may be, and what becomes of longer ones.

Texts with a bound and no blob are shortened before they are recorded; the bounds are those of the public messages.
Encoders take it for granted that texts fit and fail otherwise, with `IndexError` for a text that is too long and with
`UnicodeEncodeError` for one that UTF-8 cannot hold, since agents also send halves of surrogate pairs. `fitted` then
gives a value that does not fail, so that the common case pays for nothing.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final, TypeVar, cast

import msgspec

from steprail_daemon.core import events, model, records
from steprail_daemon.service.wire import VARINTS

MAX_TEXT_BYTES: Final = 64 * 1024
MAX_STEP_BYTES: Final = 512 * 1024

#: Bounds in bytes, each the last index of the lengths below it.
ID: Final = 64
NAME: Final = 256
TITLE: Final = 1024
REASON: Final = 4096

#: The length of a text with that bound in its wire form, by length.
ID_SIZES: Final = VARINTS[: ID + 1]
NAME_SIZES: Final = VARINTS[: NAME + 1]
TITLE_SIZES: Final = VARINTS[: TITLE + 1]
REASON_SIZES: Final = VARINTS[: REASON + 1]

_BOUNDS: Final[dict[type, dict[str, int]]] = {
    model.ToolCall: {"call_id": ID, "tool": NAME, "title": TITLE},
    model.ToolResult: {"call_id": ID},
    model.Step: {"step_id": ID, "finish_reason_raw": NAME, "model": NAME},
    model.Verdict: {"rule_id": ID, "observed": NAME, "limit": NAME, "message": TITLE},
    model.Decision: {"rule_id": ID, "reason": REASON, "identity": NAME},
    model.StopReason: {"rule_id": ID, "reason": REASON, "observed": NAME, "limit": NAME},
    model.StopRequest: {"identity": NAME, "reason": REASON},
    model.Failure: {"reason": ID, "message": REASON},
    events.MessageStarted: {"message_id": ID, "subagent_id": ID, "parent_call_id": ID},
    events.MessageDelta: {"message_id": ID, "text": MAX_TEXT_BYTES, "subagent_id": ID, "parent_call_id": ID},
    events.MessageEnded: {
        "message_id": ID,
        "finish_reason_raw": NAME,
        "model": NAME,
        "subagent_id": ID,
        "parent_call_id": ID,
    },
    events.ToolStarted: {"subagent_id": ID, "parent_call_id": ID},
    events.ToolEnded: {"subagent_id": ID, "parent_call_id": ID},
    events.UsageReported: {"model": NAME, "subagent_id": ID, "parent_call_id": ID},
    events.AgentErrorReported: {"code": NAME, "message": REASON},
    events.RawReceived: {"vendor_type": NAME},
    records.SessionStateChanged: {"reason": REASON},
    records.CapabilitiesChanged: {"reason": REASON},
    records.AgentStarted: {"agent": NAME, "version": NAME, "model": NAME, "agent_session_id": NAME},
    records.TurnFinished: {"reason_raw": NAME},
    records.DecisionAsked: {"step_id": ID},
    records.DecisionRecorded: {"step_id": ID},
    records.PermissionResolved: {"permission_id": ID, "reason": REASON},
}
_NO_BOUNDS: Final[dict[str, int]] = {}

T = TypeVar("T")


def beginning(data: bytes, limit: int) -> bytes:
    """Give as much of a UTF-8 text as fits into `limit` bytes without a broken character at its end."""
    if len(data) <= limit:
        return data
    while limit > 0 and data[limit] & 0xC0 == 0x80:
        limit -= 1
    return data[:limit]


def mended(text: str) -> str:
    """Give the text with lone surrogates replaced; whole pairs become their character."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def fitted(value: T) -> T:
    """Give the same value with every text in it mended and no longer than its bound.

    An id over its bound is replaced by a digest: cut off, two could become the same.
    """
    return cast(T, _fit(value))


def _fit(value: Any) -> Any:
    if isinstance(value, str):
        return mended(value)
    if isinstance(value, tuple):
        return tuple(_fit(item) for item in value)
    if not isinstance(value, msgspec.Struct):
        return value
    bounds = _BOUNDS.get(type(value), _NO_BOUNDS)
    changed = {name: _fit(getattr(value, name)) for name in value.__struct_fields__}
    for name, limit in bounds.items():
        changed[name] = _shortened(changed[name], limit)
    return msgspec.structs.replace(value, **changed)


def identifier(text: str) -> str:
    """Give an id within its bound, as `fitted` does."""
    return _shortened(mended(text), ID)


def _shortened(text: str, limit: int) -> str:
    data = text.encode()
    if len(data) <= limit:
        return text
    if limit == ID:
        return f"id-{hashlib.sha256(data).hexdigest()[: ID - 3]}"
    return beginning(data, limit).decode()
