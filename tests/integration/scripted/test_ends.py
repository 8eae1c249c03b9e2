"""How the process ends: on the end of its input, on signals, with and without a running command."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.integration.scripted.client import Starting, params, request
from tests.integration.scripted.conftest import Start

COMMAND = f"echo $$ > pid; {Starting.command} sleep 1; echo alive > survived.txt"
SLOW = {"calls": [{"run_command": {"command": COMMAND}}]}


@pytest.mark.parametrize("cause", [None, signal.SIGTERM, signal.SIGINT])
def test_an_idle_process_ends_in_an_orderly_way(cause: signal.Signals | None, start: Start) -> None:
    host = start()
    host.close_input() if cause is None else host.signal(cause)
    host.until("hook.sessionEnd")
    assert host.until("agentEnd")["params"]["reason"] == "aborted"
    assert host.rest() == []
    assert host.exit_code() == 0
    assert host.errors() == ""


@pytest.mark.parametrize("cause", [None, signal.SIGTERM])
def test_a_pending_decision_is_ended_as_aborted(cause: signal.Signals | None, start: Start) -> None:
    host = start({"turns": [{"replies": [{"calls": [{"list_tree": {}}]}]}]})
    host.ask("prompt", message="go", stopWhen={"mode": "host"})
    host.until("stepEnd")
    host.close_input() if cause is None else host.signal(cause)
    assert host.until("turnEnd")["params"]["reason"] == "aborted"
    host.until("agentEnd")
    assert host.exit_code() == 0


def test_a_running_command_is_waited_for_after_the_last_word(start: Start, workspace: Path) -> None:
    host = start({"timers": {"shutdown": 0.2}, "turns": [{"replies": [SLOW]}]}, "--unrestricted")
    starting = Starting(workspace)
    host.ask("prompt", message="go")
    starting.wait()
    host.signal(signal.SIGTERM)
    host.until("agentEnd")
    assert host.process.poll() is None
    (farewell,) = host.rest()
    assert farewell.startswith(b"Failed in 0m ")
    assert host.exit_code() == 0
    assert (workspace / "survived.txt").exists()


def test_a_second_signal_ends_it_at_once_and_leaves_the_command_running(start: Start, workspace: Path) -> None:
    host = start({"timers": {"shutdown": 0.1}, "turns": [{"replies": [SLOW]}]}, "--unrestricted")
    starting = Starting(workspace)
    host.ask("prompt", message="go")
    starting.wait()
    host.signal(signal.SIGTERM)
    host.until("agentEnd")
    host.signal(signal.SIGTERM)
    assert host.exit_code() == -signal.SIGTERM
    assert not (workspace / "survived.txt").exists()
    assert Path(f"/proc/{(workspace / 'pid').read_text().strip()}").exists()


def test_a_turn_that_ends_within_the_limit_is_not_cut_off(start: Start) -> None:
    host = start({"turns": [{"replies": [{"calls": [{"run_command": {"command": "sleep 0.3"}}]}]}]}, "--unrestricted")
    host.ask("prompt", message="go")
    host.until("toolStart")
    host.close_input()
    host.until("agentEnd")
    assert host.rest() == []
    assert params(host.seen, "toolEnd")[0]["success"] is True
    assert params(host.seen, "turnEnd")[0]["reason"] == "aborted"


def test_prompts_are_taken_while_nobody_reads_what_it_says(workspace: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.yaml"
    script.write_text("{repeat: last, turns: [{replies: [{text_bytes: 2000000}]}]}")
    flags = ["--path", str(workspace), "--home", str(tmp_path / "home"), "--script", str(script)]
    command = [sys.executable, "-m", "steprail_scripted", *flags]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            # A pipe takes 64 KiB: an agent that waited for its reader would not read this megabyte of input either.
            process.stdin.write(request(1, "prompt", {"message": "go"}) + request(2, "noSuchThing", {"x": "y" * 2**20}))
            process.stdin.flush()
            text = b""
            while b"turnEnd" not in text:
                text = process.stdout.readline()
                assert text, "stdout ended"
        finally:
            process.kill()
    assert b"completed" in text
