"""Opens the journal's file: makes it, checks its version, begins and ends a life. See the package docstring."""

from __future__ import annotations

import os
import re
import secrets
import sqlite3
from pathlib import Path
from typing import Final, Literal

from steprail_daemon.journal.layout import LANES, MAX_SEQ, STATEMENTS, unpack_key
from steprail_daemon.journal.store import JournalError, JournalUnusable

APPLICATION_ID: Final = 0x7370726C
SCHEMA_VERSION: Final = 3

Synchronous = Literal["normal", "full"]

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

_BATCHES = """
CREATE TABLE batches_{lane} (
    key INTEGER PRIMARY KEY,
    run_no INTEGER NOT NULL,
    last_seq INTEGER NOT NULL,
    at INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    records BLOB,
    events BLOB NOT NULL
) STRICT"""

#: As version 2 made it.
_BLOB_SESSIONS_2 = """
CREATE TABLE blob_sessions (
    blob_no INTEGER NOT NULL,
    session_no INTEGER NOT NULL,
    PRIMARY KEY (blob_no, session_no)
) STRICT, WITHOUT ROWID"""

_BLOB_SESSIONS = f"""
CREATE TABLE blob_sessions (
    blob_no INTEGER NOT NULL,
    session_no INTEGER NOT NULL,
    last_seq INTEGER NOT NULL DEFAULT {MAX_SEQ},
    PRIMARY KEY (blob_no, session_no)
) STRICT, WITHOUT ROWID"""

#: What version 3 added.
_TABLES_3 = (
    "CREATE INDEX blobs_of_session ON blob_sessions (session_no, last_seq)",
    """
CREATE TABLE kept (
    key INTEGER PRIMARY KEY,
    run_no INTEGER NOT NULL,
    last_seq INTEGER NOT NULL,
    at INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    records BLOB NOT NULL
) STRICT""",
    """
CREATE TABLE requests (
    request_no INTEGER PRIMARY KEY,
    tenant TEXT NOT NULL,
    caller TEXT NOT NULL,
    request_id TEXT NOT NULL,
    method TEXT NOT NULL,
    digest BLOB NOT NULL,
    result TEXT NOT NULL,
    at INTEGER NOT NULL,
    UNIQUE (tenant, caller, request_id)
) STRICT""",
    "CREATE TABLE deleted_sessions (session_no INTEGER PRIMARY KEY, swept INTEGER NOT NULL) STRICT",
)

_TABLES = (
    "CREATE TABLE sessions (session_no INTEGER PRIMARY KEY, session_id TEXT NOT NULL UNIQUE, last_seq INTEGER) STRICT",
    """
CREATE TABLE runs (
    session_no INTEGER NOT NULL,
    run_no INTEGER NOT NULL,
    run_id TEXT NOT NULL UNIQUE,
    first_seq INTEGER NOT NULL,
    last_seq INTEGER,
    PRIMARY KEY (session_no, run_no)
) STRICT, WITHOUT ROWID""",
    """
CREATE TABLE blobs (
    blob_no INTEGER PRIMARY KEY,
    blob_id TEXT NOT NULL UNIQUE,
    mime_type TEXT NOT NULL,
    data BLOB NOT NULL
) STRICT""",
    _BLOB_SESSIONS,
    """
CREATE TABLE life (
    epoch TEXT NOT NULL,
    boot_id TEXT NOT NULL,
    synchronous TEXT NOT NULL,
    clean INTEGER NOT NULL
) STRICT""",
    *_TABLES_3,
)

_NAME_BLOB_2 = (
    "INSERT INTO blob_sessions (session_no, blob_no) SELECT ?, blob_no FROM blobs WHERE blob_id = ?"
    " ON CONFLICT DO NOTHING"
)


_BLOB_ID: Final = re.compile(rb"sha256-[0-9a-f]{64}")

#: Beginnings of the names of SQLite's errors that are about the machine.
_PASSING: Final = ("SQLITE_FULL", "SQLITE_IOERR", "SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_CANTOPEN", "SQLITE_READONLY")


def describe(path: Path, error: Exception) -> str:
    """Give the store's own words, with SQLite's name of the error where there is one."""
    name = getattr(error, "sqlite_errorname", "")
    return f"journal {path}: {error}" + (f" ({name})" if name else "")


def read_boot_id() -> str:
    """Give what identifies this start of the machine; empty if it cannot be told, which equals no other."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""


def open_for_writing(path: Path, synchronous: Synchronous, boot_id: str) -> tuple[sqlite3.Connection, str]:
    """Open the file, made anew if there is none, begin a life, and give the writer's connection and the epoch.

    The caller holds the lock of the state directory.

    Raises:
        JournalUnusable: the file is not a journal, of a newer version, or damaged.
        JournalError: it cannot be opened or written now.
    """
    connection: sqlite3.Connection | None = None
    try:
        _touch(path)
        # The daemon may move the store to a thread of its own; that one thread at a time uses it is the caller's care.
        connection = sqlite3.connect(
            path, isolation_level=None, timeout=5.0, check_same_thread=False, cached_statements=STATEMENTS
        )
        new = _is_new(connection, path)
        _set_journal_mode(connection)
        if new:
            _create(connection)
        else:
            _upgrade(connection)
        epoch = _begin_life(connection, synchronous, boot_id)
        connection.execute(f"PRAGMA synchronous = {synchronous}")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute("PRAGMA busy_timeout = 0")
    except (sqlite3.Error, OSError, JournalError) as error:
        if connection is not None:
            connection.close()
        if isinstance(error, JournalError):
            raise
        kind = JournalError if _may_pass(error) else JournalUnusable
        raise kind(describe(path, error)) from error
    return connection, epoch


def _may_pass(error: Exception) -> bool:
    """Whether it is the machine that refuses (a full disk, a lock, rights) and not the file that is wrong."""
    return isinstance(error, OSError) or getattr(error, "sqlite_errorname", "").startswith(_PASSING)


def _touch(path: Path) -> None:
    """Make the file readable for its owner alone: it holds prompts. SQLite gives its side files the same mode."""
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return
    os.close(descriptor)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def check_version(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse a file that is no journal or of a version that this program cannot read.

    Raises:
        JournalUnusable: the file is such a one.
    """
    (application_id,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application_id != APPLICATION_ID:
        raise JournalUnusable(
            f"journal {path}: not a journal of steprail, its application id is {application_id:#x},"
            f" not {APPLICATION_ID:#x}"
        )
    if not 1 <= version <= SCHEMA_VERSION:
        raise JournalUnusable(
            f"journal {path}: its schema has version {version}, this program knows versions up to {SCHEMA_VERSION}"
        )


def _is_new(connection: sqlite3.Connection, path: Path) -> bool:
    (objects,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    (application_id,) = connection.execute("PRAGMA application_id").fetchone()
    if objects == 0 and application_id == 0:
        return True
    check_version(connection, path)
    return False


def _set_journal_mode(connection: sqlite3.Connection) -> None:
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise sqlite3.OperationalError(f"write-ahead logging is not possible here, SQLite stays in mode {mode!r}")


def _create(connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN IMMEDIATE")
    for statement in _TABLES:
        connection.execute(statement)
    for lane in range(LANES):
        connection.execute(_BATCHES.format(lane=lane))
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    connection.execute("COMMIT")


def _upgrade(connection: sqlite3.Connection) -> None:
    """Bring a file of an earlier version to the present one, in one transaction."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version == SCHEMA_VERSION:
        return
    connection.execute("BEGIN IMMEDIATE")
    if version == 1:
        _upgrade_to_2(connection)
    # Where a blob was brought is not known of files before version 3; it goes with the whole of the session's history.
    connection.execute(f"ALTER TABLE blob_sessions ADD COLUMN last_seq INTEGER NOT NULL DEFAULT {MAX_SEQ}")
    for statement in _TABLES_3:
        connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    connection.execute("COMMIT")


def _upgrade_to_2(connection: sqlite3.Connection) -> None:
    """Add which sessions have a blob."""
    connection.execute(_BLOB_SESSIONS_2)
    if connection.execute("SELECT 1 FROM blobs LIMIT 1").fetchone():
        for lane in range(LANES):
            for key, events in connection.execute(f"SELECT key, events FROM batches_{lane}"):  # noqa: S608
                for blob_id in set(_BLOB_ID.findall(events)):
                    connection.execute(_NAME_BLOB_2, (unpack_key(key)[0], blob_id.decode()))
    # Prompts are named by no event. Which session had which cannot be told any more, and all had the same owner.
    connection.execute(
        "INSERT INTO blob_sessions SELECT blob_no, session_no FROM blobs, sessions"
        " WHERE blob_no NOT IN (SELECT blob_no FROM blob_sessions)"
    )


def _begin_life(connection: sqlite3.Connection, synchronous: Synchronous, boot_id: str) -> str:
    """Write and sync the row of `life`; give the epoch."""
    # Unsynced, a crash could leave the clean mark of the life before on the disk and lose commits of this one.
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("BEGIN IMMEDIATE")
    row = connection.execute("SELECT epoch, boot_id, synchronous, clean FROM life").fetchone()
    epoch = str(row[0]) if row and not _may_have_lost(row[1:], boot_id) else secrets.token_hex(8)
    connection.execute("DELETE FROM life")
    connection.execute("INSERT INTO life VALUES (?, ?, ?, 0)", (epoch, boot_id, synchronous))
    connection.execute("COMMIT")
    return epoch


def _may_have_lost(life: tuple[str, str, int], boot_id: str) -> bool:
    last_boot_id, synchronous, clean = life
    same_boot = bool(boot_id) and boot_id == last_boot_id
    return not clean and synchronous != "full" and not same_boot


def end_life(connection: sqlite3.Connection) -> None:
    """Mark the file as closed cleanly and move the write-ahead log into it.

    Raises:
        sqlite3.Error: that failed.
    """
    # The mark is the last frame of the log, so it is on the disk only if all commits before it are.
    connection.execute("UPDATE life SET clean = 1")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
