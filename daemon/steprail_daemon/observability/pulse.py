"""The daemon's pulse: four times a second the event loop shows that it turns, says how late it was, and counts.

What `/livez` and `/readyz` answer from is kept here too, in plain attributes: the loop's thread writes them, the
threads of the side port read them, and none of the two ever waits for the other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import anyio
import anyio.lowlevel

from steprail_daemon.observability.registry import Observe

BEAT_SECONDS: Final = 0.25
#: A loop that has not turned for this long is taken for dead. A slow disk may hold it up for seconds.
LIVE_SECONDS: Final = 30.0
#: How long after a refusal the journal counts as unavailable. One that goes on refusing is tried far more often.
REFUSAL_SECONDS: Final = 5.0

_NONE: Final[Mapping[str, str]] = MappingProxyType({})


class Health:
    """How the daemon is. `monotonic` gives seconds; `refusal` says why the journal lately refused, or nothing."""

    def __init__(self, monotonic: Callable[[], float], refusal: Callable[[float], str]) -> None:
        self.started = False
        self.draining = False
        self._monotonic = monotonic
        self._refusal = refusal
        self._beat_at = monotonic()

    def beat(self) -> None:
        """Show that the loop turns."""
        self._beat_at = self._monotonic()

    def silent_seconds(self) -> float:
        """Give how long the loop has not turned. 0 before the start is over: taking the journal in may take long."""
        return self._monotonic() - self._beat_at if self.started else 0.0

    @property
    def live(self) -> bool:
        """Whether the loop turns."""
        return self.silent_seconds() <= LIVE_SECONDS

    def unready(self) -> dict[str, str]:
        """Say why no run would be taken: messages by reason; empty if one would."""
        reasons: dict[str, str] = {}
        if not self.started:
            reasons["STARTING"] = "the daemon is starting"
        if self.draining:
            reasons["DRAINING"] = "the daemon goes down"
        refusal = self._refusal(REFUSAL_SECONDS)
        if refusal:
            reasons["JOURNAL_UNAVAILABLE"] = f"the journal cannot be written: {refusal}"
        if not self.live:
            reasons["UNRESPONSIVE"] = f"the event loop has not turned for {self.silent_seconds():.0f} s"
        return reasons


async def beat_for_ever(health: Health, observe: Observe, work: Callable[[], bool]) -> None:
    """Beat, tell how late each beat was, and do the counting that waits.

    `work` does a small part of it and tells whether more is left; in between the loop has its turn.
    """
    while True:
        due = time.monotonic() + BEAT_SECONDS
        await anyio.sleep(BEAT_SECONDS)
        observe("event_loop_lag_seconds", max(0.0, time.monotonic() - due), _NONE)
        health.beat()
        while work():
            await anyio.lowlevel.checkpoint()
