"""The store in a file: SQLite in WAL mode. The package docstring specifies the file, `store` the semantics.

**Locks.** The writer's connection does not wait for a lock (`busy_timeout` 0). The only one who can hold it in an
orderly daemon is a checkpoint that begins the log anew, for the time that it needs to sync. Then `append` waits in
place, at most `busy_wait` seconds; a lock held longer is a JournalError like any other: nothing was written, the same
batch may be given again.

**Threads.** With "normal" an append takes some ten microseconds and belongs on the event loop; with "full" each one
waits for the disk and the whole store belongs on one thread of its own. `checkpoint` alone may be called from any
thread at any time.

Measured and left as SQLite has it: page size 4096 (larger ones cost more per small batch, smaller ones twice as much
per large one), cache size, memory mapping (an I/O error would be a signal that kills the process).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from steprail_daemon.journal.checkpoint import Checkpoint, Checkpointer
from steprail_daemon.journal.layout import (
    LANES,
    SEQ_MASK,
    SUB_BITS,
    checksum,
    key_range,
    pack_key,
    unpack_key,
)
from steprail_daemon.journal.schema import Synchronous, describe, end_life, open_for_writing, read_boot_id
from steprail_daemon.journal.store import Batch, JournalError, RunRow, SessionRow
from steprail_daemon.journal.tail import Tail, has_edges, new_tail

_PAGE: Final = 256

# What is put into the statements is a lane, a number of our own (S608).
_INSERT = [f"INSERT INTO batches_{lane} VALUES (?, ?, ?, ?, ?, ?, ?)" for lane in range(LANES)]  # noqa: S608
_READ = [
    f"SELECT key, run_no, last_seq, at, events FROM batches_{lane}"  # noqa: S608
    " WHERE key BETWEEN coalesce("
    f"(SELECT key FROM batches_{lane} WHERE key BETWEEN ? AND ? ORDER BY key DESC LIMIT 1), ?) AND ?"
    " AND last_seq > ? ORDER BY key"
    for lane in range(LANES)
]
_RECORDS = [
    f"SELECT key, run_no, records FROM batches_{lane}"  # noqa: S608
    " WHERE key > ? AND key <= ? AND records IS NOT NULL ORDER BY key LIMIT ?"
    for lane in range(LANES)
]
_FIRST = [f"SELECT min(key) FROM batches_{lane} WHERE key BETWEEN ? AND ?" for lane in range(LANES)]  # noqa: S608
_LAST = [
    f"SELECT key, last_seq FROM batches_{lane}"  # noqa: S608
    " WHERE key BETWEEN ? AND ? ORDER BY key DESC LIMIT 1"
    for lane in range(LANES)
]

_SESSION = (
    "SELECT session_no, session_id, last_seq,"
    " coalesce((SELECT max(run_no) FROM runs WHERE runs.session_no = sessions.session_no), 0) FROM sessions"
)
_RUN = "SELECT run_id, session_no, run_no, first_seq, last_seq FROM runs"

_OPEN_SESSION = "INSERT INTO sessions (session_no, session_id) VALUES (?, ?)"
_OPEN_RUN = "INSERT INTO runs (session_no, run_no, run_id, first_seq) VALUES (?, ?, ?, ?)"
_ADD_BLOB = "INSERT INTO blobs (blob_id, mime_type, data) VALUES (?, ?, ?) ON CONFLICT (blob_id) DO NOTHING"
_END_RUN = "UPDATE runs SET last_seq = ? WHERE session_no = ? AND run_no = ?"
_CLOSE_SESSION = "UPDATE sessions SET last_seq = ? WHERE session_no = ?"

_Row = tuple[int, int, int, int, int, bytes | None, bytes]


class SqliteStore:
    """A `Store` in the file `path`, made if it is not there. Whoever opens it holds the lock of the state directory.

    `busy_wait` is the longest wait for the writer's lock, in seconds. `boot_id` identifies this start of the machine.

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
    ) -> None:
        self._path = path
        self._db, self._epoch = open_for_writing(path, synchronous, read_boot_id() if boot_id is None else boot_id)
        # One cursor for all inserts: making one costs a tenth of a small insert.
        self._execute = self._db.cursor().execute
        self._busy_wait = busy_wait
        self._checkpointer = Checkpointer(path)
        self._tails: dict[int, Tail] = {}
        self._closed = False

    @property
    def epoch(self) -> str:
        """See `Store.epoch`."""
        return self._epoch

    def append(self, batch: Batch) -> None:
        """See `Store.append`."""
        session_no = batch.session_no
        tail = self._tails.get(session_no)
        if tail is None or batch.opens_session:
            tail = self._load_tail(batch)
        tail.check(batch)
        run_no, last_seq, at = batch.run_no, batch.last_seq, batch.at
        key = pack_key(session_no, batch.first_seq, tail.sub)
        records = batch.records or None
        events = b"".join((batch.kinds, batch.ends, batch.wire))
        digest = checksum(key, run_no ^ last_seq ^ at, records, events)
        row = (key, run_no, last_seq, at, digest, records, events)
        if has_edges(batch):
            self._append_edges(batch, tail, row)
            return
        try:
            self._execute(_INSERT[session_no % LANES], row)
        except (sqlite3.Error, OverflowError) as error:
            self._insert_again(error, _INSERT[session_no % LANES], row)
        tail.advance(batch)

    def _insert_again(self, error: Exception, statement: str, row: _Row) -> None:
        """Insert a row for which the writer's lock was not free, now with a wait; raise any other error."""
        if not _is_busy(error):
            raise self._failure(error) from error
        try:
            self._set_busy_wait(self._busy_wait)
            self._execute(statement, row)
        except sqlite3.Error as again:
            raise self._failure(again) from again
        finally:
            self._set_busy_wait(0)

    def _append_edges(self, batch: Batch, tail: Tail, row: _Row) -> None:
        tail.check_edges(batch)
        try:
            self._set_busy_wait(self._busy_wait)
            self._execute("BEGIN IMMEDIATE")
            self._execute_edges(batch, row)
            self._execute("COMMIT")
        except (sqlite3.Error, OverflowError) as error:
            raise self._failure(error) from error
        finally:
            self._roll_back()
        tail.advance_edges(batch)
        if batch.closes_session:
            self._tails.pop(batch.session_no, None)
        else:
            self._tails[batch.session_no] = tail

    def _execute_edges(self, batch: Batch, row: _Row) -> None:
        execute = self._execute
        if batch.opens_session:
            execute(_OPEN_SESSION, (batch.session_no, batch.opens_session))
        if batch.opens_run:
            execute(_OPEN_RUN, (batch.session_no, batch.run_no, batch.opens_run, batch.first_seq))
        execute(_INSERT[batch.session_no % LANES], row)
        for blob in batch.blobs:
            execute(_ADD_BLOB, (blob.blob_id, blob.mime_type, blob.data))
        if batch.ends_run:
            execute(_END_RUN, (batch.last_seq, batch.session_no, batch.run_no))
        if batch.closes_session:
            execute(_CLOSE_SESSION, (batch.last_seq, batch.session_no))

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
            last = self._db.execute(_LAST[session_no % LANES], key_range(session_no)).fetchone()
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
            open_runs={run_no for run_no, last_seq in runs if last_seq is None},
        )
        self._tails[session_no] = tail
        return tail

    def read(self, session_no: int, after_seq: int, max_bytes: int) -> list[Batch]:
        """See `Store.read`."""
        low, high = key_range(session_no)
        # The last batch at or before the wanted event holds it, or else what follows does.
        upto = min(pack_key(session_no, min(max(after_seq + 1, 0), SEQ_MASK), (1 << SUB_BITS) - 1), high)
        batches: list[Batch] = []
        size = 0
        try:
            cursor = self._db.execute(_READ[session_no % LANES], (low, upto, low, high, after_seq))
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
        (key,) = self._one(_FIRST[session_no % LANES], key_range(session_no)) or (None,)
        if key is not None:
            return unpack_key(key)[1]
        (last_seq,) = self._one("SELECT last_seq FROM sessions WHERE session_no = ?", (session_no,)) or (None,)
        return int(last_seq or 0) + 1

    def sessions(self) -> Iterator[SessionRow]:
        """See `Store.sessions`."""
        return self._iterate_sessions(self._session_page(0))

    def _session_page(self, after: int) -> list[tuple[int, str, int | None, int]]:
        return self._all(f"{_SESSION} WHERE session_no > ? ORDER BY session_no LIMIT ?", (after, _PAGE))

    def _iterate_sessions(self, page: list[tuple[int, str, int | None, int]]) -> Iterator[SessionRow]:
        while page:
            for row in page:
                yield self._session_row(*row)
            page = self._session_page(page[-1][0])

    def session(self, session_id: str) -> SessionRow | None:
        """See `Store.session`."""
        row = self._one(f"{_SESSION} WHERE session_id = ?", (session_id,))
        return None if row is None else self._session_row(*row)

    def _session_row(self, session_no: int, session_id: str, last_seq: int | None, last_run_no: int) -> SessionRow:
        closed = last_seq is not None
        if last_seq is None:
            last = self._one(_LAST[session_no % LANES], key_range(session_no))
            last_seq = last[1] if last else 0
        return SessionRow(session_no, session_id, last_seq, last_run_no, closed)

    def run(self, run_id: str) -> RunRow | None:
        """See `Store.run`."""
        row = self._one(f"{_RUN} WHERE run_id = ?", (run_id,))
        return None if row is None else RunRow(*row)

    def runs(self, session_no: int) -> list[RunRow]:
        """See `Store.runs`."""
        return [RunRow(*row) for row in self._all(f"{_RUN} WHERE session_no = ? ORDER BY run_no", (session_no,))]

    def records(self, session_no: int) -> Iterator[tuple[int, bytes]]:
        """See `Store.records`."""
        low, high = key_range(session_no)
        return self._iterate_records(session_no, high, self._record_page(session_no, low - 1, high))

    def _record_page(self, session_no: int, after: int, high: int) -> list[tuple[int, int, bytes]]:
        return self._all(_RECORDS[session_no % LANES], (after, high, _PAGE))

    def _iterate_records(
        self, session_no: int, high: int, page: list[tuple[int, int, bytes]]
    ) -> Iterator[tuple[int, bytes]]:
        while page:
            for _, run_no, records in page:
                yield run_no, records
            page = self._record_page(session_no, page[-1][0], high)

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


def _is_busy(error: Exception) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY
