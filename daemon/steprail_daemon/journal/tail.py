"""The end of a session: what the next batch must look like. Every store uses it, so that all refuse alike."""

from __future__ import annotations

from typing import NoReturn

from steprail_daemon.journal.layout import MAX_SEQ, MAX_SESSION_NO, MAX_SUB
from steprail_daemon.journal.store import Batch, Blob, JournalError

_BLOB_ID_LENGTH = len("sha256-") + 64


class Tail:
    """Where a session ends. `sub` is that of the next batch, see the package docstring."""

    __slots__ = ("closed", "last_run_no", "next_seq", "open_runs", "sub")

    def __init__(
        self,
        *,
        next_seq: int = 1,
        sub: int = 0,
        last_run_no: int = 0,
        open_runs: set[int] | None = None,
        closed: bool = False,
    ) -> None:
        self.next_seq = next_seq
        self.sub = sub
        self.last_run_no = last_run_no
        self.open_runs = open_runs or set()
        self.closed = closed

    def check(self, batch: Batch) -> None:
        """Refuse a batch that cannot come next.

        Raises:
            JournalError: it says which field was wrong and what would be right.
        """
        first, last = batch.first_seq, batch.last_seq
        count = last - first + 1
        ends = batch.ends
        # One test for the batch that is right; why another is wrong is found out elsewhere.
        if (
            first != self.next_seq
            or len(batch.kinds) != count
            or len(ends) != 4 * count
            or int.from_bytes(ends[-4:], "little") != len(batch.wire)
            or (batch.run_no not in self.open_runs and batch.run_no and not batch.opens_run)
            or self.closed
            or last > MAX_SEQ
            or (not count and (not batch.records or self.sub >= MAX_SUB))
        ):
            self._refuse(batch, count)

    def _refuse(self, batch: Batch, count: int) -> NoReturn:
        last_end = int.from_bytes(batch.ends[-4:], "little")
        reasons = (
            (self.closed, "the session is closed"),
            (
                batch.first_seq != self.next_seq,
                f"first_seq is {batch.first_seq}, next is {self.next_seq}",
            ),
            (count < 0, f"last_seq is {batch.last_seq}, less than first_seq - 1"),
            (len(batch.kinds) != count, f"kinds has {len(batch.kinds)} bytes for {count} events"),
            (len(batch.ends) != 4 * count, f"ends has {len(batch.ends)} bytes for {count} events, not 4 each"),
            (last_end != len(batch.wire), f"wire has {len(batch.wire)} bytes, its last entry ends at {last_end}"),
            (batch.last_seq > MAX_SEQ, f"last_seq is {batch.last_seq}, a session holds at most {MAX_SEQ} events"),
            (count == 0 and not batch.records, "the batch has neither events nor records"),
            (
                count == 0 and self.sub >= MAX_SUB,
                f"there are {self.sub} batches without events in a row, the next must have one",
            ),
            (True, f"run_no is {batch.run_no}, which is not the number of a run that is open"),
        )
        raise refusal(batch, next(text for wrong, text in reasons if wrong))

    def check_edges(self, batch: Batch) -> None:
        """Refuse what a batch opens, ends or brings if that is not possible. To be called after `check`.

        Raises:
            JournalError: it says what is wrong.
        """
        if batch.opens_run and batch.run_no <= self.last_run_no:
            raise refusal(batch, f"it opens run {batch.run_no}, the last one was {self.last_run_no}")
        if batch.ends_run and not batch.run_no:
            raise refusal(batch, "it ends a run, but run_no is 0")
        left = self.open_runs - {batch.run_no} if batch.ends_run else self.open_runs
        if batch.closes_session and (left or (batch.opens_run and not batch.ends_run)):
            raise refusal(batch, "it closes the session, but a run is open")
        for blob in batch.blobs:
            check_blob_id(batch, blob)

    def advance(self, batch: Batch) -> None:
        """Take a plain batch that was committed."""
        after = batch.last_seq + 1
        self.sub = self.sub + 1 if after == self.next_seq else 0
        self.next_seq = after

    def advance_edges(self, batch: Batch) -> None:
        """Take any batch that was committed."""
        self.advance(batch)
        if batch.opens_run:
            self.last_run_no = batch.run_no
            self.open_runs.add(batch.run_no)
        if batch.ends_run:
            self.open_runs.discard(batch.run_no)
        self.closed = batch.closes_session


def has_edges(batch: Batch) -> bool:
    """Tell whether a batch brings more than events and records."""
    return bool(batch.opens_run or batch.ends_run or batch.blobs or batch.opens_session or batch.closes_session)


def new_tail(batch: Batch) -> Tail:
    """Give the tail of a session that the store does not have, if the batch opens it.

    Raises:
        JournalError: it does not, or with a number that is out of range.
    """
    if not batch.opens_session:
        raise refusal(batch, "there is no such session, and the batch does not open it")
    if not 1 <= batch.session_no <= MAX_SESSION_NO:
        raise refusal(batch, f"session_no must be 1 to {MAX_SESSION_NO}")
    return Tail()


def check_blob_id(batch: Batch, blob: Blob) -> None:
    """Refuse a blob whose id has the wrong form. Its digest is checked by `journal.verify`, as it costs time.

    Raises:
        JournalError: the form is wrong.
    """
    if not blob.blob_id.startswith("sha256-") or len(blob.blob_id) != _BLOB_ID_LENGTH:
        raise refusal(batch, f"blob_id is {blob.blob_id!r}, not sha256- and 64 hexadecimal digits")


def refusal(batch: Batch, reason: str) -> JournalError:
    """Make the error for a batch that cannot be taken."""
    return JournalError(f"batch of session {batch.session_no} at {batch.first_seq} refused: {reason}")
