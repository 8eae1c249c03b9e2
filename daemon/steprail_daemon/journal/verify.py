"""Checks a journal's file offline, or beside a live daemon: it reads one snapshot and writes nothing.

Checked are SQLite's own structures, the checksum and the framing of every batch, the gapless order of every session,
that every record can be decoded, the records that are kept of removed prefixes, and that the tables of sessions, runs,
blobs, requests and deleted sessions agree with the batches and with each other.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import quote

import msgspec

from steprail_daemon.core.records import RunEnded
from steprail_daemon.journal.framing import framing_problem
from steprail_daemon.journal.layout import LANES, LAST_SUB, checksum, key_range, unpack_key
from steprail_daemon.journal.record import RecordError, decode_records
from steprail_daemon.journal.schema import check_version, describe
from steprail_daemon.journal.store import JournalError

#: Problems that a report holds; the rest is counted.
MAX_PROBLEMS: Final = 1000


class Problem(msgspec.Struct, frozen=True):
    """Something that is not as the format demands. `place` names table and row in words."""

    place: str
    message: str


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What a check found. `wire_bytes` is the sum of the batches' wire forms; `more_problems` are not listed."""

    sessions: int
    runs: int
    events: int
    batches: int
    wire_bytes: int
    blobs: int
    problems: tuple[Problem, ...]
    more_problems: int

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not self.problems


def verify(path: Path) -> Report:
    """Check the journal at `path`. Takes as long as reading the whole file; a live daemon's log grows meanwhile.

    Raises:
        JournalError: the file is not there, not a journal, or of another version: nothing could be checked.
    """
    wal = path.with_name(path.name + "-wal")
    try:
        path.stat()
        # Without a log nobody writes. Opened as what does not change, a file is left without the side files that SQLite
        # would make beside it, and one on a read-only medium can be opened at all.
        if not wal.exists():
            report = _verified(path, "immutable=1")
            if not wal.exists():
                return report
            # A daemon was started meanwhile, and may have changed what was read.
        return _verified(path, "mode=ro")
    except (sqlite3.Error, OSError) as error:
        raise JournalError(describe(path, error)) from error


def _verified(path: Path, option: str) -> Report:
    connection = sqlite3.connect(f"file:{quote(str(path.absolute()))}?{option}", uri=True, isolation_level=None)
    try:
        check_version(connection, path)
        connection.execute("BEGIN")
        return _Check(connection).run()
    finally:
        connection.close()


class _Run(msgspec.Struct):
    """What the batches say of a run: where it begins and ends, and how many terminal records it has."""

    first_seq: int
    last_seq: int
    terminal: int = 0


class _Session(msgspec.Struct):
    """What the batches say of a session up to where the check is."""

    number: int
    earliest: int
    next_seq: int
    sub: int
    runs: dict[int, _Run] = {}
    #: Runs whose terminal record came after the last event: its event, and with that the run's end, may be lost.
    ending: set[int] = set()

    @property
    def place(self) -> str:
        return f"session {self.number}"


class _Row(msgspec.Struct, frozen=True):
    """One row of a table of batches, its key taken apart."""

    session_no: int
    first_seq: int
    sub: int
    run_no: int
    last_seq: int
    records: bytes | None

    @property
    def place(self) -> str:
        return f"session {self.session_no}, batch at {self.first_seq}/{self.sub}"


class _Check:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._db = connection
        self._problems: list[Problem] = []
        self._more = 0
        self._events = self._batches = self._wire_bytes = 0
        (self._version,) = connection.execute("PRAGMA user_version").fetchone()
        #: Sessions that were deleted; the value tells whether nothing of them should be left.
        self._deleted: dict[int, bool] = {}
        #: Terminal records among those that are kept, by session and run.
        self._kept_ends: dict[tuple[int, int], int] = {}
        #: The last event whose records are kept, by session.
        self._kept_upto: dict[int, int] = {}

    def run(self) -> Report:
        self._guarded("file", self._integrity)
        if self._version >= 3:
            self._guarded("table deleted_sessions", self._deleted_sessions)
            self._guarded("table kept", self._kept)
            self._guarded("table requests", self._requests)
        for lane in range(LANES):
            self._guarded(f"table batches_{lane}", partial(self._lane, lane))
        self._guarded("table sessions", self._sessions_without_batches)
        self._guarded("table runs", self._runs_without_session)
        self._guarded("table runs", self._removed_runs)
        self._guarded("table blobs", self._blobs)
        self._guarded("table blob_sessions", self._blob_sessions)
        return Report(
            sessions=self._count("sessions"),
            runs=self._count("runs"),
            events=self._events,
            batches=self._batches,
            wire_bytes=self._wire_bytes,
            blobs=self._count("blobs"),
            problems=tuple(self._problems),
            more_problems=self._more,
        )

    def _report(self, place: str, message: str) -> None:
        if len(self._problems) < MAX_PROBLEMS:
            self._problems.append(Problem(place, message))
        else:
            self._more += 1

    def _guarded(self, place: str, check: Callable[[], None]) -> None:
        """Run a part of the check; what cannot be read is a problem, and the other parts go on."""
        try:
            check()
        except sqlite3.Error as error:
            self._report(place, f"cannot be read: {error}")

    def _count(self, table: str) -> int:
        try:
            (count,) = self._db.execute(f"SELECT count(*) FROM {table}").fetchone()  # noqa: S608  # one of our names
        except sqlite3.Error:
            # The part that reads the table has reported it.
            return 0
        return int(count)

    def _integrity(self) -> None:
        for (line,) in self._db.execute(f"PRAGMA quick_check({MAX_PROBLEMS})"):
            if line != "ok":
                self._report("file", line)

    def _deleted_sessions(self) -> None:
        for session_no, swept in self._db.execute("SELECT session_no, swept FROM deleted_sessions"):
            self._deleted[session_no] = bool(swept)
            if self._db.execute("SELECT 1 FROM sessions WHERE session_no = ?", (session_no,)).fetchone():
                self._report(f"session {session_no}", "was deleted and has a row in table sessions")

    def _kept(self) -> None:
        statement = "SELECT key, run_no, last_seq, at, checksum, records FROM kept ORDER BY key"
        for key, run_no, last_seq, at, stored, records in self._db.execute(statement):
            session_no, first_seq, sub = unpack_key(key)
            row = _Row(session_no, first_seq, sub, run_no, last_seq, records)
            place = f"kept records of {row.place}"
            if checksum(at, records, b"") != stored:
                self._report(place, "do not match their checksum")
            if not self._has_session(session_no):
                self._report(place, "are of no session")
            if first_seq <= self._kept_upto.get(session_no, 0) or last_seq < first_seq - 1:
                self._report(place, f"do not follow those before, which end at {self._kept_upto.get(session_no, 0)}")
            self._kept_upto[session_no] = max(last_seq, self._kept_upto.get(session_no, 0))
            ends = self._terminal_records(row)
            if ends:
                run = (session_no, run_no)
                self._kept_ends[run] = self._kept_ends.get(run, 0) + ends

    def _has_session(self, session_no: int) -> bool:
        """Whether a session is there, or was deleted and may have left something that is yet to be removed."""
        if self._deleted.get(session_no) is False:
            return True
        found = self._db.execute("SELECT 1 FROM sessions WHERE session_no = ?", (session_no,)).fetchone()
        return found is not None

    def _requests(self) -> None:
        statement = (
            "SELECT request_no, request_id FROM requests"
            " WHERE request_id = '' OR method = '' OR result = '' OR length(digest) = 0 OR at <= 0"
        )
        for request_no, request_id in self._db.execute(statement):
            self._report(f"request {request_no} ({request_id!r})", "lacks its id, method, digest, result or time")

    def _lane(self, lane: int) -> None:
        session: _Session | None = None
        cursor = self._db.execute(
            f"SELECT key, run_no, last_seq, at, checksum, records, events FROM batches_{lane} ORDER BY key"  # noqa: S608
        )
        for values in cursor:
            row = self._batch(lane, values)
            if session is None or session.number != row.session_no:
                if session is not None:
                    self._end_session(session)
                session = _Session(row.session_no, row.first_seq, row.first_seq, row.sub % LAST_SUB)
            self._in_order(session, row)
            self._run_of(session, row)
        if session is not None:
            self._end_session(session)

    def _batch(self, lane: int, values: tuple[int, int, int, int, int, bytes | None, bytes]) -> _Row:
        """Check a row by itself."""
        key, run_no, last_seq, at, stored, records, events = values
        session_no, first_seq, sub = unpack_key(key)
        row = _Row(session_no, first_seq, sub, run_no, last_seq, records)
        count = last_seq - first_seq + 1
        if session_no % LANES != lane:
            self._report(row.place, f"is in table batches_{lane}")
        if checksum(at, records, events) != stored:
            self._report(row.place, "does not match its checksum")
        problem = framing_problem(count, events) if count >= 0 else f"last_seq is {last_seq}"
        if problem:
            self._report(row.place, problem)
        if not count and not records:
            self._report(row.place, "has neither events nor records")
        self._events += max(count, 0)
        self._batches += 1
        self._wire_bytes += len(events) - 5 * max(count, 0)
        return row

    def _in_order(self, session: _Session, row: _Row) -> None:
        if row.first_seq != session.next_seq:
            self._report(row.place, f"does not follow the batch before, which ends at {session.next_seq - 1}")
        has_events = row.last_seq >= row.first_seq
        if row.sub != (LAST_SUB if has_events else session.sub):
            self._report(row.place, f"has sub {row.sub}, next is {session.sub}, {LAST_SUB} with events")
        session.next_seq = row.last_seq + 1
        session.sub = 0 if has_events else row.sub + 1

    def _run_of(self, session: _Session, row: _Row) -> None:
        if row.last_seq >= row.first_seq:
            session.ending.clear()
        if row.run_no:
            run = session.runs.setdefault(row.run_no, _Run(row.first_seq, row.last_seq))
            run.last_seq = row.last_seq
            terminal = self._terminal_records(row)
            run.terminal += terminal
            if terminal and row.last_seq < row.first_seq:
                session.ending.add(row.run_no)
        elif self._terminal_records(row):
            self._report(row.place, "has the end of a run but belongs to none")

    def _terminal_records(self, row: _Row) -> int:
        try:
            records = decode_records(row.records or b"")
        except RecordError as error:
            self._report(row.place, error.message)
            return 0
        return sum(isinstance(record, RunEnded) for record in records)

    def _end_session(self, session: _Session) -> None:
        if self._deleted.get(session.number) is False:
            # Its batches are removed from the first to the last, which takes a while.
            return
        kept_upto = self._kept_upto.get(session.number, 0)
        if kept_upto >= session.earliest:
            self._report(session.place, f"has kept records up to {kept_upto} and batches from {session.earliest} on")
        found = self._db.execute("SELECT last_seq FROM sessions WHERE session_no = ?", (session.number,)).fetchone()
        last_seq = session.next_seq - 1
        if found is None:
            self._report(session.place, "has batches but no row in table sessions")
        elif found[0] not in {None, last_seq}:
            self._report(session.place, f"was closed at {found[0]}, its batches end at {last_seq}")
        rows = self._db.execute("SELECT run_no, first_seq, last_seq FROM runs WHERE session_no = ?", (session.number,))
        table = {run_no: (first, last) for run_no, first, last in rows}
        for run_no in sorted(session.runs.keys() - table.keys()):
            self._report(f"{session.place}, run {run_no}", "has batches but no row in table runs")
        for run_no, (first, last) in table.items():
            self._run_agrees(session, run_no, first, last)

    def _run_agrees(self, session: _Session, run_no: int, first_seq: int, last_seq: int | None) -> None:
        place = f"{session.place}, run {run_no}"
        run = session.runs.get(run_no)
        if run is None:
            # Its batches may all be in the prefix that was removed; `_removed_runs` looks for their records.
            if last_seq is None or last_seq >= session.earliest:
                self._report(place, "has no batches")
            return
        if first_seq >= session.earliest and run.first_seq != first_seq:
            self._report(place, f"begins at {run.first_seq} by its batches, at {first_seq} by table runs")
        if last_seq is None:
            if run.terminal > (run_no in session.ending):
                self._report(place, "has its terminal record but is open by table runs")
            return
        if run.last_seq != last_seq:
            self._report(place, f"goes on to {run.last_seq} by its batches, it ended at {last_seq} by table runs")
        terminal = run.terminal + self._kept_ends.get((session.number, run_no), 0)
        if terminal != 1:
            self._report(place, f"ended and has {terminal} terminal records, not one")

    def _removed_runs(self) -> None:
        """See that of each run without batches the end is kept, since the version that keeps it."""
        if self._version < 3:
            return
        statement = "SELECT session_no, run_no, runs.last_seq FROM runs JOIN sessions USING (session_no)"
        for session_no, run_no, last_seq in self._db.execute(f"{statement} WHERE runs.last_seq > 0"):
            table = f"batches_{session_no % LANES}"
            (first,) = self._db.execute(
                f"SELECT min(key) FROM {table} WHERE key BETWEEN ? AND ?",  # noqa: S608
                key_range(session_no),
            ).fetchone()
            removed = first is None or unpack_key(first)[1] > last_seq
            ends = self._kept_ends.get((session_no, run_no), 0)
            if removed and ends != 1:
                place = f"session {session_no}, run {run_no}"
                self._report(
                    place, f"was removed with its prefix and has {ends} terminal records that are kept, not one"
                )

    def _sessions_without_batches(self) -> None:
        for session_no, last_seq in self._db.execute("SELECT session_no, last_seq FROM sessions ORDER BY session_no"):
            if last_seq is None and not self._has_batches(session_no):
                self._report(f"session {session_no}", "is open and has no batches")

    def _has_batches(self, session_no: int) -> bool:
        statement = f"SELECT 1 FROM batches_{session_no % LANES} WHERE key BETWEEN ? AND ? LIMIT 1"  # noqa: S608
        return self._db.execute(statement, key_range(session_no)).fetchone() is not None

    def _runs_without_session(self) -> None:
        statement = "SELECT session_no, run_no FROM runs WHERE session_no NOT IN (SELECT session_no FROM sessions)"
        for session_no, run_no in self._db.execute(statement):
            self._report(f"session {session_no}, run {run_no}", "has no row in table sessions")

    def _blobs(self) -> None:
        for blob_id, data in self._db.execute("SELECT blob_id, data FROM blobs ORDER BY blob_no"):
            if blob_id != f"sha256-{hashlib.sha256(data).hexdigest()}":
                self._report(f"blob {blob_id}", "does not match its digest")

    def _blob_sessions(self) -> None:
        if self._version == 1:
            # Made when a daemon opens the file.
            return
        for blob_no, session_no in self._db.execute("SELECT blob_no, session_no FROM blob_sessions"):
            blob = self._db.execute("SELECT 1 FROM blobs WHERE blob_no = ?", (blob_no,)).fetchone()
            if blob is None or not self._has_session(session_no):
                self._report(f"blob {blob_no} of session {session_no}", "has no row in table blobs or sessions")
        for (blob_id,) in self._db.execute(
            "SELECT blob_id FROM blobs WHERE blob_no NOT IN (SELECT blob_no FROM blob_sessions)"
        ):
            self._report(f"blob {blob_id}", "is of no session")
