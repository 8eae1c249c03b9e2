"""Sums of tokens and money in which unknown is not zero.

A sum is of the known parts; `complete` tells whether a part was missing. What no part knows stays None.
"""

from __future__ import annotations

from msgspec.structs import replace

from steprail_daemon.core.model import Cost, CostBasis, Usage

#: What was used where nothing was used, as before the first run of a session.
NO_USAGE = Usage(0, 0, 0, 0, 0)
NO_COST = Cost(0, CostBasis.REPORTED)


def add_usage(total: Usage | None, part: Usage | None) -> Usage | None:
    """Add the tokens of two parts, either of which may be unknown."""
    if total is None or part is None:
        return incomplete_usage(total or part)
    # Spelled out: a step whose usage is known is on the way to every decision.
    a, b, c, d, e = (
        total.input_tokens,
        total.cached_input_tokens,
        total.cache_write_tokens,
        total.output_tokens,
        total.reasoning_tokens,
    )
    v, w, x, y, z = (
        part.input_tokens,
        part.cached_input_tokens,
        part.cache_write_tokens,
        part.output_tokens,
        part.reasoning_tokens,
    )
    halves = (
        (a is None) is not (v is None)
        or (b is None) is not (w is None)
        or (c is None) is not (x is None)
        or (d is None) is not (y is None)
        or (e is None) is not (z is None)
    )
    whole = None
    if total.reported_total is not None or part.reported_total is not None:
        one, other = total.total_tokens, part.total_tokens
        halves = halves or (one is None) is not (other is None)
        whole = _add(one, other)
    return Usage(
        a if v is None else v if a is None else a + v,
        b if w is None else w if b is None else b + w,
        c if x is None else x if c is None else c + x,
        d if y is None else y if d is None else d + y,
        e if z is None else z if e is None else e + z,
        total.complete and part.complete and not halves,
        whole,
    )


def add_cost(total: Cost | None, part: Cost | None) -> Cost | None:
    """Add two amounts, either of which may be unknown."""
    if total is None or part is None:
        return incomplete_cost(total or part)
    half = (total.micro_usd is None) != (part.micro_usd is None)
    basis = total.basis if total.basis is part.basis else CostBasis.MIXED
    return Cost(_add(total.micro_usd, part.micro_usd), basis, total.complete and part.complete and not half)


def further_usage(total: Usage | None, part: Usage | None) -> Usage | None:
    """Add to a sum that began as NO_USAGE: nothing and a part are that part, however little of it is known."""
    return part if total == NO_USAGE else add_usage(total, part)


def further_cost(total: Cost | None, part: Cost | None) -> Cost | None:
    """Add to a sum that began as NO_COST."""
    return part if total == NO_COST else add_cost(total, part)


def incomplete_usage(usage: Usage | None) -> Usage | None:
    """Say that a part is missing from `usage`."""
    return replace(usage, complete=False) if usage is not None and usage.complete else usage


def incomplete_cost(cost: Cost | None) -> Cost | None:
    """Say that a part is missing from `cost`."""
    return replace(cost, complete=False) if cost is not None and cost.complete else cost


def _add(a: int | None, b: int | None) -> int | None:
    if a is None or b is None:
        return b if a is None else a
    return a + b
