"""The machine's clock and ids, as the engine's ports want them."""

from __future__ import annotations

import time
import uuid

from ulid import ULID


class SystemClock:
    """Unix time that does not jump: read once at the start, then carried on by the monotonic clock.

    A step of the machine's clock (NTP, a suspended virtual machine) must neither end runs nor make spans negative.
    """

    def __init__(self) -> None:
        self._offset = time.time_ns() - time.monotonic_ns()

    def now(self) -> int:
        """Give Unix nanoseconds."""
        return time.monotonic_ns() + self._offset


class SystemIds:
    """Ids that sort by time (ULID), and UUIDs."""

    def new_id(self, prefix: str) -> str:
        """Give a new id such as `run_01jd...`."""
        return f"{prefix}_{str(ULID()).lower()}"

    def new_uuid(self) -> str:
        """Give a random UUID."""
        return str(uuid.uuid4())
