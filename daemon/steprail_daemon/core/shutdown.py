"""The shutdown ladder as data: which rungs an agent's process is taken down by, and how long each is given.

The configuration writes it as `["end:5s", "eof:5s", "term:5s", "kill"]`. Rungs go from gentle to harsh and the last
one is always the kill of the whole process tree, so that a ladder, once begun, ends.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum

import msgspec


class RungKind(Enum):
    """What a rung does, in the words of the configuration, from gentle to harsh."""

    END = "end"
    """Say goodbye in the agent's own protocol."""

    EOF = "eof"
    """Close the agent's stdin. Not safe while some agents wait for a decision: Claude Code 2.1 then goes on alone."""

    INT = "int"
    """SIGINT to the agent's process group. Some agents take it as an interrupt of the turn and stay."""

    TERM = "term"
    """SIGTERM to the agent's process group."""

    KILL = "kill"
    """SIGKILL to everything that descends from the agent."""


_ORDER = tuple(RungKind)
_WORDS = ", ".join(kind.value for kind in RungKind)
_UNITS = {"ms": 1_000_000, "s": 1_000_000_000, "m": 60_000_000_000}
_DURATION = re.compile(r"([0-9]{1,9})(?:\.([0-9]{1,9}))?(ms|s|m)")
_LONGEST = 3_600_000_000_000


class LadderError(ValueError):
    """A ladder in the configuration is wrong. The text names the field, what was found and what is accepted."""

    def __init__(self, field: str, found: str, accepted: str) -> None:
        super().__init__(f"{field}: {found}; {accepted}")
        self.field = field


class Rung(msgspec.Struct, frozen=True):
    """One rung. `wait` is how long, in nanoseconds, the agent may take to exit before the next one; 0 for the kill."""

    kind: RungKind
    wait: int


class Ladder(msgspec.Struct, frozen=True):
    """Rungs in order, each kind at most once, the kill at the end. Made by `parse_ladder`."""

    rungs: tuple[Rung, ...]

    @property
    def total(self) -> int:
        """Nanoseconds from the first rung to the kill, if the agent ignores all of them."""
        return sum(rung.wait for rung in self.rungs)

    def without(self, *kinds: RungKind) -> Ladder:
        """Give the ladder without the rungs that are unsafe now. The kill always stays."""
        return Ladder(
            tuple(rung for rung in self.rungs if rung.kind not in kinds or rung.kind is RungKind.KILL),
        )


def parse_ladder(entries: Sequence[str], field: str = "processes.ladder") -> Ladder:
    """Read the configuration's form. `field` is the key to name in errors.

    Raises:
        LadderError: a rung is unknown, doubled, out of order or without a time, or the last one is not `kill`.
    """
    rungs = tuple(_parse_rung(entry, f"{field}[{position}]") for position, entry in enumerate(entries))
    if not rungs or rungs[-1].kind is not RungKind.KILL:
        found = f"last rung is {entries[-1]!r}" if rungs else "there is no rung"
        raise LadderError(field, found, "expected 'kill' as the last one")
    for position in range(1, len(rungs)):
        before, here = rungs[position - 1].kind, rungs[position].kind
        if _ORDER.index(here) <= _ORDER.index(before):
            raise LadderError(
                f"{field}[{position}]",
                f"'{here.value}' comes after '{before.value}'",
                f"expected each rung at most once, in the order {_WORDS}",
            )
    return Ladder(rungs)


def _parse_rung(entry: str, field: str) -> Rung:
    word, colon, time = entry.partition(":")
    kind = next((kind for kind in RungKind if kind.value == word), None)
    if kind is None:
        raise LadderError(field, f"rung {word!r} is unknown", f"expected one of {_WORDS}")
    if kind is RungKind.KILL:
        if colon:
            raise LadderError(field, f"'kill' has the time {time!r}", "expected 'kill' alone")
        return Rung(kind, 0)
    return Rung(kind, _parse_wait(time, f"{field}.{word}"))


def _parse_wait(text: str, field: str) -> int:
    accepted = "expected a time like '5s', '0.5s', '500ms' or '1m', at most 60m"
    match = _DURATION.fullmatch(text)
    if match is None:
        raise LadderError(field, f"time is {text!r}", accepted)
    whole, fraction, unit = match.groups()
    scale = _UNITS[unit]
    wait = int(whole) * scale + int((fraction or "0").ljust(9, "0")) * scale // 1_000_000_000
    if wait > _LONGEST:
        raise LadderError(field, f"time is {text!r}", accepted)
    return wait
