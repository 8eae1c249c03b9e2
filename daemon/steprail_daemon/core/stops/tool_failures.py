"""Matches when enough tool calls of the run failed, in all or without a success between them."""

from __future__ import annotations

from collections.abc import Iterable

from steprail_daemon.core.model import StopKind, ToolFailuresRule, Verdict
from steprail_daemon.core.stops.base import Problem, RuleKind, StepFacts, at_least
from steprail_daemon.core.stops.texts import verdict_on_sum


def verdict(rule_id: str, condition: ToolFailuresRule, facts: StepFacts) -> Verdict:
    """Compare the number. Of rows the longest of the run counts, also one that began and ended within a step."""
    seen = facts.tally.failures
    if condition.consecutive:
        count = seen.longest_with_denied if condition.count_denied else seen.longest
    else:
        count = seen.failed_or_denied if condition.count_denied else seen.failed
    what = "Failed or denied tool calls of the run" if condition.count_denied else "Failed tool calls of the run"
    if condition.consecutive:
        what += " without a success between them"
    return verdict_on_sum(rule_id, StopKind.TOOL_FAILURES, (count, True), condition.at_least, what=what)


def problems(condition: ToolFailuresRule) -> Iterable[Problem]:
    """Check that there is a limit to reach."""
    return at_least(condition.at_least, 1)


TOOL_FAILURES = RuleKind(StopKind.TOOL_FAILURES, ToolFailuresRule, verdict, problems)
