"""Faults that a script switches on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from tests.integration.scripted.client import Host, methods, params
from tests.integration.scripted.conftest import Start

READ: dict[str, Any] = {"calls": [{"read_file": {"path": "notes.txt"}}]}


def faulty(*faults: dict[str, Any]) -> dict[str, Any]:
    return {"turns": [{"replies": [READ, {"text": "said"}], "faults": list(faults)}]}


def begun(host: Host) -> Host:
    host.send("prompt", message="go")
    return host


POINTS = {
    "prompt": (None, "turnStart"),
    "turn_start": ("hook.prePrompt", "hook.preTool"),
    "model": ("hook.prePrompt", "hook.preTool"),
    "tool_start": ("toolStart", "hook.postTool"),
    "tool_end": ("toolEnd", "messageUpdate"),
    "step": ("toolEnd", "messageUpdate"),
    "message": ("messageUpdate", "changesBatchEnd"),
    "turn_end": ("messageUpdate", "changesBatchEnd"),
    "after_turn_end": ("turnEnd", "agentEnd"),
}


@pytest.mark.parametrize("point", POINTS)
def test_an_exit_happens_at_its_point_with_its_code(point: str, start: Start) -> None:
    before, after = POINTS[point]
    host = begun(start(faulty({"at": point, "exit": 9})))
    host.seen += [json.loads(line) for line in host.rest()]
    assert host.exit_code() == 9
    assert before is None or methods(host.seen)[-1] == before
    assert after not in methods(host.seen)


def test_a_fault_at_the_end_of_the_process_comes_before_its_last_word(start: Start) -> None:
    host = start({"faults": [{"at": "shutdown", "exit": 4}]})
    host.close_input()
    host.until("hook.sessionEnd")
    assert host.rest() == []
    assert host.exit_code() == 4


def test_a_fault_at_a_pending_decision_comes_after_the_step(start: Start) -> None:
    host = start(faulty({"at": "step_end", "exit": 5}))
    host.send("prompt", message="go", stopWhen={"mode": "host"})
    host.until("stepEnd")
    assert host.rest() == []
    assert host.exit_code() == 5


def test_a_fault_of_a_reply_is_for_its_step_alone(start: Start) -> None:
    notify = {"at": "step", "notify": {"method": "autohand.mark"}}
    host = start({"turns": [{"replies": [READ, {**READ, "faults": [notify]}, READ]}]})
    seen = [name for name in methods(host.turn("go")) if name in ("toolEnd", "mark")]
    assert seen == ["toolEnd", "toolEnd", "mark", "toolEnd"]


def test_a_model_that_never_answers_can_be_aborted(start: Start) -> None:
    host = begun(start({"turns": [{"replies": [{"hang": True}]}]}))
    host.until("hook.prePrompt")
    host.ask("abort")
    assert host.until("turnEnd")["params"]["reason"] == "aborted"


@pytest.mark.parametrize("name", ["KILL", "TERM", "SEGV"])
def test_a_signal_ends_it(name: str, start: Start) -> None:
    host = begun(start(faulty({"at": "step", "signal": name})))
    assert host.exit_code() == -signal.Signals[f"SIG{name}"]


def test_an_exit_without_a_result_is_an_end_of_output(start: Start) -> None:
    host = begun(start(faulty({"at": "turn_end", "exit": 0})))
    assert b"turnEnd" not in b"".join(host.rest())
    assert host.exit_code() == 0


def test_a_start_can_fail_or_be_late(start: Start) -> None:
    host = start({"faults": [{"at": "start", "exit": 3}]}, ready=False)
    assert host.rest() == []
    assert host.exit_code() == 3
    began = time.monotonic()
    start({"startup": {"delay": 0.5}})
    assert time.monotonic() - began >= 0.5


def test_a_hanging_turn_is_silent_and_deaf_to_an_abort_but_the_process_serves(start: Start) -> None:
    host = begun(start({**faulty({"at": "turn_end", "hang": "turn"}), "timers": {"shutdown": 0.2}}))
    host.until("messageUpdate")
    assert host.ask("abort") == {"success": True}
    assert host.ask("getState")["status"] == "processing"
    assert "turnEnd" not in methods(host.seen)


def test_a_process_that_hangs_after_its_result_heeds_neither_input_nor_sigterm(start: Start) -> None:
    host = begun(start(faulty({"at": "after_turn_end", "hang": "process"})))
    host.until("turnEnd")
    host.send("getState")
    _deaf(host)
    host.close_input()
    host.signal(signal.SIGTERM)
    with pytest.raises(subprocess.TimeoutExpired):
        host.process.wait(0.5)
    assert host._lines.empty()


def _deaf(host: Host) -> None:
    """Wait until the process ignores SIGTERM, as the kernel says."""
    bit = 1 << (signal.SIGTERM - 1)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        status = Path(f"/proc/{host.process.pid}/status").read_text()
        ignored = next(line for line in status.splitlines() if line.startswith("SigIgn"))
        if int(ignored.split()[1], 16) & bit:
            return
    raise AssertionError("SIGTERM is not ignored")


def test_a_delay_is_ended_by_an_abort(start: Start) -> None:
    host = begun(start(faulty({"at": "message", "delay": 600})))
    host.until("messageUpdate")
    host.ask("abort")
    assert host.until("turnEnd")["params"]["reason"] == "aborted"


@pytest.mark.parametrize("size", [65_537, 1_048_577, 16 * 2**20])
@pytest.mark.parametrize("kind", ["line_bytes", "json_line_bytes"])
def test_a_huge_line_has_exactly_its_size(kind: str, size: int, start: Start) -> None:
    host = begun(start(faulty({"at": "turn_start", kind: size})))
    while len(line := host.line() or b"") < 60_000:
        assert line
    assert len(line) == size
    assert (b"{" in line) == (kind == "json_line_bytes")
    assert b"{" not in line or json.loads(line)["method"] == "autohand.hook.notification"
    host.until("turnEnd")


def test_noise_on_stdout_and_stderr_goes_out_as_it_is(start: Start) -> None:
    host = begun(start(faulty({"at": "step", "print": "npm WARN {"}, {"at": "step", "stderr": "oops"})))
    lines = []
    while b"turnEnd" not in (line := host.line() or b""):
        assert line
        lines.append(line)
    assert b"npm WARN {\n" in lines
    host.close_input()
    assert host.errors() == "oops\n"


def test_a_notification_nobody_has_heard_of_is_sent(start: Start) -> None:
    host = begun(start(faulty({"at": "step", "notify": {"method": "autohand.newThing", "params": {"a": [1]}}})))
    assert host.until("newThing")["params"]["a"] == [1]


def test_a_lone_surrogate_goes_out_as_an_escape(start: Start) -> None:
    script = 'turns: [{replies: [{text: "half \\ud83d", calls: [{list_tree: {}}]}, {text: "whole \\U0001F600"}]}]'
    host = start(script)
    host.send("prompt", message="go", stopWhen={"mode": "host"})
    while b"stepEnd" not in (line := host.line() or b""):
        assert line
    assert b'"half \\ud83d"' in line
    step = json.loads(line)["params"]["stepId"]
    assert host.ask("stepDecision", stepId=step, stop=False) == {"success": True}
    assert host.until("messageEnd")["params"]["content"] == "whole \U0001f600"
    assert host.ask("getMessages")["messages"][1]["content"] == "half \ud83d"


@pytest.mark.parametrize(
    "ways",
    [
        {},
        {"setsid": True},
        {"ignore_term": True},
        {"double_fork": True},
        {"setsid": True, "ignore_term": True, "double_fork": True, "keep_stdout": True},
    ],
)
def test_an_orphan_escapes_in_the_ways_it_is_told(ways: dict[str, bool], start: Start, workspace: Path) -> None:
    orphan = {"seconds": 30, "pid_file": "orphan.pid", **ways}
    host = begun(start(faulty({"at": "step", "orphan": orphan}, {"at": "turn_end", "signal": "KILL"})))
    assert host.exit_code() == -signal.SIGKILL
    child = int((workspace / "orphan.pid").read_text())
    try:
        status = Path(f"/proc/{child}/status").read_text()
        ignored = int(next(line for line in status.splitlines() if line.startswith("SigIgn")).split()[1], 16)
        assert bool(ignored & 1 << (signal.SIGTERM - 1)) == bool(ways.get("ignore_term"))
        assert (os.getsid(child) != os.getsid(0)) == bool(ways.get("setsid"))
        if ways.get("keep_stdout"):
            drained = [host.line() for _ in range(host._lines.qsize())]
            assert None not in drained  # stdout has no end yet
            assert host._reader.is_alive()
    finally:
        os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize("retry_after", [None, 2])
def test_a_rate_limit_is_told_with_and_without_its_time(retry_after: int | None, start: Start) -> None:
    error = {"status": 429, "message": "slow down", **({"retry_after": retry_after} if retry_after else {})}
    host = start({"turns": [{"replies": [{"error": error}]}]})
    seen = host.turn("go")
    assert params(seen, "hook.rateLimit")[0].get("retryAfterMs") == (None if retry_after is None else 2_000)
    assert params(seen, "error")[0]["errorType"] == "rate_limit"
    assert params(seen, "turnEnd")[0]["reason"] == "completed"
    assert params(seen, "turnEnd")[0]["tokensUsageStatus"] == "unavailable"


def test_an_exhausted_quota_is_worded_by_the_script(start: Start) -> None:
    error = {
        "status": 429,
        "message": "quota",
        "code": "insufficient_quota",
        "error_type": "quota",
        "recoverable": False,
    }
    seen = start({"turns": [{"replies": [{"error": error}]}]}).turn("go")
    assert params(seen, "hook.rateLimit")[0]["code"] == "insufficient_quota"
    assert (params(seen, "error")[0]["errorType"], params(seen, "error")[0]["recoverable"]) == ("quota", False)


def test_a_network_failure_is_retried_and_then_told(start: Start) -> None:
    script = {"timers": {"retries": [0.01, 0.01]}, "turns": [{"replies": [{"error": {"times": 3}}]}]}
    assert params(start(script).turn("go"), "error")[0]["recoverable"] is True
    script["turns"] = [{"replies": [{"error": {"times": 2}}, {"text": "recovered"}]}]
    assert params(start(script).turn("go"), "messageEnd")[0]["content"] == "recovered"
