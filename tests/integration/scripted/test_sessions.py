"""Saved sessions: what a process leaves behind, and what another one makes of it."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

from tests.integration.scripted.client import Host, params
from tests.integration.scripted.conftest import Start

STEP: dict[str, Any] = {"text": "Reading.", "calls": [{"read_file": {"path": "notes.txt"}}]}


def newest(host: Host) -> dict[str, Any]:
    entry: dict[str, Any] = host.ask("getHistory")["sessions"][0]
    return entry


def test_a_session_killed_at_a_boundary_can_be_attached_with_its_tool_results(start: Start) -> None:
    one = start({"turns": [{"replies": [STEP]}]})
    saved = newest(one)["sessionId"]
    one.ask("prompt", message="the word is pineapple", stopWhen={"mode": "host"})
    one.until("stepEnd")
    one.signal(signal.SIGKILL)
    assert one.exit_code() == -signal.SIGKILL

    other = start({"turns": [{"replies": [{"text": "You said: ${first_prompt}"}]}]})
    history = other.ask("getHistory")["sessions"]
    assert {entry["sessionId"]: entry["status"] for entry in history}[saved] == "active"
    attached = other.ask("session.attach", sessionId=saved)
    assert attached["success"] is True
    assert attached["messageCount"] == 3
    assert other.ask("getState")["sessionId"] == saved
    messages = other.ask("getMessages")["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool"]
    assert messages[2]["content"] == "     1\talpha\n     2\tbeta\n     3\tgamma"
    assert params(other.turn("what was it?"), "messageEnd")[0]["content"] == "You said: the word is pineapple"
    assert len(other.ask("getSession", sessionId=saved)["messages"]) == 5


def test_an_orderly_end_completes_the_session(start: Start) -> None:
    one = start()
    saved = newest(one)["sessionId"]
    one.close_input()
    assert one.exit_code() == 0
    assert newest(start())["sessionId"] != saved
    entries = start().ask("getHistory")["sessions"]
    assert {entry["sessionId"]: entry["status"] for entry in entries}[saved] == "completed"


def test_the_history_comes_in_pages(start: Start) -> None:
    for _ in range(2):
        start()
    host = start()
    page = host.ask("getHistory", page=2, pageSize=2)
    assert (page["currentPage"], page["totalPages"], page["totalItems"], len(page["sessions"])) == (2, 2, 3, 1)


def test_a_torn_last_line_does_not_hide_a_session(start: Start, tmp_path: Path) -> None:
    one = start({"turns": [{"replies": [{"text": "hello"}]}]})
    one.turn("go")
    saved = newest(one)["sessionId"]
    file = tmp_path / "home" / "sessions" / f"{saved}.jsonl"
    with file.open("a") as stream:
        stream.write('{"kind": "mess')
    assert start().ask("session.attach", sessionId=saved)["messageCount"] == 2


def test_a_session_id_is_no_path(start: Start, tmp_path: Path) -> None:
    (tmp_path / "home" / "outside.jsonl").parent.mkdir(exist_ok=True)
    (tmp_path / "home" / "outside.jsonl").write_text('{"kind": "session", "at": 1, "workspace": "/", "model": "m"}\n')
    assert start().ask("session.attach", sessionId="../outside")["message"] == "Session not found: ../outside"


def test_a_reset_keeps_the_saved_session_and_forgets_the_conversation(start: Start) -> None:
    host = start({"turns": [{"replies": [{"text": "one"}]}, {"replies": [{"text": "${messages}"}]}]})
    host.turn("first")
    saved = newest(host)["sessionId"]
    host.ask("reset")
    assert host.ask("getState")["messageCount"] == 1
    assert params(host.turn("second"), "messageEnd")[0]["content"] == "0"
    assert newest(host)["sessionId"] == saved
    assert newest(host)["messageCount"] == 4


def test_a_slow_reset_serves_nothing_meanwhile(start: Start) -> None:
    replies = [{"replies": [{"text": "x"}]}] * 2
    host = start({"timers": {"reset": 0.4}, "turns": replies})
    host.turn("one")
    host.turn("two")
    first = host.send("reset")
    second = host.send("getState")
    answers: list[int] = []
    while len(answers) < 2:
        message = host.message()
        answers += [message["id"]] if "id" in message else []
    assert answers == [first, second]
    assert params(host.seen, "hook.sessionEnd")[-1]["reason"] == "clear"
