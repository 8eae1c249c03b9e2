"""Matches when each of several rules matches."""

from __future__ import annotations

from collections.abc import Sequence

from steprail_daemon.core.model import AllOfRule, StopKind, Verdict, VerdictOutcome
from steprail_daemon.core.stops import groups
from steprail_daemon.core.stops.base import GroupRuleKind


def verdict(rule_id: str, verdicts: Sequence[Verdict]) -> Verdict:
    """Put the verdicts together. The ratio is the lowest of the rules that decide, if each has one."""
    outcome = groups.all_of(verdicts)
    deciding = [one for one in verdicts if one.outcome is outcome]
    if outcome is VerdictOutcome.MATCHED:
        message = f"Every rule matches, the first is {groups.told(deciding[0])}"
    elif outcome is VerdictOutcome.UNKNOWN:
        message = f"Every rule that is known matches; unknown is {groups.told(deciding[0])}"
    else:
        message = f"Not every rule matches, {groups.told(deciding[0])}"
    return groups.put_together(
        rule_id,
        StopKind.ALL_OF,
        verdicts,
        outcome,
        limit=f"all of {len(verdicts)} rules",
        ratio=_lowest(deciding),
        message=message,
    )


def _lowest(deciding: Sequence[Verdict]) -> float | None:
    ratios = [one.ratio for one in deciding if one.ratio is not None]
    measured = len(ratios) == len(deciding) or deciding[0].outcome is VerdictOutcome.MATCHED
    return min(ratios, default=None) if measured else None


ALL_OF = GroupRuleKind(StopKind.ALL_OF, AllOfRule, verdict)
