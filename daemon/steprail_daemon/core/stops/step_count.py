"""Matches when enough steps are complete, in the run or in the whole session."""

from __future__ import annotations

from collections.abc import Iterable

from steprail_daemon.core.model import RuleScope, StepCountRule, StopKind, Verdict, VerdictOutcome
from steprail_daemon.core.stops.base import Problem, RuleKind, StepFacts, at_least

# A member of an enumeration costs a function call to look up, and this is evaluated at every boundary.
_KIND = StopKind.STEP_COUNT
_SESSION = RuleScope.SESSION
_MATCHED = VerdictOutcome.MATCHED
_NOT_MATCHED = VerdictOutcome.NOT_MATCHED


def verdict(rule_id: str, condition: StepCountRule, facts: StepFacts) -> Verdict:
    """Compare with "at or over", so that a limit which was passed still stops."""
    limit = condition.at_least
    if condition.scope is _SESSION:
        count, where = facts.session_steps, "of the session"
    else:
        count, where = facts.run_steps, "of the run"
    outcome = _MATCHED if count >= limit else _NOT_MATCHED
    observed, most = str(count), str(limit)
    message = f"Completed steps {where}: {observed}, limit {most}."
    return Verdict(rule_id, _KIND, outcome, observed, most, count / limit, message)


def problems(condition: StepCountRule) -> Iterable[Problem]:
    """Check that there is a limit to reach."""
    return at_least(condition.at_least, 1)


def sums_session(condition: StepCountRule) -> bool:
    """Whether the steps of earlier runs count."""
    return condition.scope is _SESSION


STEP_COUNT = RuleKind(_KIND, StepCountRule, verdict, problems, session=sums_session)
