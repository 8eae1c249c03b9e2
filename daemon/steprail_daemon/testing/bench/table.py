"""What the bench concludes: medians, ratios, verdicts, and the table that is printed. Pure.

A row holds one figure of the subject for each round and one of the limit for each round. Figures are compared as the
ratio of their medians. `Better.HIGHER` means that a larger ratio is better (events per second), `Better.LOWER` that a
smaller one is (time, CPU). A row without a limit is judged by its own figure in its own unit: memory, threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from itertools import takewhile
from math import inf, isfinite
from statistics import median
from typing import Any

import msgspec


class Better(Enum):
    """Which way is better."""

    HIGHER = "higher"
    LOWER = "lower"


class Goal(msgspec.Struct, frozen=True):
    """What is judged of a row has to reach `target`; better still would be `stretch` (None: nothing is asked)."""

    target: float
    stretch: float | None
    better: Better

    def met(self, ratio: float) -> bool:
        """Whether the target is reached."""
        return self._reaches(ratio, self.target)

    def stretch_met(self, ratio: float) -> bool:
        """Whether the stretch goal is reached."""
        return self.stretch is not None and self._reaches(ratio, self.stretch)

    def missed_by(self, ratio: float) -> float:
        """How many times worse than the target; 1.0 or less if it is met. Infinite beside a zero that was missed."""
        over, under = (self.target, ratio) if self.better is Better.HIGHER else (ratio, self.target)
        if under:
            return over / under
        return 1.0 if self.met(ratio) else inf

    def _reaches(self, ratio: float, bound: float) -> bool:
        return ratio >= bound if self.better is Better.HIGHER else ratio <= bound


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One comparison. `goal` None: printed beside others and not judged. `limit_name` empty: there is no limit.

    Raises:
        ValueError: there is no round, one lacks its subject or limit, or a limit is not above zero.
    """

    number: str
    name: str
    unit: str
    subject: tuple[float, ...]
    limit_name: str = ""
    limit: tuple[float, ...] = ()
    goal: Goal | None = None

    def __post_init__(self) -> None:
        rounds = len(self.subject), len(self.limit)
        wanted = rounds[0] if self.limit_name else 0
        if rounds[1] != wanted or not rounds[0]:
            raise ValueError(f"row {self.number}: {rounds[0]} rounds of the subject and {rounds[1]} of the limit")
        if min(self.limit, default=1) <= 0:
            raise ValueError(f"row {self.number}: a limit is {min(self.limit)}, it must be above 0")

    @property
    def goal_number(self) -> str:
        """The number of the goal that the row is about."""
        return "".join(takewhile(str.isdigit, self.number))

    @property
    def ratio(self) -> float | None:
        """Subject over limit, medians of the rounds; None without a limit."""
        return median(self.subject) / median(self.limit) if self.limit else None

    @property
    def judged(self) -> float:
        """What the goal is about: the ratio or, without a limit, the median of the subject."""
        ratio = self.ratio
        return median(self.subject) if ratio is None else ratio

    @property
    def spread(self) -> tuple[float, float]:
        """Smallest and largest of what is judged, of a single round."""
        if not self.limit:
            return min(self.subject), max(self.subject)
        ratios = [subject / limit for subject, limit in zip(self.subject, self.limit, strict=True)]
        return min(ratios), max(ratios)

    @property
    def verdict(self) -> str:
        """The words for the table."""
        if self.goal is None:
            return ""
        if self.goal.stretch_met(self.judged):
            return "met, stretch too"
        if self.goal.met(self.judged):
            return "met"
        by = self.goal.missed_by(self.judged)
        return f"MISSED by {by:.2f}" if isfinite(by) else "MISSED"

    @property
    def missed(self) -> bool:
        """Whether there is a goal and it was not reached."""
        return self.goal is not None and not self.goal.met(self.judged)


def percentile(values: Sequence[float], part: float) -> float:
    """Give the value below which `part` (0 to 1) of them lie, the nearest that is there.

    Raises:
        ValueError: there are no values, or `part` is not between 0 and 1.
    """
    if not values:
        raise ValueError("a percentile needs at least one value")
    if not 0 <= part <= 1:
        raise ValueError(f"part must be between 0 and 1, not {part}")
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


def in_order(rows: Sequence[Row], wanted: frozenset[str]) -> list[Row]:
    """Give the rows whose goals are `wanted` (`3` is that of `3b` and `3 FULL`), as the table has them.

    Rows that are judged come in the order of their goals; those of back to back pacing, which none is, after them.
    """
    kept = [row for row in rows if row.goal_number in wanted]
    return sorted(kept, key=lambda row: ("b2b" in row.number, int(row.goal_number)))


def render(rows: Sequence[Row]) -> str:
    """Give the table as text."""
    header = ("row", "what", "subject", "limit", "ratio", "rounds", "target", "stretch", "verdict")
    lines = [header, *(_cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def _cells(row: Row) -> tuple[str, ...]:
    low, high = row.spread
    ratio = row.ratio
    return (
        row.number,
        row.name,
        figure(median(row.subject), row.unit),
        "-" if ratio is None else f"{figure(median(row.limit), row.unit)} {row.limit_name}",
        "-" if ratio is None else f"{ratio:.2f}",
        f"{low:.2f}-{high:.2f}",
        "" if row.goal is None else _bound(row, row.goal, row.goal.target),
        "" if row.goal is None or row.goal.stretch is None else _bound(row, row.goal, row.goal.stretch),
        row.verdict,
    )


def _bound(row: Row, goal: Goal, bound: float) -> str:
    sign = ">=" if goal.better is Better.HIGHER else "<="
    return f"{sign} {bound:g}" + ("" if row.limit else f" {row.unit}")


def figure(value: float, unit: str) -> str:
    """Give a figure in a form that people can compare: three digits that count."""
    if value >= 1000:
        return f"{value / 1000:.0f}k {unit}" if value >= 10_000 else f"{value / 1000:.1f}k {unit}"
    return f"{value:.0f} {unit}" if value >= 100 else f"{value:.1f} {unit}" if value >= 10 else f"{value:.2f} {unit}"


def to_json(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Give the rows as plain values, with what was concluded."""
    return [
        {
            "row": row.number,
            "name": row.name,
            "unit": row.unit,
            "subject": list(row.subject),
            "limit_name": row.limit_name,
            "limit": list(row.limit),
            "ratio": row.ratio,
            "target": row.goal.target if row.goal else None,
            "stretch": row.goal.stretch if row.goal else None,
            "verdict": row.verdict,
        }
        for row in rows
    ]
