"""Claude Code's token and cost figures in the daemon's terms."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from steprail_daemon.core.model import Cost, CostBasis, Usage
from steprail_daemon.drivers.claude.wire import MessageUsage, ModelUsage

_MICRO = 1_000_000


class Totals(msgspec.Struct, frozen=True):
    """Usage and cost summed over models. `reasoning` and `micro_usd` are None if any part is unknown."""

    fresh_input: int = 0
    cache_read: int = 0
    cache_write: int = 0
    output: int = 0
    reasoning: int | None = 0
    micro_usd: int | None = 0

    def minus(self, earlier: Totals) -> Totals | None:
        """Give what came after `earlier`; None if the sums shrank, which means that they were started anew."""
        rest = Totals(
            self.fresh_input - earlier.fresh_input,
            self.cache_read - earlier.cache_read,
            self.cache_write - earlier.cache_write,
            self.output - earlier.output,
            _minus(self.reasoning, earlier.reasoning),
            _minus(self.micro_usd, earlier.micro_usd),
        )
        shrunk = min(rest.fresh_input, rest.cache_read, rest.cache_write, rest.output, rest.micro_usd or 0) < 0
        return None if shrunk else rest

    def plus(self, more: Totals) -> Totals:
        """Give both together."""
        return Totals(
            self.fresh_input + more.fresh_input,
            self.cache_read + more.cache_read,
            self.cache_write + more.cache_write,
            self.output + more.output,
            _plus(self.reasoning, more.reasoning),
            _plus(self.micro_usd, more.micro_usd),
        )

    @property
    def tokens(self) -> int:
        """Input and output."""
        return self.fresh_input + self.cache_read + self.cache_write + self.output

    @property
    def usage(self) -> Usage:
        """The tokens, with what went through the cache counted as input."""
        return Usage(
            input_tokens=self.fresh_input + self.cache_read + self.cache_write,
            cached_input_tokens=self.cache_read,
            cache_write_tokens=self.cache_write,
            output_tokens=self.output,
            reasoning_tokens=self.reasoning,
        )

    @property
    def cost(self) -> Cost | None:
        """The money, at list price as the CLI computes it; None if unknown."""
        return None if self.micro_usd is None else Cost(self.micro_usd, CostBasis.REPORTED)


#: What was used where nothing was.
NOTHING: Final = Totals()


def totals_of(models: Iterable[ModelUsage]) -> Totals:
    """Sum the usage of several models."""
    fresh = read = write = output = 0
    reasoning: int | None = 0
    dollars: float | None = 0.0
    for model in models:
        fresh += model.input_tokens
        read += model.cache_read_input_tokens
        write += model.cache_creation_input_tokens
        output += model.output_tokens
        reasoning = None if reasoning is None or model.thinking_tokens is None else reasoning + model.thinking_tokens
        dollars = None if dollars is None or model.cost_usd is None else dollars + model.cost_usd
    return Totals(fresh, read, write, output, reasoning, None if dollars is None else round(dollars * _MICRO))


def totals_of_report(report: MessageUsage) -> Totals:
    """Give a report of the Messages API's kind as a sum, which has no money."""
    details = report.output_tokens_details
    return Totals(
        report.input_tokens or 0,
        report.cache_read_input_tokens or 0,
        report.cache_creation_input_tokens or 0,
        report.output_tokens or 0,
        None if details is None else details.thinking_tokens,
        None,
    )


def merged(first: MessageUsage | None, later: MessageUsage | None) -> MessageUsage | None:
    """Lay a later report over an earlier one of the same message: its stream gives the input first, the output last."""
    if first is None or later is None:
        return later or first
    return MessageUsage(
        _later(first.input_tokens, later.input_tokens),
        _later(first.cache_read_input_tokens, later.cache_read_input_tokens),
        _later(first.cache_creation_input_tokens, later.cache_creation_input_tokens),
        _later(first.output_tokens, later.output_tokens),
        later.output_tokens_details or first.output_tokens_details,
    )


def usage_of(report: MessageUsage | None) -> Usage | None:
    """Give the usage of a message or a turn, input with what went through the cache; None if nothing is reported."""
    if report is None or (report.input_tokens is None and report.output_tokens is None):
        return None
    input_tokens = report.input_tokens
    if input_tokens is not None:
        input_tokens += (report.cache_read_input_tokens or 0) + (report.cache_creation_input_tokens or 0)
    details = report.output_tokens_details
    return Usage(
        input_tokens=input_tokens,
        cached_input_tokens=report.cache_read_input_tokens,
        cache_write_tokens=report.cache_creation_input_tokens,
        output_tokens=report.output_tokens,
        reasoning_tokens=None if details is None else details.thinking_tokens,
        complete=input_tokens is not None and report.output_tokens is not None,
    )


def _minus(whole: int | None, part: int | None) -> int | None:
    return None if whole is None or part is None else whole - part


def _plus(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other


def _later(first: int | None, later: int | None) -> int | None:
    return first if later is None else later
