"""The timers that runs asked for, one of each name per run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from steprail_daemon.core.events import Timer
from steprail_daemon.engine.world import World


class Timers:
    """The timers of one session. `fired` is called with the run and the timer, on the loop's thread."""

    __slots__ = ("_fired", "_handles", "_world")

    def __init__(self, world: World, fired: Callable[[str, Timer], None]) -> None:
        self._world = world
        self._fired = fired
        self._handles: dict[tuple[str, Timer], asyncio.TimerHandle] = {}

    def start(self, run_id: str, timer: Timer, deadline_at: int) -> None:
        """Fire at `deadline_at`, by the daemon's clock, replacing the run's timer of that name."""
        self.cancel(run_id, timer)
        delay = max(0, deadline_at - self._world.clock.now()) / 1e9
        fire = self._world.guarded(lambda: self._fire(run_id, timer))
        self._handles[run_id, timer] = self._world.loop.call_later(delay, fire)

    def cancel(self, run_id: str, timer: Timer) -> None:
        """Forget a timer if it is set."""
        handle = self._handles.pop((run_id, timer), None)
        if handle is not None:
            handle.cancel()

    def _fire(self, run_id: str, timer: Timer) -> None:
        del self._handles[run_id, timer]
        self._fired(run_id, timer)
