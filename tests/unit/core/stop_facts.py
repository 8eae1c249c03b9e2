"""Steps and facts for tests of stop rules."""

from collections.abc import Iterable, Sequence
from typing import Any

from hypothesis import strategies as st

from steprail_daemon.core.model import (
    AllOfRule,
    AnyOfRule,
    Cost,
    CostBasis,
    CostRule,
    DurationRule,
    ExpressionRule,
    FinishReason,
    FinishReasonRule,
    NoneOfRule,
    RepetitionRule,
    RuleClock,
    RuleCondition,
    RuleScope,
    Step,
    StepBoundary,
    StepCountRule,
    StopRule,
    TokenCounting,
    TokenUsageRule,
    ToolCall,
    ToolCallRule,
    ToolCallScope,
    ToolFailuresRule,
    ToolKind,
    ToolOutcome,
    ToolOutcomeFilter,
    ToolResult,
    Usage,
    Verdict,
)
from steprail_daemon.core.stops import NO_COST, NO_USAGE, StepFacts, Tally, evaluate
from steprail_daemon.core.stops.expressions import ExpressionResult

#: A call: tool, kind, outcome (None: there is no result) and arguments.
Call = tuple[str, ToolKind, ToolOutcome | None, str]

S, F, D, C = ToolOutcome.SUCCEEDED, ToolOutcome.FAILED, ToolOutcome.DENIED, ToolOutcome.CANCELLED


def call(
    tool: str = "read", kind: ToolKind = ToolKind.READ, outcome: ToolOutcome | None = S, arguments: str = "{}"
) -> Call:
    """A call, of a tool that reads unless told otherwise."""
    return tool, kind, outcome, arguments


def step(
    *calls: Call,
    number: int = 1,
    usage: Usage | None = None,
    cost: Cost | None = None,
    finish: FinishReason = FinishReason.TOOL_CALLS,
) -> Step:
    """A step with these calls."""
    return Step(
        number=number,
        step_id=f"run.{number:06d}",
        text="",
        thought="",
        tool_calls=tuple([ToolCall(f"c{n}", made[0], made[1], "", made[3]) for n, made in enumerate(calls)]),
        tool_results=tuple([ToolResult(f"c{n}", made[2]) for n, made in enumerate(calls) if made[2] is not None]),
        finish_reason=finish,
        finish_reason_raw="",
        usage=usage,
        cost=cost,
        model="",
        duration_ns=0,
        ended_at=0,
        boundary=StepBoundary.OBSERVED,
    )


def outcomes(*row: ToolOutcome) -> Step:
    """A step whose calls came out like this, in this order."""
    return step(*[call(outcome=outcome, arguments=str(n)) for n, outcome in enumerate(row)])


def tokens(read: int | None = 0, written: int | None = 0, cached: int | None = 0, *, complete: bool = True) -> Usage:
    """Tokens of a step."""
    return Usage(read, cached, 0, written, 0, complete)


def money(micro_usd: int | None, *, complete: bool = True) -> Cost:
    """Money of a step."""
    return Cost(micro_usd, CostBasis.REPORTED, complete)


def rule(condition: RuleCondition, rule_id: str = "r", **fields: Any) -> StopRule:
    """A rule."""
    return StopRule(rule_id, condition, **fields)


def after(
    rules: Sequence[StopRule],
    steps: Sequence[Step] = (),
    *,
    before: int = 0,
    usage_before: Usage | None = NO_USAGE,
    cost_before: Cost | None = NO_COST,
    active_ns: int = 0,
    wall_ns: int = 0,
) -> StepFacts:
    """What the rules see after these steps."""
    tally = Tally.for_rules(rules, usage_before, cost_before)
    for one in steps:
        tally.add(one)
    last = steps[-1] if steps else None
    return StepFacts(len(steps), before + len(steps), last, tally, active_ns, wall_ns)


def judge(condition: RuleCondition, *steps: Step, **fields: Any) -> Verdict:
    """The verdict of one rule after these steps."""
    rules = [rule(condition)]
    return evaluate(rules, after(rules, steps, **fields))[0]


def every_boundary(
    rules: Sequence[StopRule], steps: Iterable[Step], results: Sequence[ExpressionResult] = ()
) -> list[tuple[Verdict, ...]]:
    """The verdicts after each of the steps, by one tally, as in a run. Each step takes a second."""
    tally = Tally.for_rules(rules)
    found = []
    for count, one in enumerate(steps, start=1):
        tally.add(one)
        facts = StepFacts(count, count, one, tally, count * 1_000_000_000, 2 * count * 1_000_000_000)
        found.append(evaluate(rules, facts, results))
    return found


_amounts = st.none() | st.integers(0, 500)
usages = st.none() | st.builds(tokens, _amounts, _amounts, _amounts, complete=st.booleans())
costs = st.none() | st.builds(money, _amounts, complete=st.booleans())
calls = st.builds(
    call,
    st.sampled_from(["read", "write_file", "\udc80", "x" * 400]),
    st.sampled_from(ToolKind),
    st.none() | st.sampled_from(ToolOutcome),
    st.sampled_from(["{}", '{"a": 1}', '{"a":1}', "{", ""]),
)


@st.composite
def steps_of_a_run(draw: st.DrawFn) -> list[Step]:
    """Steps with anything in them."""
    count = draw(st.integers(1, 6))
    return [
        step(
            *draw(st.lists(calls, max_size=4)),
            number=number,
            usage=draw(usages),
            cost=draw(costs),
            finish=draw(st.sampled_from(FinishReason)),
        )
        for number in range(1, count + 1)
    ]


_limits = st.integers(1, 1_500)
_counts = st.integers(1, 6)
_scopes = st.sampled_from(RuleScope)
#: Conditions over figures that only grow.
cumulative = (
    st.builds(StepCountRule, _counts, _scopes)
    | st.builds(TokenUsageRule, _limits, st.sampled_from(TokenCounting), _scopes)
    | st.builds(CostRule, _limits, _scopes)
    | st.builds(DurationRule, st.integers(1, 12_000_000_000), st.sampled_from(RuleClock))
    | st.builds(ToolFailuresRule, _counts, st.booleans(), st.booleans())
    | st.builds(RepetitionRule, st.integers(2, 6))
    | st.builds(
        ToolCallRule,
        tool=st.sampled_from(["*", "write_*", "none"]),
        outcome=st.sampled_from(ToolOutcomeFilter),
        scope=st.just(ToolCallScope.RUN),
    )
    | st.builds(
        ToolCallRule,
        tool_kind=st.sampled_from([ToolKind.READ, ToolKind.EDIT]),
        outcome=st.sampled_from(ToolOutcomeFilter),
        scope=st.just(ToolCallScope.RUN),
    )
)
#: Conditions that are no groups.
leaves = (
    cumulative
    | st.builds(ToolCallRule, tool=st.sampled_from(["*", "read", "x*"]), outcome=st.sampled_from(ToolOutcomeFilter))
    | st.builds(FinishReasonRule, st.lists(st.sampled_from(list(FinishReason)[1:]), min_size=1).map(tuple))
    | st.builds(ExpressionRule, st.sampled_from(["true", "x" * 2048]))
)


def _group(kind: type[AnyOfRule | AllOfRule | NoneOfRule]) -> Any:
    def make(conditions: list[RuleCondition]) -> RuleCondition:
        return kind(tuple([StopRule(f"inner-{n}", condition) for n, condition in enumerate(conditions)]))

    return make


def grouped(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Groups of such conditions."""
    several = st.lists(inner, min_size=1, max_size=3)
    return several.map(_group(AnyOfRule)) | several.map(_group(AllOfRule)) | several.map(_group(NoneOfRule))


#: Any condition, groups within groups included.
conditions = st.recursive(leaves, grouped, max_leaves=8)
