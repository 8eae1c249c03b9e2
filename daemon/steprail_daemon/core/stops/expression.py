"""Matches when a CEL expression says so. It is evaluated elsewhere; its result is put into words here."""

from __future__ import annotations

from collections.abc import Iterable

from steprail_daemon.core.model import ExpressionRule, StopKind, Verdict, VerdictOutcome
from steprail_daemon.core.stops.base import ExpressionRuleKind, Problem
from steprail_daemon.core.stops.expressions import MAX_SOURCE_BYTES, ExpressionOutcome, ExpressionResult
from steprail_daemon.core.stops.texts import MAX_MESSAGE_BYTES, MAX_VALUE_BYTES, clipped


def verdict(rule_id: str, condition: ExpressionRule, result: ExpressionResult | None) -> Verdict:
    """Word a result. A string that it gave is the message, and so the reason.

    Without a result the verdict is UNKNOWN, and so it is where the expression went wrong, which ends the run anyhow.
    """
    text = "it was not evaluated" if result is None else result.text
    outcome = ExpressionOutcome.UNKNOWN if result is None else result.outcome
    if outcome is ExpressionOutcome.MATCHED:
        found, observed, said = VerdictOutcome.MATCHED, text or "true", text or "The expression is true."
    elif outcome is ExpressionOutcome.NOT_MATCHED:
        found, observed, said = VerdictOutcome.NOT_MATCHED, "false", "The expression is not true."
    else:
        found, observed, said = VerdictOutcome.UNKNOWN, "", f"The expression has no value: {text or 'unknown why'}."
    return Verdict(
        rule_id,
        StopKind.EXPRESSION,
        found,
        clipped(observed, MAX_VALUE_BYTES),
        clipped(condition.cel, MAX_VALUE_BYTES),
        None,
        clipped(said, MAX_MESSAGE_BYTES),
    )


def problems(condition: ExpressionRule) -> Iterable[Problem]:
    """Check that there is a source within its bound. Whether it is good CEL is checked where it is evaluated."""
    if not condition.cel.strip():
        return (("cel", "is empty; accepted is a CEL expression that gives a bool or a string"),)
    size = len(condition.cel.encode("utf-8", "replace"))
    return () if size <= MAX_SOURCE_BYTES else (("cel", f"has {size} bytes; accepted are at most {MAX_SOURCE_BYTES}"),)


EXPRESSION = ExpressionRuleKind(StopKind.EXPRESSION, ExpressionRule, verdict, problems)
