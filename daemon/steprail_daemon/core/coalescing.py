"""Joins the parts of a message that came in one read: they are recorded and shown as one part.

Nobody could have seen them apart, and a CLI may write a part for every few characters.
"""

from __future__ import annotations

from collections.abc import Sequence

from steprail_daemon.core.events import MessageDelta, PassiveEvent

#: Characters that a joined part may have. A single part that is longer stays as it is.
LONGEST = 16 * 1024


def coalesced(events: Sequence[PassiveEvent]) -> list[PassiveEvent]:
    """Give the events in their order, with neighbouring parts of the same message joined."""
    found: list[PassiveEvent] = []
    parts: list[MessageDelta] = []
    size = 0
    for event in events:
        if type(event) is MessageDelta:
            if parts and (size + len(event.text) > LONGEST or not _same(parts[0], event)):
                found.append(_joined(parts))
                parts, size = [], 0
            parts.append(event)
            size += len(event.text)
            continue
        if parts:
            found.append(_joined(parts))
            parts, size = [], 0
        found.append(event)
    if parts:
        found.append(_joined(parts))
    return found


def _same(one: MessageDelta, other: MessageDelta) -> bool:
    return (
        one.message_id == other.message_id
        and one.subagent_id == other.subagent_id
        and one.parent_call_id == other.parent_call_id
    )


def _joined(parts: list[MessageDelta]) -> MessageDelta:
    first = parts[0]
    if len(parts) == 1:
        return first
    text = "".join([part.text for part in parts])
    return MessageDelta(first.message_id, text, first.subagent_id, first.parent_call_id)
