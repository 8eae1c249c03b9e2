"""The orderly end: live runs get a while to reach a boundary, then they are aborted, then every process is ended."""

from __future__ import annotations

import asyncio

import anyio

from steprail_daemon.core.errors import StepRailError
from steprail_daemon.core.events import AbortRequested, RunEvent, StopRequested
from steprail_daemon.core.model import SECOND, DecisionSource
from steprail_daemon.engine.engine import Engine
from steprail_daemon.engine.runner import SessionRunner

_REASON = "the daemon is draining"
#: A run's end is published, so this only bounds a wait that the event ends.
_LOOK_AGAIN_NS = 5 * SECOND


async def drain(engine: Engine, *, window_ns: int, longest_end_ns: int, hurry: asyncio.Event) -> None:
    """End everything that is live; returns once no agent's process is left, or nothing more can be done.

    `window_ns` bounds the time to reach a boundary, and `hurry` ends it at once; `longest_end_ns` bounds what follows,
    the abort and the ladder.
    """
    engine.begin_drain()
    _tell_all(engine, StopRequested(DecisionSource.DRAIN, "", _REASON))
    await _until_idle(engine, window_ns / 1e9, hurry)
    _tell_all(engine, AbortRequested("", _REASON))
    for runner in engine.runners():
        if runner.run is None:
            runner.host.end()
    async with anyio.create_task_group() as tasks:
        for runner in engine.runners():
            tasks.start_soon(_ended, runner, longest_end_ns / 1e9)


def _tell_all(engine: Engine, event: RunEvent) -> None:
    for runner in engine.runners():
        if runner.run is not None:
            try:
                runner.tell(event)
            except StepRailError:
                # Nothing can be recorded: there is nobody to tell, and the ladder ends the process all the same.
                runner.host.end()


async def _until_idle(engine: Engine, seconds: float, hurry: asyncio.Event) -> None:
    """Wait until no run is live, until `hurry`, or so long."""
    with anyio.move_on_after(seconds):
        async with anyio.create_task_group() as tasks:

            async def give_up() -> None:
                await hurry.wait()
                tasks.cancel_scope.cancel()

            tasks.start_soon(give_up)
            for runner in engine.runners():
                while runner.run is not None:
                    await runner.feed.wait(_LOOK_AGAIN_NS)
            tasks.cancel_scope.cancel()


async def _ended(runner: SessionRunner, seconds: float) -> None:
    with anyio.move_on_after(seconds):
        while runner.run is not None and not runner.ledger.stalled:
            await runner.feed.wait(_LOOK_AGAIN_NS)
    runner.host.end()
    await runner.host.gone()
