"""A connection of its own beside the writer, used by one thread at a time and closed once."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from steprail_daemon.journal.schema import describe
from steprail_daemon.journal.store import JournalError


class Beside:
    """Opens the connection when it is first used. Thread-safe. `work` is what it is for, in words of an error."""

    def __init__(self, path: Path, work: str, *, lock_seconds: float) -> None:
        self._path = path
        self._work: Final = work
        self._lock_seconds = lock_seconds
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._closed = False

    @contextmanager
    def using(self) -> Iterator[sqlite3.Connection]:
        """Give the connection to one thread. What is left of a transaction when it fails is rolled back.

        Raises:
            JournalError: the disk refused, the writer held its lock for longer than this waits, or it is closed.
        """
        with self._lock:
            if self._closed:
                raise JournalError(f"journal {self._path}: it is closed")
            try:
                yield self._connected()
            except (sqlite3.Error, OSError) as error:
                if self._connection is not None and self._connection.in_transaction:
                    self._connection.rollback()
                raise JournalError(describe(self._path, error)) from error

    def _connected(self) -> sqlite3.Connection:
        if self._connection is None:
            connection = sqlite3.connect(
                self._path, isolation_level=None, timeout=self._lock_seconds, check_same_thread=False
            )
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("PRAGMA wal_autocheckpoint = 0")
            self._connection = connection
        return self._connection

    def close(self, timeout: float = 10.0) -> None:
        """Close the connection once what is under way has ended.

        Raises:
            JournalError: it did not end within `timeout` seconds.
        """
        if not self._lock.acquire(timeout=timeout):
            raise JournalError(f"journal {self._path}: {self._work} did not end within {timeout:g} s")
        try:
            self._closed = True
            if self._connection is not None:
                self._connection.close()
                self._connection = None
        finally:
            self._lock.release()
