"""Checks a journal's file offline, or beside a live daemon: it reads one snapshot and writes nothing.

Checked are SQLite's own structures, the checksum and the framing of every batch, the gapless order of every session, that
every record can be decoded, and that the tables of sessions, runs and blobs agree with the batches.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import quote

import msgspec

from steprail_daemon.core.records import RunEnded
from steprail_daemon.journal.framing import framing_problem
from steprail_daemon.journal.layout import LANES, checksum, pack_head, unpack_key
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
    try:
        connection = _open(path)
    except (sqlite3.Error, OSError) as error:
        raise JournalError(describe(path, error)) from error
    try:
        return _Check(connection).run()
    finally:
        connection.close()


def _open(path: Path) -> sqlite3.Connection:
    path.stat()
    uri = f"file:{quote(str(path.absolute()))}?mode=ro"
    # Without a log nobody writes, and a file on a read-only medium can only be read as one that does not change.
    if not path.with_name(path.name + "-wal").exists():
        uri += "&immutable=1"
    connection = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=5.0)
    try:
        check_version(connection, path)
        connection.execute("BEGIN")
    except BaseException:
        connection.close()
        raise
    return connection


class _Run(msgspec.Struct):
    """What the batches say of a run."""

    first_seq: int
    last_seq: int
    ends: int = 0


class _Session(msgspec.Struct):
    """What the batches say of a session up to where the check is."""

    earliest: int
    next_seq: int
    sub: int
    runs: dict[int, _Run] = {}


_Row = tuple[int, int, int, int, int, bytes | None, bytes, bytes]
_RunTable = dict[int, tuple[int, int | None]]


class _Check:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._db = connection
        self._problems: list[Problem] = []
        self._more = 0
        self._events = self._batches = self._wire_bytes = 0

    def run(self) -> Report:
        self._guarded("file", self._integrity)
        for lane in range(LANES):
            self._guarded(f"batches_{lane}", lambda: self._lane(lane))  # noqa: B023  # called before the next turn
        self._guarded("sessions", self._sessions_without_batches)
        self._guarded("runs", self._runs_without_session)
        self._guarded("blobs", self._blobs)
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
