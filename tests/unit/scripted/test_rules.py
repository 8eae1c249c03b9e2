"""Counting, guarding, planning: the parts that decide and do nothing."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steprail_scripted.asking import Permissions
from steprail_scripted.faults import json_line
from steprail_scripted.guards import Guards
from steprail_scripted.model import Call, ProviderError, Reply, ToolResult, Usage
from steprail_scripted.plan import DefaultPlan, subject_of, unfinished, worth_reading
from steprail_scripted.provider import TOKEN_LIMIT, describe
from steprail_scripted.tally import SessionTally, TurnTally, sum_of, usage_by_size

CALLS = (Call("read_file", {"path": "a"}),)
THOUGHT = "x" * 51


def turn_of(*totals: int | None) -> TurnTally:
    tally = TurnTally()
    tally.calls = len(totals)
    tally.usages = [None if total is None else Usage(total, 0) for total in totals]
    return tally


@given(st.lists(st.lists(st.integers(1, 10_000), min_size=1, max_size=4), min_size=1, max_size=6))
def test_the_reported_numbers_solve_to_the_tokens_of_each_turn(turns: list[list[int]]) -> None:
    session, total = SessionTally(), 0
    for turn in turns:
        reported = session.close_turn(turn_of(*turn))
        used = (reported - total) / 2
        assert used == sum(turn)
        total += sum(turn)
    assert session.status == "actual"
    assert session.repeat() == total + sum(turns[-1])


def test_one_turn_without_usage_makes_the_status_unavailable_for_good() -> None:
    session = SessionTally()
    session.close_turn(TurnTally())  # no model call at all: nothing is missing
    assert session.status == "actual"
    session.close_turn(turn_of(None))
    session.close_turn(turn_of(5))
    assert session.status == "unavailable"


def test_a_turn_that_was_cut_off_is_counted_once() -> None:
    session = SessionTally()
    session.close_turn(turn_of(10))
    assert session.cut_off(turn_of(3)) == 13


def test_a_sum_with_an_unknown_part_is_unknown() -> None:
    assert sum_of([]) is None
    assert sum_of([Usage(1, 2), None]) is None
    assert sum_of([Usage(1, 2, 1, 0, "a", 5), Usage(1, 2, None, 0, "b", 6)]) == Usage(2, 4, None, 0, "b", 11)


def test_a_step_takes_what_was_used_since_the_one_before() -> None:
    tally = turn_of(1, 2)
    assert tally.take_step() == Usage(3, 0)
    assert tally.take_step() is None
    tally.usages.append(Usage(7, 0))
    assert tally.take_step() == Usage(7, 0)


@given(st.text(max_size=200), st.integers(0, 10_000))
def test_made_up_usage_never_caches_more_than_it_reads(context: str, known: int) -> None:
    usage = usage_by_size(context, known, Reply("abcde", CALLS), "m")
    assert usage.cached_input_tokens is not None
    assert 0 <= usage.cached_input_tokens <= usage.input_tokens
    assert usage.output_tokens > 0


def test_calls_after_a_step_need_a_thought_once_with_another_try() -> None:
    guards = Guards(enabled=True)
    assert not guards.refuses(Reply("", CALLS))
    guards.completed(Reply("", CALLS), [])
    assert guards.refuses(Reply("short", CALLS))
    assert not guards.tools_off
    assert not guards.refuses(Reply(THOUGHT, CALLS))
    assert not guards.refuses(Reply("", CALLS, reflection="thought"))
    assert guards.refuses(Reply("", CALLS))
    assert guards.refuses(Reply("", CALLS))
    assert guards.tools_off


def test_the_same_calls_and_results_three_times_turn_the_tools_off() -> None:
    guards = Guards(enabled=True)
    for count in range(3):
        assert guards.tools_off == (count == 3)
        guards.completed(Reply(THOUGHT, CALLS), [ToolResult("read_file", success=True, output="same")])
    assert guards.tools_off


def test_the_same_calls_six_times_turn_the_tools_off_whatever_they_give() -> None:
    guards = Guards(enabled=True)
    for count in range(6):
        assert not guards.refuses(Reply(THOUGHT, CALLS))
        guards.completed(Reply(THOUGHT, CALLS), [ToolResult("read_file", success=True, output=str(count))])
    assert guards.refuses(Reply(THOUGHT, CALLS))
    assert guards.tools_off


def test_three_empty_replies_are_enough() -> None:
    guards = Guards(enabled=True)
    assert [guards.is_empty(Reply()) for _ in range(3)] == [True, True, False]


def test_without_guards_nothing_is_refused() -> None:
    guards = Guards(enabled=False)
    for _ in range(9):
        guards.completed(Reply("", CALLS), [])
        assert not guards.refuses(Reply("", CALLS))
        assert not guards.is_empty(Reply())
    assert not guards.tools_off


@pytest.mark.parametrize(
    ("paths", "chosen"),
    [
        (
            ["src/a.py", "deep/README.md", "README.md", "pyproject.toml", "Makefile"],
            ["README.md", "deep/README.md", "pyproject.toml"],
        ),
        (["src/a.py", "b.py"], ["b.py"]),
        ([], []),
    ],
)
def test_what_says_most_is_read_first(paths: list[str], chosen: list[str]) -> None:
    assert worth_reading(paths) == chosen


@pytest.mark.parametrize(
    ("prompt", "word"),
    [("Please explain the scheduler", "scheduler"), ("fix it", None), ("", None), ("Explain there", None)],
)
def test_the_subject_is_the_longest_word_that_says_something(prompt: str, word: str | None) -> None:
    assert subject_of(prompt) == word


def test_the_default_plan_survives_a_listing_that_failed() -> None:
    plan = DefaultPlan("Explain the scheduler")
    assert plan.next_reply([]).calls[0].tool == "list_tree"
    report = plan.next_reply([ToolResult("list_tree", success=False, error="denied", kind="authorization")])
    assert (report.text, report.calls) == ("The workspace holds 0 files.", ())


PROMPT: dict[str, Any] = {"role": "user", "content": "Explain the scheduler"}
LISTED: list[dict[str, Any]] = [
    {"role": "assistant", "content": "I look.", "toolCalls": [{"id": "1", "name": "list_tree", "args": {}}]},
    {"role": "tool", "content": "README.md\nsrc/a.py", "toolCallId": "1"},
]
READING: dict[str, Any] = {
    "role": "assistant",
    "content": "I read.",
    "toolCalls": [{"name": "read_file"}, {"name": "read_file"}],
}
GO_ON_PROMPT: dict[str, Any] = {"role": "user", "content": "Continue."}


def test_a_plan_that_was_stopped_is_taken_up_after_its_complete_steps() -> None:
    prompt, known = unfinished([PROMPT, *LISTED, GO_ON_PROMPT, READING, {"role": "tool", "content": "half"}])
    assert prompt == "Explain the scheduler"
    assert [[(result.tool, result.text) for result in step] for step in known] == [
        [("list_tree", LISTED[1]["content"])]
    ]
    plan = DefaultPlan(prompt, known)
    assert plan.next_reply([]).calls == (Call("read_file", {"path": "README.md"}),)
    assert plan.next_reply([ToolResult("read_file", success=True, output="text")]).calls[0].tool == "search"


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [PROMPT, *LISTED, {"role": "assistant", "content": "It holds 2 files."}],
        [PROMPT, {"role": "assistant", "content": "Nothing."}, {"role": "assistant", "content": "More."}],
    ],
)
def test_a_conversation_that_came_to_its_answer_has_nothing_to_take_up(messages: list[dict[str, Any]]) -> None:
    assert unfinished(messages) == ("", [])


def test_another_prompt_is_a_plan_of_its_own() -> None:
    assert unfinished([PROMPT, *LISTED, {"role": "user", "content": "Look for errors"}]) == ("Look for errors", [])


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ProviderError("m", 429, 2), ("rate_limited", 429, "rate_limit", True)),
        (ProviderError("m", 401), ("auth_failed", 401, "auth", False)),
        (ProviderError("m", 500), ("server_error", -32000, "unknown", True)),
        (ProviderError("m"), ("network_error", -32000, "unknown", True)),
    ],
)
def test_failures_are_told_as_the_cli_tells_them(error: ProviderError, expected: tuple[object, ...]) -> None:
    failure = describe(error)
    told = failure.error
    assert (failure.code, told["code"], told["errorType"], told["recoverable"]) == expected
    assert (failure.rate_limit is not None) == (error.status == 429)
    assert failure.text.endswith("\nm")


@pytest.mark.parametrize(
    ("message", "overflow"),
    [("tokens per minute (TPM) limit", True), ("Token limit", True), ("TPM", True), ("Too many requests", False)],
)
def test_a_429_about_tokens_is_an_overflow(message: str, overflow: bool) -> None:
    assert bool(TOKEN_LIMIT.search(message)) == overflow


@pytest.mark.parametrize(
    ("decision", "allowed", "remembered"),
    [
        ("allow_once", True, None),
        ("deny_once", False, None),
        ("allow_session", True, True),
        ("deny_session", False, False),
        ("allow_always_project", True, True),
        ("deny_always_user", False, False),
    ],
)
def test_a_decision_counts_once_or_for_the_same_command(decision: str, allowed: bool, remembered: bool | None) -> None:
    permissions = Permissions("interactive")
    assert permissions.read("run_command", "ls", {"decision": decision}).allowed == allowed
    assert permissions.known("run_command", "ls") == remembered
    assert permissions.known("run_command", "ls -l") is None
    assert permissions.known("write_file", "ls") is None


def test_no_answer_and_an_empty_alternative_are_denials() -> None:
    permissions = Permissions("interactive")
    assert not permissions.read("t", "s", None).allowed
    assert not permissions.read("t", "s", {"decision": "alternative"}).allowed
    assert not permissions.read("t", "s", {}).allowed


@pytest.mark.parametrize("size", [200, 65_537])
def test_a_padded_line_is_as_long_as_asked(size: int) -> None:
    assert len(json_line(size)) + 1 == size
