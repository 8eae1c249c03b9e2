"""Matches when the step's message ended in a certain way."""

from __future__ import annotations

from collections.abc import Iterable

from steprail_daemon.core.model import (
    Capabilities,
    FinishReason,
    FinishReasonRule,
    StopKind,
    Verdict,
    VerdictOutcome,
)
from steprail_daemon.core.stops.base import Problem, RuleKind, StepFacts


def verdict(rule_id: str, condition: FinishReasonRule, facts: StepFacts) -> Verdict:
    """Look the reason up. One that was not reported is unknown."""
    reason = facts.finish_reason if facts.step is None else facts.step.finish_reason
    limit = " or ".join(dict.fromkeys(wanted.name for wanted in condition.any_of))
    if reason is FinishReason.UNKNOWN:
        outcome, observed = VerdictOutcome.UNKNOWN, ""
    else:
        outcome = VerdictOutcome.MATCHED if reason in condition.any_of else VerdictOutcome.NOT_MATCHED
        observed = reason.name
    message = f"Finish reason of the message: {observed or 'not reported'}; looked for {limit}."
    return Verdict(rule_id, StopKind.FINISH_REASON, outcome, observed, limit, None, message)


def problems(condition: FinishReasonRule) -> Iterable[Problem]:
    """Check that there is something to look for."""
    accepted = ", ".join(reason.name for reason in FinishReason if reason)
    if not condition.any_of:
        yield "any_of", f"is empty; accepted is at least one of {accepted}"
    for index, reason in enumerate(condition.any_of):
        if reason is FinishReason.UNKNOWN:
            yield f"any_of[{index}]", f"is UNSPECIFIED, which is never reported; accepted are {accepted}"


def served(_condition: FinishReasonRule, capabilities: Capabilities) -> bool:
    """Whether the agent reports reasons at all."""
    return capabilities.finish_reason


FINISH_REASON = RuleKind(StopKind.FINISH_REASON, FinishReasonRule, verdict, problems, "finish_reason", served)
