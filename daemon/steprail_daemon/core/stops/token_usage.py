"""Matches when enough tokens were used, in the run or in the whole session."""

from __future__ import annotations

from collections.abc import Iterable

from steprail_daemon.core.model import (
    Capabilities,
    RuleScope,
    StopKind,
    TokenCounting,
    TokenUsageRule,
    UsageSupport,
    Verdict,
)
from steprail_daemon.core.stops.base import Problem, RuleKind, StepFacts, at_least
from steprail_daemon.core.stops.texts import verdict_on_sum, where

_WHAT = {
    TokenCounting.TOTAL: "Tokens",
    TokenCounting.INPUT: "Input tokens",
    TokenCounting.OUTPUT: "Output tokens",
    TokenCounting.UNCACHED: "Tokens without cached input",
}


def verdict(rule_id: str, condition: TokenUsageRule, facts: StepFacts) -> Verdict:
    """Compare the known sum."""
    total = facts.tally.spent.tokens(condition.counting, condition.scope)
    what = f"{_WHAT[condition.counting]} {where(condition.scope)}"
    return verdict_on_sum(rule_id, StopKind.TOKEN_USAGE, total, condition.at_least, what=what)


def problems(condition: TokenUsageRule) -> Iterable[Problem]:
    """Check that there is a limit to reach."""
    return at_least(condition.at_least, 1)


def served(_condition: TokenUsageRule, capabilities: Capabilities) -> bool:
    """Whether the agent tells the tokens of each step.

    One that tells them only at the end of a run cannot serve a rule at a boundary: what the run used so far is unknown
    there, whatever earlier runs used. With IGNORE such a rule of scope SESSION still refuses a run whose session is
    over the limit already, and the verdicts at the end of a run tell how near it came.
    """
    return capabilities.usage is UsageSupport.PER_STEP


def sums_session(condition: TokenUsageRule) -> bool:
    """Whether the tokens of earlier runs count."""
    return condition.scope is RuleScope.SESSION


TOKEN_USAGE = RuleKind(StopKind.TOKEN_USAGE, TokenUsageRule, verdict, problems, "usage", served, sums_session)
