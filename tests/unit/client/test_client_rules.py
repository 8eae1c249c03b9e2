"""Stop rules in a few words, as the Python client gives them."""

import pytest
from google.protobuf.duration_pb2 import Duration

from steprail import client
from steprail.v1 import rules_pb2

SHORT: list[tuple[rules_pb2.StopRule, rules_pb2.StopRule]] = [
    (client.steps(3), rules_pb2.StopRule(step_count=rules_pb2.StepCountRule(at_least=3))),
    (client.tool("w*"), rules_pb2.StopRule(tool_call=rules_pb2.ToolCallRule(tool="w*"))),
    (client.tokens(5), rules_pb2.StopRule(token_usage=rules_pb2.TokenUsageRule(at_least=5))),
    (client.cost(7), rules_pb2.StopRule(cost=rules_pb2.CostRule(at_least_micro_usd=7))),
    (
        client.duration(1.25),
        rules_pb2.StopRule(duration=rules_pb2.DurationRule(at_least=Duration(seconds=1, nanos=250_000_000))),
    ),
    (
        client.finish("length", "Error"),
        rules_pb2.StopRule(
            finish_reason=rules_pb2.FinishReasonRule(
                any_of=[rules_pb2.FINISH_REASON_LENGTH, rules_pb2.FINISH_REASON_ERROR]
            )
        ),
    ),
    (client.failures(2), rules_pb2.StopRule(tool_failures=rules_pb2.ToolFailuresRule(at_least=2))),
    (client.repeats(2), rules_pb2.StopRule(repetition=rules_pb2.RepetitionRule(at_least=2))),
    (client.expression("true"), rules_pb2.StopRule(expression=rules_pb2.ExpressionRule(cel="true"))),
    (
        client.any_of([client.steps(3), client.tokens(5)]),
        rules_pb2.StopRule(any_of=rules_pb2.RuleGroup(rules=[client.steps(3), client.tokens(5)])),
    ),
    (
        client.all_of([client.steps(3, rule_id="a")], rule_id="b"),
        rules_pb2.StopRule(id="b", all_of=rules_pb2.RuleGroup(rules=[client.steps(3, rule_id="a")])),
    ),
    (client.none_of([client.steps(3)]), rules_pb2.StopRule(none_of=rules_pb2.RuleGroup(rules=[client.steps(3)]))),
]


@pytest.mark.parametrize(("short", "whole"), SHORT, ids=[str(whole.WhichOneof("kind")) for _, whole in SHORT])
def test_a_short_rule_is_the_whole_message(short: rules_pb2.StopRule, whole: rules_pb2.StopRule) -> None:
    assert short == whole


def test_every_kind_has_a_short_form() -> None:
    fields = rules_pb2.StopRule.DESCRIPTOR.oneofs_by_name["kind"].fields
    assert [whole.WhichOneof("kind") for _, whole in SHORT] == [field.name for field in fields]


def test_a_reason_that_there_is_not_is_refused() -> None:
    with pytest.raises(ValueError, match="DONE"):
        client.finish("done")
