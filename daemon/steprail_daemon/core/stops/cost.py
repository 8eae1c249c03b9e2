"""Matches when enough money was spent, in the run or in the whole session."""

from __future__ import annotations

from collections.abc import Iterable

from steprail_daemon.core.model import (
    Capabilities,
    CostRule,
    CostSupport,
    RuleScope,
    StopKind,
    UsageSupport,
    Verdict,
)
from steprail_daemon.core.stops.base import Problem, RuleKind, StepFacts
from steprail_daemon.core.stops.texts import dollars, verdict_on_sum, where


def verdict(rule_id: str, condition: CostRule, facts: StepFacts) -> Verdict:
    """Compare the known sum."""
    total = facts.tally.spent.cost(condition.scope)
    what = f"Cost {where(condition.scope)}"
    return verdict_on_sum(
        rule_id, StopKind.COST, total, condition.at_least_micro_usd, what=what, write=dollars, unit=" USD"
    )


def problems(condition: CostRule) -> Iterable[Problem]:
    """Check that there is a limit to reach."""
    limit = condition.at_least_micro_usd
    return () if limit >= 1 else (("at_least_micro_usd", f"is {limit}; accepted are 1 and more"),)


def served(_condition: CostRule, capabilities: Capabilities) -> bool:
    """Whether the money of each step is known: the agent reports it, or it is priced from tokens known per step."""
    if capabilities.cost is CostSupport.PRICED:
        return capabilities.usage is UsageSupport.PER_STEP
    return capabilities.cost is CostSupport.REPORTED


def sums_session(condition: CostRule) -> bool:
    """Whether the cost of earlier runs counts."""
    return condition.scope is RuleScope.SESSION


COST = RuleKind(StopKind.COST, CostRule, verdict, problems, "cost", served, sums_session)
