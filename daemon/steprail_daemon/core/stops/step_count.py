"""Matches when enough steps are complete, in the run or in the whole session."""

from __future__ import annotations

from steprail_daemon.core.model import RuleScope, StepCountRule, StopKind, StopRule, Verdict, VerdictOutcome
from steprail_daemon.core.stops.base import RuleKind, StepFacts

# A member of an enumeration costs a function call to look up, and this is evaluated at every boundary.
_KIND = StopKind.STEP_COUNT
_SESSION = RuleScope.SESSION
_MATCHED = VerdictOutcome.MATCHED
_NOT_MATCHED = VerdictOutcome.NOT_MATCHED


def verdict(rule: StopRule, facts: StepFacts) -> Verdict:
    """Compare with "at or over", so that a limit which was passed still stops."""
    condition = rule.condition
    limit = condition.at_least
    if condition.scope is _SESSION:
        count, where = facts.session_steps, "of the session"
    else:
        count, where = facts.run_steps, "of the run"
    outcome = _MATCHED if count >= limit else _NOT_MATCHED
    observed, most = str(count), str(limit)
    message = f"Completed steps {where}: {observed}, limit {most}."
    return Verdict(rule.rule_id, _KIND, outcome, observed, most, count / limit, message)


def problem(rule: StopRule) -> str:
    """Check that there is a limit to reach."""
    at_least = rule.condition.at_least
    return "" if at_least >= 1 else f"step_count.at_least is {at_least}; accepted are 1 and more"


STEP_COUNT = RuleKind(_KIND, StepCountRule, verdict, problem)
