"""Row 12: what a commit and a resume cost in a session with a long history, against one with a short one.

Both journals are made alike: a daemon opens a session, they are filled, and each is taken up by a daemon of its own.
Commits are judged by the agent's waits at step boundaries, back to back, each of which has one in it. A resume is a
watch of the session from a cursor, of all that the journal has, until its first events came.
"""

from __future__ import annotations

import random
import shutil
from collections import defaultdict
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
#: Enough to be resumed at many places with a whole message of alike events after each.
SHORT = 1000 * BLOCK
#: Events that are left after a cursor, at least: more than the daemon reads at one time.
_LEFT = 100 * BLOCK
#: Turns of each in a round: what else the machine does hits both.
TURNS = 4
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
        directories = self._directory / "history-short", self._directory / "history-long"
        self._begin(*directories)
        with ExitStack() as stack:
            short, _ = self._filled(stack, directories[0], SHORT)
            long, events = self._filled(stack, directories[1], size.history)
            for number in range(size.rounds):
                self._say(f"history: round {number + 1} of {size.rounds}")
                self._round([(_SHORT_NAME, short, SHORT), (_LONG_NAME, long, events)])
        many = f"{events / 1e6:.1f}M events"
        return [self._row("12", "commit at a step", "commit", many), self._row("12b", "resume", "resume", many)]

    def _round(self, journals: list[tuple[str, Rig, int]]) -> None:
        """Measure both by short turns, and note the medians of each."""
        steps, resumes = self._size.steps // TURNS, self._size.resumes // TURNS
        found: dict[str, list[float]] = defaultdict(list)
        for _ in range(TURNS):
            for name, rig, last_seq in journals:
                waits = rig.steps(steps, 0)
                found[f"commit {name}"] += [wait / 1000 for wait in waits[int(len(waits) * WARM_UP) :]]
                cursors = [self._random.randrange(last_seq - _LEFT) for _ in range(resumes)]
                found[f"resume {name}"] += [rig.resume(cursor) * 1e6 for cursor in cursors]
        for name, values in found.items():
            self._figures.note(name, percentile(values, 0.5))

    def _row(self, number: str, name: str, what: str, many: str) -> Row:
        row = self._figures.row(
            number, f"{name}, after {many}", "us", f"{what} {_LONG_NAME}", f"{what} {_SHORT_NAME}", _HISTORY
        )
        return msgspec.structs.replace(row, limit_name=f"after {SHORT / 1000:.0f}k")

    @staticmethod
    def _begin(first: Path, second: Path) -> None:
        """Make a journal with a session, and give it to a second daemon too."""
        with serving(first) as rig:
            rig.create_session()
        state = second / "state"
        state.mkdir(mode=0o700, parents=True)
        shutil.copy(rig.journal, state / rig.journal.name)

    def _filled(self, stack: ExitStack, directory: Path, events: int) -> tuple[Rig, int]:
        self._say(f"history: making {events} events")
        session_id, last_seq = fill(directory / "state" / "journal.db", events, self._size.history_seconds)
        return stack.enter_context(serving(directory, session_id=session_id)), last_seq
