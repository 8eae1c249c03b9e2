"""Stop rules about tool calls: which were called, which failed, which were repeated."""

import itertools
import json
import random
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.core.stop_facts import C, Call, D, F, S, call, judge, outcomes, step

from steprail_daemon.core.model import (
    RepetitionRule,
    Step,
    StopKind,
    StopRule,
    ToolCallRule,
    ToolCallScope,
    ToolFailuresRule,
    ToolKind,
    ToolOutcome,
    ToolOutcomeFilter,
    Verdict,
    VerdictOutcome,
)
from steprail_daemon.core.policy import canonical
from steprail_daemon.core.stops import StepFacts, evaluate

MATCHED, NOT_MATCHED, UNKNOWN = VerdictOutcome.MATCHED, VerdictOutcome.NOT_MATCHED, VerdictOutcome.UNKNOWN
RUN = ToolCallScope.RUN
EDIT, EXECUTE, NOBODY_KNOWS = ToolKind.EDIT, ToolKind.EXECUTE, ToolKind.UNKNOWN


@pytest.mark.parametrize(
    ("condition", "calls", "outcome"),
    [
        (ToolCallRule(tool="write_file"), [call("write_file")], MATCHED),
        (ToolCallRule(tool="write_file"), [call("Write_file"), call("write_file2")], NOT_MATCHED),
        (ToolCallRule(tool="write_*"), [call("read"), call("write_file")], MATCHED),
        (ToolCallRule(tool="mcp__*__write"), [call("mcp__a__b__write")], MATCHED),
        (ToolCallRule(tool="[w]rite"), [call("write")], NOT_MATCHED),
        (ToolCallRule(tool="*"), [], NOT_MATCHED),
        (ToolCallRule(tool="x"), [call("x", outcome=C)], MATCHED),
        (ToolCallRule(tool="x"), [call("x", outcome=None)], MATCHED),
        (ToolCallRule(tool="x", outcome=ToolOutcomeFilter.SUCCEEDED), [call("x", outcome=None)], NOT_MATCHED),
        (ToolCallRule(tool="x", outcome=ToolOutcomeFilter.SUCCEEDED), [call("x", outcome=F)], NOT_MATCHED),
        (ToolCallRule(tool="x", outcome=ToolOutcomeFilter.SUCCEEDED), [call("x")], MATCHED),
        (ToolCallRule(tool="x", outcome=ToolOutcomeFilter.FAILED), [call("x", outcome=F)], MATCHED),
        (ToolCallRule(tool="x", outcome=ToolOutcomeFilter.FAILED), [call("x", outcome=D)], NOT_MATCHED),
        (ToolCallRule(tool="x", outcome=ToolOutcomeFilter.DENIED), [call("x", outcome=D)], MATCHED),
        (ToolCallRule(tool="x", outcome=ToolOutcomeFilter.DENIED), [call("y", outcome=D), call("x")], NOT_MATCHED),
        (ToolCallRule(tool_kind=EDIT), [call(), call("w", EDIT)], MATCHED),
        (ToolCallRule(tool_kind=EDIT), [call(), call("sh", EXECUTE)], NOT_MATCHED),
        (ToolCallRule(tool_kind=EDIT), [call("odd", NOBODY_KNOWS)], UNKNOWN),
        (ToolCallRule(tool_kind=EDIT), [call("odd", NOBODY_KNOWS), call("w", EDIT)], MATCHED),
        (ToolCallRule(tool_kind=EDIT, outcome=ToolOutcomeFilter.FAILED), [call("odd", NOBODY_KNOWS)], NOT_MATCHED),
        (ToolCallRule(tool_kind=EDIT, outcome=ToolOutcomeFilter.FAILED), [call("odd", NOBODY_KNOWS, F)], UNKNOWN),
    ],
)
def test_a_call_is_looked_for_by_name_or_kind_and_by_what_came_of_it(
    condition: ToolCallRule, calls: list[Call], outcome: VerdictOutcome
) -> None:
    verdict = judge(condition, step(*calls))
    assert (verdict.kind, verdict.outcome, verdict.ratio) == (StopKind.TOOL_CALL, outcome, None)


def test_the_step_is_the_last_one_and_the_run_is_every_step() -> None:
    steps = [step(call("write_file", outcome=F)), step(call())]
    assert judge(ToolCallRule(tool="write_file"), *steps).outcome is NOT_MATCHED
    assert judge(ToolCallRule(tool="write_file"), *steps[::-1]).outcome is MATCHED
    assert judge(ToolCallRule(tool="write_file", scope=RUN), *steps).outcome is MATCHED
    assert judge(ToolCallRule(tool="x", scope=RUN), *steps).outcome is NOT_MATCHED


def test_where_there_is_no_step_there_is_no_call() -> None:
    assert evaluate([StopRule("r", ToolCallRule(tool="*"))], StepFacts(3, 3))[0].outcome is NOT_MATCHED


def test_a_verdict_names_the_calls() -> None:
    steps = [step(call("w1", EDIT), call("w2", EDIT)), step(call("w1", EDIT), call())]
    assert judge(ToolCallRule(tool="w*", scope=RUN), *steps) == Verdict(
        "r", StopKind.TOOL_CALL, MATCHED, "w1 (2), w2", "tool w*", None, "Calls in the run of tool w*: w1 (2), w2."
    )
    failed = ToolCallRule(tool_kind=EDIT, outcome=ToolOutcomeFilter.FAILED)
    assert judge(failed, *steps) == Verdict(
        "r",
        StopKind.TOOL_CALL,
        NOT_MATCHED,
        "no such call",
        "tool kind EDIT, FAILED",
        None,
        "No call in the step of tool kind EDIT, FAILED.",
    )
    unknown = judge(ToolCallRule(tool_kind=EDIT), step(call("odd", NOBODY_KNOWS)))
    assert (unknown.observed, unknown.message) == (
        "",
        "Whether a call in the step was of tool kind EDIT is unknown: odd.",
    )


ROWS: list[tuple[list[tuple[ToolOutcome, ...]], tuple[int, int, int, int]]] = [
    # The steps; failed, failed or denied, and both in a row.
    ([], (0, 0, 0, 0)),
    ([(S, S)], (0, 0, 0, 0)),
    ([(F, S, F)], (2, 2, 1, 1)),
    ([(F, F, S)], (2, 2, 2, 2)),
    ([(F,), (F,), (S,), (F,)], (3, 3, 2, 2)),
    ([(F, D, F)], (2, 3, 2, 3)),
    ([(F, C, F)], (2, 2, 2, 2)),
    ([(C, C), (C,)], (0, 0, 0, 0)),
    ([(D, D), (S,), (D,)], (0, 3, 0, 2)),
    ([(F, D, S, D, D, D, F)], (2, 6, 1, 4)),
]


@pytest.mark.parametrize(("rows", "counts"), ROWS)
def test_failures_are_counted_in_all_and_in_a_row(
    rows: list[tuple[ToolOutcome, ...]], counts: tuple[int, int, int, int]
) -> None:
    steps = [outcomes(*row) for row in rows]
    seen = [
        judge(ToolFailuresRule(2, consecutive, count_denied), *steps)
        for consecutive in (False, True)
        for count_denied in (False, True)
    ]
    assert tuple(int(verdict.observed) for verdict in seen) == counts
    assert [verdict.outcome for verdict in seen] == [MATCHED if count >= 2 else NOT_MATCHED for count in counts]
    assert [verdict.ratio for verdict in seen] == [count / 2 for count in counts]


def test_failures_are_told_in_words() -> None:
    assert judge(ToolFailuresRule(3), outcomes(F)).message == "Failed tool calls of the run: 1 of 3."
    assert (
        judge(ToolFailuresRule(3, consecutive=True, count_denied=True), outcomes(F, D)).message
        == "Failed or denied tool calls of the run without a success between them: 2 of 3."
    )


def told(*arguments: str, tool: str = "read") -> Step:
    return step(*[call(tool, arguments=text) for text in arguments])


@pytest.mark.parametrize(
    ("steps", "most"),
    [
        ([], 0),
        ([told("{}")], 1),
        ([told("{}"), told("{}")], 2),
        ([told("{}", "{}")], 2),
        ([told('{"a": 1, "b": 2}'), told('{"b":2,"a":1}')], 2),
        ([told('{"a": {"c": 1, "b": 2}}'), told('{"a": {"b": 2, "c": 1}}')], 2),
        ([told('{"a": "\\u00e9"}'), told('{"a": "é"}')], 2),
        ([told('{"a": [1, 2]}'), told('{"a": [2, 1]}')], 1),
        ([told('{"a": 1}'), told('{"a": "1"}')], 1),
        ([told('{"a": 1}'), told('{"a": true}')], 1),
        ([told("{}"), told("{}", tool="write")], 1),
        ([told("{"), told("{")], 2),
        ([told("{"), told("{ ")], 1),
        ([told(""), told("")], 2),
        ([told("\udc80"), told("\udc80")], 2),
        ([told("[" * 100_000), told("[" * 100_000)], 2),
        ([told('{"a": ' + "9" * 5_000 + "}")] * 2, 2),
        ([told("1"), told("2"), told("1"), told("2"), told("1")], 3),
    ],
    ids=map(str, itertools.count()),
)
def test_the_same_call_is_the_same_tool_with_the_same_arguments(steps: list[Step], most: int) -> None:
    verdict = judge(RepetitionRule(2), *steps)
    assert (verdict.observed, verdict.limit, verdict.ratio) == (str(most), "2", most / 2)
    assert verdict.outcome is (MATCHED if most >= 2 else NOT_MATCHED)


def test_a_repetition_names_the_tool() -> None:
    assert judge(RepetitionRule(5)).message == "Calls of a tool with the same arguments: 0 of 5."
    assert judge(RepetitionRule(5), told("{}", "{}", tool="ls")).message == (
        "Calls of ls with the same arguments: 2 of 5."
    )


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(value=json_values, order=st.randoms(use_true_random=False))
def test_neither_order_nor_space_makes_arguments_different(value: object, order: random.Random) -> None:
    def shuffled(one: object) -> object:
        if isinstance(one, dict):
            items = list(one.items())
            order.shuffle(items)
            return {key: shuffled(inner) for key, inner in items}
        return [shuffled(inner) for inner in one] if isinstance(one, list) else one

    text = json.dumps(value)
    assert canonical(json.dumps(shuffled(value), indent=2, ensure_ascii=False)) == canonical(text)
    assert canonical(canonical(text)) == canonical(text)
    assert json.loads(canonical(text)) == value


def test_arguments_nested_deeper_than_the_interpreter_goes_are_compared_as_they_are() -> None:
    deep = "[" * (sys.getrecursionlimit() * 10) + "]" * (sys.getrecursionlimit() * 10)
    assert canonical(deep) == deep
