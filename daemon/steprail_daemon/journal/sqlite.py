"""The store in a file: SQLite in WAL mode. The package docstring specifies the file, `store` the semantics.

**Locks.** The writer's connection does not wait for a lock (`busy_timeout` 0). The only one who can hold it in an
orderly daemon is a checkpoint that begins the log anew, for the time that it needs to sync. Then `append` waits in
place, at most `busy_wait` seconds; a lock held longer is a JournalError like any other: nothing was written, the same
batch may be given again.

**Threads.** With "normal" an append takes some ten microseconds and belongs on the event loop; with "full" each one
waits for the disk and the whole store belongs on one thread of its own. `checkpoint` and `retain` alone may be called
from any thread at any time.

Measured and left as SQLite has it: page size 4096 (8192 costs a tenth more per small batch, 2048 a fifth and 1024 two
thirds more per large one), cache size and memory mapping (no gain; an I/O error would be a signal that kills).
"""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Callable
from pathlib import Path
from time import perf_counter_ns
from typing import Final
from zlib import crc32

from steprail_daemon.journal.checkpoint import Checkpoint, Checkpointer
from steprail_daemon.journal.layout import (
    CHECKSUM_MODULUS,
    LANES,
    LAST_SUB,
    MAX_SEQ,
    SESSION_SHIFT,
    SUB_BITS,
    checksum,
    key_range,
    pack_key,
    unpack_key,
)
from steprail_daemon.journal.reader import SqliteReader
from steprail_daemon.journal.retention import Keep, Removed, Retention
from steprail_daemon.journal.schema import Synchronous, describe, end_life, open_for_writing, read_boot_id
from steprail_daemon.journal.statements import (
    ADD_BLOB,
    ADD_REQUEST,
    CLOSE_SESSION,
    DELETE_SESSION,
    DELETED,
    END_RUN,
    INSERT,
    LAST,
    NAME_BLOB,
    OPEN_RUN,
    OPEN_SESSION,
)
from steprail_daemon.journal.store import Batch, BatchRefused, JournalError, RequestRow
from steprail_daemon.journal.tail import Tail, has_edges, new_tail, refusal, uint32_at

_REFUSALS: Final = (sqlite3.IntegrityError, sqlite3.DataError, OverflowError)

_Row = tuple[int, int, int, int, int, bytes | None, bytes]


class SqliteStore(SqliteReader):
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
        self._retention = Retention(path)
        self._tails: dict[int, Tail] = {}
        self._closed = False
        rows = self._all("SELECT session_no FROM deleted_sessions WHERE NOT swept", ())
        self._deleted = {session_no for (session_no,) in rows}

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
            or batch.request is not None
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
            self._in_transaction(lambda: self._execute_edges(batch, row))
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

    def delete_session(self, session_no: int, request: RequestRow | None = None) -> None:
        """See `Store.delete_session`. Batches, blobs and kept records are removed by `retain`, in its turns."""
        if self._one("SELECT 1 FROM sessions WHERE session_no = ?", (session_no,)) is None:
            raise BatchRefused(f"journal {self._path}: there is no session {session_no} that could be deleted")

        def delete() -> None:
            for statement in DELETE_SESSION:
                self._execute(statement, (session_no,))
            if request is not None:
                self._execute(ADD_REQUEST, _values(request))

        self._in_transaction(delete)
        self._deleted.add(session_no)
        self._tails.pop(session_no, None)

    def remember(self, request: RequestRow) -> None:
        """See `Store.remember`."""
        self._in_transaction(lambda: self._execute(ADD_REQUEST, _values(request)))

    def _in_transaction(self, change: Callable[[], object]) -> None:
        try:
            self._begin()
            change()
            self._execute("COMMIT")
        except (sqlite3.Error, OverflowError) as error:
            raise self._not_written(error) from error
        finally:
            self._roll_back()

    def _begin(self) -> None:
        try:
            self._execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            if not _is_busy(error):
                raise
            self._set_busy_wait(self._busy_wait)
            try:
                self._execute("BEGIN IMMEDIATE")
            finally:
                self._set_busy_wait(0)

    def _execute_edges(self, batch: Batch, row: _Row) -> None:
        execute = self._execute
        if batch.opens_session:
            execute(OPEN_SESSION, (batch.session_no, batch.opens_session))
        if batch.opens_run:
            execute(OPEN_RUN, (batch.session_no, batch.run_no, batch.opens_run, batch.first_seq))
        execute(INSERT[batch.session_no % LANES], row)
        for blob in batch.blobs:
            execute(ADD_BLOB, (blob.blob_id, blob.mime_type, blob.data))
            execute(NAME_BLOB, (batch.session_no, batch.last_seq, blob.blob_id))
        if batch.ends_run:
            execute(END_RUN, (batch.last_seq, batch.session_no, batch.run_no))
        if batch.closes_session:
            execute(CLOSE_SESSION, (batch.last_seq, batch.session_no))
        if batch.request is not None:
            execute(ADD_REQUEST, _values(batch.request))

    def _roll_back(self) -> None:
        """Leave no transaction open, whatever happened; a failed COMMIT may keep one."""
        try:
            if self._db.in_transaction:
                self._db.rollback()
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
                if self._db.execute(DELETED, (session_no,)).fetchone():
                    raise refusal(batch, "the session was deleted, and its number is not used again")
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

    def checkpoint(self, *, idle: bool = False) -> Checkpoint:
        """Move the write-ahead log into the file, see `Checkpointer.run`. May be called from any thread.

        Raises:
            JournalError: the disk refused, or the store is closed.
        """
        return self._checkpointer.run(idle=idle)

    def retain(self, keep: Keep, now: int) -> Removed:
        """Do one turn of removing what need not be kept, see `Retention.turn`. May be called from any thread.

        Raises:
            JournalError: the disk refused, or the store is closed.
        """
        return self._retention.turn(keep, now)

    def close(self) -> None:
        """See `Store.close`. A second call does nothing.

        Raises:
            JournalError: the log could not be moved into the file; it is closed all the same, and nothing is lost.
        """
        if self._closed:
            return
        try:
            self._retention.close()
            self._checkpointer.close()
            self._set_busy_wait(self._busy_wait)
            end_life(self._db)
        except sqlite3.Error as error:
            raise self._failure(error) from error
        finally:
            self._closed = True
            self._db.close()

    def _not_written(self, error: Exception) -> JournalError:
        """Tell a batch that the tables refuse (an id that is there, a number that is too large) from a failed write."""
        kind = BatchRefused if isinstance(error, _REFUSALS) else JournalError
        return kind(describe(self._path, error))


def _is_busy(error: Exception) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY


def _values(request: RequestRow) -> tuple[str, str, str, str, bytes, str, int]:
    return (
        request.tenant,
        request.caller,
        request.request_id,
        request.method,
        request.digest,
        request.result,
        request.at,
    )
