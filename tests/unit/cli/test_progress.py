"""What goes on in a run as one line: events and a clock in, words out."""

from typing import Any

import pytest

from steprail_daemon.cli.progress import Progress, clock, fit

RULES = [
    {"id": "rule-1", "step_count": {"at_least": "3", "scope": "RULE_SCOPE_RUN"}},
    {"id": "rule-2", "token_usage": {"at_least": "40000"}},
    {"id": "rule-3", "tool_call": {"tool": "rm"}},
    {"id": "rule-4", "step_count": {"at_least": "9", "scope": "RULE_SCOPE_SESSION"}},
]
RUN = {"run_id": "run_1", "state": "RUN_STATE_QUEUED", "spec": {"stop_rules": RULES}}


def state(name: str, **more: object) -> dict[str, Any]:
    return {"run_id": "run_1", "run_state_changed": {"state": f"RUN_STATE_{name}"}, **more}


def tool(call_id: str, name: str = "Bash", step: int = 1) -> dict[str, Any]:
    call = {"call_id": call_id, "tool": name}
    return {"run_id": "run_1", "step_number": str(step), "tool_start": {"call": call}}


def done(call_id: str) -> dict[str, Any]:
    return {"run_id": "run_1", "tool_end": {"result": {"call_id": call_id}}}


def begun() -> Progress:
    progress = Progress()
    progress.began(RUN, 0)
    return progress


def test_a_run_is_told_from_its_queue_to_its_end() -> None:
    progress = begun()
    assert progress.words(2.5) == "2s queued | steps 0/3, tokens 0/40000"
    progress.happened(state("RUNNING"), 3)
    assert progress.words(4) == "1s working | steps 0/3, tokens 0/40000"
    progress.happened(tool("a"), 5)
    assert progress.words(70) == "1m 05s step 1: Bash | steps 0/3, tokens 0/40000"
    progress.happened(done("a"), 71)
    assert progress.words(72).startswith("1s step 1 | ")
    verdict = {"kind": "STOP_KIND_STEP_COUNT", "observed": "1", "limit": "3"}
    step = {"usage": {"total_tokens": "12345"}, "verdicts": [verdict]}
    progress.happened({"run_id": "run_1", "step_end": {"step": step}}, 80)
    assert progress.words(80) == "0s step 1 | 12,345 tokens | steps 1/3"
    progress.happened(state("AWAITING_DECISION"), 81)
    assert progress.words(84) == "3s waits for a decision | step 1 | 12,345 tokens | steps 1/3"
    progress.happened(state("STOPPED"), 90)
    assert progress.words(91) == ""


@pytest.mark.parametrize(
    ("name", "words"),
    [("AWAITING_PERMISSION", "waits for an answer"), ("STOPPING", "stopping"), ("ABORTING", "aborting")],
)
def test_what_is_not_the_agents_work_is_named(name: str, words: str) -> None:
    progress = Progress()
    progress.happened(tool("a"), 0)
    progress.happened(state(name), 1)
    assert progress.words(1) == f"0s {words} | step 1"


def test_of_tools_that_run_together_the_first_is_named_with_its_own_time() -> None:
    progress = begun()
    progress.happened(state("RUNNING"), 0)
    progress.happened(tool("a", "Read"), 1)
    progress.happened(tool("b"), 5)
    assert progress.words(6).startswith("5s step 1: Read and 1 more | ")
    progress.happened(done("a"), 7)
    assert progress.words(8).startswith("3s step 1: Bash | ")


def test_tokens_are_the_larger_of_two_sums_that_are_both_lower_bounds() -> None:
    progress = Progress()
    progress.happened(state("RUNNING"), 0)
    for total in ("100", "50"):
        progress.happened({"run_id": "run_1", "usage": {"usage": {"total_tokens": total}}}, 0)
    assert progress.words(0) == "0s working | 150 tokens"
    progress.happened({"run_id": "run_1", "step_end": {"step": {"usage": {"total_tokens": "120"}}}}, 0)
    assert progress.words(0) == "0s working | 150 tokens"


def test_in_a_session_the_live_run_is_told_and_the_next_one_once_it_has_ended() -> None:
    progress = Progress()
    progress.happened(state("RUNNING"), 0)
    progress.happened(tool("a", step=4), 0)
    queued = {**state("QUEUED"), "run_id": "run_2"}
    progress.happened(queued, 1)
    assert progress.words(2) == "2s step 4: Bash"
    progress.happened(state("COMPLETED"), 3)
    assert progress.words(4) == ""
    progress.happened({**state("RUNNING"), "run_id": "run_2"}, 5)
    assert progress.words(6) == "1s working"


def test_what_a_terminal_would_obey_does_not_get_into_the_words() -> None:
    progress = Progress()
    progress.happened(state("RUNNING"), 0)
    progress.happened(tool("a", "x\x1b[2J\n" + "y" * 100), 0)
    assert "\x1b" not in progress.words(0)
    assert len(progress.words(0)) < 80


@pytest.mark.parametrize(
    ("seconds", "words"), [(-1, "0s"), (0.9, "0s"), (59.9, "59s"), (60, "1m 00s"), (3599, "59m 59s"), (7325, "2h 02m")]
)
def test_spans_are_told_in_whole_units(seconds: float, words: str) -> None:
    assert clock(seconds) == words


@pytest.mark.parametrize(
    ("text", "cells", "cut"),
    [
        ("abcdef", 6, "abcdef"),
        ("abcdef", 5, "abcd~"),
        ("abc", 1, "~"),
        ("abc", 0, ""),
        ("\u65e5\u672c\u8a9e", 6, "\u65e5\u672c\u8a9e"),
        ("\u65e5\u672c\u8a9e", 5, "\u65e5\u672c~"),
        ("\u65e5\u672c\u8a9e", 4, "\u65e5~"),
        ("e\u0301f", 2, "e\u0301f"),
    ],
)
def test_a_line_takes_up_no_more_cells_than_there_are(text: str, cells: int, cut: str) -> None:
    assert fit(text, cells) == cut
