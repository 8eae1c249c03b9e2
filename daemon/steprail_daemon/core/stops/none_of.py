"""Matches when none of several rules matches."""

from __future__ import annotations

from collections.abc import Sequence

from steprail_daemon.core.model import NoneOfRule, StopKind, Verdict, VerdictOutcome
from steprail_daemon.core.stops import groups
from steprail_daemon.core.stops.base import GroupRuleKind


def verdict(rule_id: str, verdicts: Sequence[Verdict]) -> Verdict:
    """Put the verdicts together. There is no ratio: coming near a limit is going away from the match."""
    outcome = groups.none_of(verdicts)
    if outcome is VerdictOutcome.MATCHED:
        message = f"No rule matches, the first is {groups.told(verdicts[0])}"
    elif outcome is VerdictOutcome.UNKNOWN:
        message = f"No rule matches and not all are known, {groups.told(groups.first(verdicts, outcome))}"
    else:
        message = f"A rule matches, {groups.told(groups.first(verdicts, VerdictOutcome.MATCHED))}"
    return groups.put_together(
        rule_id, StopKind.NONE_OF, verdicts, outcome, limit="no rule", ratio=None, message=message
    )


NONE_OF = GroupRuleKind(StopKind.NONE_OF, NoneOfRule, verdict)
