"""Stop rules of the public API as those of the core, and back. Each kind is read and written beside each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message

from steprail.v1 import rules_pb2
from steprail_daemon.core.errors import Invalid
from steprail_daemon.core.model import (
    AllOfRule,
    AnyOfRule,
    CostRule,
    DurationRule,
    ExpressionRule,
    FinishReason,
    FinishReasonRule,
    NoneOfRule,
    OnUnknown,
    RepetitionRule,
    RuleClock,
    RuleCondition,
    RuleScope,
    StepCountRule,
    StopRule,
    TokenCounting,
    TokenUsageRule,
    ToolCallRule,
    ToolCallScope,
    ToolFailuresRule,
    ToolKind,
    ToolOutcomeFilter,
)
from steprail_daemon.core.stops import KINDS, problems
from steprail_daemon.service import checks


class Kind(msgspec.Struct, frozen=True):
    """How the parameters of one kind are read, given their path and message, and written."""

    read: Callable[[str, Any], RuleCondition]
    write: Callable[[Any], Message]


def stop_rules(path: str, rules: Sequence[rules_pb2.StopRule]) -> tuple[StopRule, ...]:
    """Read a list of rules. Those without an id are numbered.

    Raises:
        Invalid: RULE_INVALID. How many rules there may be and how deep is the engine's to say.
    """
    try:
        read = _list(path, rules)
    except Invalid as error:
        raise Invalid("RULE_INVALID", error.message, field=error.field) from None
    wrong = problems(read, path)
    if wrong:
        raise _rule_invalid(*wrong[0])
    return read


def stop_rule(rule: StopRule) -> rules_pb2.StopRule:
    """Write a rule."""
    field = NAMES[type(rule.condition)]
    message = rules_pb2.StopRule(
        id=rule.rule_id, reason=rule.reason, on_unknown=rules_pb2.OnUnknown.ValueType(rule.on_unknown)
    )
    getattr(message, field).CopyFrom(CONDITIONS[field].write(rule.condition))
    return message


def _list(path: str, rules: Sequence[rules_pb2.StopRule]) -> tuple[StopRule, ...]:
    taken: dict[str, int] = {}
    for index, rule in enumerate(rules):
        taken.setdefault(rule.id, index)
    return tuple([_rule(f"{path}[{index}]", rule, index, taken) for index, rule in enumerate(rules)])


def _rule(path: str, message: rules_pb2.StopRule, index: int, taken: dict[str, int]) -> StopRule:
    field = message.WhichOneof("kind")
    if field is None:
        raise _rule_invalid(path, f"has no kind; accepted is {', '.join(CONDITIONS)}")
    on_unknown = checks.choice(f"{path}.on_unknown", message.on_unknown, OnUnknown, OnUnknown.REFUSE)
    condition = CONDITIONS[field].read(f"{path}.{field}", getattr(message, field))
    return StopRule(message.id or _numbered(index, taken), condition, message.reason, on_unknown)


def _numbered(index: int, taken: dict[str, int]) -> str:
    """Name a rule after its place; where a caller took that name for another rule, after a later one."""
    number = index + 1
    while taken.get(f"rule-{number}", index) != index:
        number += 1
    taken[f"rule-{number}"] = index
    return f"rule-{number}"


def _rule_invalid(field: str, problem: str) -> Invalid:
    return Invalid("RULE_INVALID", f"{field} {problem}", field=field)


def _scope(path: str, scope: int) -> RuleScope:
    return checks.choice(f"{path}.scope", scope, RuleScope, RuleScope.RUN)


# --- the kinds ----------------------------------------------------------------------------------------------------


def _read_step_count(path: str, message: rules_pb2.StepCountRule) -> StepCountRule:
    return StepCountRule(message.at_least, _scope(path, message.scope))


def _write_step_count(rule: StepCountRule) -> rules_pb2.StepCountRule:
    return rules_pb2.StepCountRule(at_least=rule.at_least, scope=rules_pb2.RuleScope.ValueType(rule.scope))


def _read_tool_call(path: str, message: rules_pb2.ToolCallRule) -> ToolCallRule:
    by_kind = message.WhichOneof("selector") == "tool_kind"
    return ToolCallRule(
        tool=message.tool,
        tool_kind=checks.choice(f"{path}.tool_kind", message.tool_kind, ToolKind, None)
        if by_kind
        else ToolKind.UNKNOWN,
        outcome=checks.choice(f"{path}.outcome", message.outcome, ToolOutcomeFilter, ToolOutcomeFilter.ANY),
        scope=checks.choice(f"{path}.scope", message.scope, ToolCallScope, ToolCallScope.STEP),
    )


def _write_tool_call(rule: ToolCallRule) -> rules_pb2.ToolCallRule:
    message = rules_pb2.ToolCallRule(
        outcome=rules_pb2.ToolOutcomeFilter.ValueType(rule.outcome),
        scope=rules_pb2.ToolCallScope.ValueType(rule.scope),
    )
    if rule.tool:
        message.tool = rule.tool
    else:
        message.tool_kind = rules_pb2.ToolKind.ValueType(rule.tool_kind)
    return message


def _read_token_usage(path: str, message: rules_pb2.TokenUsageRule) -> TokenUsageRule:
    counting = checks.choice(f"{path}.counting", message.counting, TokenCounting, TokenCounting.TOTAL)
    return TokenUsageRule(message.at_least, counting, _scope(path, message.scope))


def _write_token_usage(rule: TokenUsageRule) -> rules_pb2.TokenUsageRule:
    return rules_pb2.TokenUsageRule(
        at_least=rule.at_least,
        counting=rules_pb2.TokenCounting.ValueType(rule.counting),
        scope=rules_pb2.RuleScope.ValueType(rule.scope),
    )


def _read_cost(path: str, message: rules_pb2.CostRule) -> CostRule:
    return CostRule(message.at_least_micro_usd, _scope(path, message.scope))


def _write_cost(rule: CostRule) -> rules_pb2.CostRule:
    return rules_pb2.CostRule(
        at_least_micro_usd=rule.at_least_micro_usd, scope=rules_pb2.RuleScope.ValueType(rule.scope)
    )


def _read_duration(path: str, message: rules_pb2.DurationRule) -> DurationRule:
    clock = checks.choice(f"{path}.clock", message.clock, RuleClock, RuleClock.ACTIVE)
    return DurationRule(checks.span(f"{path}.at_least", message.at_least), clock)


def _write_duration(rule: DurationRule) -> rules_pb2.DurationRule:
    seconds, nanos = divmod(rule.at_least_ns, 1_000_000_000)
    clock = rules_pb2.RuleClock.ValueType(rule.clock)
    return rules_pb2.DurationRule(at_least=Duration(seconds=seconds, nanos=nanos), clock=clock)


def _read_finish_reason(path: str, message: rules_pb2.FinishReasonRule) -> FinishReasonRule:
    reasons = enumerate(message.any_of)
    return FinishReasonRule(
        tuple([checks.choice(f"{path}.any_of[{index}]", reason, FinishReason, None) for index, reason in reasons])
    )


def _write_finish_reason(rule: FinishReasonRule) -> rules_pb2.FinishReasonRule:
    return rules_pb2.FinishReasonRule(any_of=[rules_pb2.FinishReason.ValueType(reason) for reason in rule.any_of])


def _read_tool_failures(_path: str, message: rules_pb2.ToolFailuresRule) -> ToolFailuresRule:
    return ToolFailuresRule(message.at_least, message.consecutive, message.count_denied)


def _write_tool_failures(rule: ToolFailuresRule) -> rules_pb2.ToolFailuresRule:
    return rules_pb2.ToolFailuresRule(
        at_least=rule.at_least, consecutive=rule.consecutive, count_denied=rule.count_denied
    )


def _read_repetition(_path: str, message: rules_pb2.RepetitionRule) -> RepetitionRule:
    return RepetitionRule(message.at_least)


def _write_repetition(rule: RepetitionRule) -> rules_pb2.RepetitionRule:
    return rules_pb2.RepetitionRule(at_least=rule.at_least)


def _read_expression(_path: str, message: rules_pb2.ExpressionRule) -> ExpressionRule:
    return ExpressionRule(message.cel)


def _write_expression(rule: ExpressionRule) -> rules_pb2.ExpressionRule:
    return rules_pb2.ExpressionRule(cel=rule.cel)


def _read_any_of(path: str, message: rules_pb2.RuleGroup) -> AnyOfRule:
    return AnyOfRule(_list(f"{path}.rules", message.rules))


def _read_all_of(path: str, message: rules_pb2.RuleGroup) -> AllOfRule:
    return AllOfRule(_list(f"{path}.rules", message.rules))


def _read_none_of(path: str, message: rules_pb2.RuleGroup) -> NoneOfRule:
    return NoneOfRule(_list(f"{path}.rules", message.rules))


def _write_group(rule: AnyOfRule | AllOfRule | NoneOfRule) -> rules_pb2.RuleGroup:
    return rules_pb2.RuleGroup(rules=[stop_rule(inner) for inner in rule.rules])


#: Every kind of rule, by the name of its field.
CONDITIONS: Final[Mapping[str, Kind]] = {
    "step_count": Kind(_read_step_count, _write_step_count),
    "tool_call": Kind(_read_tool_call, _write_tool_call),
    "token_usage": Kind(_read_token_usage, _write_token_usage),
    "cost": Kind(_read_cost, _write_cost),
    "duration": Kind(_read_duration, _write_duration),
    "finish_reason": Kind(_read_finish_reason, _write_finish_reason),
    "tool_failures": Kind(_read_tool_failures, _write_tool_failures),
    "repetition": Kind(_read_repetition, _write_repetition),
    "expression": Kind(_read_expression, _write_expression),
    "any_of": Kind(_read_any_of, _write_group),
    "all_of": Kind(_read_all_of, _write_group),
    "none_of": Kind(_read_none_of, _write_group),
}

#: The name of the field of each kind, by the class of its parameters.
NAMES: Final[Mapping[type, str]] = {kind.condition: kind.kind.name.lower() for kind in KINDS}
