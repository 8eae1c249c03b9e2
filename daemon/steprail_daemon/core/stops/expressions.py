"""Rules in CEL as the core sees them: what is asked of whoever evaluates them, and what is answered.

The core knows no CEL. It hands over views (`core.stops.expression_view`) and source texts; the room `expressions`
implements the protocol.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Protocol

import msgspec

from steprail_daemon.core.stops.expression_view import ExpressionView, PermissionView

#: Bytes of the longest source text.
MAX_SOURCE_BYTES = 2 << 10
#: Bytes of the longest reason that an expression can give; more is cut.
MAX_REASON_BYTES = 1 << 10


class ExpressionKind(IntEnum):
    """What an expression is for, which settles what it sees and what type it must have."""

    #: A stop rule: sees an `ExpressionView`, is a bool or a string.
    STOP_RULE = 1
    #: A condition of a permission rule: sees a `PermissionView`, is a bool.
    PERMISSION_RULE = 2


class ExpressionOutcome(IntEnum):
    """What an expression said. The first three have the numbers of `VerdictOutcome`."""

    MATCHED = 1
    NOT_MATCHED = 2
    #: It read something absent, or its evaluation went over a bound.
    UNKNOWN = 3
    #: It went wrong otherwise: a stop rule that does ends the run, FAILED, RULE_ERROR.
    ERROR = 4


class Expression(msgspec.Struct, frozen=True):
    """A source text to be checked. `field` is the path under which the caller gave it, for problems to name."""

    field: str
    source: str
    kind: ExpressionKind = ExpressionKind.STOP_RULE


class ExpressionProblem(msgspec.Struct, frozen=True):
    """What is wrong with an expression, and where: `line` and `column` count from 1 (columns in code points).

    Both are None where the problem is the text as a whole.
    """

    field: str
    line: int | None
    column: int | None
    message: str

    def __str__(self) -> str:
        place = self.field if self.line is None else f"{self.field}:{self.line}:{self.column}"
        return f"{place}: {self.message}"


class ExpressionResult(msgspec.Struct, frozen=True):
    """What one expression said of one view.

    `text` is with MATCHED the reason (the string that the expression gave, at most 1 KiB; empty for a bool), with
    UNKNOWN what was absent or which bound was passed, with ERROR what went wrong.
    """

    outcome: ExpressionOutcome
    text: str = ""


class Evaluation(msgspec.Struct, frozen=True):
    """A view, and the sources of the kind that belongs to it."""

    view: ExpressionView | PermissionView
    sources: tuple[str, ...]


class ExpressionsUnavailable(Exception):
    """Nothing can be checked now: the process that would cannot be had. It is the daemon's or the machine's fault."""


class RuleEngine(Protocol):
    """Checks and evaluates expressions. Every wait within is bounded."""

    async def check(self, expressions: Sequence[Expression]) -> list[ExpressionProblem]:
        """Give what is wrong with expressions, in their order; empty if each can be used.

        Raises:
            ExpressionsUnavailable: they cannot be checked now.
        """

    async def evaluate(self, evaluation: Evaluation) -> list[ExpressionResult]:
        """Give what each source says of the view, in order. It never raises: what cannot be told is UNKNOWN."""
