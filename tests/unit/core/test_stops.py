"""Stop rules as a list: the registry, what stops, what is met beforehand, and what a rule of steps says."""

from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.core.stop_facts import money, rule, tokens

from steprail_daemon.core.boundary import causes
from steprail_daemon.core.model import (
    AllOfRule,
    AnyOfRule,
    CostRule,
    ExpressionRule,
    NoneOfRule,
    OnUnknown,
    RuleCondition,
    RuleScope,
    StepCountRule,
    StopKind,
    StopRule,
    TokenUsageRule,
    ToolFailuresRule,
    Verdict,
    VerdictOutcome,
)
from steprail_daemon.core.stops import KINDS, NO_COST, NO_USAGE, StepFacts, already_met, evaluate, expressions_of, stops
from steprail_daemon.core.stops.expressions import ExpressionOutcome, ExpressionResult

MATCHED, NOT_MATCHED, UNKNOWN = VerdictOutcome.MATCHED, VerdictOutcome.NOT_MATCHED, VerdictOutcome.UNKNOWN
SESSION = RuleScope.SESSION
RULE_KINDS = [kind for kind in StopKind if kind < StopKind.CLIENT_DECISION]
counts = st.integers(0, 10_000)
limits = st.integers(1, 10_000)


def steps(at_least: int, scope: RuleScope = RuleScope.RUN, rule_id: str = "rule-1") -> StopRule:
    return StopRule(rule_id, StepCountRule(at_least, scope))


def test_every_kind_of_condition_is_in_the_registry_once_and_in_the_order_of_their_numbers() -> None:
    declared = get_args(RuleCondition)
    assert sorted(kind.condition.__name__ for kind in KINDS) == sorted(each.__name__ for each in declared)
    assert [kind.kind for kind in KINDS] == RULE_KINDS


def test_a_condition_is_recorded_under_the_name_of_its_kind() -> None:
    tags = [kind.condition.__struct_config__.tag for kind in KINDS]  # type: ignore[attr-defined]
    assert tags == [kind.name.lower() for kind in RULE_KINDS]


def test_a_limit_that_is_reached_or_passed_matches() -> None:
    found = [evaluate([steps(3)], StepFacts(n, n))[0].outcome for n in (2, 3, 4)]
    assert found == [NOT_MATCHED, MATCHED, MATCHED]


def test_a_verdict_tells_value_limit_and_how_near_it_is() -> None:
    assert evaluate([steps(4)], StepFacts(3, 9)) == (
        Verdict("rule-1", StopKind.STEP_COUNT, NOT_MATCHED, "3", "4", 0.75, "Completed steps of the run: 3, limit 4."),
    )


def test_the_session_scope_counts_the_session() -> None:
    assert evaluate([steps(4, SESSION)], StepFacts(3, 9)) == (
        Verdict("rule-1", StopKind.STEP_COUNT, MATCHED, "9", "4", 2.25, "Completed steps of the session: 9, limit 4."),
    )


def test_verdicts_are_in_the_order_of_the_rules_and_complete() -> None:
    verdicts = evaluate([steps(9, rule_id="b"), steps(1, rule_id="a")], StepFacts(1, 1))
    assert [(verdict.rule_id, verdict.outcome) for verdict in verdicts] == [("b", NOT_MATCHED), ("a", MATCHED)]
    assert evaluate([], StepFacts(1, 1)) == ()


@pytest.mark.parametrize("kind", RULE_KINDS, ids=lambda kind: str(kind.name))
def test_an_unknown_verdict_stops_where_the_rule_says_so_or_where_it_bounds_spending(kind: StopKind) -> None:
    verdict = Verdict("rule-1", kind, UNKNOWN, "", "9", None, "")
    stopped = [stops(msgspec.structs.replace(steps(1), on_unknown=choice), verdict) for choice in OnUnknown]
    assert dict(zip(OnUnknown, stopped, strict=True)) == {
        OnUnknown.REFUSE: kind in {StopKind.TOKEN_USAGE, StopKind.COST},
        OnUnknown.IGNORE: False,
        OnUnknown.STOP: True,
    }


@pytest.mark.parametrize("choice", list(OnUnknown))
def test_what_is_known_stops_or_not_whatever_is_said_of_the_unknown(choice: OnUnknown) -> None:
    one = msgspec.structs.replace(steps(2), on_unknown=choice)
    assert [stops(one, evaluate([one], StepFacts(n, n))[0]) for n in (1, 2)] == [False, True]


def test_expressions_are_listed_depth_first_and_each_takes_its_own_result() -> None:
    def cel(source: str) -> StopRule:
        return rule(ExpressionRule(source), source)

    rules = [
        cel("a"),
        steps(1),
        rule(AnyOfRule((cel("b"), rule(NoneOfRule((cel("c"),)), "none"), cel("d"))), "any"),
        cel("e"),
    ]
    assert expressions_of(rules) == ("a", "b", "c", "d", "e")
    results = [
        ExpressionResult(ExpressionOutcome.MATCHED, source) if source in "ad" else ExpressionResult(outcome)
        for source, outcome in zip("abcd", [ExpressionOutcome.NOT_MATCHED] * 4, strict=True)
    ]
    verdicts = evaluate(rules, StepFacts(1, 1), results)
    assert [verdict.outcome for verdict in verdicts] == [MATCHED, MATCHED, MATCHED, UNKNOWN]
    assert verdicts[0].message == "a"
    assert verdicts[2].observed == "2 of 3 rules match"


def test_a_session_rule_can_be_met_before_the_first_step_and_a_run_rule_cannot() -> None:
    met = already_met([steps(1), steps(5, SESSION, "all")], 5, NO_USAGE, NO_COST)
    assert met is not None
    assert (met.rule_id, met.observed, met.limit) == ("all", "5", "5")
    assert already_met([steps(1), steps(6, SESSION)], 5, NO_USAGE, NO_COST) is None


MET = steps(5, SESSION, "met")
UNMET = steps(6, SESSION, "unmet")
OPEN = rule(ToolFailuresRule(1), "open")


@pytest.mark.parametrize(
    ("condition", "met"),
    [
        (TokenUsageRule(100, scope=SESSION), True),
        (TokenUsageRule(101, scope=SESSION), False),
        (TokenUsageRule(1), False),
        (CostRule(70, SESSION), True),
        (CostRule(71, SESSION), False),
        (ToolFailuresRule(1), False),
        (ExpressionRule("true"), False),
        (AnyOfRule((OPEN, MET)), True),
        (AnyOfRule((OPEN, UNMET)), False),
        (AllOfRule((OPEN, MET)), False),
        (AllOfRule((MET, MET)), True),
        (NoneOfRule((OPEN,)), False),
        (NoneOfRule((MET,)), False),
        (NoneOfRule((UNMET,)), True),
        (AllOfRule((MET, rule(AnyOfRule((OPEN, MET))))), True),
    ],
)
def test_a_rule_is_met_beforehand_only_by_what_the_session_did(condition: RuleCondition, met: bool) -> None:
    found = already_met([rule(condition)], 5, tokens(60, 40), money(70))
    assert (found is not None) is met


def test_what_is_unknown_of_the_session_is_not_met_unless_the_known_part_is() -> None:
    rules = [rule(TokenUsageRule(100, scope=SESSION), on_unknown=OnUnknown.STOP), rule(CostRule(70, SESSION))]
    assert already_met(rules, 5, None, None) is None
    assert already_met(rules, 5, tokens(60, 39, complete=False), money(69, complete=False)) is None
    assert already_met(rules, 5, tokens(60, 40, complete=False), None) is not None


@given(limit=limits, scope=st.sampled_from(RuleScope), run=counts, before=counts, more=counts)
def test_a_rule_that_matched_matches_at_every_later_step(
    limit: int, scope: RuleScope, run: int, before: int, more: int
) -> None:
    early, late = StepFacts(run, before + run), StepFacts(run + more, before + run + more)
    first, then = evaluate([steps(limit, scope)], early)[0], evaluate([steps(limit, scope)], late)[0]
    assert first.ratio is not None
    assert then.ratio is not None
    assert first.ratio <= then.ratio
    assert first.outcome is NOT_MATCHED or then.outcome is MATCHED


@given(at_least=st.lists(limits, max_size=5), count=st.integers(1, 50), max_steps=st.integers(1, 50))
def test_something_stops_exactly_where_a_rule_matches_or_the_ceiling_is_reached(
    at_least: list[int], count: int, max_steps: int
) -> None:
    rules = [steps(limit, rule_id=str(n)) for n, limit in enumerate(at_least)]
    found = causes(None, count, max_steps, rules, evaluate(rules, StepFacts(count, count)))
    expected = ["ceiling"] if count >= max_steps else []
    expected += [str(n) for n, limit in enumerate(at_least) if count >= limit]
    assert [cause.verdict.rule_id or "ceiling" for cause in found] == expected
