"""Groups of stop rules: three-valued logic, what they say, and what their unknown stops."""

from itertools import product
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.core.stop_facts import after, call, judge, outcomes, rule, step, tokens

from steprail_daemon.core.model import (
    AllOfRule,
    AnyOfRule,
    FinishReason,
    FinishReasonRule,
    NoneOfRule,
    OnUnknown,
    RuleCondition,
    Step,
    StepCountRule,
    StopKind,
    StopRule,
    TokenUsageRule,
    ToolCallRule,
    ToolFailuresRule,
    Verdict,
    VerdictOutcome,
)
from steprail_daemon.core.stops import StepFacts, evaluate, groups, stops

MATCHED, NOT_MATCHED, UNKNOWN = VerdictOutcome.MATCHED, VerdictOutcome.NOT_MATCHED, VerdictOutcome.UNKNOWN
#: What each is in the logic of Kleene: true, false, and neither.
VALUES = {MATCHED: 1.0, NOT_MATCHED: 0.0, UNKNOWN: 0.5}

#: Rules that give each outcome after one step without usage whose message ended with LENGTH.
GIVES: dict[VerdictOutcome, RuleCondition] = {
    MATCHED: StepCountRule(1),
    NOT_MATCHED: FinishReasonRule((FinishReason.STOP,)),
    UNKNOWN: TokenUsageRule(5),
}
LAST = step(call(), finish=FinishReason.LENGTH)


def members(*given: VerdictOutcome) -> tuple[StopRule, ...]:
    return tuple([rule(GIVES[outcome], f"inner-{n}") for n, outcome in enumerate(given)])


@pytest.mark.parametrize("given_outcomes", [each for n in (1, 2, 3) for each in product(VALUES, repeat=n)])
def test_a_group_is_the_maximum_the_minimum_or_the_contrary(given_outcomes: tuple[VerdictOutcome, ...]) -> None:
    rules = members(*given_outcomes)
    values = [VALUES[outcome] for outcome in given_outcomes]
    assert VALUES[judge(AnyOfRule(rules), LAST).outcome] == max(values)
    assert VALUES[judge(AllOfRule(rules), LAST).outcome] == min(values)
    assert VALUES[judge(NoneOfRule(rules), LAST).outcome] == 1 - max(values)


def verdicts_of(*given: VerdictOutcome) -> list[Verdict]:
    return [Verdict("", StopKind.COST, outcome, "", "", None, "") for outcome in given]


def negated(verdict: Verdict) -> Verdict:
    return verdicts_of(groups.none_of([verdict]))[0]


several = st.lists(st.sampled_from(VerdictOutcome), min_size=1, max_size=6).map(lambda given: verdicts_of(*given))


@given(several)
def test_the_laws_of_de_morgan_hold(verdicts: list[Verdict]) -> None:
    contrary = [negated(verdict) for verdict in verdicts]
    assert groups.none_of(verdicts) is groups.all_of(contrary)
    assert negated(verdicts_of(groups.any_of(verdicts))[0]).outcome is groups.all_of(contrary)
    assert negated(verdicts_of(groups.all_of(verdicts))[0]).outcome is groups.any_of(contrary)


@given(several, st.randoms(use_true_random=False))
def test_neither_order_nor_repetition_nor_nesting_changes_an_outcome(verdicts: list[Verdict], order: Random) -> None:
    for put in (groups.any_of, groups.all_of, groups.none_of):
        whole = put(verdicts)
        shuffled = [*verdicts, *verdicts]
        order.shuffle(shuffled)
        assert put(shuffled) is whole
    for put in (groups.any_of, groups.all_of):
        nested = verdicts_of(put(verdicts[: len(verdicts) // 2 + 1]))
        assert put([*nested, *verdicts[len(verdicts) // 2 + 1 :]]) is put(verdicts)


@given(several, st.integers(0, 5), st.sampled_from([MATCHED, NOT_MATCHED]))
def test_learning_what_was_unknown_overturns_nothing_that_was_known(
    verdicts: list[Verdict], at: int, learned: VerdictOutcome
) -> None:
    at %= len(verdicts)
    if verdicts[at].outcome is not UNKNOWN:
        return
    later = [*verdicts[:at], *verdicts_of(learned), *verdicts[at + 1 :]]
    for put in (groups.any_of, groups.all_of, groups.none_of):
        assert put(verdicts) in {UNKNOWN, put(later)}


def group(kind: type[AnyOfRule | AllOfRule | NoneOfRule], *conditions: RuleCondition) -> RuleCondition:
    return kind(tuple([rule(condition, f"inner-{n}") for n, condition in enumerate(conditions)]))


STEPS = "Completed steps of the run: 2, limit"
FAILURES = "Failed tool calls of the run: 0 of 2."


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        (
            group(AnyOfRule, ToolFailuresRule(2), StepCountRule(2)),
            (
                MATCHED,
                "1 of 2 rules match",
                "at least 1 rule",
                1.0,
                f"At least one rule matches, rule 'inner-1': {STEPS} 2.",
            ),
        ),
        (
            group(AnyOfRule, ToolFailuresRule(2), StepCountRule(4), ToolCallRule(tool="x")),
            (
                NOT_MATCHED,
                "0 of 3 rules match",
                "at least 1 rule",
                0.5,
                f"No rule matches; nearest is rule 'inner-1': {STEPS} 4.",
            ),
        ),
        (
            group(AnyOfRule, StepCountRule(4), TokenUsageRule(9)),
            (
                UNKNOWN,
                "0 of 2 rules match, 1 unknown",
                "at least 1 rule",
                None,
                "No rule matches and not all are known, rule 'inner-1': Tokens of the run: unknown, limit 9.",
            ),
        ),
        (
            group(AllOfRule, StepCountRule(1), StepCountRule(2), ToolCallRule(tool="read")),
            (
                MATCHED,
                "3 of 3 rules match",
                "all of 3 rules",
                1.0,
                f"Every rule matches, the first is rule 'inner-0': {STEPS} 1.",
            ),
        ),
        (
            group(AllOfRule, StepCountRule(1), StepCountRule(4), ToolFailuresRule(2)),
            (
                NOT_MATCHED,
                "1 of 3 rules match",
                "all of 3 rules",
                0.0,
                f"Not every rule matches, rule 'inner-1': {STEPS} 4.",
            ),
        ),
        (
            group(AllOfRule, StepCountRule(4), ToolCallRule(tool="x")),
            (
                NOT_MATCHED,
                "0 of 2 rules match",
                "all of 2 rules",
                None,
                f"Not every rule matches, rule 'inner-0': {STEPS} 4.",
            ),
        ),
        (
            group(AllOfRule, StepCountRule(1), TokenUsageRule(9)),
            (
                UNKNOWN,
                "1 of 2 rules match, 1 unknown",
                "all of 2 rules",
                None,
                "Every rule that is known matches; unknown is rule 'inner-1': Tokens of the run: unknown, limit 9.",
            ),
        ),
        (
            group(NoneOfRule, ToolFailuresRule(2), StepCountRule(4)),
            (
                MATCHED,
                "0 of 2 rules match",
                "no rule",
                None,
                f"No rule matches, the first is rule 'inner-0': {FAILURES}",
            ),
        ),
        (
            group(NoneOfRule, ToolFailuresRule(2), StepCountRule(2)),
            (
                NOT_MATCHED,
                "1 of 2 rules match",
                "no rule",
                None,
                f"A rule matches, rule 'inner-1': {STEPS} 2.",
            ),
        ),
        (
            group(NoneOfRule, TokenUsageRule(9)),
            (
                UNKNOWN,
                "0 of 1 rules match, 1 unknown",
                "no rule",
                None,
                "No rule matches and not all are known, rule 'inner-0': Tokens of the run: unknown, limit 9.",
            ),
        ),
    ],
)
def test_a_group_names_the_rule_that_decided(condition: RuleCondition, said: tuple[object, ...]) -> None:
    verdict = judge(condition, step(call()), step(call()))
    assert (verdict.outcome, verdict.observed, verdict.limit, verdict.ratio, verdict.message) == said


def test_groups_within_groups_are_judged_from_the_inside() -> None:
    inner = group(NoneOfRule, ToolFailuresRule(1, consecutive=True))
    condition = group(AllOfRule, StepCountRule(2), inner)
    assert judge(condition, outcomes(), outcomes()).outcome is MATCHED
    failed = step(call(outcome=None))
    assert judge(condition, failed).message == (
        "Not every rule matches, rule 'inner-0': Completed steps of the run: 1, limit 2."
    )


TOKENS = TokenUsageRule(100)
REASON = FinishReasonRule((FinishReason.LENGTH,))
NO_REASON = step(finish=FinishReason.UNKNOWN, usage=tokens(10, 10))
NO_USAGE = step(finish=FinishReason.STOP)
NEITHER = step(finish=FinishReason.UNKNOWN)


@pytest.mark.parametrize(
    ("condition", "last", "missing", "refuse_stops"),
    [
        (group(AnyOfRule, TOKENS, REASON), NO_USAGE, (StopKind.TOKEN_USAGE,), True),
        (group(AnyOfRule, TOKENS, REASON), NO_REASON, (StopKind.FINISH_REASON,), False),
        (group(AnyOfRule, REASON, TOKENS), NEITHER, (StopKind.FINISH_REASON, StopKind.TOKEN_USAGE), True),
        (group(AllOfRule, TOKENS, StepCountRule(1)), NO_USAGE, (StopKind.TOKEN_USAGE,), True),
        (group(AllOfRule, TOKENS, StepCountRule(2)), NO_USAGE, (), False),
        (group(NoneOfRule, group(AllOfRule, REASON)), NO_REASON, (StopKind.FINISH_REASON,), False),
        (group(NoneOfRule, group(AnyOfRule, TOKENS)), NO_USAGE, (StopKind.TOKEN_USAGE,), True),
    ],
)
def test_the_unknown_of_a_group_stops_where_tokens_or_money_are_missing(
    condition: RuleCondition, last: Step, missing: tuple[StopKind, ...], refuse_stops: bool
) -> None:
    for choice, stopped in (
        (OnUnknown.REFUSE, refuse_stops),
        (OnUnknown.IGNORE, False),
        (OnUnknown.STOP, bool(missing)),
    ):
        one = rule(condition, on_unknown=choice)
        facts = after([one], [last])
        verdict = evaluate([one], facts)[0]
        assert verdict.missing == missing
        assert stops(one, verdict) is stopped


def test_only_the_outermost_rule_says_what_its_unknown_does_at_a_boundary() -> None:
    inner = rule(REASON, "inner", on_unknown=OnUnknown.STOP)
    outer = rule(AnyOfRule((inner,)), on_unknown=OnUnknown.IGNORE)
    verdict = evaluate([outer], StepFacts(1, 1, NEITHER))[0]
    assert verdict.outcome is UNKNOWN
    assert not stops(outer, verdict)
