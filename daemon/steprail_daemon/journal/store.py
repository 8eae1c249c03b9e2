"""The store of the journal as a protocol; this docstring and those of the methods are its semantics.

A store keeps, per session, a gapless sequence of events in **batches**. A batch is the unit of commit: when `append`
returns, the batch survives the death of every process (and with `synchronous = "full"` a power loss). A batch holds

- the **wire form** of its events as opaque bytes, one entry after the other, with the end offset and the kind of each,
  so that a cursor inside a batch and filters slice without decoding;
- the **records**: facts that a replay folds, as opaque bytes; possibly none;
- events of one run only, or of none (`run_no` 0): batches are cut at the edges of runs.

A batch without events is allowed if it has records, so that facts can be committed before their events are made; both
kinds of batch are equally cheap. `unpublished` finds what a crash between the two left. Sessions are numbered 1, 2, 3
... over the store's life, runs within a session likewise; both numbers are given by the caller, the single writer. The
number of a session that was deleted is never used again.

A store may forget the oldest events of a session, a prefix of whole batches, to keep within its bounds; it keeps their
records, without what nobody can read any more. `earliest_seq` tells what is left.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import msgspec


class Blob(msgspec.Struct, frozen=True):
    """A content that is too large for an event. `blob_id` is `sha256-` and the hexadecimal digest of `data`."""

    blob_id: str
    mime_type: str
    data: bytes


class RequestRow(msgspec.Struct, frozen=True, kw_only=True):
    """A request that was carried out: who made it under which id, and what a repetition is answered with.

    `method` names the call, `digest` tells its body from others, `result` is the id of what it made or meant. `at` is
    the time of its commit in Unix nanoseconds.
    """

    tenant: str
    caller: str
    request_id: str
    method: str
    digest: bytes
    result: str
    at: int


class Batch(msgspec.Struct, kw_only=True, gc=False):
    """One unit of commit. `first_seq` is the sequence number of its first event, `last_seq` of its last.

    Without events `last_seq` is `first_seq - 1`. `kinds` has one byte per event, `ends` a native-endian uint32 per
    event: where its entry ends in `wire`. `at` is the time of the commit in Unix nanoseconds.
    """

    session_no: int
    run_no: int
    first_seq: int
    last_seq: int
    at: int
    kinds: bytes
    ends: bytes
    wire: bytes
    records: bytes = b""
    #: Set in the first batch of a session: its public id.
    opens_session: str = ""
    #: Set in the first batch of a run: its public id.
    opens_run: str = ""
    #: Set in the last batch of a run.
    ends_run: bool = False
    #: Set in the last batch of a session.
    closes_session: bool = False
    blobs: tuple[Blob, ...] = ()
    #: The request that the batch carries out, or begins to; one of the same caller and id before it is replaced.
    request: RequestRow | None = None


class SessionRow(msgspec.Struct, frozen=True):
    """A session as the store knows it. `closed`: its last batch was written."""

    session_no: int
    session_id: str
    last_seq: int
    last_run_no: int
    closed: bool


class RunRow(msgspec.Struct, frozen=True):
    """A run as the store knows it. `last_seq` is None until the run ended."""

    run_id: str
    session_no: int
    run_no: int
    first_seq: int
    last_seq: int | None


class JournalError(Exception):
    """The journal could not be written or read. `message` says what failed, in the store's own words."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class JournalUnusable(JournalError):
    """What is there is damaged, no journal, or of a version that this program does not know: trying again is no use."""


class BatchRefused(JournalError):
    """The batch is malformed or cannot come next: a bug of the caller, which no second attempt mends."""


class Store(Protocol):
    """See the module docstring. Not thread-safe; every method is called on one thread and does not block for long."""

    @property
    def epoch(self) -> str:
        """Changes when commits may have been lost, so that clients do not trust old cursors."""

    def append(self, batch: Batch) -> None:
        """Commit a batch; durable when it returns.

        Raises:
            BatchRefused: the batch is not as this module says, or does not follow the session's last one.
            JournalError: the store could not be written. Either way nothing of the batch was.
        """

    def delete_session(self, session_no: int, request: RequestRow | None = None) -> None:
        """Remove a session with its runs, batches, and the blobs that no other session has; `request` asked for it.

        It is gone when this returns, whatever its state was; the space may be freed later.

        Raises:
            BatchRefused: there is no such session.
            JournalError: the store could not be written, and nothing was removed.
        """

    def remember(self, request: RequestRow) -> None:
        """Keep a request that was carried out without a commit of its own; one of the same caller and id is replaced.

        Raises:
            JournalError: the store could not be written.
        """

    def requests(self, since: int) -> Iterator[RequestRow]:
        """Give the requests that were carried out at `since`, Unix nanoseconds, or later, in the order of commits.

        Older ones may be given too, or be forgotten.
        """

    def last_session_no(self) -> int:
        """Give the highest number that a session has or had; 0 if there was none."""

    def read(self, session_no: int, after_seq: int, max_bytes: int) -> list[Batch]:
        """Give whole batches with events after `after_seq`, oldest first.

        At least one if there is any; no further ones once `max_bytes` of wire form are reached. The first one may begin
        at or before `after_seq`. Batches without events are left out, `records` and `blobs` are empty.

        Raises:
            JournalError: the store could not be read.
        """

    def earliest_seq(self, session_no: int) -> int:
        """Give the sequence number of the first event that is kept, or `last_seq + 1` if none is."""

    def sessions(self) -> Iterator[SessionRow]:
        """Give every session that was not deleted, by number."""

    def session(self, session_id: str) -> SessionRow | None:
        """Find a session by its public id."""

    def run(self, run_id: str) -> RunRow | None:
        """Find a run by its public id."""

    def runs(self, session_no: int) -> list[RunRow]:
        """Give the runs of a session, by number."""

    def records(self, session_no: int) -> Iterator[tuple[int, bytes]]:
        """Give `run_no` and records of every batch of a session that has some, oldest first.

        Those of a prefix that was removed are among them; of its steps they have no texts any more.
        """

    def unpublished(self, session_no: int) -> list[tuple[int, int, bytes]]:
        """Give `run_no`, `at` and records of the batches after the session's last one with events, oldest first.

        They have no events, or not yet: whoever commits facts ahead of their events makes these up for the former.

        Raises:
            JournalError: the store could not be read.
        """

    def read_blob(self, blob_id: str, offset: int, max_bytes: int) -> tuple[bytes, int, str] | None:
        """Give a part of a blob, the size of the whole, and its MIME type; None if there is no such blob."""

    def blob_sessions(self, blob_id: str) -> frozenset[int]:
        """Give the numbers of the sessions whose batches brought a blob; empty if there is no such blob."""

    def close(self) -> None:
        """Close the store cleanly. Further calls raise JournalError."""
