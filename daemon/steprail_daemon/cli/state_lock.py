"""Who uses a state directory."""

from __future__ import annotations

import fcntl
from pathlib import Path


def lock_holder(lock: Path) -> str:
    """Give the process that holds a lock, empty if none does.

    This is for a clear message only: the parent process takes the lock, and refuses if somebody was faster. Somebody
    who looks at the same time is not taken for a holder.
    """
    if not lock.exists():
        return ""
    with lock.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return file.read(32).strip() or "unknown"
    return ""
