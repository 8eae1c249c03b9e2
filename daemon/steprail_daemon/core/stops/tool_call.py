"""Matches when a certain tool was called, in the step just completed or anywhere in the run."""

from __future__ import annotations

from collections.abc import Iterable

from steprail_daemon.core.globs import name_matches
from steprail_daemon.core.model import (
    StopKind,
    ToolCallRule,
    ToolCallScope,
    ToolKind,
    ToolOutcome,
    ToolOutcomeFilter,
    Verdict,
    VerdictOutcome,
)
from steprail_daemon.core.stops.base import Problem, RuleKind, StepFacts
from steprail_daemon.core.stops.tally import calls_of
from steprail_daemon.core.stops.texts import MAX_MESSAGE_BYTES, MAX_VALUE_BYTES, clipped

MAX_GLOB_BYTES = 256

_OUTCOMES = {
    ToolOutcomeFilter.SUCCEEDED: ToolOutcome.SUCCEEDED,
    ToolOutcomeFilter.FAILED: ToolOutcome.FAILED,
    ToolOutcomeFilter.DENIED: ToolOutcome.DENIED,
}
_SHOWN_TOOLS = 5


def verdict(rule_id: str, condition: ToolCallRule, facts: StepFacts) -> Verdict:
    """Look for the call. A call whose kind nobody knows leaves a rule about kinds UNKNOWN, not unmatched."""
    matching: dict[str, int] = {}
    unknown: dict[str, int] = {}
    for (tool, kind, outcome), count in _calls(condition.scope, facts):
        if not _outcome_matches(condition.outcome, outcome):
            continue
        if condition.tool:
            found = matching if name_matches(condition.tool, tool) else None
        elif kind is condition.tool_kind:
            found = matching
        else:
            found = unknown if kind is ToolKind.UNKNOWN else None
        if found is not None:
            found[tool] = found.get(tool, 0) + count
    limit = clipped(_wanted(condition), MAX_VALUE_BYTES)
    place = "the step" if condition.scope is ToolCallScope.STEP else "the run"
    if matching:
        observed, said = _counted(matching), f"Calls in {place} of {limit}: {_counted(matching)}."
        result = VerdictOutcome.MATCHED
    elif unknown:
        observed, said = "", f"Whether a call in {place} was of {limit} is unknown: {_counted(unknown)}."
        result = VerdictOutcome.UNKNOWN
    else:
        observed, said = "no such call", f"No call in {place} of {limit}."
        result = VerdictOutcome.NOT_MATCHED
    return Verdict(rule_id, StopKind.TOOL_CALL, result, observed, limit, None, clipped(said, MAX_MESSAGE_BYTES))


def problems(condition: ToolCallRule) -> Iterable[Problem]:
    """Check that exactly one selector is there, and that a glob is within its bound."""
    if bool(condition.tool) == bool(condition.tool_kind):
        both = "tool and tool_kind are both set" if condition.tool else "neither tool nor tool_kind is set"
        return (("", f"has no single selector, {both}; accepted is exactly one of tool and tool_kind"),)
    size = len(condition.tool.encode("utf-8", "replace"))
    if size > MAX_GLOB_BYTES:
        return (("tool", f"has {size} bytes; accepted are at most {MAX_GLOB_BYTES}"),)
    return ()


def _calls(scope: ToolCallScope, facts: StepFacts) -> Iterable[tuple[tuple[str, ToolKind, ToolOutcome | None], int]]:
    if scope is ToolCallScope.RUN:
        return facts.tally.calls.counts.items()
    return () if facts.step is None else ((seen, 1) for seen in calls_of(facts.step))


def _outcome_matches(wanted: ToolOutcomeFilter, outcome: ToolOutcome | None) -> bool:
    return wanted is ToolOutcomeFilter.ANY or outcome is _OUTCOMES[wanted]


def _wanted(condition: ToolCallRule) -> str:
    what = f"tool {condition.tool}" if condition.tool else f"tool kind {condition.tool_kind.name}"
    return what if condition.outcome is ToolOutcomeFilter.ANY else f"{what}, {condition.outcome.name}"


def _counted(calls: dict[str, int]) -> str:
    """Name tools with the number of their calls, the first few of them, within the bound of a value."""
    shown = [f"{tool} ({count})" if count > 1 else tool for tool, count in list(calls.items())[:_SHOWN_TOOLS]]
    more = len(calls) - len(shown)
    return clipped(", ".join(shown) + (f" and {more} more" if more else ""), MAX_VALUE_BYTES)


TOOL_CALL = RuleKind(StopKind.TOOL_CALL, ToolCallRule, verdict, problems)
