"""Makes the journal of a session long without a daemon: whole, valid batches, a million events a second or so.

The daemon's own encoder makes 128 events whose sequence numbers differ in their lowest seven bits only. The next 128
are the same bytes but for the rest of the number, which stands in each at the same place, so one `join` makes them.
"""

from __future__ import annotations

import sqlite3
import time
from array import array
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

from steprail_daemon.core.events import MessageDelta
from steprail_daemon.journal.layout import LANES, LAST_SUB, checksum, key_range, pack_key
from steprail_daemon.journal.statements import INSERT, LAST
from steprail_daemon.service.translate import KINDS, SessionEncoder
from steprail_daemon.service.wire import varint

#: Events of a batch: those whose numbers differ in their lowest seven bits.
BLOCK = 128
#: Batches between two looks at the clock.
_PART = 1024
_EVENT = MessageDelta("msg_0", "a few words ")

_Row = tuple[int, int, int, int, int, None, bytes]


def fill(journal: Path, events: int, seconds: float) -> tuple[str, int]:
    """Append to the one session of a journal that nobody has open until it has `events`, or `seconds` are over.

    The last block is whole. Gives the session's id and its last sequence number.
    """
    deadline = time.monotonic() + seconds
    connection = sqlite3.connect(journal, isolation_level=None)
    try:
        # Fast, and a crash could leave anything; it is a file of the bench, and opening it restores the log.
        connection.execute("PRAGMA journal_mode = OFF")
        connection.execute("PRAGMA synchronous = OFF")
        ((session_no, session_id),) = connection.execute("SELECT session_no, session_id FROM sessions").fetchall()
        (_, last_seq) = connection.execute(LAST[session_no % LANES], key_range(session_no)).fetchone()
        rows = Rows(session_no, session_id, last_seq)
        while rows.last_seq < events and time.monotonic() < deadline:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(INSERT[session_no % LANES], rows.next(events))
            connection.execute("COMMIT")
    finally:
        connection.close()
    return session_id, rows.last_seq


class Rows:
    """The batches that come next in a session."""

    def __init__(self, session_no: int, session_id: str, last_seq: int) -> None:
        self.last_seq = last_seq
        self._session_no = session_no
        self._at = time.time_ns()
        self._encoder = SessionEncoder(session_id)
        self._encoder.begin(self._at, "", 0)
        self._width = 0
        self._pieces: list[bytes] = []
        self._head = b""

    def next(self, events: int) -> Iterator[_Row]:
        """Give a part of them, as rows, as long as the session has fewer than `events`."""
        for _ in range(_PART):
            if self.last_seq >= events:
                return
            first_seq = self.last_seq + 1
            whole = first_seq % BLOCK == 0
            columns = self._block(first_seq // BLOCK) if whole else self._up_to_block(first_seq)
            self.last_seq = first_seq // BLOCK * BLOCK + BLOCK - 1
            key = pack_key(self._session_no, first_seq, LAST_SUB)
            yield key, 0, self.last_seq, self._at, checksum(self._at, None, columns), None, columns

    def _block(self, high: int) -> bytes:
        spelled = varint(high)
        if len(spelled) != self._width:
            self._learn(high, spelled)
        return self._head + spelled.join(self._pieces)

    def _learn(self, high: int, spelled: bytes) -> None:
        """Cut a block where the upper part of its numbers stands."""
        entries = self._entries(high * BLOCK)
        self._width = len(spelled)
        self._head = _head(entries)
        # Tag and size of the entry (one byte: it is short), tag and lowest bits of the number.
        place = 4
        starts, ends = [], []
        for entry in entries:
            if entry[place : place + self._width] != spelled:
                raise RuntimeError(f"an event is not encoded as expected: {entry!r}")
            starts.append(entry[:place])
            ends.append(entry[place + self._width :])
        self._pieces = [starts[0], *(end + start for end, start in zip(ends, starts[1:], strict=False)), ends[-1]]

    def _up_to_block(self, first_seq: int) -> bytes:
        entries = self._entries(first_seq)
        return _head(entries) + b"".join(entries)

    def _entries(self, first_seq: int) -> list[bytes]:
        beyond = (first_seq // BLOCK + 1) * BLOCK
        return [self._encoder.encode(seq, _EVENT) for seq in range(first_seq, beyond)]


def _head(entries: list[bytes]) -> bytes:
    """Give the columns before the wire form: kinds and ends."""
    return bytes((KINDS[MessageDelta],)) * len(entries) + array("I", accumulate(map(len, entries))).tobytes()
