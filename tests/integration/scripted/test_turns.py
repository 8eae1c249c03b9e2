"""A turn from prompt to end: steps and their numbers, tokens, messages, state."""

from __future__ import annotations

from typing import Any

import pytest
from tests.integration.scripted.client import Host, methods, params
from tests.integration.scripted.conftest import Start

HOST_STOPS = {"mode": "host"}
LONG_THOUGHT = "I have looked at the earlier output, and it tells me enough to go on with the next file."


def read(path: str = "notes.txt") -> dict[str, Any]:
    return {"read_file": {"path": path}}


def answered(host: Host, prompt: str, *, stop_at: int | None = None) -> list[dict[str, Any]]:
    """Run a turn with host-side stop; give its steps."""
    begin = len(host.seen)
    host.send("prompt", message=prompt, stopWhen=HOST_STOPS)
    steps = 0
    while (message := host.message()).get("method") != "autohand.turnEnd":
        if message.get("method") == "autohand.stepEnd":
            steps += 1
            host.send("stepDecision", stepId=message["params"]["stepId"], stop=steps == stop_at)
    return params(host.seen[begin:], "stepEnd")


def test_without_a_script_it_looks_around_reads_searches_and_reports(start: Start) -> None:
    host = start()
    steps = answered(host, "Explain what gamma means")
    assert [call["tool"] for step in steps for call in step["step"]["toolCalls"]] == [
        "list_tree",
        "read_file",
        "read_file",
        "search",
    ]
    report = params(host.seen, "messageEnd")[-1]["content"]
    assert "2 files" in report
    assert "'gamma' occurs on 1 line" in report
    assert "notes.txt:3:gamma" in report


def test_an_empty_workspace_is_reported_as_empty(start: Start, workspace: Any) -> None:
    for path in workspace.iterdir():
        path.unlink()
    host = start()
    assert len(answered(host, "Explain everything")) == 1
    assert params(host.seen, "messageEnd")[-1]["content"] == "The workspace holds 0 files."


def test_a_refused_reply_leaves_a_gap_in_the_step_numbers(start: Start) -> None:
    replies = [{"calls": [read()]}, {"calls": [read()]}, {"text": LONG_THOUGHT, "calls": [read("package.json")]}]
    host = start({"guards": True, "turns": [{"replies": replies}]})
    assert [step["step"]["stepNumber"] for step in answered(host, "go")] == [1, 3]


def test_a_retry_begins_the_step_numbers_anew(start: Start) -> None:
    replies = [{"calls": [read()]}, {"error": {"status": 503}}, {"calls": [read("package.json")]}]
    host = start({"timers": {"retries": [0.01]}, "turns": [{"replies": replies}]})
    assert [step["step"]["stepNumber"] for step in answered(host, "go")] == [1, 1]


def test_tokens_are_counted_by_the_formula_of_the_cli_and_by_the_extension(start: Start) -> None:
    used = [{"input_tokens": 1_000, "output_tokens": 50}, {"input_tokens": 1_100, "output_tokens": 70}]
    first = [{"calls": [read()], "usage": {**used[0], "cost_micro_usd": 7, "model": "m"}}, {"usage": used[1]}]
    host = start({"turns": [{"replies": first}, {"replies": [{"text": "x", "usage": used[0]}]}]})
    (step,) = answered(host, "one")
    answered(host, "two")
    ends = params(host.seen, "turnEnd")
    assert step["usage"] == {"input_tokens": 1_000, "output_tokens": 50, "cost_micro_usd": 7, "model": "m"}
    assert [end["tokensUsed"] for end in ends] == [2 * 2_220, 2_220 + 1_050 + 1_050]
    assert ends[0]["usage"] == {"input_tokens": 2_100, "output_tokens": 120}


def test_usage_is_left_out_where_a_reply_states_none_or_the_script_says_so(start: Start) -> None:
    host = start({"turns": [{"replies": [{"calls": [read()], "usage": None}, {"text": "x"}]}]})
    (step,) = answered(host, "one")
    assert "usage" not in step
    assert "usage" not in params(host.seen, "turnEnd")[0]
    host = start({"report_usage": False, "turns": [{"replies": [{"calls": [read()]}]}]})
    assert "usage" not in answered(host, "one")[0]


def test_made_up_usage_grows_with_the_context_and_caches_what_was_sent_before(start: Start) -> None:
    host = start()
    steps = [step["usage"] for step in answered(host, "Explain gamma")]
    assert [step["input_tokens"] for step in steps] == sorted(step["input_tokens"] for step in steps)
    assert steps[0]["cached_input_tokens"] == 0
    assert all(0 < step["cached_input_tokens"] < step["input_tokens"] for step in steps[1:])
    assert all(step["output_tokens"] > 0 and step["model"] == "scripted" for step in steps)


def test_after_the_limit_of_iterations_one_uncounted_reply_ends_the_turn(start: Start) -> None:
    usage = {"input_tokens": 10, "output_tokens": 0}
    replies = [{"calls": [read()], "usage": usage}, {"text": "summary", "calls": [read()], "usage": usage}]
    host = start({"max_iterations": 1, "turns": [{"replies": replies}]})
    seen = host.turn("go")
    assert len(params(seen, "toolStart")) == 1
    assert params(seen, "messageEnd")[0]["content"] == "summary"
    assert params(seen, "turnEnd")[0]["tokensUsed"] == 20
    assert params(seen, "turnEnd")[0]["reason"] == "completed"


def test_the_text_beside_calls_is_a_thought_and_never_a_message(start: Start) -> None:
    host = start({"turns": [{"replies": [{"text": "thinking", "calls": [read()]}, {"text": "said"}]}]})
    (step,) = answered(host, "go")
    assert step["step"]["thought"] == "thinking"
    assert [update["delta"] for update in params(host.seen, "messageUpdate")] == ["said"]


def test_calls_that_do_not_fit_fail_without_tool_events(start: Start) -> None:
    wrong = {"run_command": {"command": "ls", "args": 3}}
    calls = [{"read_file": {"path": 3}}, {"no_such_tool": {}}, wrong, read("missing.txt")]
    host = start({"turns": [{"replies": [{"calls": calls}]}]})
    (step,) = answered(host, "go")
    assert [(result["success"], result["kind"]) for result in step["step"]["toolResults"]] == [
        (False, "validation"),
        (False, "validation"),
        (False, "validation"),
        (False, "operational"),
    ]
    assert [event["toolId"] for event in params(host.seen, "toolStart")] == ["call_4"]


def test_a_failed_command_tells_its_exit_code(start: Start) -> None:
    host = start({"turns": [{"replies": [{"calls": [{"run_command": {"command": "exit 7"}}]}]}]}, "--unrestricted")
    (step,) = answered(host, "go")
    assert step["step"]["toolResults"][0]["exitCode"] == 7
    assert step["step"]["toolResults"][0]["error"] == "Command exited with code 7"


def test_a_busy_agent_refuses_a_prompt_and_serves_the_rest(start: Start) -> None:
    host = start({"turns": [{"replies": [{"hang": True}]}]})
    host.ask("prompt", message="go")
    host.until("turnStart")
    assert host.ask("prompt", message="more") == {"code": -32603, "message": "Agent is already processing"}
    assert host.ask("session.attach", sessionId="x")["message"] == "Agent is already processing"
    assert host.ask("getState")["status"] == "processing"


def test_a_reset_does_not_stop_a_running_prompt(start: Start) -> None:
    host = start({"turns": [{"replies": [{"text": "late", "delay": 0.5}]}]})
    host.ask("prompt", message="go")
    host.until("hook.prePrompt")
    old = host.ask("getState")["sessionId"]
    new = host.ask("reset")["sessionId"]
    assert new != old
    assert host.ask("getState")["status"] == "idle"
    assert host.ask("prompt", message="more")["message"] == "Agent is already processing"
    host.until("turnEnd")
    assert [message["content"] for message in host.ask("getMessages")["messages"]] == ["late"]


def test_the_model_is_not_changed_by_the_method_that_says_so(start: Start) -> None:
    host = start(None, "--model", "from-flag")
    assert host.ask("modelSet", model="another") == {"success": True}
    assert host.ask("getState")["model"] == "from-flag"


def test_pings_come_while_a_turn_runs_and_name_what_it_waits_for(start: Start) -> None:
    calls = [{"run_command": {"command": "true"}}]
    host = start({"timers": {"ping": 0.05}, "turns": [{"replies": [{"calls": calls}]}]})
    host.ask("prompt", message="go")
    host.until("permissionRequest")
    ping = host.until("ping")["params"]
    assert ping["status"] == "waiting_permission"
    assert ping["turnId"] == params(host.seen, "turnStart")[0]["turnId"]


def test_turns_are_picked_by_pattern_and_repeated_as_told(start: Start) -> None:
    turns = [
        {"match": "alpha", "replies": [{"text": "A"}]},
        {"replies": [{"text": "turn ${turn}: ${prompt}"}]},
    ]
    host = start({"repeat": "last", "turns": turns})
    for prompt in ("one", "alpha", "three"):
        host.turn(prompt)
    assert [end["content"] for end in params(host.seen, "messageEnd")] == ["turn 1: one", "A", "turn 3: three"]


@pytest.mark.parametrize("place", ["file", "inline"])
def test_a_prompt_may_bring_its_own_script(place: str, start: Start, workspace: Any) -> None:
    script = "turns: [{replies: [{text: by the prompt}]}]"
    (workspace / "own.yaml").write_text(script)
    prompt = "#!scripted own.yaml\nplease" if place == "file" else f"#!scripted\n{script}"
    host = start({"turns": [{"replies": [{"text": "by the process"}]}]})
    assert params(host.turn(prompt), "messageEnd")[0]["content"] == "by the prompt"
    assert params(host.turn("then"), "messageEnd")[0]["content"] == "by the process"
    wrong = params(host.turn("#!scripted\nturns: 3"), "messageEnd")[0]["content"]
    assert wrong == "script.turns: found 3; expected a list"


def test_a_slash_command_has_no_batch_and_asks_no_model(start: Start) -> None:
    seen = start().turn("/help")
    assert methods(seen) == [
        "turnStart",
        "messageStart",
        "messageUpdate",
        "hook.stop",
        "hook.postResponse",
        "messageEnd",
        "turnEnd",
    ]
