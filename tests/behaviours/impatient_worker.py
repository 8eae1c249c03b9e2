"""The daemon's worker with less patience than the built one has, where no configuration says how much.

Run by its path in the place of `steprail_daemon.daemon`: a journal that refuses is waited for 1 s, not 30, and a reader
that takes nothing 2 s, not 60.
"""

from __future__ import annotations

import sys
from functools import partial

from steprail_daemon import daemon
from steprail_daemon.core.model import SECOND
from steprail_daemon.engine.settings import EngineSettings

JOURNAL_PATIENCE_NS = SECOND
STALLED_READER_NS = 2 * SECOND

if __name__ == "__main__":
    impatient = partial(EngineSettings, journal_patience_ns=JOURNAL_PATIENCE_NS, stalled_reader_ns=STALLED_READER_NS)
    setattr(daemon, "EngineSettings", impatient)  # noqa: B010 - a name of another module
    sys.exit(daemon.main())
