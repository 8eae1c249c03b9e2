"""What the CLI asks before it uses a tool, and how it wants each answer."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.unit.drivers.claude_lines import answers, assistant, feed, result, sent, tool_result, working_codec

from steprail_daemon.core.commands import AnswerPermission, AnswerQuestion
from steprail_daemon.core.events import (
    FileModified,
    PermissionAsked,
    PermissionWithdrawn,
    PlanProposed,
    QuestionAsked,
    QuestionWithdrawn,
    ToolEnded,
)
from steprail_daemon.core.model import (
    FileChange,
    PermissionAlternative,
    QuestionItemAnswer,
    QuestionOption,
    ToolKind,
    ToolOutcome,
)
from steprail_daemon.core.policy import DENIAL_MESSAGE
from steprail_daemon.drivers.claude.codec import ClaudeCodec

COLOURS = [{"label": "Red", "description": "warm"}, {"label": "Blue", "description": "cold"}]


@pytest.fixture
def working() -> ClaudeCodec:
    codec = working_codec()
    codec.data_to_send()
    return codec


def ask(tool: str, given: dict[str, Any], request_id: str = "p1", call_id: str = "t1", **fields: Any) -> dict[str, Any]:
    request = {"subtype": "can_use_tool", "tool_name": tool, "input": given, "tool_use_id": call_id, **fields}
    return {"type": "control_request", "request_id": request_id, "request": request}


def question(text: str = "Which colour?", *, multiple: bool = False) -> dict[str, Any]:
    return {"question": text, "header": "Colour", "multiSelect": multiple, "options": COLOURS}


def withdrawn(request_id: str = "p1") -> dict[str, Any]:
    return {"type": "control_cancel_request", "request_id": request_id}


class TestPermissions:
    def test_it_is_told_with_its_kind_its_agent_and_a_title_of_one_line(self, working: ClaudeCodec) -> None:
        given = {"command": "echo a\n\techo b", "description": "x"}
        (asked,) = feed(working, ask("Bash", given, agent_id="a1"))
        assert asked == PermissionAsked(
            "p1", "t1", "Bash", json.dumps(given), "a1", ToolKind.EXECUTE, "Bash: echo a echo b"
        )

    def test_asks_at_the_same_time_are_answered_each_by_its_id(self, working: ClaudeCodec) -> None:
        feed(working, *[ask("Bash", {"command": f"touch {n}"}, f"p{n}", f"t{n}") for n in range(3)])
        working.send(AnswerPermission("p2", allow=False, message="no"))
        working.send(AnswerPermission("p0", allow=True, message=""))
        assert answers(working) == [
            ("p2", {"behavior": "deny", "message": "no"}),
            ("p0", {"behavior": "allow", "updatedInput": {"command": "touch 0"}}),
        ]
        assert not working.eof_is_safe()

    def test_another_command_replaces_the_command_alone(self, working: ClaudeCodec) -> None:
        feed(working, ask("Bash", {"command": "rm a", "timeout": 5}))
        working.send(AnswerPermission("p1", True, "", PermissionAlternative(command="ls a")))
        assert answers(working) == [("p1", {"behavior": "allow", "updatedInput": {"command": "ls a", "timeout": 5}})]

    def test_other_arguments_replace_all(self, working: ClaudeCodec) -> None:
        feed(working, ask("Write", {"file_path": "a", "content": "x"}))
        working.send(AnswerPermission("p1", True, "", PermissionAlternative(arguments_json='{"file_path": "b"}')))
        assert answers(working) == [("p1", {"behavior": "allow", "updatedInput": {"file_path": "b"}})]

    @pytest.mark.parametrize(
        ("given", "alternative"),
        [
            ({"file_path": "a"}, PermissionAlternative(command="ls")),
            ({"command": ["ls"]}, PermissionAlternative(command="ls")),
            ({"command": "ls"}, PermissionAlternative(arguments_json="[1]")),
            ({"command": "ls"}, PermissionAlternative(arguments_json="no json")),
        ],
    )
    def test_an_alternative_that_the_tool_cannot_take_runs_nothing(
        self, working: ClaudeCodec, given: dict[str, Any], alternative: PermissionAlternative
    ) -> None:
        feed(working, ask("Some", given))
        working.send(AnswerPermission("p1", True, "", alternative))
        assert answers(working) == [("p1", {"behavior": "deny", "message": DENIAL_MESSAGE})]

    def test_the_end_of_the_turn_ends_what_is_asked(self, working: ClaudeCodec) -> None:
        feed(working, ask("Bash", {"command": "ls"}), result(terminal_reason="aborted_tools", is_error=True))
        working.send(AnswerPermission("p1", True, ""))
        assert sent(working) == []
        assert working.eof_is_safe()


class TestQuestions:
    def test_its_items_have_options_and_a_text_of_ones_own(self, working: ClaudeCodec) -> None:
        (asked,) = feed(working, ask("AskUserQuestion", {"questions": [question(), question("Why?", multiple=True)]}))
        assert isinstance(asked, QuestionAsked)
        assert (asked.question_id, asked.call_id) == ("p1", "t1")
        assert [(item.item_id, item.text, item.header, item.multiple) for item in asked.items] == [
            ("1", "Which colour?", "Colour", False),
            ("2", "Why?", "Colour", True),
        ]
        assert all(item.free_text and not item.secret for item in asked.items)
        assert asked.items[0].options == (QuestionOption("1", "Red", "warm"), QuestionOption("2", "Blue", "cold"))
        assert not working.eof_is_safe()

    def test_answers_go_by_the_questions_texts_and_the_rest_of_the_input_stays(self, working: ClaudeCodec) -> None:
        given = {"questions": [question(), question("Why?", multiple=True)], "metadata": {"source": "x"}}
        feed(working, ask("AskUserQuestion", given))
        chosen = (QuestionItemAnswer("2", ("1", "2"), "and green"), QuestionItemAnswer("1", ("2",)))
        working.send(AnswerQuestion("p1", chosen))
        said = {"Which colour?": "Blue", "Why?": "Red, Blue, and green"}
        assert answers(working) == [("p1", {"behavior": "allow", "updatedInput": given | {"answers": said}})]
        working.send(AnswerQuestion("p1", chosen))
        assert sent(working) == []

    def test_one_that_nobody_answers_is_denied_with_a_neutral_text(self, working: ClaudeCodec) -> None:
        feed(working, ask("AskUserQuestion", {"questions": [question()]}))
        working.send(AnswerQuestion("p1", None))
        ((_, answer),) = answers(working)
        assert answer["behavior"] == "deny"
        assert "Nobody answered" in answer["message"]
        (ended,) = feed(working, tool_result("Nobody answered.", is_error=True))
        assert isinstance(ended, ToolEnded)
        assert ended.result.outcome is ToolOutcome.DENIED

    @pytest.mark.parametrize(
        "given", [{}, {"questions": []}, {"questions": [question(), question()]}, {"questions": "which?"}]
    )
    def test_what_cannot_be_put_to_anybody_is_denied_at_once(self, working: ClaudeCodec, given: dict[str, Any]) -> None:
        assert feed(working, ask("AskUserQuestion", given)) == []
        ((_, answer),) = answers(working)
        assert answer["behavior"] == "deny"

    def test_one_that_was_withdrawn_is_told_and_not_answered(self, working: ClaudeCodec) -> None:
        _, told = feed(working, ask("AskUserQuestion", {"questions": [question()]}), withdrawn())
        assert told == QuestionWithdrawn("p1")
        working.send(AnswerQuestion("p1", None))
        assert sent(working) == []


class TestPlans:
    def test_the_plan_of_the_file_is_shown_with_the_permission_that_accepts_it(self, working: ClaudeCodec) -> None:
        proposed, asked = feed(working, ask("ExitPlanMode", {"plan": "# P", "planFilePath": "/p.md"}))
        assert proposed == PlanProposed("# P", "p1")
        assert isinstance(asked, PermissionAsked)
        assert asked.permission_id == "p1"

    def test_without_a_file_the_plan_of_the_call_is_shown(self, working: ClaudeCodec) -> None:
        call = {"type": "tool_use", "id": "t1", "name": "ExitPlanMode", "input": {"plan": "of the call"}}
        *_, proposed, _ = feed(working, assistant(call), ask("ExitPlanMode", {}))
        assert proposed == PlanProposed("of the call", "p1")

    def test_one_that_was_withdrawn_is_a_permission_that_was(self, working: ClaudeCodec) -> None:
        assert feed(working, ask("ExitPlanMode", {}), withdrawn())[-1] == PermissionWithdrawn("p1")


class TestFiles:
    @pytest.mark.parametrize(
        ("tool", "given", "told", "change"),
        [
            ("Write", {"file_path": "a"}, {"type": "create", "originalFile": None}, FileChange.CREATED),
            ("Write", {"file_path": "a"}, {"type": "update", "originalFile": "x"}, FileChange.MODIFIED),
            ("Edit", {"file_path": "a"}, {"originalFile": "x"}, FileChange.MODIFIED),
            ("Edit", {"file_path": "a"}, {"originalFile": "", "oldString": ""}, FileChange.MODIFIED),
            ("NotebookEdit", {"notebook_path": "a"}, {"original_file": "{}"}, FileChange.MODIFIED),
            ("Edit", {"file_path": "a"}, "a text", FileChange.MODIFIED),
        ],
    )
    def test_a_file_that_a_call_changed_is_told_after_its_result(
        self, working: ClaudeCodec, tool: str, given: dict[str, Any], told: Any, change: FileChange
    ) -> None:
        feed(working, assistant({"type": "tool_use", "id": "t1", "name": tool, "input": given}))
        ended, modified = feed(working, tool_result("ok", tool_use_result=told))
        assert isinstance(ended, ToolEnded)
        assert modified == FileModified("a", change, "t1")

    def test_a_call_that_failed_or_that_edits_nothing_changes_no_file(self, working: ClaudeCodec) -> None:
        feed(working, assistant({"type": "tool_use", "id": "t1", "name": "Edit", "input": {"file_path": "a"}}))
        assert len(feed(working, tool_result("not found", is_error=True))) == 1
        feed(working, assistant({"type": "tool_use", "id": "t1", "name": "Read", "input": {"file_path": "a"}}))
        assert len(feed(working, tool_result("text"))) == 1
