"""Aborts: where they come too early, where they win, and what they wait for."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from tests.integration.scripted.client import Host, Starting, params, request
from tests.integration.scripted.conftest import Start

READ = {"calls": [{"read_file": {"path": "notes.txt"}}]}
HOST_STOPS = {"mode": "host"}


def assert_wedged(host: Host) -> None:
    assert host.ask("getState")["status"] == "processing"
    host.ask("abort")
    host.ask("reset")
    assert host.ask("prompt", message="again")["message"] == "Agent is already processing"
    assert "autohand.turnStart" not in [message.get("method") for message in host.seen]


def test_prompt_and_abort_in_one_write_wedge_the_process_for_good(start: Start) -> None:
    host = start()
    host.write(request(1001, "prompt", {"message": "go"}) + request(1002, "abort"))
    answers = [host.message(), host.message()]
    assert [answer["result"] for answer in answers] == [{"success": True}, {"success": True}]
    assert_wedged(host)


def test_an_abort_before_the_turn_has_begun_wedges_too(start: Start) -> None:
    host = start({"timers": {"turn_start": 5}})
    host.ask("prompt", message="go")
    assert host.ask("abort") == {"success": True}
    assert_wedged(host)


@pytest.mark.parametrize("abort_first", [True, False])
def test_of_a_decision_and_an_abort_in_one_write_the_abort_wins(abort_first: bool, start: Start) -> None:
    host = start({"turns": [{"replies": [READ]}]})
    host.ask("prompt", message="go", stopWhen=HOST_STOPS)
    step = host.until("stepEnd")["params"]["stepId"]
    both = [request(1001, "abort"), request(1002, "stepDecision", {"stepId": step, "stop": True})]
    host.write(b"".join(both if abort_first else reversed(both)))
    assert host.until("turnEnd")["params"]["reason"] == "aborted"
    assert [message["id"] for message in host.seen if message.get("id") in (1001, 1002)] == (
        [1001, 1002] if abort_first else [1002, 1001]
    )
    assert host.turn("next")


def test_of_two_decisions_on_a_step_one_counts(start: Start) -> None:
    host = start({"turns": [{"replies": [READ]}]})
    host.ask("prompt", message="go", stopWhen=HOST_STOPS)
    step = host.until("stepEnd")["params"]["stepId"]
    decision = {"stepId": step, "stop": True}
    host.write(request(1001, "stepDecision", decision) + request(1002, "stepDecision", {**decision, "stop": False}))
    assert host.until("turnEnd")["params"]["reason"] == "stop_condition"
    answers = {message["id"]: message["result"] for message in host.seen if message.get("id") in (1001, 1002)}
    assert answers == {1001: {"success": True}, 1002: {"success": False}}


def test_without_a_turn_there_is_nothing_to_abort(start: Start) -> None:
    assert start().ask("abort") == {"success": False}


def test_an_abort_in_a_command_waits_until_its_children_let_go_of_the_pipes(start: Start, workspace: Path) -> None:
    starting = Starting(workspace)
    command = f"({starting.command} sleep 0.7); echo done > after.txt"
    host = start({"turns": [{"replies": [{"calls": [{"run_command": {"command": command}}]}]}]}, "--unrestricted")
    host.ask("prompt", message="go")
    starting.wait()
    began = time.monotonic()
    assert host.ask("abort") == {"success": True}
    end = host.until("turnEnd")["params"]
    assert end["reason"] == "aborted"
    assert time.monotonic() - began > 0.3
    assert params(host.seen, "toolEnd")[0]["error"] == "Command execution aborted"
    assert not (workspace / "after.txt").exists()  # the shell is gone, its sleep was waited for
    history = host.ask("getMessages")["messages"]
    assert [message["role"] for message in history] == ["user", "assistant"]  # a call without its result
    assert history[1]["toolCalls"][0]["name"] == "run_command"


def test_a_background_command_outlives_the_turn_in_a_session_of_its_own(start: Start, workspace: Path) -> None:
    call = {"run_command": {"command": "echo $$ > pid; exec sleep 30", "background": True}}
    host = start({"turns": [{"replies": [{"calls": [call]}]}]}, "--unrestricted")
    output = params(host.turn("go"), "toolEnd")[0]["output"]
    child = int(output.rsplit(" ", 1)[1])
    try:
        assert os.getsid(child) == child
    finally:
        os.kill(child, 9)


def test_an_abort_in_a_retry_pause_waits_for_the_pause(start: Start) -> None:
    timers = {"ping": 0.2, "first_reply": 0}
    host = start({"timers": timers, "turns": [{"replies": [{"error": {"status": 500, "retry_after": 0.8}}]}]})
    host.ask("prompt", message="go")
    host.until("ping")  # by now the pause has begun
    began = time.monotonic()
    host.ask("abort")
    assert host.until("turnEnd")["params"]["reason"] == "aborted"
    assert time.monotonic() - began > 0.3


def test_an_abort_in_the_bootstrap_waits_for_it(start: Start) -> None:
    host = start({"turns": [{"bootstrap": {"delay": 0.6}, "replies": [{"text": "never"}]}]})
    host.ask("prompt", message="go")
    host.until("hook.prePrompt")
    began = time.monotonic()
    host.ask("abort")
    assert host.until("turnEnd")["params"]["reason"] == "aborted"
    assert time.monotonic() - began > 0.3
