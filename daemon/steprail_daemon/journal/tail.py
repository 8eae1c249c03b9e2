"""The end of a session: what the next batch must look like. Every store uses it, so that all refuse alike."""

from __future__ import annotations

import struct
from typing import Final

from steprail_daemon.journal.layout import LAST_SUB, MAX_SEQ, MAX_SESSION_NO
from steprail_daemon.journal.store import Batch, BatchRefused, Blob

_BLOB_ID_LENGTH: Final = len("sha256-") + 64

#: Gives the uint32 at an offset; -4 for the last one.
uint32_at: Final = struct.Struct("<I").unpack_from


class Tail:
    """Where a session ends. `writable_runs`: what `run_no` may be, 0 or an open run; nothing once it is closed.

    `sub` is that of the next batch without events, see the package docstring.
    """

    __slots__ = ("closed", "last_run_no", "next_seq", "sub", "writable_runs")

    def __init__(
        self,
        *,
        next_seq: int = 1,
        sub: int = 0,
        last_run_no: int = 0,
        open_runs: tuple[int, ...] = (),
        closed: bool = False,
    ) -> None:
        self.next_seq = next_seq
        self.sub = sub
        self.last_run_no = last_run_no
        self.writable_runs = set() if closed else {0, *open_runs}
        self.closed = closed

    def check(self, batch: Batch) -> None:
        """Refuse a batch that cannot come next.

        Raises:
            BatchRefused: it says which field was wrong and what would be right.
        """
        count = batch.last_seq - batch.first_seq + 1
        last_end = uint32_at(batch.ends, -4)[0] if len(batch.ends) >= 4 else 0
        reasons = (
            (self.closed, "the session is closed"),
            (batch.first_seq != self.next_seq, f"first_seq is {batch.first_seq}, next is {self.next_seq}"),
            (batch.last_seq > MAX_SEQ, f"last_seq is {batch.last_seq}, a session holds at most {MAX_SEQ} events"),
            (count < 0, f"last_seq is {batch.last_seq}, less than first_seq - 1"),
            (len(batch.kinds) != count, f"kinds has {len(batch.kinds)} bytes for {count} events"),
            (len(batch.ends) != 4 * count, f"ends has {len(batch.ends)} bytes for {count} events, not 4 for each"),
            (last_end != len(batch.wire), f"wire has {len(batch.wire)} bytes, its last entry ends at {last_end}"),
            (count == 0 and not batch.records, "it has neither events nor records"),
            (count == 0 and self.sub >= LAST_SUB, f"{self.sub} batches before it have no events, it must have some"),
            *self._edge_reasons(batch),
        )
        for wrong, reason in reasons:
            if wrong:
                raise refusal(batch, reason)

    def _edge_reasons(self, batch: Batch) -> tuple[tuple[bool, str], ...]:
        opens, run_no = bool(batch.opens_run), batch.run_no
        left = self.writable_runs - ({0, run_no} if batch.ends_run else {0})
        return (
            (not opens and run_no not in self.writable_runs, f"run_no is {run_no}, which is no open run"),
            (opens and run_no <= self.last_run_no, f"it opens run {run_no}, the last one was {self.last_run_no}"),
            (batch.ends_run and not run_no, "it ends a run, but run_no is 0"),
            (
                batch.closes_session and bool(left or (opens and not batch.ends_run)),
                "it closes the session with an open run",
            ),
            *(
                (not _is_blob_id(blob), f"blob_id is {blob.blob_id!r}, not sha256- and 64 digits")
                for blob in batch.blobs
            ),
        )

    def advance(self, batch: Batch) -> None:
        """Take a batch that was committed."""
        after = batch.last_seq + 1
        self.sub = self.sub + 1 if after == self.next_seq else 0
        self.next_seq = after
        if batch.opens_run:
            self.last_run_no = batch.run_no
            self.writable_runs.add(batch.run_no)
        if batch.ends_run:
            self.writable_runs.discard(batch.run_no)
        if batch.closes_session:
            self.closed = True
            self.writable_runs.clear()


def has_edges(batch: Batch) -> bool:
    """Tell whether a batch brings more than events and records."""
    return bool(
        batch.opens_run
        or batch.ends_run
        or batch.request is not None
        or batch.blobs
        or batch.opens_session
        or batch.closes_session
    )


def new_tail(batch: Batch) -> Tail:
    """Give the tail of a session that the store does not have, if the batch opens it.

    Raises:
        BatchRefused: it does not, or with a number that is out of range.
    """
    if not batch.opens_session:
        raise refusal(batch, "there is no such session, and the batch does not open it")
    if not 1 <= batch.session_no <= MAX_SESSION_NO:
        raise refusal(batch, f"session_no must be 1 to {MAX_SESSION_NO}")
    return Tail()


def refusal(batch: Batch, reason: str) -> BatchRefused:
    """Make the error for a batch that cannot be taken."""
    return BatchRefused(f"batch of session {batch.session_no} at {batch.first_seq} refused: {reason}")


def _is_blob_id(blob: Blob) -> bool:
    """Tell whether the id has the right form. The digest is checked by `journal.verify` alone, as it costs time."""
    return blob.blob_id.startswith("sha256-") and len(blob.blob_id) == _BLOB_ID_LENGTH
