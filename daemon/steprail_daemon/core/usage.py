"""Sums of tokens and money in which unknown is not zero.

A sum is of the known parts; `complete` tells whether a part was missing. What no part knows stays None.
"""

from __future__ import annotations

from msgspec.structs import replace

from steprail_daemon.core.model import Cost, CostBasis, Usage


def add_usage(total: Usage | None, part: Usage | None) -> Usage | None:
    """Add the tokens of two parts, either of which may be unknown."""
    if total is None or part is None:
        return incomplete_usage(total or part)
    # Spelled out: a step whose usage is known is on the way to every decision.
    halves = (
        (total.input_tokens is None) is not (part.input_tokens is None)
        or (total.cached_input_tokens is None) is not (part.cached_input_tokens is None)
        or (total.cache_write_tokens is None) is not (part.cache_write_tokens is None)
        or (total.output_tokens is None) is not (part.output_tokens is None)
        or (total.reasoning_tokens is None) is not (part.reasoning_tokens is None)
    )
    return Usage(
        _add(total.input_tokens, part.input_tokens),
        _add(total.cached_input_tokens, part.cached_input_tokens),
        _add(total.cache_write_tokens, part.cache_write_tokens),
        _add(total.output_tokens, part.output_tokens),
        _add(total.reasoning_tokens, part.reasoning_tokens),
        total.complete and part.complete and not halves,
    )


def add_cost(total: Cost | None, part: Cost | None) -> Cost | None:
    """Add two amounts, either of which may be unknown."""
    if total is None or part is None:
        return incomplete_cost(total or part)
    half = (total.micro_usd is None) != (part.micro_usd is None)
    basis = total.basis if total.basis is part.basis else CostBasis.MIXED
    return Cost(_add(total.micro_usd, part.micro_usd), basis, total.complete and part.complete and not half)


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
