"""Removes from the file what need not be kept, in short turns beside the writer.

What goes is the oldest part of a session, up to a place where no run is under way: a run's events are all there or, but
for the moments in which they are being removed, all gone. Never removed are runs that have not ended and the last batch
of a session that is not closed. Records stay, in the table `kept`, so that a replay gives the same sessions and runs as
before; of a step that was recorded as a whole they keep the summary.

A turn is one transaction of at most `TURN_ROWS` rows and about `TURN_BYTES`, so that the writer never waits for long,
or a plan, which only reads. The file does not shrink, its free pages are used again: with `auto_vacuum` it could, at
the price of 4 to 30 per cent more bytes written with every commit (measured), for what seldom happens.
"""

from __future__ import annotations

import sqlite3
from collections import deque
from pathlib import Path
from typing import Any, Final

import msgspec

from steprail_daemon.journal.beside import Beside
from steprail_daemon.journal.layout import LANES, LAST_SUB, MAX_SEQ, checksum, key_range, pack_key, unpack_key
from steprail_daemon.journal.record import condense

TURN_ROWS: Final = 32
TURN_BYTES: Final = 64 * 1024

HOUR_NS: Final = 3_600_000_000_000
#: How long request ids are kept: as long as they count, 24 hours, and a margin for clocks.
REQUESTS_NS: Final = 25 * HOUR_NS
#: Request ids that are kept at most; they count for less than 24 hours where more come in that time.
MAX_REQUESTS: Final = 100_000

#: Over the bound of bytes this part of the kept time goes at once, and at least a minute of it.
_STRIDE: Final = 16
_MINUTE_NS: Final = 60_000_000_000

_LOCK_SECONDS: Final = 1.0


class Keep(msgspec.Struct, frozen=True):
    """What is kept: events up to an age in nanoseconds, and no older ones while the file has more than `max_bytes`."""

    age_ns: int
    max_bytes: int


class Removed(msgspec.Struct, frozen=True, kw_only=True):
    """What a turn did. `more`: there is more to do now, or may be.

    `used_bytes` is the size of the file without its free pages, after a plan, None after another turn. `stuck`: it is
    over the bound, and nothing can be removed.
    """

    batches: int = 0
    blobs: int = 0
    requests: int = 0
    more: bool = True
    used_bytes: int | None = None
    stuck: bool = False


class _Cut(msgspec.Struct, frozen=True):
    """A session, the last event of it that goes, and the last that may have brought a blob that goes."""

    session_no: int
    upto_seq: int
    blobs_upto_seq: int
    deleted: bool = False


class Retention:
    """Does one turn at a time, on a connection of its own. Thread-safe."""

    def __init__(self, path: Path) -> None:
        self._beside = Beside(path, "a turn of retention", lock_seconds=_LOCK_SECONDS)
        self._cuts: deque[_Cut] = deque()
        #: Sessions whose pages are damaged: they are left alone, so that the others have their turn.
        self._damaged: set[int] = set()

    def turn(self, keep: Keep, now: int) -> Removed:
        """Do a bounded part of what is to be done. `now` is the time in Unix nanoseconds.

        Raises:
            JournalError: the disk refused, the writer held its lock for a second, or the journal is closed.
        """
        with self._beside.using() as database:
            try:
                return self._sweep(database, self._cuts[0]) if self._cuts else self._plan(database, keep, now)
            except (sqlite3.Error, OSError) as error:
                if self._cuts and _is_damage(error):
                    self._damaged.add(self._cuts.popleft().session_no)
                raise

    def close(self, timeout: float = 10.0) -> None:
        """Close the connection once a turn that is under way has ended.

        Raises:
            JournalError: it did not end within `timeout` seconds.
        """
        self._beside.close(timeout)

    # --- what is to be done -----------------------------------------------------------------------------------------

    def _plan(self, database: sqlite3.Connection, keep: Keep, now: int) -> Removed:
        requests = _forget_requests(database, now - REQUESTS_NS)
        used = _used_bytes(database)
        deleted = database.execute("SELECT session_no FROM deleted_sessions WHERE NOT swept").fetchall()
        self._cuts.extend(
            _Cut(session_no, MAX_SEQ, MAX_SEQ, deleted=True)
            for (session_no,) in deleted
            if session_no not in self._damaged
        )
        self._cuts.extend(self._cuts_before(database, now - keep.age_ns))
        over = used > keep.max_bytes
        if over and not self._cuts:
            self._cuts.extend(self._oldest_cuts(database, now))
        more = bool(self._cuts) or requests == TURN_ROWS
        return Removed(requests=requests, more=more, used_bytes=used, stuck=over and not more)

    def _cuts_before(self, database: sqlite3.Connection, before: int | None) -> list[_Cut]:
        """Give what can go of every session, of what was committed before a time (None: whenever)."""
        cuts: list[_Cut] = []
        for session_no, closed_at in database.execute("SELECT session_no, last_seq FROM sessions").fetchall():
            if session_no in self._damaged:
                continue
            try:
                cut = _cut(database, session_no, closed_at, before)
            except sqlite3.DatabaseError as error:
                if not _is_damage(error):
                    raise
                self._damaged.add(session_no)
                continue
            if cut is not None:
                cuts.append(cut)
        return cuts

    def _oldest_cuts(self, database: sqlite3.Connection, now: int) -> list[_Cut]:
        """Give the oldest of what can go: about a sixteenth of the time that is kept, more if nothing ends in it."""
        removable = self._cuts_before(database, None)
        if not removable:
            return []
        oldest = min(_first(database, cut.session_no)[1] for cut in removable)
        stride = max((now - oldest) // _STRIDE, _MINUTE_NS)
        while oldest + stride < now:
            cuts = self._cuts_before(database, oldest + stride)
            if cuts:
                return cuts
            stride *= 2
        return removable

    # --- doing it ---------------------------------------------------------------------------------------------------

    def _sweep(self, database: sqlite3.Connection, cut: _Cut) -> Removed:
        batches = _remove_batches(database, cut)
        if batches:
            return Removed(batches=batches)
        blobs = _remove_blobs(database, cut)
        if blobs is not None:
            return Removed(blobs=blobs)
        if cut.deleted and not _remove_kept(database, cut.session_no):
            return Removed()
        self._cuts.popleft()
        return Removed()


def _is_damage(error: Exception) -> bool:
    return getattr(error, "sqlite_errorname", "").startswith("SQLITE_CORRUPT")


def _used_bytes(database: sqlite3.Connection) -> int:
    (pages,) = database.execute("PRAGMA page_count").fetchone()
    (free,) = database.execute("PRAGMA freelist_count").fetchone()
    (size,) = database.execute("PRAGMA page_size").fetchone()
    return int((pages - free) * size)


def _first(database: sqlite3.Connection, session_no: int, from_seq: int = 0) -> tuple[int, int]:
    """Give key and time of a session's first batch that begins at `from_seq` or later; (0, 0) if there is none."""
    _, high = key_range(session_no)
    found = database.execute(
        f"SELECT key, at FROM batches_{session_no % LANES} WHERE key BETWEEN ? AND ? ORDER BY key LIMIT 1",  # noqa: S608
        (pack_key(session_no, from_seq, 0), high),
    ).fetchone()
    return found or (0, 0)


def _last(database: sqlite3.Connection, session_no: int) -> tuple[int, int]:
    """Give key and time of the last batch of a session that has some."""
    found: tuple[int, int] = database.execute(
        f"SELECT key, at FROM batches_{session_no % LANES} WHERE key BETWEEN ? AND ? ORDER BY key DESC LIMIT 1",  # noqa: S608
        key_range(session_no),
    ).fetchone()
    return found


def _cut(database: sqlite3.Connection, session_no: int, closed_at: int | None, before: int | None) -> _Cut | None:
    """Give what can go of a session; None if that is nothing."""
    first_key, first_at = _first(database, session_no)
    if not first_key or (before is not None and first_at >= before):
        return None
    earliest = unpack_key(first_key)[1]
    end = _end(database, session_no, earliest, closed_at, before)
    upto = _without_runs_under_way(database, session_no, end)
    whole = closed_at is not None and upto >= closed_at
    # Batches without events may come after the last one, and go with a session that is closed.
    if upto < earliest and not (whole and earliest == upto + 1):
        return None
    return _Cut(session_no, upto + 1, MAX_SEQ) if whole else _Cut(session_no, upto, upto)


def _end(
    database: sqlite3.Connection, session_no: int, earliest: int, closed_at: int | None, before: int | None
) -> int:
    """Give the last event before the first batch that is young enough to stay, or that has to."""
    last_key, last_at = _last(database, session_no)
    last = unpack_key(last_key)[1]
    if before is None or last_at < before:
        return last - 1 if closed_at is None else closed_at
    # Times hardly ever run backwards, and a scan would read every page that the batches fill.
    while earliest < last:
        middle = (earliest + last) // 2
        key, at = _first(database, session_no, middle)
        if at >= before:
            last = middle
        else:
            earliest = unpack_key(key)[1] + 1
    return unpack_key(_first(database, session_no, last)[0])[1] - 1


def _without_runs_under_way(database: sqlite3.Connection, session_no: int, upto_seq: int) -> int:
    """Give the last place up to `upto_seq` at which no run is under way: runs that wait overlap the live one."""
    while True:
        (first_seq,) = database.execute(
            "SELECT min(first_seq) FROM runs"
            " WHERE session_no = ? AND first_seq <= ? AND (last_seq IS NULL OR last_seq > ?)",
            (session_no, upto_seq, upto_seq),
        ).fetchone()
        if first_seq is None:
            return upto_seq
        upto_seq = first_seq - 1


def _remove_batches(database: sqlite3.Connection, cut: _Cut) -> int:
    """Remove the first of the batches that go, their records kept unless the session was deleted; give how many."""
    session_no = cut.session_no
    table = f"batches_{session_no % LANES}"
    low, _ = key_range(session_no)
    rows = database.execute(
        f"SELECT key, run_no, last_seq, at, records, length(events) FROM {table}"  # noqa: S608
        " WHERE key BETWEEN ? AND ? ORDER BY key LIMIT ?",
        (low, pack_key(session_no, cut.upto_seq, LAST_SUB), TURN_ROWS),
    )
    kept: list[tuple[int, int, int, int, int, bytes]] = []
    count = size = last_key = 0
    for key, run_no, last_seq, at, records, events_size in rows:
        if records is not None and not cut.deleted:
            short = condense(records)
            kept.append((key, run_no, last_seq, at, checksum(at, short, b""), short))
        count += 1
        last_key = key
        size += events_size + len(records or b"")
        if size >= TURN_BYTES:
            break
    rows.close()
    if count:
        database.execute("BEGIN IMMEDIATE")
        database.executemany("INSERT INTO kept VALUES (?, ?, ?, ?, ?, ?)", kept)
        database.execute(f"DELETE FROM {table} WHERE key BETWEEN ? AND ?", (low, last_key))  # noqa: S608
        database.execute("COMMIT")
    return count


def _remove_blobs(database: sqlite3.Connection, cut: _Cut) -> int | None:
    """Remove blobs that the batches brought and no other session has; give how many, None if all were looked at."""
    upto = (cut.session_no, cut.blobs_upto_seq)
    rows = database.execute(
        "SELECT blob_no, length(data) FROM blob_sessions JOIN blobs USING (blob_no)"
        " WHERE session_no = ? AND last_seq <= ? LIMIT ?",
        (*upto, TURN_ROWS),
    )
    numbers: list[int] = []
    size = 0
    for blob_no, data_size in rows:
        numbers.append(blob_no)
        size += data_size
        if size >= TURN_BYTES:
            break
    rows.close()
    if not numbers:
        return None
    removed = 0
    database.execute("BEGIN IMMEDIATE")
    for blob_no in numbers:
        # The session may have brought it again meanwhile.
        database.execute(
            "DELETE FROM blob_sessions WHERE blob_no = ? AND session_no = ? AND last_seq <= ?", (blob_no, *upto)
        )
        removed += database.execute(
            "DELETE FROM blobs WHERE blob_no = ?1 AND NOT EXISTS (SELECT 1 FROM blob_sessions WHERE blob_no = ?1)",
            (blob_no,),
        ).rowcount
    database.execute("COMMIT")
    return removed


def _remove_kept(database: sqlite3.Connection, session_no: int) -> bool:
    """Remove records that were kept of a session that was deleted; whether nothing of it is left."""
    low, high = key_range(session_no)
    keys: list[Any] = database.execute(
        "SELECT key FROM kept WHERE key BETWEEN ? AND ? ORDER BY key LIMIT ?", (low, high, TURN_ROWS)
    ).fetchall()
    database.execute("BEGIN IMMEDIATE")
    if keys:
        database.execute("DELETE FROM kept WHERE key BETWEEN ? AND ?", (low, keys[-1][0]))
    else:
        database.execute("UPDATE deleted_sessions SET swept = 1 WHERE session_no = ?", (session_no,))
    database.execute("COMMIT")
    return not keys


def _forget_requests(database: sqlite3.Connection, before: int) -> int:
    """Forget request ids that are too old or too many; give how many."""
    (newest,) = database.execute("SELECT coalesce(max(request_no), 0) FROM requests").fetchone()
    first = database.execute("SELECT request_no, at FROM requests ORDER BY request_no LIMIT ?", (TURN_ROWS,)).fetchall()
    old = [(request_no,) for request_no, at in first if at < before or request_no <= newest - MAX_REQUESTS]
    if old:
        database.execute("BEGIN IMMEDIATE")
        database.executemany("DELETE FROM requests WHERE request_no = ?", old)
        database.execute("COMMIT")
    return len(old)
