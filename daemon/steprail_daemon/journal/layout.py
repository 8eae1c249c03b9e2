"""Keys, limits and checksums of the journal's file; the package docstring is the specification."""

from __future__ import annotations

from typing import Final
from zlib import crc32

SUB_BITS: Final = 8
SEQ_BITS: Final = 31
SESSION_BITS: Final = 24

SESSION_SHIFT: Final = SEQ_BITS + SUB_BITS
SEQ_MASK: Final = (1 << SEQ_BITS) - 1

#: What a batch with events has, so that it comes after those without events and with the same first_seq.
LAST_SUB: Final = (1 << SUB_BITS) - 1
#: One less than fits, so that a batch without events still has a key after the last event.
MAX_SEQ: Final = SEQ_MASK - 1
MAX_SESSION_NO: Final = (1 << SESSION_BITS) - 1

LANES: Final = 64

#: Prepared statements that a connection keeps: three kinds are used often, each once per lane.
STATEMENTS: Final = 4 * LANES

#: The largest prime below 2**32: any change of a single digit of a number changes its rest.
CHECKSUM_MODULUS: Final = 4_294_967_291


def pack_key(session_no: int, first_seq: int, sub: int) -> int:
    """Give the key of a batch."""
    return (session_no << SESSION_SHIFT) | (first_seq << SUB_BITS) | sub


def unpack_key(key: int) -> tuple[int, int, int]:
    """Give session_no, first_seq and sub."""
    return key >> SESSION_SHIFT, (key >> SUB_BITS) & SEQ_MASK, key & LAST_SUB


def key_range(session_no: int) -> tuple[int, int]:
    """Give the lowest and the highest key that a session can have."""
    low = session_no << SESSION_SHIFT
    return low, low | ((1 << SESSION_SHIFT) - 1)


def checksum(at: int, records: bytes | None, events: bytes) -> int:
    """Give the checksum of a row of batches; its other numbers are checked against each other."""
    start = at % CHECKSUM_MODULUS
    return crc32(events, crc32(records, start) if records else start)
