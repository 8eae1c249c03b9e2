"""Sums in which unknown is not zero."""

from hypothesis import given
from hypothesis import strategies as st

from steprail_daemon.core.model import Cost, CostBasis, Usage
from steprail_daemon.core.usage import add_cost, add_usage, incomplete_cost, incomplete_usage

tokens = st.none() | st.integers(0, 10**9)
usages = st.none() | st.builds(Usage, tokens, tokens, tokens, tokens, tokens, st.booleans(), tokens)
costs = st.none() | st.builds(Cost, tokens, st.sampled_from(CostBasis), st.booleans())


def test_known_parts_add_up() -> None:
    assert add_usage(Usage(10, 4, None, 3, None), Usage(1, 1, None, 1, None)) == Usage(11, 5, None, 4, None)


def test_a_part_that_is_unknown_makes_the_sum_a_lower_bound() -> None:
    assert add_usage(Usage(10, output_tokens=3), None) == Usage(10, output_tokens=3, complete=False)
    assert add_usage(Usage(10, 4, output_tokens=3), Usage(1, output_tokens=1)) == Usage(
        11, 4, output_tokens=4, complete=False
    )
    assert add_usage(None, None) is None


def test_totals_that_are_known_without_their_parts_add_up_too() -> None:
    assert add_usage(Usage(reported_total=5), Usage(reported_total=7)) == Usage(reported_total=12)
    assert add_usage(Usage(10, output_tokens=3), Usage(reported_total=7)) == Usage(
        10, output_tokens=3, complete=False, reported_total=20
    )
    assert add_usage(Usage(reported_total=5), Usage()) == Usage(complete=False, reported_total=5)


def test_amounts_of_two_sources_are_mixed() -> None:
    reported, priced = Cost(5, CostBasis.REPORTED), Cost(2, CostBasis.PRICED)
    assert add_cost(reported, reported) == Cost(10, CostBasis.REPORTED)
    assert add_cost(reported, priced) == Cost(7, CostBasis.MIXED)
    assert add_cost(reported, Cost(None, CostBasis.REPORTED)) == Cost(5, CostBasis.REPORTED, complete=False)
    assert add_cost(None, priced) == Cost(2, CostBasis.PRICED, complete=False)


def test_what_is_unknown_is_not_made_incomplete() -> None:
    assert incomplete_usage(None) is None
    assert incomplete_cost(None) is None


@given(a=usages, b=usages)
def test_the_order_of_tokens_does_not_matter(a: Usage | None, b: Usage | None) -> None:
    assert add_usage(a, b) == add_usage(b, a)


@given(a=costs, b=costs)
def test_the_order_of_amounts_does_not_matter(a: Cost | None, b: Cost | None) -> None:
    assert add_cost(a, b) == add_cost(b, a)


@given(a=usages, b=usages)
def test_a_sum_of_tokens_is_never_complete_where_a_part_was_not(a: Usage | None, b: Usage | None) -> None:
    total = add_usage(a, b)
    if total is not None and total.complete:
        assert a is not None
        assert b is not None
        assert a.complete
        assert b.complete
        assert (a.total_tokens is None) == (b.total_tokens is None)
