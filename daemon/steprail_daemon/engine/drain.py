"""The orderly end: live runs get a while to reach a boundary, then they are aborted, then every process is ended."""

from __future__ import annotations

import asyncio

from steprail_daemon.core.errors import StepRailError
from steprail_daemon.core.events import AbortRequested, RunEvent, StopRequested
from steprail_daemon.core.model import DecisionSource
from steprail_daemon.engine.engine import Engine
from steprail_daemon.engine.runner import SessionRunner

_REASON = "the daemon is draining"


async def drain(engine: Engine, *, window_ns: int, hurry: asyncio.Event) -> None:
    """End everything that is live; returns once no agent's process is left.

    Bounded by `window_ns`, then by the abort's own time-out and the ladder. `hurry` ends the window at once.
    """
    engine.begin_drain()
    _tell_all(engine, StopRequested(DecisionSource.DRAIN, "", _REASON))
    await _until_idle(engine, window_ns / 1e9, hurry)
    _tell_all(engine, AbortRequested("", _REASON))
    for runner in engine.runners():
        if runner.run is None:
            runner.host.end()
    for runner in engine.runners():
        await _ended(runner)


def _tell_all(engine: Engine, event: RunEvent) -> None:
    for runner in engine.runners():
        if runner.run is not None:
            try:
                runner.tell(event)
            except StepRailError:
                # Nothing can be recorded: there is nobody to tell, and the ladder ends the process all the same.
                runner.host.end()


async def _until_idle(engine: Engine, seconds: float, hurry: asyncio.Event) -> None:
    try:
        async with asyncio.timeout(seconds):
            while not hurry.is_set():
                live = next((runner for runner in engine.runners() if runner.run is not None), None)
                if live is None:
                    return
                # One at a time: whichever ends last, each is looked at until none is live.
                await _edge_or_hurry(live, hurry)
    except TimeoutError:
        return


async def _edge_or_hurry(runner: SessionRunner, hurry: asyncio.Event) -> None:
    waits = [asyncio.ensure_future(runner.feed.wait(3_600_000_000_000)), asyncio.ensure_future(hurry.wait())]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


async def _ended(runner: SessionRunner) -> None:
    while runner.run is not None:
        await runner.feed.wait(1_000_000_000)
    runner.host.end()
    await runner.host.gone()
