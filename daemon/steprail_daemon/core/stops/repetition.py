"""Matches when the same tool was called with the same arguments often enough in the run."""

from __future__ import annotations

from collections.abc import Iterable

from steprail_daemon.core.model import RepetitionRule, StopKind, Verdict
from steprail_daemon.core.stops.base import Problem, RuleKind, StepFacts, at_least
from steprail_daemon.core.stops.texts import clipped, verdict_on_sum

_MAX_TOOL_BYTES = 512


def verdict(rule_id: str, condition: RepetitionRule, facts: StepFacts) -> Verdict:
    """Compare the number of the call that was made most often."""
    seen = facts.tally.repetitions
    tool = clipped(seen.tool, _MAX_TOOL_BYTES)
    what = f"Calls of {tool} with the same arguments" if tool else "Calls of a tool with the same arguments"
    return verdict_on_sum(rule_id, StopKind.REPETITION, (seen.most, True), condition.at_least, what=what)


def problems(condition: RepetitionRule) -> Iterable[Problem]:
    """Check that there is something to repeat."""
    return at_least(condition.at_least, 2)


REPETITION = RuleKind(StopKind.REPETITION, RepetitionRule, verdict, problems)
