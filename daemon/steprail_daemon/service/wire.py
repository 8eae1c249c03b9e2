"""Protobuf's wire format, written by hand where a message is made for every event or at every decision.

Only what such messages need. A field is given as its **tag**, the bytes before its value, made once by `tag`. What a
tag is followed by comes in two forms: a **sized** value has its length before it, as strings and messages want it, and
others have none. The encoding is one that every reader of protobuf takes; it differs from what protobuf's own library
writes in that an empty string may be there although it need not.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

VARINT: Final = 0
LENGTH_DELIMITED: Final = 2
_WORD: Final = (1 << 64) - 1

_FOUR_BYTES: Final = 1 << 28

#: Integers below this are looked up in `VARINTS`.
SMALL: Final = 4100


def _spell(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


#: The integers below `SMALL` in their wire form.
VARINTS: Final = tuple(_spell(number) for number in range(SMALL))


def varint(number: int) -> bytes:
    """Encode an integer; a negative one as its two's complement of 64 bits, as `int64` wants it."""
    if 0 <= number < SMALL:
        return VARINTS[number]
    return _spell(number & _WORD)


def tag(field: int, wire_type: int = LENGTH_DELIMITED) -> bytes:
    """Encode the tag of a field."""
    return _spell(field << 3 | wire_type)


def sized(data: bytes) -> bytes:
    """Put the length before a value."""
    size = len(data)
    return (VARINTS[size] if size < SMALL else _spell(size)) + data


def delimited(field_tag: bytes, data: bytes) -> bytes:
    """Encode a field that is a message or bytes."""
    size = len(data)
    return field_tag + (VARINTS[size] if size < SMALL else _spell(size)) + data


def number(field_tag: bytes, value: int) -> bytes:
    """Encode an integer, an enumeration or a boolean; nothing if zero, which is what an absent one means."""
    return field_tag + varint(value) if value else b""


def optional(field_tag: bytes, value: int | None) -> bytes:
    """Encode an integer that can be unknown: nothing if None, and zero as zero."""
    return b"" if value is None else field_tag + (VARINTS[value] if 0 <= value < SMALL else varint(value))


@lru_cache(maxsize=16)
def _seconds(seconds: int) -> bytes:
    return b"\x08" + varint(seconds) if seconds else b""


@lru_cache(maxsize=64)
def timespan(nanoseconds: int) -> bytes:
    """Encode a sized `Duration` or, counted from 1970, a sized `Timestamp`. Not for times below zero.

    The same times come again and again: the events of one commit share theirs, and most waits last no time.
    """
    seconds, rest = divmod(nanoseconds, 1_000_000_000)
    inside = _seconds(seconds)
    if rest >= _FOUR_BYTES:
        # Most nanoseconds of a clock are here.
        inside += bytes(
            (0x10, rest & 127 | 128, rest >> 7 & 127 | 128, rest >> 14 & 127 | 128, rest >> 21 & 127 | 128, rest >> 28)
        )
    elif rest:
        inside += b"\x10" + varint(rest)
    return VARINTS[len(inside)] + inside
