"""Row 12: what a commit and a resume cost in a session with a long history, against one with next to none.

Both journals are made alike: by a daemon that opens a session, then filled, then taken up by a daemon again. Commits
are judged by the agent's waits at step boundaries, back to back, each of which has one in it. A resume is a watch of
the session from a cursor, of all that the journal has, until its first events came.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import msgspec

from steprail_daemon.testing.bench.decisions import WARM_UP
from steprail_daemon.testing.bench.figures import Figures, Size
from steprail_daemon.testing.bench.filling import BLOCK, fill
from steprail_daemon.testing.bench.rig import Rig, serving
from steprail_daemon.testing.bench.table import Better, Goal, Row, percentile

_HISTORY = Goal(1.2, 1.05, Better.LOWER)
#: Enough to be resumed at many places, each with the same number of events after it that come in one message.
SHORT = 100 * BLOCK
#: Events that are left after a cursor, at least.
_LEFT = 20 * BLOCK
_LONG_NAME, _SHORT_NAME = "long", "with a short one"


class HistoryBench:
    """Measures in `directory`. `say` is told what is going on."""

    def __init__(self, directory: Path, size: Size, say: Callable[[str], None]) -> None:
        self._directory = directory
        self._size = size
        self._say = say
        self._figures = Figures()
        # The same places in every run.
        self._random = random.Random(12)  # noqa: S311

    def rows(self) -> list[Row]:
        """Make the journals, and measure by turns."""
        size = self._size
        with ExitStack() as stack:
            short, _ = self._filled(stack, "short", SHORT)
            long, events = self._filled(stack, "long", size.history)
            for number in range(size.rounds):
                self._say(f"history: round {number + 1} of {size.rounds}")
                for name, rig, last_seq in ((_SHORT_NAME, short, SHORT), (_LONG_NAME, long, events)):
                    waits = rig.steps(size.steps // 2, 0)
                    self._note(f"commit {name}", [wait / 1000 for wait in waits[int(len(waits) * WARM_UP) :]])
                    cursors = [self._random.randrange(last_seq - _LEFT) for _ in range(size.resumes)]
                    self._note(f"resume {name}", [rig.resume(cursor) * 1e6 for cursor in cursors])
        many = f"{events / 1e6:.1f}M events"
        return [self._row("12", "commit at a step", "commit", many), self._row("12b", "resume", "resume", many)]

    def _row(self, number: str, name: str, what: str, many: str) -> Row:
        row = self._figures.row(
            number, f"{name}, after {many}", "us", f"{what} {_LONG_NAME}", f"{what} {_SHORT_NAME}", _HISTORY
        )
        return msgspec.structs.replace(row, limit_name=f"after {SHORT / 1000:.0f}k")

    def _note(self, name: str, values: list[float]) -> None:
        self._figures.note(name, percentile(values, 0.5))

    def _filled(self, stack: ExitStack, name: str, events: int) -> tuple[Rig, int]:
        directory = self._directory / f"history-{name}"
        with serving(directory) as rig:
            journal = rig.journal
            rig.create_session()
        self._say(f"history: making {events} events")
        session_id, last_seq = fill(journal, events, self._size.history_seconds)
        return stack.enter_context(serving(directory, session_id=session_id)), last_seq
