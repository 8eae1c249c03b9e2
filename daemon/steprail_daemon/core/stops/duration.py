"""Matches at the first boundary at which the run has taken long enough. It never cuts a step short."""

from __future__ import annotations

from collections.abc import Iterable

from steprail_daemon.core.model import DurationRule, RuleClock, StopKind, Verdict, VerdictOutcome
from steprail_daemon.core.stops.base import Problem, RuleKind, StepFacts
from steprail_daemon.core.stops.texts import elapsed, seconds


def verdict(rule_id: str, condition: DurationRule, facts: StepFacts) -> Verdict:
    """Compare the time by the rule's clock."""
    limit = condition.at_least_ns
    if condition.clock is RuleClock.WALL:
        taken, what = facts.wall_ns, "Time since the run started"
    else:
        taken, what = facts.active_ns, "Active time of the run"
    outcome = VerdictOutcome.MATCHED if taken >= limit else VerdictOutcome.NOT_MATCHED
    observed, most = f"{elapsed(taken)} s", f"{seconds(limit)} s"
    message = f"{what}: {observed} of {most}."
    return Verdict(rule_id, StopKind.DURATION, outcome, observed, most, taken / limit, message)


def problems(condition: DurationRule) -> Iterable[Problem]:
    """Check that there is a limit to reach."""
    limit = condition.at_least_ns
    return () if limit > 0 else (("at_least", f"is {limit} ns; accepted is more than zero"),)


DURATION = RuleKind(StopKind.DURATION, DurationRule, verdict, problems)
