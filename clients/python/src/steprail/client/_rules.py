"""Stop rules in a few words. What else a rule can say is set in its message, `steprail.v1.rules_pb2.StopRule`."""

from __future__ import annotations

from collections.abc import Iterable

from google.protobuf.duration_pb2 import Duration

from steprail.v1 import rules_pb2


def steps(at_least: int, *, rule_id: str = "") -> rules_pb2.StopRule:
    """Give the rule that stops once so many steps of the run are complete."""
    return rules_pb2.StopRule(id=rule_id, step_count=rules_pb2.StepCountRule(at_least=at_least))


def tool(name: str, *, rule_id: str = "") -> rules_pb2.StopRule:
    """Give the rule that stops after a step that called a tool of this name, a glob: `*` any characters, `?` one."""
    return rules_pb2.StopRule(id=rule_id, tool_call=rules_pb2.ToolCallRule(tool=name))


def tokens(at_least: int, *, rule_id: str = "") -> rules_pb2.StopRule:
    """Give the rule that stops once the run used so many tokens, input and output."""
    return rules_pb2.StopRule(id=rule_id, token_usage=rules_pb2.TokenUsageRule(at_least=at_least))


def cost(micro_usd: int, *, rule_id: str = "") -> rules_pb2.StopRule:
    """Give the rule that stops once the run cost so many millionths of a US dollar."""
    return rules_pb2.StopRule(id=rule_id, cost=rules_pb2.CostRule(at_least_micro_usd=micro_usd))


def duration(seconds: float, *, rule_id: str = "") -> rules_pb2.StopRule:
    """Give the rule that stops at the first boundary at which the agent has worked for so long."""
    at_least = Duration()
    at_least.FromNanoseconds(round(seconds * 1e9))
    return rules_pb2.StopRule(id=rule_id, duration=rules_pb2.DurationRule(at_least=at_least))


def finish(*reasons: str, rule_id: str = "") -> rules_pb2.StopRule:
    """Give the rule that stops after a message that ended like this.

    Reasons are stop, tool_calls, length, content_filter, error and other.

    Raises:
        ValueError: there is no such reason.
    """
    any_of = [rules_pb2.FinishReason.Value(f"FINISH_REASON_{reason.upper()}") for reason in reasons]
    return rules_pb2.StopRule(id=rule_id, finish_reason=rules_pb2.FinishReasonRule(any_of=any_of))


def failures(at_least: int, *, rule_id: str = "") -> rules_pb2.StopRule:
    """Give the rule that stops once so many tool calls of the run failed."""
    return rules_pb2.StopRule(id=rule_id, tool_failures=rules_pb2.ToolFailuresRule(at_least=at_least))


def repeats(at_least: int, *, rule_id: str = "") -> rules_pb2.StopRule:
    """Give the rule that stops once the same tool was called with the same arguments so often."""
    return rules_pb2.StopRule(id=rule_id, repetition=rules_pb2.RepetitionRule(at_least=at_least))


def expression(cel: str, *, rule_id: str = "") -> rules_pb2.StopRule:
    """Give the rule that stops where a CEL expression is true or is a non-empty string, which becomes the reason."""
    return rules_pb2.StopRule(id=rule_id, expression=rules_pb2.ExpressionRule(cel=cel))


def any_of(rules: Iterable[rules_pb2.StopRule], *, rule_id: str = "") -> rules_pb2.StopRule:
    """Give the rule that stops where at least one of these matches."""
    return rules_pb2.StopRule(id=rule_id, any_of=rules_pb2.RuleGroup(rules=rules))


def all_of(rules: Iterable[rules_pb2.StopRule], *, rule_id: str = "") -> rules_pb2.StopRule:
    """Give the rule that stops where each of these matches."""
    return rules_pb2.StopRule(id=rule_id, all_of=rules_pb2.RuleGroup(rules=rules))


def none_of(rules: Iterable[rules_pb2.StopRule], *, rule_id: str = "") -> rules_pb2.StopRule:
    """Give the rule that stops where none of these matches."""
    return rules_pb2.StopRule(id=rule_id, none_of=rules_pb2.RuleGroup(rules=rules))
