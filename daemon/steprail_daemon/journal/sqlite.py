"""The store in a file: SQLite in WAL mode. The package docstring specifies the file, `store` the semantics.

**Locks.** The writer's connection does not wait for a lock (`busy_timeout` 0). The only one who can hold it in an
orderly daemon is a checkpoint that begins the log anew, for the time that it needs to sync. Then `append` waits in
place, at most `busy_wait` seconds; a lock held longer is a JournalError like any other: nothing was written, the same
batch may be given again.

**Threads.** With "normal" an append takes some ten microseconds and belongs on the event loop; with "full" each one
waits for the disk and the whole store belongs on one thread of its own. `checkpoint` alone may be called from any
thread at any time.

Measured and left as SQLite has it: page size 4096 (8192 costs a tenth more per small batch, 2048 a fifth and 1024 two
thirds more per large one), cache size and memory mapping (no gain; an I/O error would be a signal that kills).
"""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter_ns
from typing import Any, Final
from zlib import crc32

from steprail_daemon.journal.checkpoint import Checkpoint, Checkpointer
from steprail_daemon.journal.layout import (
    CHECKSUM_MODULUS,
    LANES,
    LAST_SUB,
    MAX_SEQ,
    SEQ_MASK,
    SESSION_SHIFT,
    SUB_BITS,
    checksum,
    key_range,
    pack_key,
    unpack_key,
)
from steprail_daemon.journal.schema import Synchronous, describe, end_life, open_for_writing, read_boot_id
from steprail_daemon.journal.statements import (
    ADD_BLOB,
    BLOB_SESSIONS,
    CLOSE_SESSION,
    END_RUN,
    FIRST,
    INSERT,
    LAST,
    NAME_BLOB,
    OPEN_RUN,
    OPEN_SESSION,
    READ,
    RECORDS,
    RUN,
    SESSION,
    UNPUBLISHED,
)
from steprail_daemon.journal.store import Batch, BatchRefused, JournalError, RunRow, SessionRow
from steprail_daemon.journal.tail import Tail, has_edges, new_tail, uint32_at

_PAGE: Final = 256

_REFUSALS: Final = (sqlite3.IntegrityError, sqlite3.DataError, OverflowError)

_Row = tuple[int, int, int, int, int, bytes | None, bytes]


class SqliteStore:
    """A `Store` in the file `path`, made if it is not there. Whoever opens it holds the lock of the state directory.

    `busy_wait` is the longest wait for the writer's lock, in seconds. `boot_id` identifies this start of the machine.
    `note_commit` is given the nanoseconds of each commit; it is called while an agent waits, so that it should be the
    `append` of a list or deque and no function of Python.

    Raises:
        JournalError: the file is not a journal, of a newer version, damaged, or cannot be opened.
    """

    def __init__(
        self,
        path: Path,
        *,
        synchronous: Synchronous = "normal",
        busy_wait: float = 0.25,
        boot_id: str | None = None,
        note_commit: Callable[[int], object] | None = None,
    ) -> None:
        self._path = path
        self._db, self._epoch = open_for_writing(path, synchronous, read_boot_id() if boot_id is None else boot_id)
        # One cursor for all inserts, so that none is made for each.
        self._execute = self._db.cursor().execute
        self._busy_wait = busy_wait
        self._note_commit = note_commit or deque[int](maxlen=0).append
        self._checkpointer = Checkpointer(path)
        self._tails: dict[int, Tail] = {}
        self._closed = False

    @property
    def epoch(self) -> str:
        """See `Store.epoch`."""
        return self._epoch

    def append(self, batch: Batch) -> None:
        """See `Store.append`."""
        # Nearly every batch brings events or records and nothing else. All that it needs is written out, `Tail.check`
        # and `checksum` too: after SQLite and its system calls Python's code is cold, and each call costs three times
        # what a loop shows. The conformance kit sees to it that this way refuses what is wrong.
        session_no, run_no, first_seq, last_seq = batch.session_no, batch.run_no, batch.first_seq, batch.last_seq
        kinds, ends, wire, records = batch.kinds, batch.ends, batch.wire, batch.records or None
        count = last_seq - first_seq + 1
        tail = self._tails.get(session_no)
        if (
            tail is None
            or first_seq != tail.next_seq
            or run_no not in tail.writable_runs
            or batch.opens_run
            or batch.ends_run
            or batch.blobs
            or batch.opens_session
            or batch.closes_session
            or len(kinds) != count
            or len(ends) != 4 * count
            or (
                (uint32_at(ends, -4)[0] != len(wire) or last_seq > MAX_SEQ)
                if count
                else (wire or records is None or tail.sub >= LAST_SUB)
            )
        ):
            self._append_any(batch)
            return
        at = batch.at
        checksum = at % CHECKSUM_MODULUS
        if records is not None:
            checksum = crc32(records, checksum)
        if count:
            sub, next_sub = LAST_SUB, 0
            events = kinds + ends + wire
            checksum = crc32(events, checksum)
        else:
            sub = tail.sub
            next_sub = sub + 1
            events = b""
        row = (
            (session_no << SESSION_SHIFT) + (first_seq << SUB_BITS) + sub,
            run_no,
            last_seq,
            at,
            checksum,
            records,
            events,
        )
        began = perf_counter_ns()
        try:
            self._execute(INSERT[session_no % LANES], row)
        except (sqlite3.Error, OverflowError) as error:
            self._insert_again(error, INSERT[session_no % LANES], row)
        self._note_commit(perf_counter_ns() - began)
        tail.next_seq = last_seq + 1
        tail.sub = next_sub

    def _append_any(self, batch: Batch) -> None:
        tail = self._tails.get(batch.session_no)
        if tail is None or batch.opens_session:
            tail = self._load_tail(batch)
        tail.check(batch)
        records = batch.records or None
        events = batch.kinds + batch.ends + batch.wire
        key = pack_key(batch.session_no, batch.first_seq, LAST_SUB if batch.kinds else tail.sub)
        row = (key, batch.run_no, batch.last_seq, batch.at, checksum(batch.at, records, events), records, events)
        began = perf_counter_ns()
        if has_edges(batch):
            self._insert_edges(batch, row)
        else:
            self._insert(INSERT[batch.session_no % LANES], row)
        self._note_commit(perf_counter_ns() - began)
        tail.advance(batch)
        if batch.closes_session:
            self._tails.pop(batch.session_no, None)
        else:
            self._tails[batch.session_no] = tail

    def _insert(self, statement: str, row: _Row) -> None:
        try:
            self._execute(statement, row)
        except (sqlite3.Error, OverflowError) as error:
            self._insert_again(error, statement, row)

    def _insert_again(self, error: Exception, statement: str, row: _Row) -> None:
        """Insert a row for which the writer's lock was not free, now with a wait; raise any other error."""
        if not _is_busy(error):
            raise self._not_written(error) from error
        try:
            self._set_busy_wait(self._busy_wait)
            self._execute(statement, row)
        except sqlite3.Error as again:
            raise self._not_written(again) from again
        finally:
            self._set_busy_wait(0)

    def _insert_edges(self, batch: Batch, row: _Row) -> None:
        try:
            self._set_busy_wait(self._busy_wait)
            self._execute("BEGIN IMMEDIATE")
            self._execute_edges(batch, row)
            self._execute("COMMIT")
        except (sqlite3.Error, OverflowError) as error:
            raise self._not_written(error) from error
        finally:
            self._roll_back()

    def _execute_edges(self, batch: Batch, row: _Row) -> None:
        execute = self._execute
        if batch.opens_session:
            execute(OPEN_SESSION, (batch.session_no, batch.opens_session))
        if batch.opens_run:
            execute(OPEN_RUN, (batch.session_no, batch.run_no, batch.opens_run, batch.first_seq))
        execute(INSERT[batch.session_no % LANES], row)
        for blob in batch.blobs:
            execute(ADD_BLOB, (blob.blob_id, blob.mime_type, blob.data))
            execute(NAME_BLOB, (batch.session_no, blob.blob_id))
        if batch.ends_run:
            execute(END_RUN, (batch.last_seq, batch.session_no, batch.run_no))
        if batch.closes_session:
            execute(CLOSE_SESSION, (batch.last_seq, batch.session_no))

    def _roll_back(self) -> None:
        """Leave no transaction open, whatever happened; a failed COMMIT may keep one."""
        try:
            if self._db.in_transaction:
                self._db.rollback()
            self._set_busy_wait(0)
        except sqlite3.Error as error:
            raise self._failure(error) from error

    def _set_busy_wait(self, seconds: float) -> None:
        if not self._closed:
            self._db.execute(f"PRAGMA busy_timeout = {round(seconds * 1000)}")

    def _load_tail(self, batch: Batch) -> Tail:
        """Give the tail of the batch's session; `append` keeps it once a batch of it was committed."""
        session_no = batch.session_no
        try:
            found = self._db.execute("SELECT last_seq FROM sessions WHERE session_no = ?", (session_no,)).fetchone()
            if found is None or batch.opens_session:
                return new_tail(batch)
            last = self._db.execute(LAST[session_no % LANES], key_range(session_no)).fetchone()
            runs = self._db.execute("SELECT run_no, last_seq FROM runs WHERE session_no = ?", (session_no,)).fetchall()
        except sqlite3.Error as error:
            raise self._failure(error) from error
        return self._remember(session_no, found[0], last, runs)

    def _remember(
        self, session_no: int, closed_at: int | None, last: tuple[int, int] | None, runs: list[tuple[int, int | None]]
    ) -> Tail:
        if closed_at is not None:
            return Tail(next_seq=closed_at + 1, closed=True)
        if last is None:
            raise JournalError(f"journal {self._path}: session {session_no} is open and has no batches")
        _, first_seq, sub = unpack_key(last[0])
        tail = Tail(
            next_seq=last[1] + 1,
            sub=sub + 1 if last[1] < first_seq else 0,
            last_run_no=max((run_no for run_no, _ in runs), default=0),
            open_runs=tuple(run_no for run_no, last_seq in runs if last_seq is None),
        )
        self._tails[session_no] = tail
        return tail

    def read(self, session_no: int, after_seq: int, max_bytes: int) -> list[Batch]:
        """See `Store.read`."""
        low, high = key_range(session_no)
        # The last batch at or before the wanted event holds it, or else what follows does.
        upto = pack_key(session_no, min(max(after_seq + 1, 0), SEQ_MASK), LAST_SUB)
        batches: list[Batch] = []
        size = 0
        try:
            cursor = self._db.execute(READ[session_no % LANES], (low, upto, low, high, after_seq))
            try:
                for key, run_no, last_seq, at, events in cursor:
                    first_seq = (key >> SUB_BITS) & SEQ_MASK
                    count = last_seq - first_seq + 1
                    if not count:
                        continue
                    batches.append(
                        Batch(
                            session_no=session_no,
                            run_no=run_no,
                            first_seq=first_seq,
                            last_seq=last_seq,
                            at=at,
                            kinds=events[:count],
                            ends=events[count : 5 * count],
                            wire=events[5 * count :],
                        )
                    )
                    size += len(events) - 5 * count
                    if size >= max_bytes:
                        break
            finally:
                # An open cursor would keep its snapshot, and with it the whole log, in use.
                cursor.close()
        except (sqlite3.Error, OverflowError) as error:
            raise self._failure(error) from error
        return batches

    def earliest_seq(self, session_no: int) -> int:
        """See `Store.earliest_seq`. 1 for a session that is not there."""
        (key,) = self._one(FIRST[session_no % LANES], key_range(session_no)) or (None,)
        if key is not None:
            return unpack_key(key)[1]
        (last_seq,) = self._one("SELECT last_seq FROM sessions WHERE session_no = ?", (session_no,)) or (None,)
        return int(last_seq or 0) + 1

    def sessions(self) -> Iterator[SessionRow]:
        """See `Store.sessions`."""
        return self._iterate_sessions(self._session_page(0))

    def _session_page(self, after: int) -> list[tuple[int, str, int | None, int]]:
        return self._all(f"{SESSION} WHERE session_no > ? ORDER BY session_no LIMIT ?", (after, _PAGE))

    def _iterate_sessions(self, page: list[tuple[int, str, int | None, int]]) -> Iterator[SessionRow]:
        while page:
            for row in page:
                yield self._session_row(*row)
            page = self._session_page(page[-1][0])

    def session(self, session_id: str) -> SessionRow | None:
        """See `Store.session`."""
        row = self._one(f"{SESSION} WHERE session_id = ?", (session_id,))
        return None if row is None else self._session_row(*row)

    def _session_row(self, session_no: int, session_id: str, last_seq: int | None, last_run_no: int) -> SessionRow:
        closed = last_seq is not None
        if last_seq is None:
            last = self._one(LAST[session_no % LANES], key_range(session_no))
            last_seq = last[1] if last else 0
        return SessionRow(session_no, session_id, last_seq, last_run_no, closed)

    def run(self, run_id: str) -> RunRow | None:
        """See `Store.run`."""
        row = self._one(f"{RUN} WHERE run_id = ?", (run_id,))
        return None if row is None else RunRow(*row)

    def runs(self, session_no: int) -> list[RunRow]:
        """See `Store.runs`."""
        return [RunRow(*row) for row in self._all(f"{RUN} WHERE session_no = ? ORDER BY run_no", (session_no,))]

    def records(self, session_no: int) -> Iterator[tuple[int, bytes]]:
        """See `Store.records`."""
        low, high = key_range(session_no)
        return self._iterate_records(session_no, high, self._record_page(session_no, low - 1, high))

    def _record_page(self, session_no: int, after: int, high: int) -> list[tuple[int, int, bytes]]:
        return self._all(RECORDS[session_no % LANES], (after, high, _PAGE))

    def _iterate_records(
        self, session_no: int, high: int, page: list[tuple[int, int, bytes]]
    ) -> Iterator[tuple[int, bytes]]:
        while page:
            for _, run_no, records in page:
                yield run_no, records
            page = self._record_page(session_no, page[-1][0], high)

    def unpublished(self, session_no: int) -> list[tuple[int, int, bytes]]:
        """See `Store.unpublished`."""
        last = self._one(LAST[session_no % LANES], key_range(session_no))
        if last is None:
            return []
        # Batches without events have the first_seq of the event that is next.
        next_seq = last[1] + 1
        first, end = pack_key(session_no, next_seq, 0), pack_key(session_no, next_seq, LAST_SUB - 1)
        return self._all(UNPUBLISHED[session_no % LANES], (first, end))

    def read_blob(self, blob_id: str, offset: int, max_bytes: int) -> tuple[bytes, int, str] | None:
        """See `Store.read_blob`."""
        row = self._one("SELECT blob_no, mime_type FROM blobs WHERE blob_id = ?", (blob_id,))
        if row is None:
            return None
        try:
            # Reads the part alone, where substr() would read the whole.
            with self._db.blobopen("blobs", "data", row[0], readonly=True) as blob:
                size = len(blob)
                blob.seek(min(offset, size))
                return blob.read(max_bytes), size, row[1]
        except sqlite3.Error as error:
            raise self._failure(error) from error

    def blob_sessions(self, blob_id: str) -> frozenset[int]:
        """See `Store.blob_sessions`."""
        return frozenset(session_no for (session_no,) in self._all(BLOB_SESSIONS, (blob_id,)))

    def checkpoint(self, *, idle: bool = False) -> Checkpoint:
        """Move the write-ahead log into the file, see `Checkpointer.run`. May be called from any thread.

        Raises:
            JournalError: the disk refused, or the store is closed.
        """
        return self._checkpointer.run(idle=idle)

    def close(self) -> None:
        """See `Store.close`. A second call does nothing.

        Raises:
            JournalError: the log could not be moved into the file; it is closed all the same, and nothing is lost.
        """
        if self._closed:
            return
        try:
            self._checkpointer.close()
            self._set_busy_wait(self._busy_wait)
            end_life(self._db)
        except sqlite3.Error as error:
            raise self._failure(error) from error
        finally:
            self._closed = True
            self._db.close()

    def _one(self, statement: str, values: tuple[int | str, ...]) -> Any:
        rows = self._all(statement, values)
        return rows[0] if rows else None

    def _all(self, statement: str, values: tuple[int | str, ...]) -> list[Any]:
        try:
            return self._db.execute(statement, values).fetchall()
        except (sqlite3.Error, OverflowError) as error:
            raise self._failure(error) from error

    def _failure(self, error: Exception) -> JournalError:
        return JournalError(describe(self._path, error))

    def _not_written(self, error: Exception) -> JournalError:
        """Tell a batch that the tables refuse (an id that is there, a number that is too large) from a failed write."""
        kind = BatchRefused if isinstance(error, _REFUSALS) else JournalError
        return kind(describe(self._path, error))


def _is_busy(error: Exception) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY
