"""The frame of the entries in a batch's wire form: the byte 0x0A, the length as a varint, the event."""

from __future__ import annotations

from typing import Final

ENTRY_TAG: Final = 0x0A

#: A varint of 64 bits has at most ten bytes.
_MAX_VARINT: Final = 10


def frame(event: bytes) -> bytes:
    """Give the entry of an event."""
    size = len(event)
    head = bytearray((ENTRY_TAG,))
    while size > 0x7F:
        head.append(size & 0x7F | 0x80)
        size >>= 7
    head.append(size)
    return bytes(head) + event


def framing_problem(count: int, events: bytes) -> str:
    """Say what is wrong in the column events of a batch with `count` of them; empty if nothing is."""
    if len(events) < 5 * count:
        return f"events has {len(events)} bytes, kinds and ends of {count} events alone need {5 * count}"
    wire = events[5 * count :]
    start = 0
    for index, end in enumerate(memoryview(events)[count : 5 * count].cast("I")):
        if _entry_end(wire, start) != end:
            return f"entry {index + 1} of {count} begins at {start} and should end at {end}, its frame says otherwise"
        start = end
    return "" if start == len(wire) else f"wire has {len(wire)} bytes, its last entry ends at {start}"


def _entry_end(wire: bytes, start: int) -> int | None:
    """Give where the entry at `start` ends by its own frame; None if there is none. It may lie beyond `wire`."""
    if start >= len(wire) or wire[start] != ENTRY_TAG:
        return None
    size = shift = 0
    for position in range(start + 1, min(start + 1 + _MAX_VARINT, len(wire))):
        byte = wire[position]
        size |= (byte & 0x7F) << shift
        if byte < 0x80:
            return position + 1 + size
        shift += 7
    return None
