"""Notices an agent that gives no sign of life although it has the word.

Any byte is a sign of life, also what the driver makes no event of. Nothing is measured on the way of the bytes: the
host counts reads, and a look at intervals sees whether the count moved. So silence is noticed late, by at most an
eighth.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from steprail_daemon.core.model import RunState
from steprail_daemon.core.views import RunView
from steprail_daemon.engine.host import AgentHost
from steprail_daemon.engine.world import World

_LOOKS = 8


class SilenceWatch:
    """Watches the agent of one session while a run is live. `silent` is called with how long it was."""

    __slots__ = ("_handle", "_host", "_reads", "_silent", "_since", "_world")

    def __init__(self, world: World, host: AgentHost, silent: Callable[[int], None]) -> None:
        self._world = world
        self._host = host
        self._silent = silent
        self._handle: asyncio.TimerHandle | None = None
        self._reads = 0
        self._since = 0

    def begin(self, run: RunView) -> None:
        """Watch the agent of a run, until the run is over."""
        self._heard()
        self._look_later(run)

    def _heard(self) -> None:
        self._reads = self._host.reads
        self._since = self._world.clock.now()

    def _look_later(self, run: RunView) -> None:
        if self._handle is not None:
            self._handle.cancel()
        seconds = self._world.settings.silence_ns / _LOOKS / 1e9
        self._handle = self._world.loop.call_later(seconds, self._world.guarded(lambda: self._look(run)))

    def _look(self, run: RunView) -> None:
        self._handle = None
        if run.ended:
            return
        # Whoever waits for people, for its turn or for an end that is bounded otherwise is not silent.
        if self._host.reads != self._reads or run.state is not RunState.RUNNING:
            self._heard()
        silence = self._world.clock.now() - self._since
        self._look_later(run)
        if silence >= self._world.settings.silence_ns:
            self._heard()
            self._silent(silence)
