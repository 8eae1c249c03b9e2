"""Tokens out of numbers that count a turn twice, and the built-in agent's figures for each step."""

from __future__ import annotations

from msgspec.structs import replace

from steprail_daemon.core.model import Cost, CostBasis, Usage
from steprail_daemon.core.usage import NO_COST, NO_USAGE, further_cost, further_usage
from steprail_daemon.drivers.autohand.wire import StepUsage

_ACTUAL = "actual"


class TokenMeter:
    """Takes the number apart that 0.8.2 puts into `turnEnd.tokensUsed`, of one process from its start on.

    It is the total of the process so far with this turn in it, and this turn once more; a turn that a shutdown cut off
    inside a tool is counted once. The total starts at zero in each process, also where an old session was attached. One
    turn without figures of the provider makes it miss that turn for good; then nothing is known any more.
    """

    def __init__(self) -> None:
        self._total: int | None = 0

    def lose(self) -> None:
        """Note that the total means nothing any more."""
        self._total = None

    def turn(self, reported: int | None, status: str, *, cut_off: bool) -> int | None:
        """Give the tokens of the turn that ended, None if they cannot be told."""
        before, self._total = self._total, None
        if before is None or reported is None or status != _ACTUAL:
            return None
        rest = reported - before
        if rest < 0 or (rest % 2 and not cut_off):
            return None
        spent = rest if cut_off else rest // 2
        self._total = before + spent
        return spent


class StepFigures:
    """Adds up what the steps of a turn used, where the agent tells it."""

    def __init__(self) -> None:
        self._usage: Usage | None = NO_USAGE
        self._cost: Cost | None = NO_COST

    def add(self, usage: Usage | None, cost: Cost | None) -> None:
        """Take in a step's figures, None where there are none."""
        self._usage = further_usage(self._usage, usage)
        self._cost = further_cost(self._cost, cost)

    def turn(self, total: int | None, told: StepUsage | None) -> tuple[Usage | None, Cost | None]:
        """Give the figures of the whole turn: those `told`, else `total` beside what the steps are known to have used.

        The last message of a turn is no step, so where the steps are not all of `total`, their parts and their money
        are not all either.
        """
        if told is not None:
            return usage_of(told), cost_of(told)
        if total is None:
            return None, None
        usage = self._usage
        if usage is None or usage == NO_USAGE:
            return Usage(reported_total=total), None
        if total == usage.total_tokens:
            return usage, self._cost
        return replace(usage, complete=False, reported_total=total), None


def usage_of(told: StepUsage | None) -> Usage | None:
    """Give the tokens of a step or a turn; None if nothing is told."""
    if told is None or (told.input_tokens is None and told.output_tokens is None):
        return None
    return Usage(
        told.input_tokens,
        told.cached_input_tokens,
        None,
        told.output_tokens,
        told.reasoning_tokens,
        complete=told.input_tokens is not None and told.output_tokens is not None,
    )


def cost_of(told: StepUsage | None) -> Cost | None:
    """Give the money of a step or a turn; None if it is not told."""
    if told is None or told.cost_micro_usd is None:
        return None
    return Cost(told.cost_micro_usd, CostBasis.REPORTED)
