"""The orderly end, in three phases: runs stop at their next boundary, those that are left are aborted, processes end.

Nobody new is let in from the beginning on. Whoever is asked for a decision or a permission keeps the turn until the
window less its stop budget; then what waits is stopped or denied, so that those runs still end as stopped. Runs that
are queued stay for the next start.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable

import anyio
from msgspec.structs import replace

from steprail_daemon.core.errors import StepRailError
from steprail_daemon.core.events import AbortRequested, DrainWindowEnding, RunEvent, StopRequested
from steprail_daemon.core.model import SECOND, DecisionSource, RunState
from steprail_daemon.core.views import RunView
from steprail_daemon.engine.facade import DrainPhase, DrainView
from steprail_daemon.engine.registry import Registry
from steprail_daemon.engine.runner import SessionRunner
from steprail_daemon.engine.world import World

log = logging.getLogger("steprail.engine")

_REASON = "the daemon is draining"
#: A run's end is published, so this only bounds a wait that the event ends.
_LOOK_AGAIN_NS = 5 * SECOND


class Drain:
    """The daemon's drain. It is begun once, by a signal or a call, and cannot be taken back.

    `begun` is set when it begins; whoever owns the daemon then awaits `run`.
    """

    def __init__(self, world: World, engine: Registry, *, window_ns: int, stop_budget_ns: int) -> None:
        self._world = world
        self._engine = engine
        self._window_ns = window_ns
        self._stop_budget_ns = stop_budget_ns
        self._view = DrainView()
        #: Runs that were live when it began.
        self._runs: list[RunView] = []
        self.begun = asyncio.Event()

    @property
    def longest_window_ns(self) -> int:
        """The configured window; a caller may ask for less."""
        return self._window_ns

    def begin(self, *, identity: str = "", reason: str = "", window_ns: int | None = None) -> DrainView:
        """Refuse new sessions and runs, and ask live runs to stop at their next boundary. Again it changes nothing."""
        if self._view.phase is not DrainPhase.NOT_DRAINING:
            return self.status()
        if window_ns is not None:
            self._window_ns = window_ns
        now = self._world.clock.now()
        self._view = DrainView(
            phase=DrainPhase.STOPPING_RUNS,
            identity=identity,
            reason=reason,
            started_at=now,
            deadline_at=now + self._window_ns,
        )
        self._engine.begin_drain()
        self._runs = [runner.run.view for runner in self._engine.runners() if runner.run is not None and runner.at_work]
        self._tell_all(StopRequested(DecisionSource.DRAIN, identity, reason or _REASON))
        self.begun.set()
        return self.status()

    def status(self) -> DrainView:
        """Tell how far it is."""
        runners = self._engine.runners()
        live = [runner.run.view for runner in runners if runner.run is not None and runner.at_work]
        queued = sum(len(runner.queued) + (runner.run is not None and not runner.at_work) for runner in runners)
        states = Counter(view.state for view in live)
        ended = Counter(view.state for view in self._runs if view.ended)
        return replace(
            self._view,
            live_runs=len(live) + queued,
            awaiting_decision_runs=states[RunState.AWAITING_DECISION],
            awaiting_permission_runs=states[RunState.AWAITING_PERMISSION],
            queued_runs=queued,
            stopped_runs=ended[RunState.STOPPED],
            aborted_runs=ended[RunState.ABORTED],
            processes=sum(runner.host.up for runner in runners),
        )

    async def run(self, *, longest_end_ns: int, hurry: asyncio.Event) -> None:
        """End everything that is live; returns once no agent's process is left, or nothing more can be done.

        `hurry` ends the window at once; `longest_end_ns` bounds what follows it, the abort and the ladder.
        """
        deadline_at = self._view.deadline_at or 0
        await self._until_idle(deadline_at - self._stop_budget_ns, hurry)
        self._tell_all(DrainWindowEnding())
        await self._until_idle(deadline_at, hurry)
        self._view = replace(self._view, phase=DrainPhase.ABORTING_RUNS)
        self._tell_all(AbortRequested("", _REASON))
        for runner in self._engine.runners():
            if not runner.at_work:
                runner.host.end()
        async with anyio.create_task_group() as tasks:
            for runner in self._engine.runners():
                tasks.start_soon(self._ended, runner, longest_end_ns / 1e9)
        self._view = replace(self._view, phase=DrainPhase.SHUTTING_DOWN)

    def _tell_all(self, event: RunEvent) -> None:
        """Tell every live run. One that cannot be told, as nothing can be recorded, is ended after the window."""
        for runner in self._engine.runners():
            if runner.run is not None and runner.at_work:
                try:
                    runner.tell(runner.run.view.run_id, event)
                except StepRailError as error:
                    log.warning("%s could not be told of the drain: %s", runner.view.session_id, error.message)
                    if isinstance(event, AbortRequested):
                        # The ladder ends the process all the same.
                        runner.host.end()

    async def _until_idle(self, deadline_at: int, hurry: asyncio.Event) -> None:
        """Wait until no run is live, until `hurry`, or until `deadline_at`."""
        seconds = max(0, deadline_at - self._world.clock.now()) / 1e9
        with anyio.move_on_after(seconds):
            async with anyio.create_task_group() as tasks:

                async def give_up() -> None:
                    await hurry.wait()
                    tasks.cancel_scope.cancel()

                tasks.start_soon(give_up)
                for runner in self._engine.runners():
                    await _while(runner, lambda runner: runner.at_work)
                tasks.cancel_scope.cancel()

    async def _ended(self, runner: SessionRunner, seconds: float) -> None:
        with anyio.move_on_after(seconds):
            await _while(runner, lambda runner: runner.at_work and not runner.ledger.stalled)
        runner.host.end()
        with anyio.move_on_after(seconds):
            await runner.host.gone()


async def _while(runner: SessionRunner, holds: Callable[[SessionRunner], bool]) -> None:
    """Wait as long as something holds of a session; each of its events is looked at."""
    while holds(runner):
        await runner.feed.wait(_LOOK_AGAIN_NS)
