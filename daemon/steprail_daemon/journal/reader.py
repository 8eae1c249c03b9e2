"""The reading half of the store in a file, on the writer's own connection."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from steprail_daemon.journal.layout import LANES, LAST_SUB, SEQ_MASK, SUB_BITS, key_range, pack_key, unpack_key
from steprail_daemon.journal.schema import describe
from steprail_daemon.journal.statements import (
    BLOB,
    BLOB_SESSIONS,
    FIRST,
    LAST,
    LAST_SESSION_NO,
    READ,
    RECORDS,
    REQUESTS,
    RUN,
    SESSION,
    UNPUBLISHED,
)
from steprail_daemon.journal.store import Batch, JournalError, JournalUnusable, RequestRow, RunRow, SessionRow

_PAGE: Final = 256

#: Beginnings of the names of SQLite's errors that are about the file.
_DAMAGE: Final = ("SQLITE_CORRUPT", "SQLITE_NOTADB")


class SqliteReader:
    """Answers the questions of `Store`."""

    _db: sqlite3.Connection
    _path: Path
    #: Sessions that were deleted and whose batches may still be there.
    _deleted: set[int]

    def read(self, session_no: int, after_seq: int, max_bytes: int) -> list[Batch]:
        """See `Store.read`."""
        if session_no in self._deleted:
            return []
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
        if key is not None and session_no not in self._deleted:
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
            last_seq = self._last_seq(session_no)
        return SessionRow(session_no, session_id, last_seq, last_run_no, closed)

    def _last_seq(self, session_no: int) -> int:
        """Give where an open session ends; if its batches cannot be read, where its runs say that it is at least."""
        try:
            last = self._one(LAST[session_no % LANES], key_range(session_no))
        except JournalUnusable:
            ends = [run.last_seq or run.first_seq for run in self.runs(session_no)]
            return max(ends, default=0)
        return last[1] if last else 0

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
        page = [] if session_no in self._deleted else self._record_page(session_no, low - 1, high)
        return self._iterate_records(session_no, high, page)

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
        if last is None or session_no in self._deleted:
            return []
        # Batches without events have the first_seq of the event that is next.
        next_seq = last[1] + 1
        first, end = pack_key(session_no, next_seq, 0), pack_key(session_no, next_seq, LAST_SUB - 1)
        return self._all(UNPUBLISHED[session_no % LANES], (first, end))

    def last_session_no(self) -> int:
        """See `Store.last_session_no`."""
        (number,) = self._one(LAST_SESSION_NO, ())
        return int(number)

    def requests(self, since: int) -> Iterator[RequestRow]:
        """See `Store.requests`."""
        return self._iterate_requests(since, self._request_page(0, since))

    def _request_page(self, after: int, since: int) -> list[tuple[int, str, str, str, str, bytes, str, int]]:
        return self._all(REQUESTS, (after, since, _PAGE))

    def _iterate_requests(
        self, since: int, page: list[tuple[int, str, str, str, str, bytes, str, int]]
    ) -> Iterator[RequestRow]:
        while page:
            for _, tenant, caller, request_id, method, digest, result, at in page:
                yield RequestRow(
                    tenant=tenant,
                    caller=caller,
                    request_id=request_id,
                    method=method,
                    digest=digest,
                    result=result,
                    at=at,
                )
            page = self._request_page(page[-1][0], since)

    def read_blob(self, blob_id: str, offset: int, max_bytes: int) -> tuple[bytes, int, str] | None:
        """See `Store.read_blob`."""
        row = self._one(BLOB, (blob_id,))
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

    def _one(self, statement: str, values: tuple[int | str, ...]) -> Any:
        rows = self._all(statement, values)
        return rows[0] if rows else None

    def _all(self, statement: str, values: tuple[int | str, ...]) -> list[Any]:
        try:
            return self._db.execute(statement, values).fetchall()
        except (sqlite3.Error, OverflowError) as error:
            raise self._failure(error) from error

    def _failure(self, error: Exception) -> JournalError:
        """Tell damage, which another attempt does not mend, from a machine that refuses."""
        kind = JournalUnusable if _is_damage(error) else JournalError
        return kind(describe(self._path, error))


def _is_damage(error: Exception) -> bool:
    return getattr(error, "sqlite_errorname", "").startswith(_DAMAGE)
