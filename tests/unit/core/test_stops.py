"""Stop rules: what they say, what they stop, and which rules are none."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steprail_daemon.core.boundary import causes
from steprail_daemon.core.model import (
    OnUnknown,
    RuleCondition,
    RuleScope,
    StepCountRule,
    StopKind,
    StopRule,
    Verdict,
    VerdictOutcome,
)
from steprail_daemon.core.stops import KINDS, already_met, evaluate, problem, stops
from steprail_daemon.core.stops.base import StepFacts

MATCHED, NOT_MATCHED, UNKNOWN = VerdictOutcome.MATCHED, VerdictOutcome.NOT_MATCHED, VerdictOutcome.UNKNOWN
counts = st.integers(0, 10_000)
limits = st.integers(1, 10_000)


def rule(at_least: int, scope: RuleScope = RuleScope.RUN, rule_id: str = "rule-1") -> StopRule:
    return StopRule(rule_id, StepCountRule(at_least, scope))


def test_a_limit_that_is_reached_or_passed_matches() -> None:
    outcomes = [evaluate([rule(3)], StepFacts(n, n))[0].outcome for n in (2, 3, 4)]
    assert outcomes == [NOT_MATCHED, MATCHED, MATCHED]


def test_a_verdict_tells_value_limit_and_how_near_it_is() -> None:
    assert evaluate([rule(4)], StepFacts(3, 9)) == (
        Verdict("rule-1", StopKind.STEP_COUNT, NOT_MATCHED, "3", "4", 0.75, "Completed steps of the run: 3, limit 4."),
    )


def test_the_session_scope_counts_the_session() -> None:
    assert evaluate([rule(4, RuleScope.SESSION)], StepFacts(3, 9)) == (
        Verdict("rule-1", StopKind.STEP_COUNT, MATCHED, "9", "4", 2.25, "Completed steps of the session: 9, limit 4."),
    )


def test_verdicts_are_in_the_order_of_the_rules_and_complete() -> None:
    verdicts = evaluate([rule(9, rule_id="b"), rule(1, rule_id="a")], StepFacts(1, 1))
    assert [(verdict.rule_id, verdict.outcome) for verdict in verdicts] == [("b", NOT_MATCHED), ("a", MATCHED)]
    assert evaluate([], StepFacts(1, 1)) == ()


def test_an_unknown_verdict_stops_only_where_the_rule_says_so() -> None:
    verdict = Verdict("rule-1", StopKind.TOKEN_USAGE, UNKNOWN, "", "9", None, "")
    stopped = [stops(msgspec.structs.replace(rule(1), on_unknown=choice), verdict) for choice in OnUnknown]
    assert dict(zip(OnUnknown, stopped, strict=True)) == {
        OnUnknown.REFUSE: False,
        OnUnknown.IGNORE: False,
        OnUnknown.STOP: True,
    }


def test_a_session_rule_can_be_met_before_the_first_step_and_a_run_rule_cannot() -> None:
    met = already_met([rule(1), rule(5, RuleScope.SESSION, "all")], steps_before=5)
    assert met is not None
    assert (met.rule_id, met.observed, met.limit) == ("all", "5", "5")
    assert already_met([rule(1), rule(6, RuleScope.SESSION)], steps_before=5) is None


@pytest.mark.parametrize(
    ("bad", "what"),
    [
        (rule(0), "step_count.at_least is 0; accepted are 1 and more"),
        (rule(-3), "step_count.at_least is -3; accepted are 1 and more"),
        (rule(1, rule_id="ü" * 33), "id has 66 bytes; accepted are at most 64"),
        (StopRule("a", StepCountRule(1), "x" * 1_025), "reason has 1025 bytes; accepted are at most 1024"),
    ],
    ids=["no limit", "negative limit", "long id", "long reason"],
)
def test_a_bad_rule_is_told_by_field_value_and_what_is_accepted(bad: StopRule, what: str) -> None:
    assert problem(bad) == what


def test_a_good_rule_has_no_problem() -> None:
    assert problem(StopRule("x" * 64, StepCountRule(1), "y" * 1_024)) == ""


def test_every_kind_of_condition_is_in_the_registry_once_and_in_the_order_of_their_numbers() -> None:
    declared = getattr(RuleCondition, "__args__", (RuleCondition,))
    assert sorted(kind.condition.__name__ for kind in KINDS) == sorted(each.__name__ for each in declared)
    assert [kind.kind for kind in KINDS] == sorted({kind.kind for kind in KINDS})


@given(limit=limits, scope=st.sampled_from(RuleScope), run=counts, before=counts, more=counts)
def test_a_rule_that_matched_matches_at_every_later_step(
    limit: int, scope: RuleScope, run: int, before: int, more: int
) -> None:
    early, late = StepFacts(run, before + run), StepFacts(run + more, before + run + more)
    first, then = evaluate([rule(limit, scope)], early)[0], evaluate([rule(limit, scope)], late)[0]
    assert first.ratio is not None
    assert then.ratio is not None
    assert first.ratio <= then.ratio
    assert first.outcome is NOT_MATCHED or then.outcome is MATCHED


@given(limit=limits, run=counts)
def test_the_ratio_reaches_one_exactly_where_the_rule_matches(limit: int, run: int) -> None:
    verdict = evaluate([rule(limit)], StepFacts(run, run))[0]
    assert verdict.ratio is not None
    assert (verdict.ratio >= 1.0) == (verdict.outcome is MATCHED)


@given(at_least=st.lists(limits, max_size=5), steps=st.integers(1, 50), max_steps=st.integers(1, 50))
def test_something_stops_exactly_where_a_rule_matches_or_the_ceiling_is_reached(
    at_least: list[int], steps: int, max_steps: int
) -> None:
    rules = [rule(limit, rule_id=str(n)) for n, limit in enumerate(at_least)]
    found = causes(None, steps, max_steps, rules, evaluate(rules, StepFacts(steps, steps)))
    expected = ["ceiling"] if steps >= max_steps else []
    expected += [str(n) for n, limit in enumerate(at_least) if steps >= limit]
    assert [cause.verdict.rule_id or "ceiling" for cause in found] == expected
