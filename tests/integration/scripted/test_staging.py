"""Staged writes: where they are, who sees them, and what ends the staging."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.integration.scripted.client import Host, methods, params
from tests.integration.scripted.conftest import Start


def write(path: str, contents: str = "new\n") -> dict[str, Any]:
    return {"write_file": {"path": path, "contents": contents}}


def script(*replies: list[dict[str, Any]]) -> dict[str, Any]:
    return {"turns": [{"replies": [{"calls": calls} for calls in replies]}]}


def batch(host: Host) -> str:
    return str(params(host.seen, "changesBatchStart")[-1]["batchId"])


def test_a_staged_file_is_not_on_disk_and_later_tools_do_not_see_it(start: Start, workspace: Path) -> None:
    host = start(script([write("a.txt")], [{"read_file": {"path": "a.txt"}}]), "--unrestricted")
    seen = host.turn("go")
    assert params(seen, "toolEnd")[1]["error"] == "File a.txt not found in workspace."
    assert params(seen, "changesBatchEnd")[0]["changeCount"] == 1
    assert not (workspace / "a.txt").exists()
    assert host.ask("changesDecision", batchId=batch(host), action="accept_all")["appliedCount"] == 1
    assert (workspace / "a.txt").read_text() == "new\n"


def test_the_next_prompt_throws_an_undecided_batch_away(start: Start, workspace: Path) -> None:
    host = start(script([write("a.txt")]), "--unrestricted")
    host.turn("go")
    old = batch(host)
    host.turn("and then")
    answer = host.ask("changesDecision", batchId=old, action="accept_all")
    assert answer["success"] is False
    assert "not found or expired" in answer["errors"][0]["error"]
    assert not (workspace / "a.txt").exists()


def test_accepting_everything_ends_the_staging_of_the_turn(start: Start, workspace: Path) -> None:
    host = start(script([write("a.txt")], [write("b.txt")]), "--unrestricted")
    host.send("prompt", message="go", stopWhen={"mode": "host"})
    step = host.until("stepEnd")["params"]["stepId"]
    assert host.ask("changesDecision", batchId=batch(host), action="accept_all")["appliedCount"] == 1
    host.send("stepDecision", stepId=step, stop=False)
    step = host.until("stepEnd")["params"]["stepId"]
    assert {path.name for path in workspace.glob("?.txt")} == {"a.txt", "b.txt"}
    host.send("stepDecision", stepId=step, stop=True)
    assert host.until("changesBatchEnd")["params"]["changeCount"] == 0
    assert methods(host.seen).count("changesBatchUpdate") == 1


def test_selected_changes_alone_are_made(start: Start, workspace: Path) -> None:
    host = start(script([write("a.txt"), write("b.txt")]), "--unrestricted")
    host.turn("go")
    second = params(host.seen, "changesBatchUpdate")[1]["change"]["id"]
    answer = host.ask("changesDecision", batchId=batch(host), action="accept_selected", selectedChangeIds=[second])
    assert answer == {"success": True, "appliedCount": 1, "skippedCount": 1}
    assert {path.name for path in workspace.glob("?.txt")} == {"b.txt"}


def test_rejected_changes_are_not_made(start: Start, workspace: Path) -> None:
    host = start(script([write("notes.txt", "overwritten")]), "--unrestricted")
    host.turn("go")
    change = params(host.seen, "changesBatchUpdate")[0]["change"]
    assert (change["changeType"], change["originalContent"]) == ("modify", "alpha\nbeta\ngamma\n")
    answer = host.ask("changesDecision", batchId=batch(host), action="reject_all")
    assert answer == {"success": True, "appliedCount": 0, "skippedCount": 1}
    assert (workspace / "notes.txt").read_text() == "alpha\nbeta\ngamma\n"


def test_edits_and_deletions_are_changes_too(start: Start, workspace: Path) -> None:
    edit = {"edit_file": {"path": "notes.txt", "old": "beta", "new": "delta"}}
    host = start(script([edit, {"delete_file": {"path": "package.json"}}]), "--unrestricted")
    host.turn("go")
    host.ask("changesDecision", batchId=batch(host), action="accept_all")
    assert (workspace / "notes.txt").read_text() == "alpha\ndelta\ngamma\n"
    assert not (workspace / "package.json").exists()


def test_a_wrong_action_is_refused_by_name(start: Start) -> None:
    error = start().ask("changesDecision", batchId="x", action="maybe")
    assert error["code"] == -32602
    assert "accept_selected" in error["message"]
