"""The parent's event loop: descriptors, timers and signals on one thread."""

from __future__ import annotations

import heapq
import selectors
import signal
import socket
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType


class Timer:
    """A callback that is due once, unless cancelled."""

    __slots__ = ("_callback", "_due", "_number")

    def __init__(self, due: float, number: int, callback: Callable[[], None]) -> None:
        self._due = due
        self._number = number
        self._callback: Callable[[], None] | None = callback

    def __lt__(self, other: Timer) -> bool:
        return (self._due, self._number) < (other._due, other._number)

    @property
    def due(self) -> float:
        """When, on the monotonic clock, in seconds."""
        return self._due

    def cancel(self) -> None:
        """Make it never run. Harmless once it ran."""
        self._callback = None

    def run(self) -> None:
        """Run it, unless cancelled."""
        callback, self._callback = self._callback, None
        if callback is not None:
            callback()


class Loop:
    """Waits for descriptors, timers and signals, and calls back. Signals are never lost, only merged per round."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._timers: list[Timer] = []
        self._made = 0
        self._running = False
        self._pending: list[int] = []
        self._handlers: dict[int, Callable[[], None]] = {}
        self._waker, self._woken = socket.socketpair()
        self._waker.setblocking(False)
        self._woken.setblocking(False)
        self._selector.register(self._woken, selectors.EVENT_READ, lambda _: self._drain_wakeups())
        # A full wake-up socket is a loop that will wake anyhow; the numbers themselves are kept in `_pending`.
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)

    def now(self) -> float:
        """Give the monotonic clock in seconds."""
        return time.monotonic()

    def on_signal(self, signum: int, handler: Callable[[], None]) -> None:
        """Call `handler` from the loop each time the signal came."""
        self._handlers[signum] = handler
        signal.signal(signum, self._note)

    def call_later(self, delay: float, callback: Callable[[], None]) -> Timer:
        """Call back after `delay` seconds."""
        self._made += 1
        timer = Timer(self.now() + delay, self._made, callback)
        heapq.heappush(self._timers, timer)
        return timer

    def watch(self, descriptor: int, callback: Callable[[bool, bool], None], *, read: bool, write: bool) -> None:
        """Call `callback(readable, writable)` when the descriptor is ready; replaces an earlier watch."""
        events = (selectors.EVENT_READ if read else 0) | (selectors.EVENT_WRITE if write else 0)
        if not events:
            self.forget(descriptor)
            return

        def ready(mask: int) -> None:
            callback(bool(mask & selectors.EVENT_READ), bool(mask & selectors.EVENT_WRITE))

        if descriptor in self._selector.get_map():
            self._selector.modify(descriptor, events, ready)
        else:
            self._selector.register(descriptor, events, ready)

    def forget(self, descriptor: int) -> None:
        """Watch a descriptor no longer; harmless if it was not."""
        if descriptor in self._selector.get_map():
            self._selector.unregister(descriptor)

    def stop(self) -> None:
        """Make `run` return after this round."""
        self._running = False

    def run(self) -> None:
        """Run until `stop`."""
        self._running = True
        while self._running:
            for key, mask in self._selector.select(self._patience()):
                key.data(mask)
            self._run_signals()
            self._run_timers()

    def _patience(self) -> float | None:
        if self._pending:
            return 0
        return max(0.0, self._timers[0].due - self.now()) if self._timers else None

    def _run_signals(self) -> None:
        while self._pending:
            self._handlers[self._pending.pop(0)]()

    def _run_timers(self) -> None:
        now = self.now()
        while self._timers and self._timers[0].due <= now and self._running:
            heapq.heappop(self._timers).run()

    def _note(self, signum: int, _frame: FrameType | None) -> None:
        if signum != signal.SIGCHLD or signum not in self._pending:
            self._pending.append(signum)

    def _drain_wakeups(self) -> None:
        try:
            while self._woken.recv(4096):
                pass
        except BlockingIOError:
            return
