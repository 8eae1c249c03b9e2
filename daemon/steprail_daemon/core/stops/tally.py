"""What is kept of a run for its stop rules, step by step, so that a boundary costs the same after any number of steps.

Only what the rules ask for is kept. Sums are of what is known, together with whether that is all; unknown is not zero.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence

from steprail_daemon.core.model import (
    AllOfRule,
    AnyOfRule,
    Cost,
    CostRule,
    NoneOfRule,
    RepetitionRule,
    RuleCondition,
    RuleScope,
    Step,
    StopRule,
    TokenCounting,
    TokenUsageRule,
    ToolCallRule,
    ToolCallScope,
    ToolFailuresRule,
    ToolKind,
    ToolOutcome,
    Usage,
)
from steprail_daemon.core.policy import canonical
from steprail_daemon.core.usage import NO_COST, NO_USAGE

#: The conditions that hold other rules.
GROUP_CONDITIONS = (AnyOfRule, AllOfRule, NoneOfRule)

#: A known sum, and whether it is the whole.
Sum = tuple[int, bool]

_SUCCEEDED = ToolOutcome.SUCCEEDED
_FAILED = ToolOutcome.FAILED
_DENIED = ToolOutcome.DENIED


class Tally:
    """What the rules of one run need to know of it. Fed with every step, in order, before that step is judged."""

    __slots__ = ("_calls", "_failures", "_repetitions", "_spent")

    def __init__(
        self,
        spent: Spent | None = None,
        calls: CallsSeen | None = None,
        failures: FailuresSeen | None = None,
        repetitions: RepetitionsSeen | None = None,
    ) -> None:
        self._spent = spent
        self._calls = calls
        self._failures = failures
        self._repetitions = repetitions

    @classmethod
    def for_rules(
        cls, rules: Sequence[StopRule], usage_before: Usage | None = NO_USAGE, cost_before: Cost | None = NO_COST
    ) -> Tally:
        """Keep what `rules` ask for. `usage_before` and `cost_before` are of the session before the run.

        None is an unknown sum; a session in which nothing ran yet has NO_USAGE and NO_COST.
        """
        asked = list(conditions(rules))
        countings = {one.counting for one in asked if isinstance(one, TokenUsageRule)}
        spends = countings or any(isinstance(one, CostRule) for one in asked)
        in_run = any(isinstance(one, ToolCallRule) and one.scope is ToolCallScope.RUN for one in asked)
        return cls(
            Spent(countings, usage_before, cost_before) if spends else None,
            CallsSeen() if in_run else None,
            FailuresSeen() if any(isinstance(one, ToolFailuresRule) for one in asked) else None,
            RepetitionsSeen() if any(isinstance(one, RepetitionRule) for one in asked) else None,
        )

    def add(self, step: Step) -> None:
        """Add a completed step."""
        if self._spent is not None:
            self._spent.add(step.usage, step.cost)
        if self._calls is not None:
            self._calls.add(step)
        if self._failures is not None:
            self._failures.add(step)
        if self._repetitions is not None:
            self._repetitions.add(step)

    def spend(self, usage: Usage | None, cost: Cost | None) -> None:
        """Add what was used beside the steps, by a sub-agent or a side request. None is unknown."""
        if self._spent is not None:
            self._spent.add(usage, cost)

    def settle(self, usage: Usage | None, cost: Cost | None) -> None:
        """Take the agent's own figures of the whole run at its end; None: the last message's share stays unknown."""
        if self._spent is not None:
            self._spent.settle(usage, cost)

    @property
    def spent(self) -> Spent:
        """Tokens and money."""
        assert self._spent is not None, "tallied for other rules"
        return self._spent

    @property
    def calls(self) -> CallsSeen:
        """Which tools were called in the run."""
        assert self._calls is not None, "tallied for other rules"
        return self._calls

    @property
    def failures(self) -> FailuresSeen:
        """How many calls failed."""
        assert self._failures is not None, "tallied for other rules"
        return self._failures

    @property
    def repetitions(self) -> RepetitionsSeen:
        """How often the same was called."""
        assert self._repetitions is not None, "tallied for other rules"
        return self._repetitions


class Spent:
    """Tokens and money of the run, and of the session before it."""

    __slots__ = ("_cost", "_cost_before", "_tokens", "_tokens_before")

    def __init__(
        self, countings: Iterable[TokenCounting], usage_before: Usage | None, cost_before: Cost | None
    ) -> None:
        self._tokens: dict[TokenCounting, Sum] = dict.fromkeys(countings, (0, True))
        self._tokens_before = {counting: known_tokens(usage_before, counting) for counting in self._tokens}
        self._cost: Sum = (0, True)
        self._cost_before = known_cost(cost_before)

    def add(self, usage: Usage | None, cost: Cost | None) -> None:
        """Add a part; None is an unknown one."""
        for counting, total in self._tokens.items():
            self._tokens[counting] = _plus(total, known_tokens(usage, counting))
        self._cost = _plus(self._cost, known_cost(cost))

    def settle(self, usage: Usage | None, cost: Cost | None) -> None:
        """Replace the sums by figures of the whole run, or note that there are none."""
        for counting, total in self._tokens.items():
            self._tokens[counting] = (total[0], False) if usage is None else known_tokens(usage, counting)
        self._cost = (self._cost[0], False) if cost is None else known_cost(cost)

    def tokens(self, counting: TokenCounting, scope: RuleScope) -> Sum:
        """Give the tokens of the run, or of the session with the run."""
        total = self._tokens[counting]
        return _plus(self._tokens_before[counting], total) if scope is RuleScope.SESSION else total

    def cost(self, scope: RuleScope) -> Sum:
        """Give the money, in millionths of a dollar."""
        return _plus(self._cost_before, self._cost) if scope is RuleScope.SESSION else self._cost


class CallsSeen:
    """Which tools were called, of what kind, and what came of it; the outcome is None while there is no result."""

    __slots__ = ("counts",)

    def __init__(self) -> None:
        self.counts: dict[tuple[str, ToolKind, ToolOutcome | None], int] = {}

    def add(self, step: Step) -> None:
        """Add a step's calls."""
        counts = self.counts
        for seen in calls_of(step):
            counts[seen] = counts.get(seen, 0) + 1


class FailuresSeen:
    """Failed calls: all of them, and the longest row without a success in it; each also with denied calls counted."""

    __slots__ = ("_row", "_row_with_denied", "failed", "failed_or_denied", "longest", "longest_with_denied")

    def __init__(self) -> None:
        self.failed = 0
        self.failed_or_denied = 0
        self.longest = 0
        self.longest_with_denied = 0
        self._row = 0
        self._row_with_denied = 0

    def add(self, step: Step) -> None:
        """Add a step's results, in their order. Cancelled calls never count and end no row; nor do denied ones."""
        for result in step.tool_results:
            outcome = result.outcome
            if outcome is _SUCCEEDED:
                self._row = self._row_with_denied = 0
            elif outcome is _FAILED:
                self.failed += 1
                self._row += 1
                self.longest = max(self.longest, self._row)
                self._count_denied()
            elif outcome is _DENIED:
                self._count_denied()

    def _count_denied(self) -> None:
        self.failed_or_denied += 1
        self._row_with_denied += 1
        self.longest_with_denied = max(self.longest_with_denied, self._row_with_denied)


class RepetitionsSeen:
    """How often the call that was made most often was made, and of which tool it was."""

    __slots__ = ("_counts", "most", "tool")

    def __init__(self) -> None:
        self._counts: dict[tuple[str, bytes], int] = {}
        self.most = 0
        self.tool = ""

    def add(self, step: Step) -> None:
        """Add a step's calls. Of their arguments a digest is kept, which may be of any size."""
        for call in step.tool_calls:
            arguments = canonical(call.arguments_json).encode("utf-8", "surrogatepass")
            key = call.tool, hashlib.sha256(arguments).digest()
            count = self._counts.get(key, 0) + 1
            self._counts[key] = count
            if count > self.most:
                self.most, self.tool = count, call.tool


def conditions(rules: Iterable[StopRule]) -> Iterator[RuleCondition]:
    """Give the conditions of rules, those within groups included, depth first."""
    for rule in rules:
        condition = rule.condition
        if isinstance(condition, GROUP_CONDITIONS):
            yield from conditions(condition.rules)
        else:
            yield condition


def calls_of(step: Step) -> Iterator[tuple[str, ToolKind, ToolOutcome | None]]:
    """Give the calls of a step: tool, kind and outcome, which is None without a result."""
    outcomes = {result.call_id: result.outcome for result in step.tool_results}
    for call in step.tool_calls:
        yield call.tool, call.tool_kind, outcomes.get(call.call_id)


def known_tokens(usage: Usage | None, counting: TokenCounting) -> Sum:
    """Give what is certainly among the tokens of `usage`, and whether that is all.

    UNCACHED subtracts, so an incomplete figure of cached tokens would make the rest too large: input counts there only
    where both are known whole.
    """
    if usage is None:
        return 0, False
    read, written, cached = usage.input_tokens, usage.output_tokens, usage.cached_input_tokens
    whole = usage.complete
    if counting is TokenCounting.INPUT:
        return read or 0, whole and read is not None
    if counting is TokenCounting.OUTPUT:
        return written or 0, whole and written is not None
    if counting is TokenCounting.UNCACHED:
        if not whole or read is None or cached is None:
            return written or 0, False
        return max(read - cached, 0) + (written or 0), written is not None
    if usage.reported_total is not None:
        return usage.reported_total, whole
    return (read or 0) + (written or 0), whole and read is not None and written is not None


def known_cost(cost: Cost | None) -> Sum:
    """Give what is certainly among the money, in millionths of a dollar, and whether that is all."""
    if cost is None or cost.micro_usd is None:
        return 0, False
    return cost.micro_usd, cost.complete


def _plus(one: Sum, other: Sum) -> Sum:
    return one[0] + other[0], one[1] and other[1]


#: Keeps nothing: for rules that need none of it.
NO_TALLY = Tally()
