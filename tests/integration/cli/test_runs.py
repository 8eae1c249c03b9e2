"""Runs from the command line: shown, stopped, continued, asked about, interrupted."""

import json
import signal
from typing import Any

import anyio
import pytest
from tests.framework.daemon import Daemon
from tests.integration.cli.conftest import LIMIT, Steprail, lines_until

TWO_STEPS = json.dumps({"steps": 2})
MANY_STEPS = json.dumps({"steps": 500, "tool_ms": 20})


def objects(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def run_of(line: str) -> str:
    """Give the id in a line such as `run ID of session ID`."""
    assert line.startswith("run "), line
    return line.split()[1]


def test_a_run_that_completes_has_status_0_and_shows_text_calls_and_results(shared: Steprail) -> None:
    done = shared.run("run", TWO_STEPS)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[-3:] == ["All done.", "completed after 2 steps", "tokens: 300 in, 60 out"]
    assert [line for line in lines if line.startswith("step ")] == ["step 1", "step 2"]
    assert sum(line.startswith("  > Bash ") for line in lines) == 2
    assert lines.count("  < ok") == 2
    assert "\x1b" not in done.stdout


def test_a_stopped_run_has_status_10_and_is_continued_by_the_line_it_prints(shared: Steprail) -> None:
    stopped = shared.run("run", "--stop-when", "steps=1", TWO_STEPS)
    assert stopped.returncode == 10
    lines = stopped.stdout.splitlines()
    assert "step 1  steps 1/1 reached" in lines
    assert lines[-1] == f"go on with: steprail continue {run_of(lines[0])}"
    assert shared.run(*lines[-1].split()[4:], TWO_STEPS).returncode == 0
    second, first = objects(shared.run("runs", "--json").stdout)[:2]
    assert second["run"]["continued_from"] == first["run"]["run_id"] == run_of(lines[0])
    assert (first["run"]["state"], second["run"]["state"]) == ("RUN_STATE_STOPPED", "RUN_STATE_COMPLETED")


def test_json_is_the_run_its_events_in_order_and_the_run_as_it_ended(shared: Steprail) -> None:
    done = shared.run("run", "--json", "--stop-when", "steps=1", TWO_STEPS)
    assert done.returncode == 10
    first, *between, last = objects(done.stdout)
    events = [line["event"] for line in between]
    sequence = [int(event["seq"]) for event in events]
    assert sequence == sorted(set(sequence))
    assert first["run"]["run_id"] == last["run"]["run_id"]
    assert "agent_end" in events[-1]
    assert last["run"]["stop_reason"]["exact"] is True


def test_a_person_is_asked_at_each_step(shared: Steprail) -> None:
    done = shared.run("run", "--ask", json.dumps({"steps": 5}), typed="c\nwhat\ns\n")
    assert done.returncode == 10
    questions = "step 1: [c]ontinue or [s]top? step 2: [c]ontinue or [s]top? "
    assert done.stderr.replace("'what' is neither; accepted: c, continue, s, stop\n", "").startswith(questions)
    assert "stopped after 2 steps" in done.stdout


def test_without_more_input_the_run_stops(shared: Steprail) -> None:
    done = shared.run("run", "--ask", TWO_STEPS)
    assert done.returncode == 10
    assert "there is no more input, so this step is where it stops" in done.stderr


def test_a_decision_from_elsewhere_takes_the_question_back(shared: Steprail) -> None:
    process = shared.start("run", "--ask", json.dumps({"steps": 1}))
    run_id = run_of(lines_until(process, "run ")[-1])
    lines_until(process, "step 1")
    decided = shared.run("decide", run_id, "--step", "1", "continue", "--reason", "looks good")
    assert (decided.returncode, decided.stdout) == (0, "step 1: continue (decided by client: looks good)\n")
    stdout, stderr = process.communicate(timeout=LIMIT)
    assert process.returncode == 0
    assert "decided elsewhere" in stderr
    assert "  continue (decided by client: looks good)" in stdout.splitlines()
    late = shared.run("decide", run_id, "--step", "1", "stop")
    assert late.returncode == 1
    assert late.stderr.rstrip().endswith("(DECISION_NOT_PENDING)")


def test_ctrl_c_once_stops_at_the_next_boundary(shared: Steprail) -> None:
    process = shared.start("run", MANY_STEPS)
    lines_until(process, "step 1")
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=LIMIT)
    assert process.returncode == 10
    assert "stopping at the next step boundary; Ctrl-C again aborts" in stderr
    assert stdout.splitlines()[-1].startswith("go on with: steprail continue ")


def test_ctrl_c_twice_aborts_within_a_step(shared: Steprail) -> None:
    process = shared.start("run", json.dumps({"steps": 1, "tool_ms": 600_000}))
    lines_until(process, "  > Bash")
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    assert process.stderr.readline().startswith("stopping at the next step boundary")
    process.send_signal(signal.SIGINT)
    stdout, _ = process.communicate(timeout=LIMIT)
    assert process.returncode == 11
    assert any(line.startswith("aborted after 0 steps") for line in stdout.splitlines())


def test_a_run_is_watched_stopped_and_shown_from_other_processes(shared: Steprail) -> None:
    running = shared.start("run", MANY_STEPS)
    run_id = run_of(lines_until(running, "run ")[-1])
    watching = shared.start("watch", run_id)
    lines_until(watching, "step 1")
    stopping = shared.run("stop", run_id, "--reason", "seen enough")
    assert (stopping.returncode, stopping.stdout) == (0, f"{run_id} stops at its next step boundary\n")
    for process in (running, watching):
        stdout, _ = process.communicate(timeout=LIMIT)
        assert process.returncode == 10
        assert "seen enough" in stdout
    assert "seen enough" in shared.run("show", run_id).stdout
    ended = shared.run("abort", run_id)
    assert (ended.returncode, ended.stdout) == (0, f"{run_id} has ended: stopped\n")
    assert shared.run("watch", run_id).returncode == 10


def test_leaving_a_watch_leaves_the_run_alone(shared: Steprail) -> None:
    running = shared.start("run", MANY_STEPS)
    run_id = run_of(lines_until(running, "run ")[-1])
    watching = shared.start("watch", run_id)
    lines_until(watching, "step 1")
    watching.send_signal(signal.SIGINT)
    _, stderr = watching.communicate(timeout=LIMIT)
    assert (watching.returncode, stderr) == (130, "")
    assert objects(shared.run("show", run_id, "--json").stdout)[0]["run"]["state"] == "RUN_STATE_RUNNING"
    shared.run("abort", run_id)
    running.communicate(timeout=LIMIT)
    assert running.returncode == 11


def test_a_reader_that_goes_away_ends_the_command_and_leaves_the_run_alone(shared: Steprail) -> None:
    running = shared.start("run", MANY_STEPS)
    run_id = run_of(lines_until(running, "run ")[-1])
    with running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.close()
        assert (running.wait(LIMIT), running.stderr.read()) == (1, "")
    assert objects(shared.run("show", run_id, "--json").stdout)[0]["run"]["state"] == "RUN_STATE_RUNNING"
    shared.run("abort", run_id)


def test_a_failed_run_has_status_1_and_its_reason(shared: Steprail) -> None:
    done = shared.run("run", json.dumps({"steps": 2, "crash_in_step": 1}))
    assert done.returncode == 1
    assert any(line.startswith("failed after 0 steps: AGENT_EXITED: ") for line in done.stdout.splitlines())


def test_a_closed_session_takes_no_run(shared: Steprail) -> None:
    run = objects(shared.run("run", "--json", TWO_STEPS).stdout)[-1]["run"]
    assert shared.run("close", run["session_id"]).stdout == f"{run['session_id']} is closed\n"
    refused = shared.run("continue", run["run_id"], "more")
    assert refused.returncode == 1
    assert refused.stderr.rstrip().endswith("(SESSION_CLOSED)")


@pytest.mark.parametrize("name", ["run_nothing", "ses_nothing"])
def test_watching_what_is_not_there_is_one_sentence(name: str, shared: Steprail) -> None:
    done = shared.run("watch", name)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("steprail: ")
    assert len(done.stderr.splitlines()) == 1


@pytest.fixture
def with_scripted(daemon: Daemon) -> Steprail:
    """Commands with a daemon that has the built-in agent too."""
    daemon.config.write_text(f"{daemon.config.read_text()}\n[agents.scripted]\n")
    anyio.run(daemon.start)
    return Steprail(daemon.environment, daemon.workspace)


def test_what_the_daemon_refuses_is_told_in_the_words_that_were_typed(with_scripted: Steprail) -> None:
    steprail = with_scripted
    wrong = steprail.run("run", "--stop-when", "steps=3", "--stop-when", "expr=step.nummer > 3", "{}")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr.startswith("steprail: the rule 'expr=step.nummer > 3', line 1, column 5: ")
    assert wrong.stderr.endswith(" (RULE_INVALID)\n")
    blind = steprail.run("run", "-a", "scripted", "--stop-when", "finish=stop", "{}")
    assert (blind.returncode, blind.stdout) == (1, "")
    assert blind.stderr == (
        "steprail: the rule 'finish=stop' looks at what this agent never tells (finish_reason); --on-unknown ignore "
        "takes it as one that never matches, --on-unknown stop stops at the first step (CAPABILITY_MISSING)\n"
    )


def test_an_id_that_the_daemon_does_not_know_is_answered_with_one_that_is_like_it(shared: Steprail) -> None:
    shared.run("run", "{}")
    run = objects(shared.run("runs", "--json").stdout)[0]["run"]
    shown = shared.run("show", run["run_id"][:-1])
    asked = f"'{run['run_id'][:-1]}'"
    said = f"steprail: there is no run {asked}; did you mean {run['run_id']}? (RUN_NOT_FOUND)\n"
    assert (shown.returncode, shown.stdout, shown.stderr) == (1, "", said)
    closed = shared.run("close", run["session_id"][:-1])
    assert (closed.returncode, closed.stdout) == (1, "")
    assert closed.stderr.endswith(f"did you mean {run['session_id']}? (SESSION_NOT_FOUND)\n")
