"""What the tests of the journal's file share."""

from __future__ import annotations

from typing import Final

from steprail_daemon.journal.retention import Keep
from steprail_daemon.journal.sqlite import SqliteStore

#: Longest wait for anything.
SECONDS: Final = 20.0
#: Turns of retention after which it must have come to an end.
MANY: Final = 20_000


def crash(store: SqliteStore) -> None:
    """End a store as the death of its process would: nothing is marked, the log stays."""
    store._checkpointer.close()
    store._retention.close()
    store._db.close()
    store._closed = True


def seqs(store: SqliteStore, session_no: int = 1) -> list[int]:
    """Give the sequence numbers of the events that a session has."""
    batches = store.read(session_no, 0, 1 << 30)
    return [seq for batch in batches for seq in range(batch.first_seq, batch.last_seq + 1)]


def turns(store: SqliteStore, *, now: int, age: int, max_bytes: int = 1 << 40) -> int:
    """Let retention do all that it has to do; give the number of turns."""
    for count in range(1, MANY):
        if not store.retain(Keep(age, max_bytes), now).more:
            return count
    raise AssertionError("retention comes to no end")


def sweep(store: SqliteStore, *, now: int, age: int, max_bytes: int = 1 << 40) -> None:
    """Let retention do all that it has to do."""
    turns(store, now=now, age=age, max_bytes=max_bytes)
