"""The daemon's worker with a journal in memory: the same composition, but nothing is kept. For the bench alone."""

from __future__ import annotations

import sys

from steprail_daemon import daemon
from steprail_daemon.journal.memory import MemoryStore


def main() -> int:
    """Serve as `steprail_daemon.daemon` does."""
    setattr(daemon, "open_store", lambda _loaded, _note_commit: MemoryStore())  # noqa: B010  of another type than the real one
    return daemon.main()


if __name__ == "__main__":
    sys.exit(main())
