"""Stop rules: the ordered registry of their kinds, and what is done with a list of them.

A list is any-of, and its order is the order of precedence. Every rule has a verdict at every boundary.
To add a kind: one file beside this one, and one line in `KINDS`.
"""

from __future__ import annotations

from collections.abc import Sequence

from steprail_daemon.core.model import OnUnknown, StopRule, Verdict, VerdictOutcome
from steprail_daemon.core.stops.base import RuleKind, StepFacts
from steprail_daemon.core.stops.step_count import STEP_COUNT

#: Every kind of rule, by the number of its kind.
KINDS: tuple[RuleKind, ...] = (STEP_COUNT,)

_VERDICTS = {kind.condition: kind.verdict for kind in KINDS}
_PROBLEMS = {kind.condition: kind.problem for kind in KINDS}

_MATCHED = VerdictOutcome.MATCHED
_UNKNOWN = VerdictOutcome.UNKNOWN

_MAX_ID_BYTES = 64
_MAX_REASON_BYTES = 1024


def evaluate(rules: Sequence[StopRule], facts: StepFacts) -> tuple[Verdict, ...]:
    """Give the verdict of each rule, in the order of the rules."""
    verdicts = []
    for rule in rules:
        verdicts.append(_VERDICTS[type(rule.condition)](rule, facts))  # noqa: PERF401  # one frame less than a list of it
    return tuple(verdicts)


def stops(rule: StopRule, verdict: Verdict) -> bool:
    """Whether a rule's verdict stops the run there."""
    outcome = verdict.outcome
    if outcome is _UNKNOWN:
        return rule.on_unknown is OnUnknown.STOP
    return outcome is _MATCHED


def already_met(rules: Sequence[StopRule], steps_before: int) -> Verdict | None:
    """Give the first verdict that would stop a run before its first step; None if there is none.

    `steps_before` are the completed steps of the session. Such a run is refused with RULE_ALREADY_MET.
    """
    verdicts = evaluate(rules, StepFacts(0, steps_before))
    return next((verdict for rule, verdict in zip(rules, verdicts, strict=True) if stops(rule, verdict)), None)


def problem(rule: StopRule) -> str:
    """Say what is wrong with a rule: the field within it, what that holds, what is accepted; empty if nothing is."""
    for field, text, most in (("id", rule.rule_id, _MAX_ID_BYTES), ("reason", rule.reason, _MAX_REASON_BYTES)):
        size = len(text.encode())
        if size > most:
            return f"{field} has {size} bytes; accepted are at most {most}"
    return _PROBLEMS[type(rule.condition)](rule)
