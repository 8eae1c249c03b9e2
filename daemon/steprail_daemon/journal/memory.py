"""The store in memory: the same semantics as the file, without its durability. For tests and for measuring."""

from __future__ import annotations

import secrets
from bisect import bisect_right
from collections.abc import Iterator

import msgspec

from steprail_daemon.journal.layout import LAST_SUB, MAX_SEQ
from steprail_daemon.journal.record import condense
from steprail_daemon.journal.store import Batch, BatchRefused, Blob, JournalError, RequestRow, RunRow, SessionRow
from steprail_daemon.journal.tail import Tail, has_edges, new_tail, refusal, uint32_at


class _Session:
    """What is kept of a session. `lasts` are the last sequence numbers of `batches`, for bisection."""

    __slots__ = ("batches", "earliest", "lasts", "records", "run_ids", "session_id", "tail", "unpublished")

    def __init__(self, session_id: str, tail: Tail) -> None:
        self.session_id = session_id
        self.tail = tail
        self.batches: list[Batch] = []
        self.earliest = 1
        self.lasts: list[int] = []
        self.records: list[tuple[int, bytes]] = []
        self.unpublished: list[tuple[int, int, bytes]] = []
        self.run_ids: list[str] = []


class MemoryStore:
    """A `Store` that is gone with its process."""

    def __init__(self) -> None:
        self._epoch = secrets.token_hex(8)
        self._sessions: dict[int, _Session] = {}
        self._session_numbers: dict[str, int] = {}
        self._runs: dict[str, RunRow] = {}
        self._blobs: dict[str, Blob] = {}
        self._blob_sessions: dict[str, set[int]] = {}
        self._requests: dict[tuple[str, str, str], RequestRow] = {}
        self._deleted: set[int] = set()
        self._closed = False

    @property
    def epoch(self) -> str:
        """See `Store.epoch`."""
        return self._epoch

    def append(self, batch: Batch) -> None:
        """See `Store.append`."""
        session = self._sessions.get(batch.session_no)
        if session is None or self._closed or batch.opens_session:
            session = self._opened(batch)
        # Nearly every batch brings events or records and nothing else. The test of those is written out, as in the
        # file's store and for the same reason; it takes none that `Tail.check` refuses.
        tail = session.tail
        run_no, last_seq, records = batch.run_no, batch.last_seq, batch.records
        kinds, ends, wire = batch.kinds, batch.ends, batch.wire
        count = last_seq - tail.next_seq + 1
        if (
            batch.first_seq != tail.next_seq
            or run_no not in tail.writable_runs
            or batch.opens_run
            or batch.opens_session
            or batch.ends_run
            or batch.blobs
            or batch.request is not None
            or batch.closes_session
            or len(kinds) != count
            or len(ends) != 4 * count
            or (
                (uint32_at(ends, -4)[0] != len(wire) or last_seq > MAX_SEQ)
                if count
                else (wire or not records or tail.sub >= LAST_SUB)
            )
        ):
            self._append_any(batch, session)
        elif count:
            tail.next_seq = last_seq + 1
            tail.sub = 0
        else:
            tail.sub += 1
        if records:
            session.records.append((run_no, records))
        if kinds:
            session.lasts.append(last_seq)
            session.batches.append(batch if _is_bare(batch) else _bare(batch))
            session.unpublished.clear()
        else:
            session.unpublished.append((run_no, batch.at, records))

    def _opened(self, batch: Batch) -> _Session:
        self._check_open()
        if batch.session_no in self._sessions or batch.opens_session in self._session_numbers:
            raise refusal(batch, f"it opens session {batch.opens_session!r}, which is there already")
        if batch.session_no in self._deleted:
            raise refusal(batch, "the session was deleted, and its number is not used again")
        return _Session(batch.opens_session, new_tail(batch))

    def _append_any(self, batch: Batch, session: _Session) -> None:
        session.tail.check(batch)
        if batch.opens_run in self._runs:
            raise refusal(batch, f"it opens run {batch.opens_run!r}, which is there already")
        session.tail.advance(batch)
        if batch.opens_session:
            self._sessions[batch.session_no] = session
            self._session_numbers[batch.opens_session] = batch.session_no
        if batch.opens_run:
            session.run_ids.append(batch.opens_run)
            row = RunRow(batch.opens_run, batch.session_no, batch.run_no, batch.first_seq, None)
            self._runs[batch.opens_run] = row
        if batch.ends_run:
            self._end_run(session, batch)
        for blob in batch.blobs:
            self._blobs.setdefault(blob.blob_id, blob)
            self._blob_sessions.setdefault(blob.blob_id, set()).add(batch.session_no)
        if batch.request is not None:
            self._keep_request(batch.request)

    def _keep_request(self, request: RequestRow) -> None:
        key = (request.tenant, request.caller, request.request_id)
        # One that is replaced goes to the end, as a new one.
        self._requests.pop(key, None)
        self._requests[key] = request

    def _end_run(self, session: _Session, batch: Batch) -> None:
        run_id = next(run_id for run_id in session.run_ids if self._runs[run_id].run_no == batch.run_no)
        self._runs[run_id] = msgspec.structs.replace(self._runs[run_id], last_seq=batch.last_seq)

    def read(self, session_no: int, after_seq: int, max_bytes: int) -> list[Batch]:
        """See `Store.read`."""
        self._check_open()
        session = self._sessions.get(session_no)
        if session is None:
            return []
        start = end = bisect_right(session.lasts, after_seq)
        size = 0
        while end < len(session.batches) and (end == start or size < max_bytes):
            size += len(session.batches[end].wire)
            end += 1
        return session.batches[start:end]

    def delete_session(self, session_no: int, request: RequestRow | None = None) -> None:
        """See `Store.delete_session`."""
        self._check_open()
        session = self._sessions.pop(session_no, None)
        if session is None:
            raise BatchRefused(f"there is no session {session_no} that could be deleted")
        self._deleted.add(session_no)
        del self._session_numbers[session.session_id]
        for run_id in session.run_ids:
            del self._runs[run_id]
        for blob_id, sessions in list(self._blob_sessions.items()):
            sessions.discard(session_no)
            if not sessions:
                del self._blob_sessions[blob_id], self._blobs[blob_id]
        if request is not None:
            self._keep_request(request)

    def remember(self, request: RequestRow) -> None:
        """See `Store.remember`."""
        self._check_open()
        self._keep_request(request)

    def requests(self, since: int) -> Iterator[RequestRow]:
        """See `Store.requests`."""
        self._check_open()
        return iter([request for request in self._requests.values() if request.at >= since])

    def last_session_no(self) -> int:
        """See `Store.last_session_no`."""
        self._check_open()
        return max(*self._sessions, *self._deleted, 0, 0)

    def remove_prefix(self, session_no: int, upto_seq: int) -> None:
        """Remove a session's batches with events up to `upto_seq`, as retention does in a file."""
        session = self._sessions[session_no]
        count = bisect_right(session.lasts, upto_seq)
        del session.batches[:count], session.lasts[:count]
        session.earliest = session.batches[0].first_seq if session.batches else session.tail.next_seq
        session.records = [(run_no, condense(records)) for run_no, records in session.records]

    def earliest_seq(self, session_no: int) -> int:
        """See `Store.earliest_seq`. 1 for a session that is not there."""
        self._check_open()
        session = self._sessions.get(session_no)
        return session.earliest if session else 1

    def sessions(self) -> Iterator[SessionRow]:
        """See `Store.sessions`."""
        self._check_open()
        return iter([self._row(number) for number in sorted(self._sessions)])

    def session(self, session_id: str) -> SessionRow | None:
        """See `Store.session`."""
        self._check_open()
        number = self._session_numbers.get(session_id)
        return None if number is None else self._row(number)

    def _row(self, session_no: int) -> SessionRow:
        session = self._sessions[session_no]
        tail = session.tail
        return SessionRow(session_no, session.session_id, tail.next_seq - 1, tail.last_run_no, tail.closed)

    def run(self, run_id: str) -> RunRow | None:
        """See `Store.run`."""
        self._check_open()
        return self._runs.get(run_id)

    def runs(self, session_no: int) -> list[RunRow]:
        """See `Store.runs`."""
        self._check_open()
        session = self._sessions.get(session_no)
        return [self._runs[run_id] for run_id in session.run_ids] if session else []

    def records(self, session_no: int) -> Iterator[tuple[int, bytes]]:
        """See `Store.records`."""
        self._check_open()
        session = self._sessions.get(session_no)
        return iter(list(session.records) if session else [])

    def unpublished(self, session_no: int) -> list[tuple[int, int, bytes]]:
        """See `Store.unpublished`."""
        self._check_open()
        session = self._sessions.get(session_no)
        return list(session.unpublished) if session else []

    def read_blob(self, blob_id: str, offset: int, max_bytes: int) -> tuple[bytes, int, str] | None:
        """See `Store.read_blob`."""
        self._check_open()
        blob = self._blobs.get(blob_id)
        if blob is None:
            return None
        return blob.data[offset : offset + max_bytes], len(blob.data), blob.mime_type

    def blob_sessions(self, blob_id: str) -> frozenset[int]:
        """See `Store.blob_sessions`."""
        self._check_open()
        return frozenset(self._blob_sessions.get(blob_id, ()))

    def close(self) -> None:
        """See `Store.close`."""
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise JournalError("the journal is closed")


def _is_bare(batch: Batch) -> bool:
    return not batch.records and not has_edges(batch)


def _bare(batch: Batch) -> Batch:
    return Batch(
        session_no=batch.session_no,
        run_no=batch.run_no,
        first_seq=batch.first_seq,
        last_seq=batch.last_seq,
        at=batch.at,
        kinds=batch.kinds,
        ends=batch.ends,
        wire=batch.wire,
    )
