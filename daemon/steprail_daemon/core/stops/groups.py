"""What groups of rules have in common: their rules' verdicts put together in three-valued logic.

UNKNOWN stays UNKNOWN unless the other rules settle it.
"""

from __future__ import annotations

from collections.abc import Sequence

from steprail_daemon.core.model import StopKind, Verdict, VerdictOutcome
from steprail_daemon.core.stops.texts import MAX_MESSAGE_BYTES, clipped

_MATCHED = VerdictOutcome.MATCHED
_NOT_MATCHED = VerdictOutcome.NOT_MATCHED
_UNKNOWN = VerdictOutcome.UNKNOWN


def any_of(verdicts: Sequence[Verdict]) -> VerdictOutcome:
    """MATCHED if one is, else UNKNOWN if one is, else NOT_MATCHED."""
    outcomes = {verdict.outcome for verdict in verdicts}
    return next((outcome for outcome in (_MATCHED, _UNKNOWN) if outcome in outcomes), _NOT_MATCHED)


def all_of(verdicts: Sequence[Verdict]) -> VerdictOutcome:
    """NOT_MATCHED if one is, else UNKNOWN if one is, else MATCHED."""
    outcomes = {verdict.outcome for verdict in verdicts}
    return next((outcome for outcome in (_NOT_MATCHED, _UNKNOWN) if outcome in outcomes), _MATCHED)


def none_of(verdicts: Sequence[Verdict]) -> VerdictOutcome:
    """The contrary of `any_of`; UNKNOWN has none but itself."""
    return {_MATCHED: _NOT_MATCHED, _NOT_MATCHED: _MATCHED, _UNKNOWN: _UNKNOWN}[any_of(verdicts)]


def first(verdicts: Sequence[Verdict], outcome: VerdictOutcome) -> Verdict:
    """Give the first verdict with that outcome."""
    return next(verdict for verdict in verdicts if verdict.outcome is outcome)


def told(verdict: Verdict) -> str:
    """Name the rule of a verdict with what it said."""
    return f"rule {verdict.rule_id!r}: {verdict.message}"


def put_together(
    rule_id: str,
    kind: StopKind,
    verdicts: Sequence[Verdict],
    outcome: VerdictOutcome,
    *,
    limit: str,
    ratio: float | None,
    message: str,
) -> Verdict:
    """Give the verdict of a group of rules. What is UNKNOWN has no ratio and tells whose data was missing."""
    matched = sum(verdict.outcome is _MATCHED for verdict in verdicts)
    observed = f"{matched} of {len(verdicts)} rules match"
    message = clipped(message, MAX_MESSAGE_BYTES)
    if outcome is not _UNKNOWN:
        return Verdict(rule_id, kind, outcome, observed, limit, ratio, message)
    unknown = [verdict for verdict in verdicts if verdict.outcome is _UNKNOWN]
    missing = dict.fromkeys(kind for verdict in unknown for kind in verdict.missing or (verdict.kind,))
    observed += f", {len(unknown)} unknown"
    return Verdict(rule_id, kind, outcome, observed, limit, None, message, tuple(missing))
