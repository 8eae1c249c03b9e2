"""Permission questions: timers, what an answer covers, and modes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.integration.scripted.client import Host, methods, params
from tests.integration.scripted.conftest import Start


def commands(*words: str) -> dict[str, Any]:
    return {"turns": [{"replies": [{"calls": [{"run_command": {"command": word}}]} for word in words]}]}


def answered(host: Host, *answers: dict[str, Any]) -> list[str]:
    """Run a turn, answering its questions in order; give the commands that were run."""
    begin = len(host.seen)
    host.send("prompt", message="go")
    left = list(answers)
    while (message := host.message()).get("method") != "autohand.turnEnd":
        if message.get("method") == "autohand.permissionRequest":
            host.send("permissionResponse", requestId=message["params"]["requestId"], **left.pop(0))
    assert left == []
    return [event["args"]["command"] for event in params(host.seen[begin:], "toolStart")]


def test_allow_session_covers_the_same_command_only(start: Start) -> None:
    host = start(commands("echo one", "echo one", "echo two"))
    assert answered(host, {"decision": "allow_session"}, {"decision": "deny_once"}) == ["echo one", "echo one"]


def test_deny_session_covers_the_same_command_only(start: Start) -> None:
    host = start(commands("echo one", "echo one", "echo two"))
    assert answered(host, {"decision": "deny_session"}, {"decision": "allow_once"}) == ["echo two"]


def test_once_is_for_once(start: Start) -> None:
    host = start(commands("echo one", "echo one"))
    assert answered(host, {"allowed": True}, {"decision": "allow_once"}) == ["echo one", "echo one"]


def test_an_alternative_takes_the_place_of_the_command(start: Start) -> None:
    host = start(commands("echo one"))
    assert answered(host, {"decision": "alternative", "alternative": "echo other"}) == ["echo other"]


def test_a_denied_call_has_no_tool_events_and_is_told_in_the_step(start: Start) -> None:
    host = start(commands("echo one"))
    host.send("prompt", message="go", stopWhen={"mode": "host"})
    asked = host.until("permissionRequest")["params"]
    host.send("permissionResponse", requestId=asked["requestId"], allowed=False)
    step = host.until("stepEnd")["params"]["step"]
    assert step["toolResults"][0]["kind"] == "authorization"
    assert not {"toolStart", "toolEnd", "hook.postTool"} & set(methods(host.seen))


def test_all_questions_of_a_step_come_before_its_first_call(start: Start) -> None:
    calls = [{"run_command": {"command": "echo one"}}, {"run_command": {"command": "echo two"}}]
    host = start({"turns": [{"replies": [{"calls": calls}]}]})
    answered(host, {"allowed": True}, {"allowed": True})
    order = [name for name in methods(host.seen) if name in ("permissionRequest", "toolStart")]
    assert order == ["permissionRequest"] * 2 + ["toolStart"] * 2


def test_without_an_acknowledgement_the_short_timer_denies(start: Start) -> None:
    timers = {"permission_unacknowledged": 0.2, "permission_acknowledged": 60}
    host = start({**commands("echo one"), "timers": timers})
    host.send("prompt", message="go")
    asked = host.until("permissionRequest")["params"]["requestId"]
    assert host.until("turnEnd")["params"]["reason"] == "completed"
    assert host.ask("permissionResponse", requestId=asked, allowed=True) == {"success": False}
    assert host.ask("permissionAcknowledged", requestId=asked) == {"success": False}
    assert "toolStart" not in methods(host.seen)


def test_an_acknowledgement_moves_the_question_to_the_long_timer(start: Start) -> None:
    timers = {"permission_unacknowledged": 60, "permission_acknowledged": 0.2}
    host = start({**commands("echo one"), "timers": timers})
    host.send("prompt", message="go")
    asked = host.until("permissionRequest")["params"]["requestId"]
    assert host.ask("permissionAcknowledged", requestId=asked) == {"success": True}
    host.until("turnEnd")
    assert "toolStart" not in methods(host.seen)


def test_restricted_refuses_without_a_question(start: Start) -> None:
    host = start(commands("echo one"), "--restricted")
    assert answered(host) == []
    assert "hook.preTool" not in methods(host.seen)


@pytest.mark.parametrize(
    ("method", "values"),
    [("permissionModeSet", {"mode": "unrestricted"}), ("yoloSet", {"pattern": "ls", "timeoutSeconds": 60})],
)
def test_modes_can_be_set_while_it_runs(method: str, values: dict[str, Any], start: Start) -> None:
    host = start(commands("echo one"))
    assert host.ask(method, **values) == {"success": True}
    assert answered(host) == ["echo one"]


def test_any_mode_is_accepted_and_an_unknown_one_asks(start: Start) -> None:
    host = start(commands("echo one"))
    assert host.ask("permissionModeSet", mode="bogus") == {"success": True}
    assert answered(host, {"allowed": True}) == ["echo one"]


def test_plan_mode_refuses_what_changes_something(start: Start) -> None:
    host = start(commands("echo one"), "--unrestricted")
    assert host.ask("planModeSet", enabled=True) == {"success": True}
    assert answered(host) == []


def test_a_granted_directory_can_be_read_and_a_refused_one_cannot(start: Start, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "file.txt").write_text("outside")
    look = {"calls": [{"read_file": {"path": str(other / "file.txt")}}]}
    ask = {"calls": [{"request_directory_access": {"path": str(other), "reason": "look"}}]}
    host = start({"turns": [{"replies": [ask, look, ask, look]}]})
    host.send("prompt", message="go")
    for granted in (False, True):
        asked = host.until("directoryAccessRequest")["params"]["requestId"]
        assert host.ask("directoryAccessResponse", requestId=asked, granted=granted) == {"success": True}
    host.until("turnEnd")
    assert [event["success"] for event in params(host.seen, "toolEnd")] == [False, False, True, True]
