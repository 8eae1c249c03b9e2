"""Which stop rules are none, and which an agent cannot serve."""

import pytest
from tests.unit.core.stop_facts import rule

from steprail_daemon.core.model import (
    AllOfRule,
    AnyOfRule,
    Capabilities,
    CostRule,
    CostSupport,
    DurationRule,
    ExpressionRule,
    FinishReason,
    FinishReasonRule,
    NoneOfRule,
    OnUnknown,
    RepetitionRule,
    RuleCondition,
    RuleScope,
    StepCountRule,
    StepGate,
    StopRule,
    TokenUsageRule,
    ToolCallRule,
    ToolFailuresRule,
    ToolKind,
    UsageSupport,
)
from steprail_daemon.core.stops import needs, problems, unserved

ONE = rule(StepCountRule(1))
REASONS = "STOP, TOOL_CALLS, LENGTH, CONTENT_FILTER, ERROR, OTHER"


@pytest.mark.parametrize(
    ("bad", "field", "what"),
    [
        (rule(StepCountRule(0)), "step_count.at_least", "is 0; accepted are 1 and more"),
        (rule(StepCountRule(-3)), "step_count.at_least", "is -3; accepted are 1 and more"),
        (rule(StepCountRule(1), "ü" * 33), "id", "has 66 bytes; accepted are at most 64"),
        (rule(StepCountRule(1), reason="x" * 1_025), "reason", "has 1025 bytes; accepted are at most 1024"),
        (
            rule(ToolCallRule()),
            "tool_call",
            "has no single selector, neither tool nor tool_kind is set; accepted is exactly one of tool and tool_kind",
        ),
        (
            rule(ToolCallRule(tool="x", tool_kind=ToolKind.READ)),
            "tool_call",
            "has no single selector, tool and tool_kind are both set; accepted is exactly one of tool and tool_kind",
        ),
        (rule(ToolCallRule(tool="x" * 257)), "tool_call.tool", "has 257 bytes; accepted are at most 256"),
        (rule(TokenUsageRule(0)), "token_usage.at_least", "is 0; accepted are 1 and more"),
        (rule(CostRule(0)), "cost.at_least_micro_usd", "is 0; accepted are 1 and more"),
        (rule(DurationRule(0)), "duration.at_least", "is 0 ns; accepted is more than zero"),
        (rule(FinishReasonRule(())), "finish_reason.any_of", f"is empty; accepted is at least one of {REASONS}"),
        (
            rule(FinishReasonRule((FinishReason.STOP, FinishReason.UNKNOWN))),
            "finish_reason.any_of[1]",
            f"is UNSPECIFIED, which is never reported; accepted are {REASONS}",
        ),
        (rule(ToolFailuresRule(0)), "tool_failures.at_least", "is 0; accepted are 1 and more"),
        (rule(RepetitionRule(1)), "repetition.at_least", "is 1; accepted are 2 and more"),
        (
            rule(ExpressionRule(" \n")),
            "expression.cel",
            "is empty; accepted is a CEL expression that gives a bool or a string",
        ),
        (rule(ExpressionRule("é" * 1_025)), "expression.cel", "has 2050 bytes; accepted are at most 2048"),
        (rule(AnyOfRule(())), "any_of.rules", "is empty; accepted is at least one rule"),
        (rule(AllOfRule(())), "all_of.rules", "is empty; accepted is at least one rule"),
        (rule(NoneOfRule(())), "none_of.rules", "is empty; accepted is at least one rule"),
        (
            rule(AnyOfRule((ONE, rule(AllOfRule((rule(StepCountRule(0)),)), "b")))),
            "any_of.rules[1].all_of.rules[0].step_count.at_least",
            "is 0; accepted are 1 and more",
        ),
        (rule(NoneOfRule((ONE, ONE))), "none_of.rules[1].id", "is 'r', as that of stop_rules[0].none_of.rules[0]"),
    ],
    ids=str,
)
def test_a_bad_rule_is_told_by_field_value_and_what_is_accepted(bad: StopRule, field: str, what: str) -> None:
    assert problems([bad]) == [(f"stop_rules[0].{field}", what)]


@pytest.mark.parametrize(
    "condition",
    [
        StepCountRule(1),
        ToolCallRule(tool="é" * 128),
        ToolCallRule(tool_kind=ToolKind.EDIT),
        TokenUsageRule(1),
        CostRule(1),
        DurationRule(1),
        FinishReasonRule((FinishReason.STOP,)),
        ToolFailuresRule(1),
        RepetitionRule(2),
        ExpressionRule("é" * 1_024),
        AnyOfRule((ONE,)),
    ],
    ids=lambda condition: type(condition).__name__,
)
def test_a_rule_at_its_bounds_has_no_problem(condition: RuleCondition) -> None:
    assert problems([StopRule("x" * 64, condition, "y" * 1_024)]) == []


def test_every_problem_is_told_with_the_path_of_the_list() -> None:
    assert [field for field, _ in problems([rule(StepCountRule(0)), ONE, rule(CostRule(0))], "spec.rules")] == [
        "spec.rules[0].step_count.at_least",
        "spec.rules[1].id",
        "spec.rules[2].id",
        "spec.rules[2].cost.at_least_micro_usd",
    ]


def nested(depth: int) -> StopRule:
    return ONE if depth == 1 else rule(AnyOfRule((nested(depth - 1),)))


def test_the_depth_is_bounded() -> None:
    assert problems([nested(4)], max_depth=4) == []
    assert problems([nested(5)], max_depth=4) == [
        (
            "stop_rules[0].any_of.rules[0].any_of.rules[0].any_of.rules[0].any_of.rules",
            "is at depth 5; accepted are at most 4",
        )
    ]
    assert problems([nested(2)], max_depth=1) == [
        ("stop_rules[0].any_of.rules", "is at depth 2; accepted are at most 1")
    ]


def test_the_number_of_rules_is_bounded_with_those_in_groups() -> None:
    three = [rule(AllOfRule((rule(StepCountRule(1), "a"), rule(StepCountRule(2), "b"))))]
    assert problems(three, max_rules=3) == []
    assert problems(three, max_rules=2) == [
        ("stop_rules", "has 3 rules, nested ones included; accepted are at most 2"),
    ]


def agent(
    usage: UsageSupport = UsageSupport.UNSUPPORTED,
    cost: CostSupport = CostSupport.UNSUPPORTED,
    *,
    finish_reason: bool = False,
) -> Capabilities:
    return Capabilities(step_gate=StepGate.EXACT, usage=usage, cost=cost, finish_reason=finish_reason)


TOKENS = TokenUsageRule(1)
SESSION_TOKENS = TokenUsageRule(1, scope=RuleScope.SESSION)
MONEY = CostRule(1)
REASON = FinishReasonRule((FinishReason.STOP,))
PER_STEP, PER_RUN = UsageSupport.PER_STEP, UsageSupport.PER_RUN
REPORTED, PRICED = CostSupport.REPORTED, CostSupport.PRICED


@pytest.mark.parametrize(
    ("condition", "capabilities", "lacking"),
    [
        (TOKENS, agent(), "usage"),
        (TOKENS, agent(PER_RUN), "usage"),
        (SESSION_TOKENS, agent(PER_RUN), "usage"),
        (TOKENS, agent(PER_STEP), None),
        (MONEY, agent(PER_STEP), "cost"),
        (MONEY, agent(PER_RUN, PRICED), "cost"),
        (MONEY, agent(cost=PRICED), "cost"),
        (MONEY, agent(PER_STEP, PRICED), None),
        (MONEY, agent(cost=REPORTED), None),
        (REASON, agent(PER_STEP, REPORTED), "finish_reason"),
        (REASON, agent(finish_reason=True), None),
        (StepCountRule(1), agent(), None),
        (ToolCallRule(tool="x"), agent(), None),
        (DurationRule(1), agent(), None),
        (ToolFailuresRule(1), agent(), None),
        (RepetitionRule(2), agent(), None),
        (ExpressionRule("usage.total_tokens > 5"), agent(), None),
    ],
)
def test_a_rule_whose_data_the_agent_never_gives_is_named_with_the_capability(
    condition: RuleCondition, capabilities: Capabilities, lacking: str | None
) -> None:
    found = unserved([rule(condition)], capabilities)
    assert [capability for _, capability in found] == ([] if lacking is None else [lacking])
    for choice in (OnUnknown.IGNORE, OnUnknown.STOP):
        assert unserved([rule(condition, on_unknown=choice)], capabilities) == []


def test_a_rule_within_a_group_is_refused_by_its_own_word() -> None:
    refuses = rule(AnyOfRule((ONE, rule(AllOfRule((rule(TOKENS, "tokens"),)), "all"))), on_unknown=OnUnknown.IGNORE)
    ignores = rule(AnyOfRule((rule(TOKENS, on_unknown=OnUnknown.IGNORE),)))
    assert unserved([ignores, refuses], agent()) == [
        ("stop_rules[1].any_of.rules[1].all_of.rules[0].token_usage", "usage")
    ]


def test_what_rules_need_is_told_whatever_their_unknown_does() -> None:
    assert needs([ONE]) == frozenset()
    assert needs([rule(NoneOfRule((rule(MONEY, on_unknown=OnUnknown.IGNORE), rule(REASON))))]) == {
        "cost",
        "finish_reason",
    }
    assert needs([rule(TOKENS), rule(MONEY)]) == {"usage", "cost"}
