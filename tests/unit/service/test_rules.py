"""Stop rules of the public API: each kind read and written, and refused by the path of what is wrong."""

from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.core.stop_facts import conditions, rule

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
    StopKind,
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
from steprail_daemon.service.rules import CONDITIONS, stop_rule, stop_rules

ONE = rules_pb2.StopRule(step_count=rules_pb2.StepCountRule(at_least=1))
ONE_READ = StopRule("rule-1", StepCountRule(1))


def read(message: rules_pb2.StopRule) -> StopRule:
    return stop_rules("stop_rules", [message])[0]


def test_every_kind_is_read_and_written_under_its_field_and_number() -> None:
    fields = rules_pb2.StopRule.DESCRIPTOR.oneofs_by_name["kind"].fields
    assert {field.name: field.number for field in fields} == {name: StopKind[name.upper()].value for name in CONDITIONS}
    assert list(CONDITIONS) == [kind.kind.name.lower() for kind in KINDS]


#: Each kind with nothing but what must be given, and what it then means.
SHORTEST: list[tuple[dict[str, Any], RuleCondition]] = [
    ({"step_count": rules_pb2.StepCountRule(at_least=3)}, StepCountRule(3, RuleScope.RUN)),
    (
        {"tool_call": rules_pb2.ToolCallRule(tool="write_*")},
        ToolCallRule("write_*", ToolKind.UNKNOWN, ToolOutcomeFilter.ANY, ToolCallScope.STEP),
    ),
    ({"tool_call": rules_pb2.ToolCallRule(tool_kind=rules_pb2.TOOL_KIND_EDIT)}, ToolCallRule(tool_kind=ToolKind.EDIT)),
    (
        {"token_usage": rules_pb2.TokenUsageRule(at_least=9)},
        TokenUsageRule(9, TokenCounting.TOTAL, RuleScope.RUN),
    ),
    ({"cost": rules_pb2.CostRule(at_least_micro_usd=7)}, CostRule(7, RuleScope.RUN)),
    (
        {"duration": rules_pb2.DurationRule(at_least=Duration(seconds=1, nanos=5))},
        DurationRule(1_000_000_005, RuleClock.ACTIVE),
    ),
    (
        {"finish_reason": rules_pb2.FinishReasonRule(any_of=[rules_pb2.FINISH_REASON_LENGTH])},
        FinishReasonRule((FinishReason.LENGTH,)),
    ),
    ({"tool_failures": rules_pb2.ToolFailuresRule(at_least=2)}, ToolFailuresRule(2, False, False)),
    ({"repetition": rules_pb2.RepetitionRule(at_least=2)}, RepetitionRule(2)),
    ({"expression": rules_pb2.ExpressionRule(cel="true")}, ExpressionRule("true")),
    ({"any_of": rules_pb2.RuleGroup(rules=[ONE])}, AnyOfRule((ONE_READ,))),
    ({"all_of": rules_pb2.RuleGroup(rules=[ONE])}, AllOfRule((ONE_READ,))),
    ({"none_of": rules_pb2.RuleGroup(rules=[ONE])}, NoneOfRule((ONE_READ,))),
]


@pytest.mark.parametrize(("kind", "condition"), SHORTEST, ids=[next(iter(kind)) for kind, _ in SHORTEST])
def test_what_is_left_out_has_its_default(kind: dict[str, Any], condition: RuleCondition) -> None:
    assert read(rules_pb2.StopRule(**kind)) == StopRule("rule-1", condition, "", OnUnknown.REFUSE)


#: Each kind with every field set to what is not its default, and how that is written.
FULLEST: list[tuple[RuleCondition, dict[str, Any]]] = [
    (
        StepCountRule(3, RuleScope.SESSION),
        {"step_count": rules_pb2.StepCountRule(at_least=3, scope=rules_pb2.RULE_SCOPE_SESSION)},
    ),
    (
        ToolCallRule("w*", outcome=ToolOutcomeFilter.DENIED, scope=ToolCallScope.RUN),
        {
            "tool_call": rules_pb2.ToolCallRule(
                tool="w*",
                outcome=rules_pb2.TOOL_OUTCOME_FILTER_DENIED,
                scope=rules_pb2.TOOL_CALL_SCOPE_RUN,
            )
        },
    ),
    (
        TokenUsageRule(9, TokenCounting.UNCACHED, RuleScope.SESSION),
        {
            "token_usage": rules_pb2.TokenUsageRule(
                at_least=9, counting=rules_pb2.TOKEN_COUNTING_UNCACHED, scope=rules_pb2.RULE_SCOPE_SESSION
            )
        },
    ),
    (
        CostRule(7, RuleScope.SESSION),
        {"cost": rules_pb2.CostRule(at_least_micro_usd=7, scope=rules_pb2.RULE_SCOPE_SESSION)},
    ),
    (
        DurationRule(2_000_000_001, RuleClock.WALL),
        {"duration": rules_pb2.DurationRule(at_least=Duration(seconds=2, nanos=1), clock=rules_pb2.RULE_CLOCK_WALL)},
    ),
    (
        ToolFailuresRule(2, consecutive=True, count_denied=True),
        {"tool_failures": rules_pb2.ToolFailuresRule(at_least=2, consecutive=True, count_denied=True)},
    ),
    (
        NoneOfRule((StopRule("mine", CostRule(7), "why", OnUnknown.IGNORE),)),
        {
            "none_of": rules_pb2.RuleGroup(
                rules=[
                    rules_pb2.StopRule(
                        id="mine",
                        reason="why",
                        on_unknown=rules_pb2.ON_UNKNOWN_IGNORE,
                        cost=rules_pb2.CostRule(at_least_micro_usd=7, scope=rules_pb2.RULE_SCOPE_RUN),
                    )
                ]
            )
        },
    ),
]


@pytest.mark.parametrize(("condition", "kind"), FULLEST, ids=[type(condition).__name__ for condition, _ in FULLEST])
def test_a_rule_is_written_with_all_that_it_means(condition: RuleCondition, kind: dict[str, Any]) -> None:
    written = stop_rule(StopRule("a", condition, "because", OnUnknown.STOP))
    assert written == rules_pb2.StopRule(id="a", reason="because", on_unknown=rules_pb2.ON_UNKNOWN_STOP, **kind)
    assert read(written) == StopRule("a", condition, "because", OnUnknown.STOP)


@given(st.lists(conditions, max_size=4))
def test_what_is_written_is_read_back_the_same(found: list[RuleCondition]) -> None:
    rules = tuple([rule(condition, f"id-{n}") for n, condition in enumerate(found)])
    over_the_wire = [rules_pb2.StopRule.FromString(stop_rule(one).SerializeToString()) for one in rules]
    assert stop_rules("stop_rules", over_the_wire) == rules


def test_rules_in_a_group_are_numbered_for_themselves() -> None:
    named = rules_pb2.StopRule(id="rule-2", step_count=rules_pb2.StepCountRule(at_least=2))
    found = stop_rules("stop_rules", [ONE, rules_pb2.StopRule(any_of=rules_pb2.RuleGroup(rules=[named, ONE]))])
    assert [one.rule_id for one in found] == ["rule-1", "rule-2"]
    group = found[1].condition
    assert isinstance(group, AnyOfRule)
    assert [one.rule_id for one in group.rules] == ["rule-2", "rule-3"]


def tool_call(**fields: Any) -> rules_pb2.StopRule:
    return rules_pb2.StopRule(tool_call=rules_pb2.ToolCallRule(**fields))


BAD = [
    (rules_pb2.StopRule(), "", "has no kind; accepted is step_count, tool_call, token_usage, cost, duration,"),
    (
        rules_pb2.StopRule(step_count=rules_pb2.StepCountRule(at_least=1, scope=9)),  # type: ignore[arg-type]
        ".step_count.scope",
        "is 9; accepted are RUN, SESSION",
    ),
    (
        rules_pb2.StopRule(on_unknown=9, step_count=rules_pb2.StepCountRule(at_least=1)),  # type: ignore[arg-type]
        ".on_unknown",
        "is 9; accepted are REFUSE, IGNORE, STOP",
    ),
    (tool_call(), ".tool_call", "neither tool nor tool_kind is set"),
    (tool_call(tool=""), ".tool_call", "neither tool nor tool_kind is set"),
    (tool_call(tool_kind=0), ".tool_call.tool_kind", "is UNSPECIFIED; accepted are READ, EDIT, EXECUTE"),
    (tool_call(tool_kind=77), ".tool_call.tool_kind", "is 77; accepted are READ, EDIT, EXECUTE"),
    (tool_call(tool="x", outcome=9), ".tool_call.outcome", "is 9; accepted are ANY, SUCCEEDED, FAILED, DENIED"),
    (tool_call(tool="x", scope=9), ".tool_call.scope", "is 9; accepted are STEP, RUN"),
    (tool_call(tool="x" * 257), ".tool_call.tool", "has 257 bytes; accepted are at most 256"),
    (rules_pb2.StopRule(token_usage=rules_pb2.TokenUsageRule()), ".token_usage.at_least", "is 0"),
    (
        rules_pb2.StopRule(token_usage=rules_pb2.TokenUsageRule(at_least=1, counting=9)),  # type: ignore[arg-type]
        ".token_usage.counting",
        "is 9; accepted are TOTAL, INPUT, OUTPUT, UNCACHED",
    ),
    (rules_pb2.StopRule(cost=rules_pb2.CostRule(at_least_micro_usd=-1)), ".cost.at_least_micro_usd", "is -1"),
    (rules_pb2.StopRule(duration=rules_pb2.DurationRule()), ".duration.at_least", "accepted is more than zero"),
    (
        rules_pb2.StopRule(duration=rules_pb2.DurationRule(at_least=Duration(seconds=-1))),
        ".duration.at_least",
        "accepted are spans",
    ),
    (
        rules_pb2.StopRule(duration=rules_pb2.DurationRule(at_least=Duration(seconds=1), clock=9)),  # type: ignore[arg-type]
        ".duration.clock",
        "is 9; accepted are ACTIVE, WALL",
    ),
    (rules_pb2.StopRule(finish_reason=rules_pb2.FinishReasonRule()), ".finish_reason.any_of", "is empty"),
    (
        rules_pb2.StopRule(finish_reason=rules_pb2.FinishReasonRule(any_of=[1, 0])),  # type: ignore[list-item]
        ".finish_reason.any_of[1]",
        "is UNSPECIFIED; accepted are STOP",
    ),
    (rules_pb2.StopRule(tool_failures=rules_pb2.ToolFailuresRule()), ".tool_failures.at_least", "is 0"),
    (rules_pb2.StopRule(repetition=rules_pb2.RepetitionRule(at_least=1)), ".repetition.at_least", "accepted are 2"),
    (rules_pb2.StopRule(expression=rules_pb2.ExpressionRule()), ".expression.cel", "is empty"),
    (rules_pb2.StopRule(any_of=rules_pb2.RuleGroup()), ".any_of.rules", "is empty"),
    (
        rules_pb2.StopRule(all_of=rules_pb2.RuleGroup(rules=[ONE, rules_pb2.StopRule()])),
        ".all_of.rules[1]",
        "has no kind",
    ),
    (
        rules_pb2.StopRule(any_of=rules_pb2.RuleGroup(rules=[ONE, tool_call(tool="x", scope=9)])),
        ".any_of.rules[1].tool_call.scope",
        "is 9",
    ),
    (
        rules_pb2.StopRule(
            none_of=rules_pb2.RuleGroup(
                rules=[rules_pb2.StopRule(id="a", cost=ONE.cost), rules_pb2.StopRule(id="a", cost=ONE.cost)]
            )
        ),
        ".none_of.rules[0].cost.at_least_micro_usd",
        "is 0",
    ),
]


@pytest.mark.parametrize(("message", "field", "what"), BAD, ids=[f"{field}-{what[:12]}" for _, field, what in BAD])
def test_a_bad_rule_is_refused_by_the_path_of_what_is_wrong(message: rules_pb2.StopRule, field: str, what: str) -> None:
    with pytest.raises(Invalid) as caught:
        stop_rules("stop_rules", [ONE, message])

    assert (caught.value.reason, caught.value.field) == ("RULE_INVALID", f"stop_rules[1]{field}")
    assert caught.value.message.startswith(f"stop_rules[1]{field} ")
    assert what in caught.value.message


def test_an_id_given_twice_is_refused_where_it_is_given_again() -> None:
    named = rules_pb2.StopRule(id="a", step_count=ONE.step_count)
    with pytest.raises(Invalid, match=r"stop_rules\[2\].id is 'a', as that of stop_rules\[0\]") as caught:
        stop_rules("stop_rules", [named, ONE, named])
    assert (caught.value.reason, caught.value.field) == ("RULE_INVALID", "stop_rules[2].id")


def test_rules_are_read_as_deep_as_messages_go() -> None:
    deep, depth = ONE, 40
    for _ in range(depth):
        deep = rules_pb2.StopRule(any_of=rules_pb2.RuleGroup(rules=[deep]))
    found = stop_rules("stop_rules", [rules_pb2.StopRule.FromString(deep.SerializeToString())])
    assert problems(found, max_depth=depth + 1) == []
    assert len(problems(found, max_depth=depth)) == 1
