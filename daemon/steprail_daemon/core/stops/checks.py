"""Checks of rules before a run: whether they are well made, and whether the agent can give what they need."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from steprail_daemon.core.model import Capabilities, OnUnknown, RuleCondition, StopRule
from steprail_daemon.core.stops.base import GroupRuleKind, Problem, RuleKind
from steprail_daemon.core.stops.kinds import BY_CONDITION
from steprail_daemon.core.stops.tally import GROUP_CONDITIONS, conditions

_MAX_ID_BYTES = 64
_MAX_REASON_BYTES = 1024


def problems(
    rules: Sequence[StopRule], field: str = "stop_rules", *, max_rules: int | None = None, max_depth: int | None = None
) -> list[Problem]:
    """Give what is wrong with a list of rules: for each problem the field, and what it holds and what is accepted.

    `field` is the path of the list; problems are told by theirs, such as
    `stop_rules[0].any_of.rules[1].step_count.at_least`. `max_rules` counts those within groups, and the groups. A
    rule in no group is at depth 1; what is nested deeper than `max_depth` is not looked at further. None: no bound.
    """
    count = _count(rules, max_depth)
    if max_rules is not None and count > max_rules:
        return [(field, f"has {count} rules, nested ones included; accepted are at most {max_rules}")]
    return list(_in_list(rules, field, max_depth, 1))


def needs(rules: Sequence[StopRule]) -> frozenset[str]:
    """Give the fields of `Capabilities` that tell whether an agent gives what the rules look at.

    They are `usage`, `cost` and `finish_reason`, of rules within groups too, whatever their `on_unknown`.
    """
    kinds = (BY_CONDITION[type(condition)] for condition in conditions(rules))
    return frozenset(kind.capability for kind in kinds if isinstance(kind, RuleKind) and kind.capability)


def unserved(rules: Sequence[StopRule], capabilities: Capabilities, field: str = "stop_rules") -> list[tuple[str, str]]:
    """Give the rules whose data this agent can never give at a boundary and which say REFUSE: field and capability.

    Each rule within a group speaks for itself here; a group needs no data of its own. A run with such a rule is refused
    with CAPABILITY_MISSING.
    """
    return list(_unserved(rules, capabilities, field))


def _unserved(rules: Sequence[StopRule], capabilities: Capabilities, field: str) -> Iterator[tuple[str, str]]:
    for index, rule in enumerate(rules):
        condition = rule.condition
        path = f"{field}[{index}].{_name(condition)}"
        if isinstance(condition, GROUP_CONDITIONS):
            yield from _unserved(condition.rules, capabilities, f"{path}.rules")
            continue
        kind = BY_CONDITION[type(condition)]
        refuses = rule.on_unknown is OnUnknown.REFUSE
        if refuses and isinstance(kind, RuleKind) and not kind.served(condition, capabilities):
            yield path, kind.capability


def _count(rules: Sequence[StopRule], max_depth: int | None, depth: int = 1) -> int:
    if max_depth is not None and depth > max_depth:
        return 0
    inner = [rule.condition.rules for rule in rules if isinstance(rule.condition, GROUP_CONDITIONS)]
    return len(rules) + sum(_count(each, max_depth, depth + 1) for each in inner)


def _in_list(rules: Sequence[StopRule], field: str, max_depth: int | None, depth: int) -> Iterator[Problem]:
    if max_depth is not None and depth > max_depth:
        yield field, f"is at depth {depth}; accepted are at most {max_depth}"
        return
    taken: dict[str, int] = {}
    for index, rule in enumerate(rules):
        path = f"{field}[{index}]"
        if taken.setdefault(rule.rule_id, index) != index:
            yield f"{path}.id", f"is {rule.rule_id!r}, as that of {field}[{taken[rule.rule_id]}]"
        yield from _in_texts(rule, path)
        yield from _in_condition(rule.condition, f"{path}.{_name(rule.condition)}", max_depth, depth)


def _in_texts(rule: StopRule, path: str) -> Iterator[Problem]:
    for name, text, most in (("id", rule.rule_id, _MAX_ID_BYTES), ("reason", rule.reason, _MAX_REASON_BYTES)):
        size = len(text.encode("utf-8", "replace"))
        if size > most:
            yield f"{path}.{name}", f"has {size} bytes; accepted are at most {most}"


def _in_condition(condition: RuleCondition, path: str, max_depth: int | None, depth: int) -> Iterator[Problem]:
    if isinstance(condition, GROUP_CONDITIONS):
        inner = f"{path}.rules"
        if not condition.rules:
            yield inner, "is empty; accepted is at least one rule"
        else:
            yield from _in_list(condition.rules, inner, max_depth, depth + 1)
        return
    kind = BY_CONDITION[type(condition)]
    assert not isinstance(kind, GroupRuleKind)
    for name, what in kind.problems(condition):
        yield f"{path}.{name}" if name else path, what


def _name(condition: RuleCondition) -> str:
    return BY_CONDITION[type(condition)].kind.name.lower()
