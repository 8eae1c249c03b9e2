"""Stop rules: what is done with a list of them.

A list is any-of, and its order is the order of precedence. Every rule has a verdict at every boundary.
To add a kind: one file beside this one, and one line in `kinds.KINDS`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from steprail_daemon.core.model import (
    Cost,
    ExpressionRule,
    OnUnknown,
    RuleCondition,
    StopKind,
    StopRule,
    Usage,
    Verdict,
    VerdictOutcome,
)
from steprail_daemon.core.stops.base import GroupRuleKind, RuleKind, StepFacts
from steprail_daemon.core.stops.checks import needs, problems, unserved
from steprail_daemon.core.stops.expression import EXPRESSION
from steprail_daemon.core.stops.kinds import BY_CONDITION, KINDS
from steprail_daemon.core.stops.tally import GROUP_CONDITIONS, Tally, conditions
from steprail_daemon.core.usage import NO_COST, NO_USAGE

if TYPE_CHECKING:
    from steprail_daemon.core.stops.expressions import ExpressionResult

__all__ = [
    "KINDS",
    "NO_COST",
    "NO_USAGE",
    "StepFacts",
    "Tally",
    "already_met",
    "evaluate",
    "expression_paths",
    "expressions_of",
    "needs",
    "problems",
    "stops",
    "unserved",
]

_VERDICTS = {kind.condition: kind.verdict for kind in KINDS if isinstance(kind, RuleKind)}
#: The same with None for the others: a subscript costs less than asking whether there is an entry.
_PLAIN = {kind.condition: _VERDICTS.get(kind.condition) for kind in KINDS}
_GROUPS = {kind.condition: kind.verdict for kind in KINDS if isinstance(kind, GroupRuleKind)}

_MATCHED = VerdictOutcome.MATCHED
_UNKNOWN = VerdictOutcome.UNKNOWN

#: Kinds whose missing data stops a run under REFUSE: what they bound is spent unseen otherwise.
_BOUND_SPENDING = frozenset({StopKind.TOKEN_USAGE, StopKind.COST})


def evaluate(
    rules: Sequence[StopRule], facts: StepFacts, expressions: Sequence[ExpressionResult] = ()
) -> tuple[Verdict, ...]:
    """Give the verdict of each rule, in the order of the rules.

    `expressions` are the results of all expressions within the rules, in the order of `expressions_of`; the verdict of
    one whose result is not there is UNKNOWN.
    """
    verdicts = []
    results: Iterator[ExpressionResult] | None = None
    for rule in rules:
        condition = rule.condition
        plain = _PLAIN[type(condition)]
        if plain is not None:
            verdicts.append(plain(rule.rule_id, condition, facts))
            continue
        if results is None:
            results = iter(expressions)
        verdicts.append(_judge(rule, facts, results))
    return tuple(verdicts)


def _judge(rule: StopRule, facts: StepFacts, results: Iterator[ExpressionResult]) -> Verdict:
    condition = rule.condition
    if isinstance(condition, GROUP_CONDITIONS):
        # Every rule is judged, also where one settles it: each expression takes its own result.
        return _GROUPS[type(condition)](rule.rule_id, [_judge(inner, facts, results) for inner in condition.rules])
    if isinstance(condition, ExpressionRule):
        return EXPRESSION.verdict(rule.rule_id, condition, next(results, None))
    return _VERDICTS[type(condition)](rule.rule_id, condition, facts)


def expressions_of(rules: Sequence[StopRule]) -> tuple[str, ...]:
    """Give the sources of all expressions within rules, depth first, in the order in which results are taken."""
    return tuple([condition.cel for condition in conditions(rules) if isinstance(condition, ExpressionRule)])


def expression_paths(rules: Sequence[StopRule], field: str = "stop_rules") -> Iterator[tuple[str, str]]:
    """Give where each expression within rules stands, and its source, depth first."""
    for index, rule in enumerate(rules):
        condition = rule.condition
        path = f"{field}[{index}].{BY_CONDITION[type(condition)].kind.name.lower()}"
        if isinstance(condition, GROUP_CONDITIONS):
            yield from expression_paths(condition.rules, f"{path}.rules")
        elif isinstance(condition, ExpressionRule):
            yield f"{path}.cel", condition.cel


def stops(rule: StopRule, verdict: Verdict) -> bool:
    """Whether the verdict of a rule of a run's own list stops the run there.

    An UNKNOWN does where the rule says STOP, and under REFUSE where tokens or money are not known, within a group too.
    """
    outcome = verdict.outcome
    if outcome is _UNKNOWN:
        if rule.on_unknown is OnUnknown.REFUSE:
            return not _BOUND_SPENDING.isdisjoint(verdict.missing or (verdict.kind,))
        return rule.on_unknown is OnUnknown.STOP
    return outcome is _MATCHED


def already_met(
    rules: Sequence[StopRule], steps_before: int, usage_before: Usage | None, cost_before: Cost | None
) -> Verdict | None:
    """Give the first verdict that says that a run is over its limit before its first step; None if there is none.

    The figures are of the session before the run; None is unknown. Only rules that sum over the session can be met; in
    a group the others are open, so that it is met only where they do not matter. Such a run is refused with
    RULE_ALREADY_MET. What is unknown is not met.
    """
    facts = StepFacts(0, steps_before, tally=Tally.for_rules(rules, usage_before, cost_before))
    verdicts = (_before_the_start(rule, facts) for rule in rules)
    return next((verdict for verdict in verdicts if verdict.outcome is _MATCHED), None)


def _before_the_start(rule: StopRule, facts: StepFacts) -> Verdict:
    condition = rule.condition
    if isinstance(condition, GROUP_CONDITIONS):
        return _GROUPS[type(condition)](rule.rule_id, [_before_the_start(inner, facts) for inner in condition.rules])
    if _sums_session(condition):
        return _VERDICTS[type(condition)](rule.rule_id, condition, facts)
    return Verdict(rule.rule_id, BY_CONDITION[type(condition)].kind, _UNKNOWN, "", "", None, "The run has not begun.")


def _sums_session(condition: RuleCondition) -> bool:
    kind = BY_CONDITION[type(condition)]
    return isinstance(kind, RuleKind) and kind.session(condition)
