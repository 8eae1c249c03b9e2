"""The way out: a writer that never makes its callers wait, with the ids and time stamps of the dialect."""

import os
import queue
import threading
import time
from typing import Any

from steprail_scripted.rpc import encode

FLUSH_LIMIT = 30.0
"""Seconds that a flush waits for a reader of stdout."""


def now_ms() -> int:
    """Milliseconds of the Unix clock."""
    return time.time_ns() // 1_000_000


def timestamp(at_ms: int | None = None) -> str:
    """Say a time as JavaScript's `toISOString` does."""
    at = now_ms() if at_ms is None else at_ms
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at // 1000)) + f".{at % 1000:03d}Z"


class Wire:
    """Writes lines from a thread of its own.

    As with the CLI there is no backpressure: what nobody reads is kept in memory, and requests are served meanwhile.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._queue: queue.SimpleQueue[bytes | threading.Event] = queue.SimpleQueue()
        self._counter = 0
        self._lock = threading.Lock()
        threading.Thread(target=self._write_all, name="writer", daemon=True).start()

    def new_id(self, prefix: str) -> str:
        """Make an id such as `turn_2_1796030348734`: one counter for all kinds, and the time."""
        with self._lock:
            self._counter += 1
            return f"{prefix}_{self._counter}_{now_ms()}"

    def send(self, message: object) -> None:
        """Send a message."""
        self._queue.put(encode(message))

    def notify(self, method: str, params: dict[str, Any]) -> None:
        """Send a notification of the `autohand.` family, with the time."""
        name = method if method.startswith("autohand.") else f"autohand.{method}"
        self.send({"jsonrpc": "2.0", "method": name, "params": {"timestamp": timestamp(), **params}})

    def write_raw(self, line: str) -> None:
        """Put a line on stdout as it is."""
        self._queue.put(line.encode(errors="surrogatepass") + b"\n")

    def flush(self, limit: float = FLUSH_LIMIT) -> None:
        """Wait until everything queued so far is written, or until nobody has read it for `limit` seconds."""
        written = threading.Event()
        self._queue.put(written)
        written.wait(limit)

    def _write_all(self) -> None:
        broken = False
        while True:
            item = self._queue.get()
            if isinstance(item, threading.Event):
                item.set()
            elif not broken:
                broken = not self._write(item)

    def _write(self, line: bytes) -> bool:
        view = memoryview(line)
        try:
            while view:
                view = view[os.write(self._descriptor, view) :]
        except OSError:
            return False
        return True
