"""Examples of one run: stop, look and continue, and the review of each step by a person."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.framework.examples import Examples, script

THREE = script(
    {"text": "first", "calls": [{"run_command": {"command": "echo one >> count"}}]},
    {"text": "second", "calls": [{"run_command": {"command": "echo two >> count"}}]},
    {"text": "all done"},
)


def count(examples: Examples) -> list[str]:
    path = examples.cwd / "count"
    return path.read_text().split() if path.exists() else []


# Stop, look, continue


def test_a_run_is_stopped_looked_at_and_goes_on(examples: Examples) -> None:
    done = examples.run("stop_look_continue", "Look around", "--agent", "scripted")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[:4] == [
        "step 1: I look at what the workspace holds before anything else.",
        '  > list_tree {"path":"."}',
        "  < notes.txt",
        "stopped: Completed steps of the run: 1, limit 1.",
    ]
    assert done.stdout.splitlines()[4].startswith("RUN_STATE_COMPLETED after 2 steps: The workspace holds 1 file.")


def test_the_agent_does_nothing_while_it_is_looked_at_and_then_what_it_is_told(examples: Examples) -> None:
    then = script({"text": "and on, after ${messages} messages"})
    done = examples.run("stop_look_continue", THREE, "--then", then, "--agent", "scripted")
    assert done.returncode == 0
    assert count(examples) == ["one"]
    assert done.stdout.endswith("RUN_STATE_COMPLETED after 0 steps: and on, after 3 messages\n")


def test_a_run_that_is_done_at_once_is_reported_as_it_is(examples: Examples) -> None:
    done = examples.run("stop_look_continue", script({"text": "42"}), "--agent", "scripted")
    assert (done.returncode, done.stdout) == (0, "RUN_STATE_COMPLETED after 0 steps: 42\n")


def test_a_run_that_fails_is_told_with_its_reason(examples: Examples) -> None:
    prompt = script({"error": {"status": 401, "message": "who are you?"}})
    done = examples.run("stop_look_continue", prompt, "--agent", "scripted")
    assert done.returncode == 1
    assert done.stdout.startswith("RUN_STATE_FAILED after 0 steps")
    assert done.stderr.startswith("stop_look_continue: AUTH_FAILED: ")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(("options", "made"), [((), False), (("--allow",), True)])
def test_permission_is_given_only_where_the_user_said_so(
    options: tuple[str, ...], made: bool, examples: Examples
) -> None:
    prompt = script({"text": "t", "calls": [{"run_command": {"command": "touch made"}}]}, {"text": "tried"})
    done = examples.run("stop_look_continue", prompt, "--agent", "asking", *options)
    assert (done.returncode, (examples.cwd / "made").exists()) == (0, made)


def test_what_a_tool_gives_does_not_control_the_terminal(examples: Examples) -> None:
    prompt = script({"text": "t", "calls": [{"run_command": {"command": r"printf '\033[2Jgone'"}}]}, {"text": "ok"})
    done = examples.run("stop_look_continue", prompt, "--agent", "scripted")
    assert done.returncode == 0
    assert "\x1b" not in done.stdout
    assert "[2Jgone" in done.stdout


def test_it_works_with_claude_which_goes_on_by_itself(examples: Examples) -> None:
    done = examples.run("stop_look_continue", json.dumps({"steps": 2}))
    assert (done.returncode, done.stderr) == (0, "")
    assert "stopped: Completed steps of the run: 1, limit 1." in done.stdout
    assert "RUN_STATE_COMPLETED" in done.stdout


def test_a_directory_that_is_not_there_is_named(examples: Examples) -> None:
    done = examples.run("stop_look_continue", "x", "--agent", "scripted", "--cwd", "nowhere")
    assert (done.returncode, done.stdout) == (1, "")
    assert f"CWD_INVALID: cwd '{examples.cwd}/nowhere'" in done.stderr


# Review of each step


def test_without_a_terminal_a_run_stops_after_its_first_step(examples: Examples) -> None:
    done = examples.run("review_steps", THREE, "--agent", "scripted")
    assert (done.returncode, done.stderr) == (10, "")
    assert count(examples) == ["one"]
    assert "RUN_STATE_STOPPED after 1 steps" in done.stdout


@pytest.mark.parametrize(("answer", "status", "counted"), [("yes", 0, ["one", "two"]), ("no", 10, ["one"])])
def test_answers_can_be_given_beforehand(answer: str, status: int, counted: list[str], examples: Examples) -> None:
    done = examples.run("review_steps", THREE, "--agent", "scripted", "--answer", answer)
    assert (done.returncode, count(examples)) == (status, counted)


def test_answers_given_beforehand_are_answers_to_permissions_too(examples: Examples) -> None:
    prompt = script({"text": "t", "calls": [{"run_command": {"command": "touch made"}}]}, {"text": "tried"})
    assert examples.run("review_steps", prompt, "--agent", "asking", "--answer", "no").returncode == 10
    assert not (examples.cwd / "made").exists()
    assert examples.run("review_steps", prompt, "--agent", "asking", "--answer", "yes").returncode == 0
    assert (examples.cwd / "made").exists()


def test_a_person_sees_each_step_and_is_asked_until_the_answer_is_one(examples: Examples) -> None:
    with examples.on_a_terminal("review_steps", THREE, "--agent", "scripted") as screen:
        seen = screen.until("Go on? (y or n) ")
        assert '  > run_command {"command":"echo one >> count"}' in seen
        assert count(examples) == ["one"]
        screen.type("perhaps\n")
        screen.until("Go on? (y or n) ")
        screen.type("Y\n")
        screen.until("Go on? (y or n) ")
        assert count(examples) == ["one", "two"]
        screen.type("n\n")
        status, rest = screen.end()
    assert status == 10
    assert "RUN_STATE_STOPPED after 2 steps" in rest


def test_a_person_gives_permission_after_seeing_all_of_what_is_asked_for(examples: Examples) -> None:
    command = "touch made; : " + "x" * 100_000
    prompt = script({"text": "t", "calls": [{"run_command": {"command": command}}]}, {"text": "tried"})
    with examples.on_a_terminal("review_steps", prompt, "--agent", "asking") as screen:
        seen = screen.until("Allow it? (y or n) ")
        assert seen.count("x") >= 100_000
        assert not (examples.cwd / "made").exists()
        screen.type("y\n")
        screen.until("Go on? (y or n) ")
        assert (examples.cwd / "made").exists()
        screen.type("y\n")
        status, _ = screen.end()
    assert status == 0


def test_the_end_of_what_is_typed_is_a_no(examples: Examples) -> None:
    with examples.on_a_terminal("review_steps", THREE, "--agent", "scripted") as screen:
        screen.until("Go on? (y or n) ")
        screen.type("\x04")
        assert screen.end()[0] == 10


def test_ctrl_c_stops_the_run_and_leaves(examples: Examples) -> None:
    with examples.on_a_terminal("review_steps", THREE, "--agent", "scripted") as screen:
        screen.until("Go on? (y or n) ")
        screen.type("\x03")
        status, rest = screen.end()
    assert status == 130
    assert "Traceback" not in rest
    assert count(examples) == ["one"]


def test_a_text_is_told_to_the_model_where_the_agent_takes_it(examples: Examples, tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    prompt = json.dumps({"steps": 2, "calls": str(calls)})
    with examples.on_a_terminal("review_steps", prompt) as screen:
        screen.until("Go on? (y, n or a text) ")
        screen.type("mind the gap\n")
        screen.until("Go on? (y, n or a text) ")
        screen.type("y\n")
        status, _ = screen.end()
    assert status == 0
    assert "mind the gap" in calls.read_text()


def test_a_question_of_the_agent_is_put_to_the_person(examples: Examples) -> None:
    with examples.on_a_terminal("review_steps", json.dumps({"steps": 1, "ask_question": True})) as screen:
        screen.until("Your answer? (y, n or a text) ")
        screen.type("whatever you like\n")
        screen.until("Go on? ")
        screen.type("y\n")
        assert screen.end()[0] == 0
