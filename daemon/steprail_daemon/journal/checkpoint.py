"""Moves the write-ahead log into the file, from a thread beside the writer."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Final

import msgspec

from steprail_daemon.journal.beside import Beside

#: With nobody writing, a log file larger than this is cut to nothing.
TRUNCATE_ABOVE: Final = 4 * 1024 * 1024

#: A log with more than this in use is begun anew even under load. A log that is written to without a pause never
#: becomes free by a passive checkpoint alone, and would grow without end.
RESTART_ABOVE: Final = 64 * 1024 * 1024

_FRAME_HEAD: Final = 24


class Checkpoint(msgspec.Struct, frozen=True):
    """What a checkpoint did. `wal_bytes`: size of the log's file afterwards; `file_bytes`: that of the journal itself.

    `frames` were in the log, `moved` of them are in the file now; `begun_anew`: the log was restarted or cut.
    """

    frames: int
    moved: int
    wal_bytes: int
    file_bytes: int
    begun_anew: bool


class Checkpointer:
    """Runs checkpoints on a connection of its own. Thread-safe; one checkpoint runs at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._wal = path.with_name(path.name + "-wal")
        self._beside = Beside(path, "a checkpoint", lock_seconds=0)

    def run(self, *, idle: bool) -> Checkpoint:
        """Move what is committed into the file and sync it; takes as long as the disk needs.

        It does not hold up the writer, except when the log is begun anew: nearly all was moved by the passive
        checkpoint before, what was written meanwhile is moved under the writer's lock. `idle`: nobody writes now.

        Raises:
            JournalError: the disk refused, or the journal is closed.
        """
        with self._beside.using() as connection:
            return self._run(connection, idle=idle)

    def _run(self, connection: sqlite3.Connection, *, idle: bool) -> Checkpoint:
        _, frames, moved = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        (page_size,) = connection.execute("PRAGMA page_size").fetchone()
        mode = ""
        if idle and moved == frames and self._wal_bytes() > TRUNCATE_ABOVE:
            mode = "TRUNCATE"
        elif frames * (page_size + _FRAME_HEAD) > RESTART_ABOVE:
            mode = "RESTART"
        begun_anew = False
        if mode:
            # Busy (a reader is in the log, or the writer at work) is no error: the next checkpoint tries again.
            (busy, _, _) = connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
            begun_anew = not busy
        return Checkpoint(frames, moved, self._wal_bytes(), self._path.stat().st_size, begun_anew)

    def _wal_bytes(self) -> int:
        try:
            return self._wal.stat().st_size
        except FileNotFoundError:
            return 0

    def close(self, timeout: float = 10.0) -> None:
        """Close the connection once a checkpoint that is under way has ended.

        Raises:
            JournalError: it did not end within `timeout` seconds.
        """
        self._beside.close(timeout)
