"""A run as lines: the events of one stopped run in, what a person reads out."""

from typing import Any

import click
import pytest

from steprail_daemon.cli.live import EXIT_STATUS, LiveView, end_lines, has_ended, state_of, step_lines, verdict_words


def plain(lines: list[str]) -> list[str]:
    return [click.unstyle(line) for line in lines]


def text(value: str, **more: str) -> dict[str, str]:
    return {"value": value, "full_size": str(len(value)), **more}


VERDICT = {"rule_id": "rule-1", "kind": "STOP_KIND_STEP_COUNT", "observed": "1", "limit": "3"}


def test_the_events_of_a_run_read_as_a_conversation() -> None:
    events: list[dict[str, Any]] = [
        {"run_state_changed": {"state": "RUN_STATE_RUNNING"}},
        {"agent_start": {"agent": "claude", "version": "2.1.332", "model": "opus"}},
        {"turn_start": {}},
        {"message_start": {"message_id": "m1", "kind": "MESSAGE_KIND_TEXT"}},
        {"message_delta": {"message_id": "m1", "text": "I look"}},
        {"message_end": {"message_id": "m0", "kind": "MESSAGE_KIND_THOUGHT", "content": text("hm")}},
        {"message_end": {"message_id": "m1", "kind": "MESSAGE_KIND_TEXT", "content": text("I look\naround.")}},
        {"tool_start": {"call": {"call_id": "1", "tool": "Bash", "arguments_json": text('{"command":\n "ls"}')}}},
        {"tool_end": {"result": {"call_id": "1", "outcome": "TOOL_OUTCOME_SUCCEEDED", "output": text("\na.txt\nb")}}},
        {"step_end": {"step": {"number": "1", "verdicts": [VERDICT]}}},
        {"decision_recorded": {"decision": {"source": "DECISION_SOURCE_AUTO", "action": "DECISION_ACTION_CONTINUE"}}},
        {"something_of_a_newer_version": {}},
    ]
    view = LiveView()
    assert plain([line for event in events for line in view.lines(event)]) == [
        "agent claude 2.1.332 opus",
        "I look",
        "around.",
        '  > Bash {"command": "ls"}',
        "  < a.txt",
        "step 1  steps 1/3",
    ]


def test_a_message_is_shown_line_by_line_and_whole_before_its_calls() -> None:
    view = LiveView()
    assert view.lines({"message_start": {"message_id": "m", "kind": "MESSAGE_KIND_TEXT"}}) == []
    assert view.lines({"message_delta": {"message_id": "m", "text": "One.\nTw"}}) == ["One."]
    assert view.lines({"message_delta": {"message_id": "m", "text": "o."}}) == []
    call = {"call_id": "1", "tool": "Bash"}
    assert plain(view.lines({"tool_start": {"call": call}})) == ["Two.", "  > Bash"]
    whole = {"message_id": "m", "kind": "MESSAGE_KIND_TEXT", "content": text("One.\nTwo.\nThree.")}
    assert view.lines({"message_end": whole}) == ["", "Three."]


def test_a_message_whose_parts_were_not_its_beginning_is_shown_whole() -> None:
    view = LiveView()
    view.lines({"message_start": {"message_id": "m", "kind": "MESSAGE_KIND_TEXT"}})
    view.lines({"message_delta": {"message_id": "m", "text": "Other.\n"}})
    assert view.lines({"message_end": {"message_id": "m", "kind": "MESSAGE_KIND_TEXT", "content": text("A")}}) == ["A"]


def test_what_a_client_decided_is_said_and_a_stop_is_left_to_the_end() -> None:
    decision = {"action": "DECISION_ACTION_CONTINUE", "source": "DECISION_SOURCE_CLIENT"}
    assert LiveView().lines({"decision_recorded": {"decision": decision}}) == ["  continue (decided by client)"]
    assert LiveView().lines({"decision_recorded": {"decision": {**decision, "action": "DECISION_ACTION_STOP"}}}) == []


def test_results_of_calls_made_together_name_their_tools() -> None:
    view = LiveView()
    for number, tool in ("1", "Read"), ("2", "Bash"):
        view.lines({"tool_start": {"call": {"call_id": number, "tool": tool}}})
    failed = {"call_id": "2", "outcome": "TOOL_OUTCOME_FAILED", "error": text("exit 1")}
    denied = {"call_id": "1", "outcome": "TOOL_OUTCOME_DENIED", "error": text("not allowed")}
    assert plain(view.lines({"tool_end": {"result": failed}})) == ["  ! Bash: failed: exit 1"]
    assert plain(view.lines({"tool_end": {"result": denied}})) == ["  x Read: denied: not allowed"]


def test_a_sub_agents_lines_are_set_in() -> None:
    event = {"subagent_id": "s1", "message_end": {"kind": "MESSAGE_KIND_TEXT", "content": text("Found it.")}}
    assert LiveView().lines(event) == ["    Found it."]


def test_a_cut_message_says_so() -> None:
    event = {
        "message_end": {"kind": "MESSAGE_KIND_TEXT", "content": {"value": "abc", "full_size": "99", "blob_id": "b"}}
    }
    assert LiveView().lines(event) == ["abc", "(cut, 99 bytes in all)"]


def test_what_a_terminal_would_obey_does_not_get_into_lines() -> None:
    call = {"call_id": "1", "tool": "Bash", "arguments_json": text('{"command":"\x1b[2J"}')}
    (line,) = plain(LiveView().lines({"tool_start": {"call": call}}))
    assert line == '  > Bash {"command":" [2J"}'
    message = {"kind": "MESSAGE_KIND_TEXT", "content": text("a\x1b]0;title\x07b\tc\rd")}
    assert LiveView().lines({"message_end": message}) == ["a ]0;title b\tc", "d"]


@pytest.mark.parametrize(
    ("verdict", "words"),
    [
        ({**VERDICT, "outcome": "VERDICT_OUTCOME_NOT_MATCHED"}, "steps 1/3"),
        ({**VERDICT, "observed": "3", "outcome": "VERDICT_OUTCOME_MATCHED"}, "steps 3/3 reached"),
        ({"kind": "STOP_KIND_COST", "outcome": "VERDICT_OUTCOME_UNKNOWN", "limit": "2.00"}, "cost ?/2.00"),
        ({"kind": "STOP_KIND_TOOL_CALL", "outcome": "VERDICT_OUTCOME_NOT_MATCHED", "limit": "tool rm*"}, "tool=rm* no"),
        ({"kind": "STOP_KIND_TOOL_CALL", "outcome": "VERDICT_OUTCOME_MATCHED", "limit": "kind EDIT"}, "tool reached"),
        (
            {"kind": "STOP_KIND_FINISH_REASON", "outcome": "VERDICT_OUTCOME_NOT_MATCHED", "limit": "LENGTH or ERROR"},
            "finish=length,error no",
        ),
        ({**VERDICT, "kind": "STOP_KIND_TOKEN_USAGE"}, "tokens 1/3"),
        ({**VERDICT, "kind": "STOP_KIND_TOOL_FAILURES"}, "failures 1/3"),
        ({**VERDICT, "kind": "STOP_KIND_REPETITION"}, "repeats 1/3"),
        ({"kind": "STOP_KIND_ANY_OF", "outcome": "VERDICT_OUTCOME_MATCHED", "limit": "x"}, "any_of reached"),
        (
            {"kind": "STOP_KIND_EXPRESSION", "outcome": "VERDICT_OUTCOME_UNKNOWN", "limit": "step.number > 3"},
            "expr=step.number > 3 ?",
        ),
    ],
)
def test_a_verdict_says_how_near_the_limit_is(verdict: dict[str, str], words: str) -> None:
    assert verdict_words(verdict) == words


def test_a_stopped_run_says_why_and_how_to_go_on() -> None:
    run = {
        "run_id": "run_1",
        "state": "RUN_STATE_STOPPED",
        "step_count": "1",
        "stop_reason": {"kind": "STOP_KIND_STEP_COUNT", "rule_id": "rule-1", "reason": "Limit reached.", "exact": True},
        "usage": {"input_tokens": "10", "output_tokens": "2", "complete": True},
    }
    assert plain(end_lines(run)) == [
        "stopped after 1 step: Limit reached. (rule rule-1)",
        "tokens: 10 in, 2 out",
        "go on with: steprail continue run_1",
    ]


def test_a_late_stop_says_by_how_much() -> None:
    reason = {"kind": "STOP_KIND_STOP_REQUEST", "overshoot_requests": "2"}
    run = {"run_id": "r", "state": "RUN_STATE_STOPPED", "step_count": "3", "stop_reason": reason}
    assert plain(end_lines(run))[0] == "stopped after 3 steps, 2 model requests late: STOP_REQUEST"


def test_a_failed_run_says_what_went_wrong() -> None:
    failure = {"reason": "RATE_LIMITED", "message": "Too many.", "retryable": True}
    run = {"run_id": "r", "state": "RUN_STATE_FAILED", "failure": failure}
    assert plain(end_lines(run))[0] == "failed after 0 steps: RATE_LIMITED: Too many. (the same may succeed later)"


def test_unknown_tokens_are_not_shown_as_zero() -> None:
    run = {"run_id": "r", "state": "RUN_STATE_COMPLETED", "step_count": "2", "usage": {"output_tokens": "5"}}
    assert plain(end_lines(run)) == ["completed after 2 steps", "tokens: 5 out (at least)"]
    assert plain(end_lines({**run, "usage": {"complete": True}}))[1] == "tokens: unknown"


def test_a_stored_step_shows_each_call_with_its_result_and_the_decision() -> None:
    step = {
        "number": "2",
        "text": text("Two files."),
        "tool_calls": [{"call_id": "1", "tool": "Read", "title": "a.txt"}, {"call_id": "2", "tool": "Bash"}],
        "tool_results": [{"call_id": "1", "outcome": "TOOL_OUTCOME_SUCCEEDED", "output": text("alpha")}],
        "verdicts": [{**VERDICT, "observed": "2"}],
        "decision": {"action": "DECISION_ACTION_STOP", "source": "DECISION_SOURCE_CLIENT", "reason": "enough"},
    }
    assert plain(step_lines(step)) == [
        "step 2  steps 2/3",
        "  Two files.",
        "  > Read a.txt",
        "  < alpha",
        "  > Bash",
        "  stop (decided by client: enough)",
    ]


def test_every_terminal_state_has_its_exit_status() -> None:
    assert EXIT_STATUS == {"COMPLETED": 0, "STOPPED": 10, "ABORTED": 11, "FAILED": 1}
    assert has_ended({"state": "RUN_STATE_STOPPED"})
    assert not has_ended({"state": "RUN_STATE_STOPPING"})
    assert state_of({}) == "UNSPECIFIED"
