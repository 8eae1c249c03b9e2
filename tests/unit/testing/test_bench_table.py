from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steprail_daemon.testing.bench.table import Better, Goal, Row, figure, in_order, percentile, render, to_json

FASTER = Goal(target=0.25, stretch=0.5, better=Better.HIGHER)
CHEAPER = Goal(target=2.0, stretch=1.2, better=Better.LOWER)
SMALL = Goal(target=64.0, stretch=24.0, better=Better.LOWER)
NONE_AT_ALL = Goal(target=0.0, stretch=None, better=Better.LOWER)


def row(subject: tuple[float, ...], limit: tuple[float, ...], goal: Goal | None = None) -> Row:
    return Row(number="1", name="events", unit="us", subject=subject, limit_name="read", limit=limit, goal=goal)


def bare_row(subject: tuple[float, ...], goal: Goal | None = None, number: str = "8") -> Row:
    return Row(number=number, name="memory", unit="KiB", subject=subject, goal=goal)


def test_the_ratio_is_that_of_the_medians_so_that_one_bad_round_does_not_count() -> None:
    assert row((10.0, 20.0, 900.0), (10.0, 5.0, 10.0)).ratio == 2.0


def test_the_spread_is_that_of_the_single_rounds() -> None:
    assert row((10.0, 20.0, 30.0), (10.0, 10.0, 10.0)).spread == (1.0, 3.0)


@pytest.mark.parametrize(
    ("goal", "subject", "verdict"),
    [
        (CHEAPER, 12.0, "met, stretch too"),
        (CHEAPER, 20.0, "met"),
        (CHEAPER, 30.0, "MISSED by 1.50"),
        (FASTER, 5.0, "met, stretch too"),
        (FASTER, 2.5, "met"),
        (FASTER, 1.25, "MISSED by 2.00"),
        (Goal(1.0, None, Better.LOWER), 1.0, "met"),
        (None, 1000.0, ""),
    ],
)
def test_the_verdict_follows_the_goal_and_its_direction(goal: Goal | None, subject: float, verdict: str) -> None:
    judged = row((subject,), (10.0,), goal)
    assert (judged.verdict, judged.missed) == (verdict, verdict.startswith("MISSED"))


@pytest.mark.parametrize(
    ("goal", "figures", "verdict"),
    [
        (SMALL, (20.0, 24.0, 900.0), "met, stretch too"),
        (SMALL, (64.0,), "met"),
        (SMALL, (96.0,), "MISSED by 1.50"),
        (NONE_AT_ALL, (0.0,), "met"),
        (NONE_AT_ALL, (0.5,), "MISSED"),
        (None, (1000.0,), ""),
    ],
)
def test_a_row_without_a_limit_is_judged_by_the_median_of_its_own_figures(
    goal: Goal | None, figures: tuple[float, ...], verdict: str
) -> None:
    judged = bare_row(figures, goal)
    assert (judged.verdict, judged.missed) == (verdict, verdict.startswith("MISSED"))
    assert judged.ratio is None
    assert judged.spread == (min(figures), max(figures))


def test_what_is_more_than_none_at_all_misses_by_no_finite_factor() -> None:
    assert (NONE_AT_ALL.missed_by(0.0), NONE_AT_ALL.missed_by(0.1)) == (1.0, inf)
    assert FASTER.missed_by(0.0) == inf


@given(
    ratio=st.floats(0.001, 1000),
    target=st.floats(0.01, 100),
    better=st.sampled_from(Better),
)
def test_a_goal_is_met_exactly_if_it_is_not_missed_by_more_than_one(
    ratio: float, target: float, better: Better
) -> None:
    goal = Goal(target, None, better)
    assert goal.met(ratio) == (goal.missed_by(ratio) <= 1.0) or goal.missed_by(ratio) == pytest.approx(1.0)


@pytest.mark.parametrize(("subject", "limit"), [((), ()), ((1.0,), ()), ((1.0, 2.0), (1.0,)), ((1.0,), (0.0,))])
def test_a_row_without_whole_rounds_is_refused(subject: tuple[float, ...], limit: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="row 1: "):
        row(subject, limit)


def test_a_limit_without_a_name_or_a_name_without_a_limit_is_refused() -> None:
    with pytest.raises(ValueError, match="row 1: 1 rounds of the subject and 1 of the limit"):
        Row(number="1", name="events", unit="us", subject=(1.0,), limit=(1.0,))
    with pytest.raises(ValueError, match="row 1: 1 rounds of the subject and 0 of the limit"):
        Row(number="1", name="events", unit="us", subject=(1.0,), limit_name="read")
    with pytest.raises(ValueError, match="row 8: 0 rounds of the subject"):
        bare_row(())


def test_rows_come_in_the_order_of_their_goals_and_back_to_back_ones_last() -> None:
    numbers = ["12", "8 fds", "9", "10", "1c", "1", "3 b2b", "3", "3 FULL"]
    rows = [bare_row((1.0,), number=number) for number in numbers]
    found = [row.number for row in in_order(rows, frozenset({"1", "3", "8", "10", "12"}))]
    assert found == ["1c", "1", "3", "3 FULL", "8 fds", "10", "12", "3 b2b"]


def test_a_goal_of_two_digits_is_not_taken_for_that_of_its_first_one() -> None:
    rows = [bare_row((1.0,), number=number) for number in ("1", "1b", "10", "12b")]
    assert [row.number for row in in_order(rows, frozenset({"1"}))] == ["1", "1b"]
    assert [row.number for row in in_order(rows, frozenset({"12"}))] == ["12b"]


@given(st.lists(st.integers(0, 1000), min_size=1), st.floats(0, 1))
def test_a_percentile_is_one_of_the_values_with_that_part_below_it(values: list[int], part: float) -> None:
    found = percentile(values, part)
    assert found in values
    assert sum(value < found for value in values) <= part * len(values)
    assert sum(value <= found for value in values) >= part * len(values)


def test_a_percentile_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one value"):
        percentile([], 0.5)
    with pytest.raises(ValueError, match=r"between 0 and 1, not 50"):
        percentile([1], 50)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.8312, "0.83 us"),
        (6.251, "6.25 us"),
        (62.51, "62.5 us"),
        (625.1, "625 us"),
        (6251, "6.3k us"),
        (62510, "63k us"),
    ],
)
def test_figures_show_the_digits_that_count(value: float, text: str) -> None:
    assert figure(value, "us") == text


def test_the_table_shows_subject_limit_ratio_and_verdict_in_columns() -> None:
    lines = render([row((30.0,), (10.0,), CHEAPER), row((1.0,), (10.0,))]).splitlines()
    assert lines[1].split() == ["1", "events", "30.0", "us", "10.0", "us", "read", "3.00", "3.00-3.00", "<=", "2", "<=",
                                "1.2", "MISSED", "by", "1.50"]  # fmt: skip
    assert lines[2].split() == ["1", "events", "1.00", "us", "10.0", "us", "read", "0.10", "0.10-0.10"]
    column = lines[0].index("ratio")
    assert [line[column:].split()[0] for line in lines] == ["ratio", "3.00", "0.10"]


def test_a_row_without_a_limit_shows_the_unit_with_its_goals() -> None:
    line = render([bare_row((30.0, 40.0, 50.0), SMALL)]).splitlines()[1]
    assert line.split() == ["8", "memory", "40.0", "KiB", "-", "-", "30.00-50.00", "<=", "64", "KiB", "<=", "24", "KiB",
                            "met"]  # fmt: skip


def test_the_json_of_a_row_without_a_limit_has_no_ratio() -> None:
    (found,) = to_json([bare_row((30.0,), SMALL)])
    assert (found["ratio"], found["limit_name"], found["limit"], found["target"]) == (None, "", [], 64.0)


def test_the_json_holds_every_round_and_what_was_concluded() -> None:
    (found,) = to_json([row((30.0, 20.0), (10.0, 10.0), CHEAPER)])
    assert found == {
        "row": "1",
        "name": "events",
        "unit": "us",
        "subject": [30.0, 20.0],
        "limit_name": "read",
        "limit": [10.0, 10.0],
        "ratio": 2.5,
        "target": 2.0,
        "stretch": 1.2,
        "verdict": "MISSED by 1.25",
    }
