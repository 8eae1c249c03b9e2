"""How to come back to a daemon that went away, and how to ask again: pauses that grow, with jitter, within bounds."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from steprail.errors import ConnectionFailed, Refused, ResourceExhausted, StepRailError, Unavailable

log = logging.getLogger("steprail.client")

#: Seconds for which a stream tries to come back to a daemon that went away before it gives up.
PATIENCE_SECONDS = 60.0
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 2.0


@dataclass(frozen=True)
class Lost:
    """A stream was lost and will be taken up again.

    `stream` is the call, such as WatchRun, `subject` the run or session that it is about (empty for all of them),
    `error` why it was lost, `attempt` how often it was lost since it last gave anything, `pause` the seconds until it
    is opened again.
    """

    stream: str
    subject: str
    error: StepRailError
    attempt: int
    pause: float


@dataclass(frozen=True)
class Retry:
    """How often a refused call is made again, with the same request id.

    Only what is `retryable` is tried again; where the daemon said how long to wait, that long, else for pauses that
    grow from 0.05 s to 2 s. `attempts` counts the first one. A wait that would be longer than `longest_pause` seconds
    is not begun: the error is raised.
    """

    attempts: int = 4
    longest_pause: float = 30.0

    def pause(self, attempt: int, error: StepRailError, *, creates: bool) -> float | None:
        """Give the seconds to wait after a failed attempt, counted from 1; None to give up.

        What creates something is asked for again only if it was refused: without an answer it may have been made, and
        a daemon that came back with another journal would not know the request id; see `SERVICE_CONFIG`.
        """
        if attempt >= self.attempts or not error.retryable or (creates and not isinstance(error, Refused)):
            return None
        pause = error.retry_after if error.retry_after is not None else jittered(attempt)
        return pause if pause <= self.longest_pause else None


def jittered(attempt: int) -> float:
    """Give the seconds to wait after so many failures: a random part of a span that doubles, at least a half."""
    whole = min(_FIRST_PAUSE * 2.0 ** min(attempt - 1, 16), _LONGEST_PAUSE)
    # Spreads clients that lost the same daemon; nothing secret hangs on it.
    return whole * random.uniform(0.5, 1.0)  # noqa: S311


def comes_back(error: StepRailError) -> bool:
    """Whether a stream that ended like this may be opened again where it ended."""
    stalled = isinstance(error, ResourceExhausted) and error.reason == "READER_STALLED"
    return stalled or isinstance(error, ConnectionFailed | Unavailable)


class Comeback:
    """The patience of one stream with its daemon, renewed by every answer.

    Args:
        stream: Name of the call.
        subject: What it is about.
        patience: Seconds to try for without an answer.
        tell: Called with what was lost, before each pause.
    """

    def __init__(
        self, stream: str, subject: str, patience: float = PATIENCE_SECONDS, tell: Callable[[Lost], None] | None = None
    ) -> None:
        self._stream = stream
        self._subject = subject
        self._patience = patience
        self._tell = tell
        self._attempt = 0
        self._give_up = 0.0
        self.answered()

    def answered(self) -> None:
        """Note that the daemon is there."""
        self._attempt = 0
        self._give_up = time.monotonic() + self._patience

    async def after(self, error: StepRailError) -> None:
        """Wait before the next try.

        Raises:
            StepRailError: `error`, where another try is of no use or the patience is over.
        """
        if not comes_back(error) or time.monotonic() > self._give_up:
            raise error
        self._attempt += 1
        lost = Lost(self._stream, self._subject, error, self._attempt, jittered(self._attempt))
        log.info("%s %s was lost and is opened again in %.2f s: %s", self._stream, self._subject, lost.pause, error)
        if self._tell is not None:
            self._tell(lost)
        await asyncio.sleep(lost.pause)
