"""The machine's clock and ids, as the engine's ports want them."""

from __future__ import annotations

import time
import uuid

from ulid import ULID


class SystemClock:
    """Unix time that does not jump: read once at the start, then carried on by the clock since the machine's boot.

    A step of the machine's clock must neither end runs nor make spans negative. Time in which the machine slept counts.
    """

    def __init__(self) -> None:
        self._offset = time.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME)

    def now(self) -> int:
        """Give Unix nanoseconds."""
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) + self._offset


class SystemIds:
    """Ids that sort by time (ULID), and UUIDs."""

    def new_id(self, prefix: str) -> str:
        """Give a new id such as `run_01jd...`."""
        return f"{prefix}_{str(ULID()).lower()}"

    def new_uuid(self) -> str:
        """Give a random UUID."""
        return str(uuid.uuid4())
