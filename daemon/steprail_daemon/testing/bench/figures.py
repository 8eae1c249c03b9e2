"""How much is measured, and the figures that come in, round by round."""

from __future__ import annotations

import re
from collections import defaultdict

import msgspec

from steprail_daemon.testing.bench.table import Goal, Row


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """How much is measured.

    Decisions are measured in `decision_rounds`, all else in `rounds`: the waits are short, and what the machine
    does meanwhile moves them more than anything else, so that many short rounds by turns tell more than few long
    ones. `events` results are in a flood, `full_events` in one with FULL, `fanned_out` in one to `watchers`;
    `steps` are in a series back to back, `spaced_steps` in one with gaps, `crowded_steps` in one with gaps beside a
    flood. `idle_sessions` are held at one time and watched for `idle_seconds`, in which the journal is checkpointed
    once; `starts` sessions are started in a round. The long journal has `history` events, or as many as could be
    made in `history_seconds`, and is resumed `resumes` times in a round.
    """

    rounds: int
    decision_rounds: int
    events: int
    full_events: int
    fanned_out: int
    watchers: int
    steps: int
    spaced_steps: int
    crowded_steps: int
    idle_sessions: int
    idle_seconds: float
    starts: int
    history: int
    history_seconds: float
    resumes: int


WHOLE = Size(
    rounds=3,
    decision_rounds=9,
    events=200_000,
    full_events=50_000,
    fanned_out=10_000,
    watchers=100,
    steps=350,
    spaced_steps=120,
    crowded_steps=250,
    idle_sessions=300,
    idle_seconds=5.0,
    starts=5,
    history=10_000_000,
    history_seconds=15.0,
    resumes=40,
)
QUICK = Size(
    rounds=1,
    decision_rounds=1,
    events=50_000,
    full_events=10_000,
    fanned_out=2_000,
    watchers=100,
    steps=300,
    spaced_steps=80,
    crowded_steps=80,
    idle_sessions=40,
    idle_seconds=1.0,
    starts=2,
    history=1_000_000,
    history_seconds=5.0,
    resumes=20,
)


class Figures:
    """Figures by name, one a round."""

    def __init__(self) -> None:
        self._values: dict[str, list[float]] = defaultdict(list)

    def note(self, name: str, value: float) -> None:
        """Add the figure of one more round."""
        self._values[name].append(value)

    def of(self, name: str) -> tuple[float, ...]:
        """Give a figure of each round."""
        return tuple(self._values[name])

    def row(  # noqa: PLR0917  read as a line of the table
        self, number: str, name: str, unit: str, subject: str, limit: str = "", goal: Goal | None = None
    ) -> Row:
        """Make a row of two figures, or of one without a limit.

        What comes after `@` or a comma in the limit's name is not shown.
        """
        return Row(
            number=number,
            name=name,
            unit=unit,
            subject=self.of(subject),
            limit_name=re.split(" @|,", limit)[0],
            limit=self.of(limit) if limit else (),
            goal=goal,
        )
