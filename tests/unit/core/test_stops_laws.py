"""What holds of every stop rule, whatever happens in a run."""

from itertools import pairwise

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.core.stop_facts import conditions, cumulative, every_boundary, leaves, rule, steps_of_a_run

from steprail_daemon.core.model import RuleCondition, Step, StopRule, VerdictOutcome
from steprail_daemon.core.stops import KINDS, expressions_of, problems
from steprail_daemon.core.stops.expressions import ExpressionOutcome, ExpressionResult
from steprail_daemon.core.stops.texts import MAX_MESSAGE_BYTES, MAX_VALUE_BYTES, clipped

MATCHED, NOT_MATCHED, UNKNOWN = VerdictOutcome.MATCHED, VerdictOutcome.NOT_MATCHED, VerdictOutcome.UNKNOWN
NUMBERS = {kind.condition: kind.kind for kind in KINDS}
results = st.lists(st.builds(ExpressionResult, st.sampled_from(ExpressionOutcome), st.text() | st.just("é" * 2_000)))


@given(st.lists(cumulative, min_size=1, max_size=4), steps_of_a_run())
def test_a_cumulative_rule_that_matched_stays_matched(found: list[RuleCondition], steps: list[Step]) -> None:
    boundaries = every_boundary([rule(condition) for condition in found], steps)
    for earlier, later in pairwise(boundaries):
        for before, now in zip(earlier, later, strict=True):
            assert before.outcome is not MATCHED or now.outcome is MATCHED


@settings(max_examples=200)
@given(st.lists(conditions, max_size=4), steps_of_a_run(), results)
def test_every_rule_has_a_verdict_within_its_bounds_at_every_step(
    found: list[RuleCondition], steps: list[Step], evaluated: list[ExpressionResult]
) -> None:
    rules = [StopRule("i" * 64 if n else "", condition) for n, condition in enumerate(found)]
    for verdicts in every_boundary(rules, steps, evaluated):
        assert [verdict.rule_id for verdict in verdicts] == [one.rule_id for one in rules]
        assert [verdict.kind for verdict in verdicts] == [NUMBERS[type(one.condition)] for one in rules]
        for verdict in verdicts:
            assert len(verdict.observed.encode()) <= MAX_VALUE_BYTES
            assert 0 < len(verdict.limit.encode()) <= MAX_VALUE_BYTES
            assert 0 < len(verdict.message.encode()) <= MAX_MESSAGE_BYTES
            if verdict.outcome is UNKNOWN:
                assert verdict.ratio is None
            elif verdict.ratio is not None:
                assert (verdict.ratio >= 1.0) == (verdict.outcome is MATCHED)


@given(leaves, steps_of_a_run())
def test_a_rule_says_the_same_alone_and_among_others(condition: RuleCondition, steps: list[Step]) -> None:
    alone = every_boundary([rule(condition)], steps)
    among = every_boundary([rule(condition, "a"), rule(condition), rule(condition, "b")], steps)
    assert [verdicts[0] for verdicts in alone] == [verdicts[1] for verdicts in among]


@given(st.lists(conditions, max_size=4))
def test_rules_are_recorded_and_read_back_the_same(found: list[RuleCondition]) -> None:
    rules = tuple([rule(condition, str(n)) for n, condition in enumerate(found)])
    data = msgspec.msgpack.encode(rules)
    assert msgspec.msgpack.decode(data, type=tuple[StopRule, ...]) == rules


@given(st.lists(conditions, max_size=4))
def test_good_rules_have_no_problem(found: list[RuleCondition]) -> None:
    rules = [rule(condition, str(n)) for n, condition in enumerate(found)]
    assert problems(rules) == []
    assert len(expressions_of(rules)) == str(msgspec.json.encode(rules)).count('"cel"')


@given(st.text() | st.text(alphabet="\ud800\udfffé€😀"), st.integers(3, 64))
def test_a_clipped_text_fits_can_be_encoded_and_begins_like_the_whole(text: str, limit: int) -> None:
    found = clipped(text, limit)
    whole = text.encode("utf-8", "replace").decode()
    assert len(found.encode()) <= limit
    assert found == whole or (found.endswith("…") and whole.startswith(found[:-1]))
    assert found == whole or len(whole.encode()) > limit
