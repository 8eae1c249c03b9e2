"""Matches when at least one of several rules matches."""

from __future__ import annotations

from collections.abc import Sequence

from steprail_daemon.core.model import AnyOfRule, StopKind, Verdict, VerdictOutcome
from steprail_daemon.core.stops import groups
from steprail_daemon.core.stops.base import GroupRuleKind


def verdict(rule_id: str, verdicts: Sequence[Verdict]) -> Verdict:
    """Put the verdicts together. The ratio is the highest of the rules that count, since one at its limit is enough."""
    outcome = groups.any_of(verdicts)
    nearest = max(verdicts, key=lambda one: (one.outcome is outcome, one.ratio is not None, one.ratio or 0.0))
    if outcome is VerdictOutcome.MATCHED:
        message = f"At least one rule matches, {groups.told(groups.first(verdicts, outcome))}"
    elif outcome is VerdictOutcome.UNKNOWN:
        message = f"No rule matches and not all are known, {groups.told(groups.first(verdicts, outcome))}"
    else:
        message = f"No rule matches; nearest is {groups.told(nearest)}"
    return groups.put_together(
        rule_id, StopKind.ANY_OF, verdicts, outcome, limit="at least 1 rule", ratio=nearest.ratio, message=message
    )


ANY_OF = GroupRuleKind(StopKind.ANY_OF, AnyOfRule, verdict)
