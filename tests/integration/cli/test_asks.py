"""What the agent asks, from the command line: at a prompt on a terminal, by commands of another process, unattended."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.framework.daemon import STEPRAIL, running_daemon
from tests.integration.cli.conftest import LIMIT, Steprail, lines_until
from tests.integration.cli.terminal import on_a_terminal

ASKS = json.dumps({"steps": 1, "ask_permission": True})
QUESTION = json.dumps({"steps": 1, "ask_question": True})
PROMPT = "allow? [y]es once, [s]ession, [n]o: "


@pytest.fixture(scope="module")
def asking() -> Iterator[Steprail]:
    """Commands with a running daemon whose sessions ask."""
    with running_daemon(permission_mode="ask") as made:
        yield Steprail(made.environment, made.workspace)


def objects(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def pending(steprail: Steprail) -> list[dict[str, Any]]:
    return [line["pending"] for line in objects(steprail.run("pending", "--json").stdout)]


def test_a_person_allows_at_the_prompt_and_the_tool_runs(asking: Steprail) -> None:
    with on_a_terminal(asking, "run", ASKS) as screen:
        request = screen.until(PROMPT)
        assert "? Bash asks for permission" in request
        assert "unanswered, it is denied after 5m" in request
        screen.type("y\n")
        status, rest = screen.end()
    assert status == 0
    assert "Bash: allowed once by " in rest
    assert "  < ok" in rest


def test_ctrl_c_stops_while_a_permission_is_open_and_leaves_it_open(asking: Steprail) -> None:
    with on_a_terminal(asking, "run", json.dumps({"steps": 3, "ask_permission": True})) as screen:
        screen.until(PROMPT)
        screen.type("\x03")
        screen.until("stopping at the next step boundary; Ctrl-C again aborts")
        screen.until(PROMPT)
        screen.type("n\n")
        status, rest = screen.end()
    assert status == 10
    assert "Bash: denied by " in rest
    assert "stopped after 1 step" in rest


def test_ctrl_c_twice_aborts_while_a_permission_is_open(asking: Steprail) -> None:
    with on_a_terminal(asking, "run", ASKS) as screen:
        screen.until(PROMPT)
        screen.type("\x03")
        screen.until(PROMPT)
        screen.type("\x03")
        status, rest = screen.end()
    assert status == 11
    assert "aborted after 0 steps" in rest
    assert pending(asking) == []


def test_a_permission_that_is_answered_elsewhere_takes_the_prompt_back(asking: Steprail) -> None:
    with on_a_terminal(asking, "run", ASKS) as screen:
        screen.until(PROMPT)
        (item,) = pending(asking)
        permission_id = item["permission"]["permission_id"]
        allowed = asking.run("allow", permission_id, "--session")
        assert (allowed.returncode, allowed.stderr) == (0, "")
        assert allowed.stdout.startswith(f"{permission_id}: allowed for the session by ")
        status, rest = screen.end()
    assert status == 0
    assert "Bash: allowed for the session by " in rest
    assert PROMPT not in rest
    late = asking.run("deny", permission_id)
    assert (late.returncode, late.stdout) == (1, "")
    assert late.stderr.startswith(f"steprail: no permission or question '{permission_id}' waits; ")


def test_without_a_terminal_the_run_waits_and_says_how_to_answer(asking: Steprail) -> None:
    process = asking.start("run", "--json", ASKS)
    assert process.stderr is not None
    words = process.stderr.readline().split()
    assert words[:4] == ["answer", "with:", "steprail", "allow"]
    row = asking.run("pending").stdout.splitlines()[1].split()
    assert row[:2] == ["permission", words[4].rstrip(",")]
    denied = asking.run(*words[7:], "--reason", "not today", "--json")
    assert objects(denied.stdout)[0]["permission_resolved"]["answer"] == "PERMISSION_ANSWER_DENY"
    stdout, _ = process.communicate(timeout=LIMIT)
    assert process.returncode == 0
    ends = [line["event"]["tool_end"] for line in objects(stdout) if "tool_end" in line.get("event", {})]
    assert [end["result"]["outcome"] for end in ends] == ["TOOL_OUTCOME_DENIED"]


def test_a_command_in_the_background_of_its_terminal_asks_nobody_there(asking: Steprail) -> None:
    script = f"{STEPRAIL} run '{ASKS}' & wait $!"
    with on_a_terminal(asking, "-mc", script, program="bash") as screen:
        permission_id = screen.until(", or").split()[-2].rstrip(",")
        assert asking.run("allow", permission_id).returncode == 0
        _, rest = screen.end()
    assert PROMPT not in rest
    assert "completed after 1 step" in rest


@pytest.mark.parametrize(("permissions", "said"), [("allow", "allowed once"), ("deny", "denied")])
def test_unattended_runs_answer_at_once(permissions: str, said: str, asking: Steprail) -> None:
    done = asking.run("run", "--permissions", permissions, ASKS)
    assert any(line.startswith(f"  Bash: {said} by ") for line in done.stdout.splitlines())
    assert done.stderr == ""


def test_a_question_is_answered_by_another_process(asking: Steprail) -> None:
    process = asking.start("run", QUESTION)
    lines_until(process, "  ? the agent has a question")
    (item,) = pending(asking)
    question = item["question"]
    choices = ["1" if each.get("options") else "text" for each in question["items"]]
    answered = asking.run("answer", question["question_id"], *choices)
    assert (answered.returncode, answered.stderr) == (0, "")
    stdout, _ = process.communicate(timeout=LIMIT)
    assert process.returncode == 0
    assert any(line.startswith("  question: answered by ") for line in stdout.splitlines())


def test_a_person_answers_a_question_on_the_terminal(asking: Steprail) -> None:
    with on_a_terminal(asking, "run", QUESTION) as screen:
        screen.until("nothing declines): ")
        screen.type("1\n")
        status, rest = screen.end()
    assert status == 0
    assert "question: answered by " in rest


def test_text_for_the_agent_is_taken_and_told(asking: Steprail) -> None:
    process = asking.start("run", "--permissions", "allow", json.dumps({"steps": 2, "tool_ms": 20_000}))
    run_id = lines_until(process, "run ")[-1].split()[1]
    lines_until(process, "  > Bash")
    steered = asking.run("steer", run_id, "Be short.")
    assert (steered.returncode, steered.stderr) == (0, "")
    told = lines_until(process, "  text for the agent by ")[-1]
    assert told.endswith(': "Be short."')
    asking.run("abort", run_id)
    stdout, _ = process.communicate(timeout=LIMIT)
    assert process.returncode == 11
    assert '  the agent did not get the text "Be short."' in stdout
    late = asking.run("steer", run_id, "More.")
    assert late.returncode == 1
    assert late.stderr.rstrip().endswith("(STEER_NOT_POSSIBLE)")
