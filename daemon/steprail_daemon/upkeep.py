"""What keeps the journal in order while the daemon runs: checkpoints and retention, in threads and in small turns."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Final

import anyio

from steprail_daemon.journal.checkpoint import Checkpoint
from steprail_daemon.journal.retention import HOUR_NS, Keep, Removed
from steprail_daemon.journal.sqlite import SqliteStore
from steprail_daemon.journal.store import JournalError

#: How often the write-ahead log is folded into the file.
CHECKPOINT_SECONDS: Final = 5.0
#: How often it is looked for what need not be kept.
PLAN_SECONDS: Final = 60.0
#: Pause between two turns: one holds the writer's lock for about a millisecond, so that few commits meet one.
TURN_SECONDS: Final = 0.05
#: How often it is said that the journal is too large and nothing of it can go.
STUCK_NS: Final = HOUR_NS

log: Final = logging.getLogger("steprail")


async def checkpoints(store: SqliteStore, busy: Callable[[], bool], done: Callable[[Checkpoint], None]) -> None:
    """Fold the write-ahead log into the file, for ever; `done` is told of each time that it was possible."""
    while True:
        await anyio.sleep(CHECKPOINT_SECONDS)
        try:
            done(await anyio.to_thread.run_sync(partial(store.checkpoint, idle=not busy())))
        except JournalError as error:
            log.warning("the journal could not be checkpointed: %s", error.message)


async def retention(store: SqliteStore, keep: Keep, now: Callable[[], int]) -> None:
    """Remove what need not be kept, for ever."""
    said_at: int | None = None
    while True:
        removed = await _turn(store, keep, now())
        if removed is not None and removed.stuck and (said_at is None or now() - said_at >= STUCK_NS):
            said_at = now()
            log.warning(
                "the journal has %s bytes, journal.retain.bytes is %d, and nothing in it may be removed",
                removed.used_bytes,
                keep.max_bytes,
            )
        await anyio.sleep(TURN_SECONDS if removed is not None and removed.more else PLAN_SECONDS)


async def _turn(store: SqliteStore, keep: Keep, now: int) -> Removed | None:
    try:
        return await anyio.to_thread.run_sync(store.retain, keep, now)
    except JournalError as error:
        log.warning("the journal could not be cleared of what is old: %s", error.message)
        return None
