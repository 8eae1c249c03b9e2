"""What the real Claude Code asks before it acts: leave, questions to a person, plans, and what it never asks."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tests.e2e.agent import bash, prompt, results, started

from steprail_daemon.core.commands import AnswerPermission, AnswerQuestion, Interrupt, SetPermissionMode
from steprail_daemon.core.events import (
    BoundaryReached,
    FileModified,
    PermissionAsked,
    PermissionWithdrawn,
    PlanProposed,
    QuestionAsked,
    ToolEnded,
    ToolStarted,
    TurnEnded,
)
from steprail_daemon.core.model import (
    FileChange,
    PermissionAlternative,
    PermissionMode,
    QuestionItemAnswer,
    ToolKind,
    ToolOutcome,
    TurnEndReason,
)
from steprail_daemon.core.policy import DENIAL_MESSAGE
from steprail_daemon.testing.messages_endpoint import MessagesEndpoint, Script, Step, Tool

ASK = PermissionMode.ASK

QUESTIONS = {
    "questions": [
        {
            "question": "Which colour?",
            "header": "Colour",
            "multiSelect": False,
            "options": [{"label": "Red", "description": "warm"}, {"label": "Blue", "description": "cold"}],
        },
        {
            "question": "Which fruits?",
            "header": "Fruits",
            "multiSelect": True,
            "options": [{"label": "Apple", "description": "a"}, {"label": "Pear", "description": "p"}],
        },
    ]
}


def call(name: str, **arguments: Any) -> Step:
    return Step(text="I work.", tools=(Tool(name, arguments),))


def allow(asked: PermissionAsked, alternative: PermissionAlternative | None = None) -> AnswerPermission:
    return AnswerPermission(asked.permission_id, True, "", alternative)


def test_each_of_several_asks_gets_its_own_answer_and_the_boundary_has_every_result(
    claude: Path, tmp_path: Path
) -> None:
    script = Script([bash("touch yes", "touch no", "touch other"), bash("touch a", "touch b")])
    with MessagesEndpoint(script) as endpoint, started(tmp_path, claude, endpoint, mode=ASK) as agent:
        agent.send(prompt("begin"))
        for _ in range(3):
            asked = agent.until(PermissionAsked)
            assert asked.title.startswith("Bash: touch ")
            assert asked.tool_kind is ToolKind.EXECUTE
            if "other" in asked.arguments_json:
                agent.send(allow(asked, PermissionAlternative(command="touch instead")))
            else:
                agent.send(AnswerPermission(asked.permission_id, "yes" in asked.arguments_json, DENIAL_MESSAGE))
        boundary = agent.until(BoundaryReached)
        assert boundary.call_ids == tuple(event.call.call_id for event in agent.of(ToolStarted))
        outcomes = {event.result.call_id: event.result for event in agent.of(ToolEnded)}
        told = [outcomes[call_id].outcome for call_id in boundary.call_ids]
        assert told == [ToolOutcome.SUCCEEDED, ToolOutcome.DENIED, ToolOutcome.SUCCEEDED]
        assert outcomes[boundary.call_ids[1]].error == DENIAL_MESSAGE
        made = {path.name for path in agent.work_directory.iterdir()}
        assert {"yes", "instead"} <= made
        assert not {"no", "other"} & made

        agent.go_on(boundary)
        for _ in range(2):
            agent.send(AnswerPermission(agent.until(PermissionAsked).permission_id, False, DENIAL_MESSAGE))
        boundary = agent.until(BoundaryReached)
        assert len(boundary.call_ids) == 2
        last = agent.of(ToolEnded)[-2:]
        assert {event.result.outcome for event in last} == {ToolOutcome.DENIED}
        agent.stop(boundary)
        assert agent.until(TurnEnded).reason is TurnEndReason.STOP_CONDITION


def test_an_interrupt_withdraws_what_is_asked_and_the_session_goes_on(claude: Path, tmp_path: Path) -> None:
    with (
        MessagesEndpoint(Script([bash("touch a")])) as endpoint,
        started(tmp_path, claude, endpoint, mode=ASK) as agent,
    ):
        agent.send(prompt("begin"))
        asked = agent.until(PermissionAsked)
        agent.send(Interrupt())
        assert agent.until(PermissionWithdrawn).permission_id == asked.permission_id
        before = len(agent.written)
        agent.send(allow(asked))
        assert len(agent.written) == before
        assert agent.until(TurnEnded).reason is TurnEndReason.ABORTED
        assert not (agent.work_directory / "a").exists()
        agent.send(prompt("and now"))
        assert agent.until(TurnEnded).reason is TurnEndReason.COMPLETED


def test_questions_are_put_to_people_and_their_answers_reach_the_model(claude: Path, tmp_path: Path) -> None:
    script = Script([call("AskUserQuestion", **QUESTIONS), call("AskUserQuestion", **QUESTIONS)])
    with MessagesEndpoint(script) as endpoint, started(tmp_path, claude, endpoint, mode=ASK) as agent:
        agent.send(prompt("begin"))
        asked = agent.until(QuestionAsked)
        assert [(item.text, item.header, item.multiple, item.free_text) for item in asked.items] == [
            ("Which colour?", "Colour", False, True),
            ("Which fruits?", "Fruits", True, True),
        ]
        assert [option.label for option in asked.items[0].options] == ["Red", "Blue"]
        answers = (QuestionItemAnswer("1", text="Green, if you can"), QuestionItemAnswer("2", option_ids=("1", "2")))
        agent.send(AnswerQuestion(asked.question_id, answers))
        agent.go_on(agent.until(BoundaryReached))
        second = agent.until(QuestionAsked)
        told = str(results(endpoint)[-1])
        assert '"Which colour?"="Green, if you can"' in told
        assert '"Which fruits?"="Apple, Pear"' in told
        agent.send(AnswerQuestion(second.question_id, None))
        agent.go_on(agent.until(BoundaryReached))
        agent.until(TurnEnded)
        assert agent.of(ToolEnded)[-1].result.outcome is ToolOutcome.DENIED
        assert not agent.of(PermissionAsked)
        assert "Nobody answered" in str(results(endpoint)[-1])


def test_a_plan_is_shown_and_its_acceptance_ends_the_plan_mode(claude: Path, tmp_path: Path) -> None:
    def write_plan(body: dict[str, Any]) -> Step:
        found = re.search(r"/[^ ]*/plans/[\w.-]+\.md", json.dumps(body["messages"]))
        assert found is not None
        return call("Write", file_path=found[0], content="# The plan\n1. Touch.")

    script = Script([write_plan, call("ExitPlanMode"), call("ExitPlanMode", plan="of the call"), bash("touch made")])
    with (
        MessagesEndpoint(script) as endpoint,
        started(tmp_path, claude, endpoint, mode=ASK, plan_mode=True) as agent,
    ):
        agent.send(prompt("begin"))
        agent.go_on(agent.until(BoundaryReached))  # the plan's file is written without asking
        plan = agent.until(PlanProposed)
        asked = agent.until(PermissionAsked)
        assert (plan.text, plan.permission_id) == ("# The plan\n1. Touch.", asked.permission_id)
        assert asked.tool == "ExitPlanMode"
        agent.send(AnswerPermission(asked.permission_id, False, DENIAL_MESSAGE))
        agent.go_on(agent.until(BoundaryReached))
        agent.send(allow(agent.until(PermissionAsked)))
        agent.go_on(agent.until(BoundaryReached))
        asked = agent.until(PermissionAsked)
        assert asked.tool == "Bash"
        agent.send(allow(asked))
        agent.stop(agent.until(BoundaryReached))
        agent.until(TurnEnded)
        assert (agent.work_directory / "made").exists()

        agent.send(SetPermissionMode(ASK, plan_mode=True))
        agent.send(prompt("plan again"))
        agent.until(TurnEnded)
        assert "Plan mode is active" in json.dumps(endpoint.main_requests()[-1].messages[-3:])


def test_what_only_reads_within_the_directory_is_not_asked_and_everything_else_is(claude: Path, tmp_path: Path) -> None:
    inside = str(tmp_path / "work" / "a.txt")
    notebook = str(tmp_path / "work" / "n.ipynb")
    cell: dict[str, Any] = {"cell_type": "code", "id": "c1", "source": "1", "metadata": {}, "outputs": []}
    cells = [cell | {"execution_count": None}]
    empty = json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
    script = Script(
        [
            call("Write", file_path=inside, content="alpha\n"),
            call("Read", file_path=inside),
            call("Edit", file_path=inside, old_string="alpha", new_string="beta"),
            call("Write", file_path=inside, content="gamma\n"),
            bash("ls", "cat a.txt"),
            call("Read", file_path="/etc/hostname"),
            call("Write", file_path=notebook, content=empty),
            call("Read", file_path=notebook),
            call("NotebookEdit", notebook_path=notebook, cell_id="c1", new_source="2"),
            call("Edit", file_path=inside, old_string="not in it", new_string="x"),
        ]
    )
    with (
        MessagesEndpoint(script) as endpoint,
        started(tmp_path, claude, endpoint, mode=PermissionMode.ACCEPT_EDITS) as agent,
    ):
        agent.send(prompt("begin"))
        assert agent.work().reason is TurnEndReason.COMPLETED
        asked = [event.title.replace(f"{agent.work_directory}/", "") for event in agent.of(PermissionAsked)]
        assert asked == [
            "Write: a.txt",
            "Edit: a.txt",
            "Write: a.txt",
            "Read: /etc/hostname",
            "Write: n.ipynb",
            "NotebookEdit: n.ipynb",
        ]
        changes = [(Path(event.path).name, event.change) for event in agent.of(FileModified)]
        assert changes == [
            ("a.txt", FileChange.CREATED),
            ("a.txt", FileChange.MODIFIED),
            ("a.txt", FileChange.MODIFIED),
            ("n.ipynb", FileChange.CREATED),
            ("n.ipynb", FileChange.MODIFIED),
        ]
        assert agent.of(ToolEnded)[-1].result.outcome is ToolOutcome.FAILED


def test_a_session_has_the_tools_and_the_instructions_that_it_was_made_with(claude: Path, tmp_path: Path) -> None:
    with (
        MessagesEndpoint(Script([Step(text="Fine.")])) as endpoint,
        started(
            tmp_path,
            claude,
            endpoint,
            allowed_tools=("Bash", "Read", "Edit"),
            disallowed_tools=("Edit",),
            instructions="--not an option: speak softly",
        ) as agent,
    ):
        agent.send(prompt("begin"))
        agent.until(TurnEnded)
        body = endpoint.main_requests()[0].body
        offered = {tool["name"] for tool in body["tools"]}
        assert {"Bash", "Read"} <= offered
        assert not offered & {"Edit", "Write", "Agent", "AskUserQuestion"}
        assert "--not an option: speak softly" in json.dumps(body["system"])
