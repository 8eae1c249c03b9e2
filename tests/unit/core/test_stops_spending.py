"""Stop rules about tokens and money: known sums, and what is not known."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.core.stop_facts import after, costs, judge, money, rule, step, tokens, usages

from steprail_daemon.core.model import (
    Cost,
    CostRule,
    RuleScope,
    StopKind,
    TokenCounting,
    TokenUsageRule,
    Usage,
    Verdict,
    VerdictOutcome,
)
from steprail_daemon.core.stops import NO_COST, NO_USAGE, StepFacts, Tally, evaluate
from steprail_daemon.core.stops.tally import known_tokens

MATCHED, NOT_MATCHED, UNKNOWN = VerdictOutcome.MATCHED, VerdictOutcome.NOT_MATCHED, VerdictOutcome.UNKNOWN
RUN, SESSION = RuleScope.RUN, RuleScope.SESSION
TOTAL, INPUT, OUTPUT, UNCACHED = TokenCounting


@pytest.mark.parametrize(
    ("usage", "counting", "known"),
    [
        (tokens(100, 20, 70), TOTAL, (120, True)),
        (tokens(100, 20, 70), INPUT, (100, True)),
        (tokens(100, 20, 70), OUTPUT, (20, True)),
        (tokens(100, 20, 70), UNCACHED, (50, True)),
        (tokens(100, None), TOTAL, (100, False)),
        (tokens(None, 20), TOTAL, (20, False)),
        (tokens(None, 20), INPUT, (0, False)),
        (tokens(100, None), OUTPUT, (0, False)),
        (tokens(100, 20, None), TOTAL, (120, True)),
        (tokens(100, 20, None), UNCACHED, (20, False)),
        (tokens(None, 20, 70), UNCACHED, (20, False)),
        (tokens(100, None, 70), UNCACHED, (30, False)),
        (tokens(100, 20, 70, complete=False), TOTAL, (120, False)),
        (tokens(100, 20, 70, complete=False), UNCACHED, (20, False)),
        (tokens(10, 20, 70), UNCACHED, (20, True)),
        (NO_USAGE, UNCACHED, (0, True)),
        (None, TOTAL, (0, False)),
        (Usage(), TOTAL, (0, False)),
        (Usage(reported_total=120), TOTAL, (120, True)),
        (Usage(100, reported_total=120, complete=False), TOTAL, (120, False)),
        (Usage(reported_total=120), INPUT, (0, False)),
    ],
)
def test_what_is_certainly_among_the_tokens_is_counted(
    usage: Usage | None, counting: TokenCounting, known: tuple[int, bool]
) -> None:
    assert known_tokens(usage, counting) == known


@pytest.mark.parametrize(
    ("parts", "outcome", "observed", "ratio", "message"),
    [
        ([tokens(60, 39)], NOT_MATCHED, "99", 0.99, "Tokens of the run: 99 of 100."),
        ([tokens(60, 40)], MATCHED, "100", 1.0, "Tokens of the run: 100 of 100."),
        ([tokens(60), tokens(0, 60)], MATCHED, "120", 1.2, "Tokens of the run: 120 of 100."),
        (
            [tokens(60), None],
            UNKNOWN,
            "at least 60",
            None,
            "Tokens of the run: 60 of 100 (at least; not all is known).",
        ),
        (
            [tokens(1_100), None],
            MATCHED,
            "at least 1100",
            11.0,
            "Tokens of the run: 1,100 of 100 (at least; not all is known).",
        ),
        ([None, None], UNKNOWN, "", None, "Tokens of the run: unknown, limit 100."),
        ([tokens(0)], NOT_MATCHED, "0", 0.0, "Tokens of the run: 0 of 100."),
        ([], NOT_MATCHED, "0", 0.0, "Tokens of the run: 0 of 100."),
    ],
)
def test_a_known_sum_matches_and_a_gap_leaves_it_unknown_below_the_limit(
    parts: list[Usage | None], outcome: VerdictOutcome, observed: str, ratio: float | None, message: str
) -> None:
    verdict = judge(TokenUsageRule(100), *[step(usage=part) for part in parts])
    assert verdict == Verdict("r", StopKind.TOKEN_USAGE, outcome, observed, "100", ratio, message)


@pytest.mark.parametrize(
    ("parts", "outcome", "observed", "message"),
    [
        ([money(1_999_999)], NOT_MATCHED, "1.999999 USD", "Cost of the run: 1.999999 USD of 2 USD."),
        ([money(1_500_000), money(500_000)], MATCHED, "2 USD", "Cost of the run: 2 USD of 2 USD."),
        ([money(2_130_000)], MATCHED, "2.13 USD", "Cost of the run: 2.13 USD of 2 USD."),
        (
            [money(1_000), None],
            UNKNOWN,
            "at least 0.001 USD",
            "Cost of the run: 0.001 USD of 2 USD (at least; not all is known).",
        ),
        ([money(None)], UNKNOWN, "", "Cost of the run: unknown, limit 2 USD."),
        (
            [money(3_000_000, complete=False)],
            MATCHED,
            "at least 3 USD",
            "Cost of the run: 3 USD of 2 USD (at least; not all is known).",
        ),
    ],
)
def test_money_is_judged_and_written_to_the_millionth(
    parts: list[Cost | None], outcome: VerdictOutcome, observed: str, message: str
) -> None:
    verdict = judge(CostRule(2_000_000), *[step(cost=part) for part in parts])
    assert (verdict.kind, verdict.limit) == (StopKind.COST, "2 USD")
    assert (verdict.outcome, verdict.observed, verdict.message) == (outcome, observed, message)


def test_the_session_counts_what_was_used_before_and_the_run_does_not() -> None:
    used = step(usage=tokens(10, 10), cost=money(20))
    before: dict[str, object] = {"usage_before": tokens(50, 30), "cost_before": money(80)}
    assert judge(TokenUsageRule(100, scope=SESSION), used, **before).outcome is MATCHED
    assert judge(TokenUsageRule(100), used, **before).observed == "20"
    assert judge(CostRule(100, SESSION), used, **before).message == "Cost of the session: 0.0001 USD of 0.0001 USD."
    assert judge(CostRule(100), used, **before).observed == "0.00002 USD"
    assert judge(TokenUsageRule(101, scope=SESSION), used, usage_before=None).outcome is UNKNOWN
    assert judge(CostRule(101, SESSION), used, cost_before=None).outcome is UNKNOWN


def test_what_is_used_beside_the_steps_counts() -> None:
    rules = [rule(TokenUsageRule(100), "tokens"), rule(CostRule(100), "cost")]
    tally = Tally.for_rules(rules)
    tally.add(step(usage=tokens(40), cost=money(40)))
    tally.spend(tokens(30, 30), money(60))
    assert [verdict.observed for verdict in evaluate(rules, StepFacts(1, 1, None, tally))] == ["100", "0.0001 USD"]
    tally.spend(None, None)
    assert [verdict.observed for verdict in evaluate(rules, StepFacts(1, 1, None, tally))] == [
        "at least 100",
        "at least 0.0001 USD",
    ]


def test_the_agents_own_figures_of_the_whole_run_replace_the_sums() -> None:
    rules = [rule(TokenUsageRule(100), "tokens"), rule(CostRule(100), "cost")]
    tally = Tally.for_rules(rules)
    tally.add(step())
    tally.settle(tokens(40, 5), money(99))
    assert [verdict.outcome for verdict in evaluate(rules, StepFacts(1, 1, None, tally))] == [NOT_MATCHED] * 2
    tally.settle(None, None)
    assert [verdict.outcome for verdict in evaluate(rules, StepFacts(1, 1, None, tally))] == [UNKNOWN] * 2


@given(
    parts=st.lists(usages, min_size=1, max_size=6), counting=st.sampled_from(TokenCounting), limit=st.integers(1, 999)
)
def test_tokens_that_nobody_knows_are_never_taken_for_zero(
    parts: list[Usage | None], counting: TokenCounting, limit: int
) -> None:
    verdict = judge(TokenUsageRule(limit, counting), *[step(usage=part) for part in parts])
    known = [known_tokens(part, counting) for part in parts]
    total, whole = sum(part for part, _ in known), all(complete for _, complete in known)
    if total >= limit:
        assert verdict.outcome is MATCHED
    else:
        assert verdict.outcome is (NOT_MATCHED if whole else UNKNOWN)
    assert (verdict.ratio is None) == (verdict.outcome is UNKNOWN)
    assert verdict.observed != "0" or whole


@given(whole=st.lists(st.builds(tokens, *[st.integers(0, 300)] * 3), max_size=5), gaps=st.data())
def test_no_gap_makes_a_rule_match_that_would_not_match_with_everything_known(
    whole: list[Usage], gaps: st.DataObject
) -> None:
    def without(usage: Usage) -> Usage | None:
        fields = gaps.draw(st.sets(st.sampled_from(["input_tokens", "cached_input_tokens", "output_tokens"])))
        if len(fields) == 3:
            return None
        return msgspec.structs.replace(usage, **dict.fromkeys(fields))

    told = [step(usage=without(usage)) for usage in whole]
    for counting in TokenCounting:
        one = TokenUsageRule(400, counting)
        if judge(one, *told).outcome is MATCHED:
            assert judge(one, *[step(usage=usage) for usage in whole]).outcome is MATCHED


@given(parts=st.lists(costs, min_size=1, max_size=6), limit=st.integers(1, 999))
def test_money_that_nobody_knows_is_never_taken_for_zero(parts: list[Cost | None], limit: int) -> None:
    verdict = judge(CostRule(limit), *[step(cost=part) for part in parts])
    whole = all(part is not None and part.micro_usd is not None and part.complete for part in parts)
    total = sum(part.micro_usd or 0 for part in parts if part is not None)
    assert verdict.outcome is (MATCHED if total >= limit else NOT_MATCHED if whole else UNKNOWN)


def test_rules_that_need_no_sums_cost_none() -> None:
    facts = after([], [step(usage=tokens(1), cost=money(1))], usage_before=None, cost_before=NO_COST)
    with pytest.raises(AssertionError, match="tallied for other rules"):
        _ = facts.tally.spent
