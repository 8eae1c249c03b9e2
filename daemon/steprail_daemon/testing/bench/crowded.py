"""Row 6: a decision by a rule in one session while the agent of another writes as much as the daemon takes.

The same daemon, agent, rule and pacing as row 3 with gaps; the limit is the daemon itself, unloaded. Nobody watches the
flood, which is parsed and committed all the same.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from steprail_daemon.testing.bench.decisions import GAP_NS, WARM_UP
from steprail_daemon.testing.bench.figures import Figures, Size
from steprail_daemon.testing.bench.rig import Rig, serving
from steprail_daemon.testing.bench.table import Better, Goal, Row, percentile

_CROWDED = Goal(5.0, 2.0, Better.LOWER)
_ALONE = "unloaded"
_FLOOD = "beside a flood"


class CrowdedBench:
    """Measures in `directory`. `say` is told what is going on."""

    def __init__(self, directory: Path, size: Size, say: Callable[[str], None]) -> None:
        self._directory = directory
        self._size = size
        self._say = say
        self._figures = Figures()

    def rows(self) -> list[Row]:
        """Measure by turns, with and without the flood."""
        with serving(self._directory / "crowded") as rig:
            other = rig.create_session()
            for number in range(self._size.rounds):
                self._say(f"beside a flood: round {number + 1} of {self._size.rounds}")
                self._note(_ALONE, rig)
                with rig.flooding(other):
                    self._note(_FLOOD, rig)
        row = self._figures.row
        return [
            row("6", "decision by a rule beside a flood, p50", "us", f"{_FLOOD} p50", f"{_ALONE} p50", _CROWDED),
            row("6 p99", "the same, p99", "us", f"{_FLOOD} p99", f"{_ALONE} p99"),
        ]

    def _note(self, name: str, rig: Rig) -> None:
        waits = rig.steps(self._size.crowded_steps, GAP_NS)
        warm = waits[int(len(waits) * WARM_UP) :]
        for part in (50, 99):
            self._figures.note(f"{name} p{part}", percentile(warm, part / 100) / 1000)
