"""Writes to an agent's stdin without ever waiting, and keeps a bounded rest."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable

from steprail_daemon.supervisor.status import StdinOverflow

LIMIT = 64 << 20
"""Bytes that may wait for an agent which does not read."""

_PER_ROUND = 1 << 20


class StdinWriter:
    """Owns the write end of a pipe, which must be non-blocking.

    `broken` is set once bytes can no longer reach the reader: it closed its end, or `close` was called. Bytes written
    after that, and bytes that were still waiting, are dropped. `on_closed` is called once, when the descriptor is
    closed.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, descriptor: int, on_closed: Callable[[], None], limit: int = LIMIT
    ) -> None:
        self._loop = loop
        self._descriptor = descriptor
        self._on_closed = on_closed
        self._limit = limit
        self._waiting: deque[memoryview] = deque()
        self._closing = False
        self.pending = 0
        self.broken = False

    def write(self, data: bytes) -> None:
        """Write, now as far as the pipe takes it, the rest later.

        Raises:
            StdinOverflow: too much would wait; nothing of `data` was taken.
        """
        if self.pending or self._closing or self.broken:
            self._write_behind(data)
            return
        size = len(data)
        if size > self._limit:
            raise StdinOverflow(0, size, self._limit)
        try:
            written = os.write(self._descriptor, data)
        except BlockingIOError:
            written = 0
        except OSError:
            self._break()
            return
        if written != size:
            self._loop.add_writer(self._descriptor, self._flush)
            self._keep(memoryview(data)[written:])

    def _write_behind(self, data: bytes) -> None:
        """Keep what comes while something waits; drop it where nothing can be written any more."""
        if self.broken or self._closing:
            self.broken = True
            return
        if self.pending + len(data) > self._limit:
            raise StdinOverflow(self.pending, len(data), self._limit)
        if data:
            self._keep(memoryview(data))

    def _keep(self, view: memoryview) -> None:
        self._waiting.append(view)
        self.pending += len(view)

    def close(self) -> None:
        """Close the pipe once everything that waits is written."""
        self._closing = True
        if not self._waiting:
            self._release()

    def abort(self) -> None:
        """Close the pipe now and drop what waits."""
        self._closing = True
        if self._waiting:
            self.broken = True
        self._release()

    def _flush(self) -> None:
        budget = _PER_ROUND
        while self._waiting and budget > 0:
            view = self._waiting[0]
            written = self._attempt(view[:budget])
            if self.broken:
                return
            budget -= written
            self.pending -= written
            if written == len(view):
                self._waiting.popleft()
            else:
                self._waiting[0] = view[written:]
                if written == 0:
                    return
        if not self._waiting:
            self._loop.remove_writer(self._descriptor)
            if self._closing:
                self._release()

    def _attempt(self, view: memoryview) -> int:
        """Write what fits; give how much that was. A closed reader is noted, not raised."""
        try:
            return os.write(self._descriptor, view)
        except BlockingIOError:
            return 0
        except OSError:
            self._break()
            return 0

    def _break(self) -> None:
        self.broken = True
        self._release()

    def _release(self) -> None:
        if self._descriptor < 0:
            return
        if self._waiting:
            self._loop.remove_writer(self._descriptor)
            self._waiting.clear()
            self.pending = 0
        os.close(self._descriptor)
        self._descriptor = -1
        self._on_closed()
