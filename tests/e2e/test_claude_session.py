"""What clients say to a run of the real Claude Code, all the way: leave, answers, texts, models, costs."""

from __future__ import annotations

import json
import os
import signal
import uuid
from pathlib import Path

import pytest
from tests.e2e.conftest import stage

from steprail.client import cost
from steprail.errors import NotFound
from steprail.v1 import decisions_pb2, events_pb2, runs_pb2
from steprail_daemon.testing.messages_endpoint import Script, Step, Tool

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

CLIENT_DECIDES = decisions_pb2.Decider(mode=decisions_pb2.DECIDER_MODE_CLIENT)
GO_ON = decisions_pb2.DECISION_ACTION_CONTINUE
COLOUR = {
    "questions": [
        {
            "question": "Which colour?",
            "header": "Colour",
            "multiSelect": False,
            "options": [{"label": "Red", "description": "warm"}, {"label": "Blue", "description": "cold"}],
        }
    ]
}


def bash(*commands: str) -> Step:
    return Step(text="I work.", tools=tuple(Tool("Bash", {"command": each, "description": "run"}) for each in commands))


async def test_a_client_answers_asks_and_gives_texts_and_a_model_with_its_decisions(
    directory: Path, claude: Path
) -> None:
    script = Script(
        [bash("touch first", "touch second"), Step(tools=(Tool("AskUserQuestion", COLOUR),)), Step(text="Blue it is.")]
    )
    async with stage(directory, claude, script, permission_mode="ask") as play:
        session_id = await play.session()
        start = play.client.start_request(session_id, "Begin.", decider=CLIENT_DECIDES)
        permissions, decided = 0, 0
        run = runs_pb2.Run()
        async with play.client.control(start=start, decide=True, events=runs_pb2.CONTROL_EVENTS_NO_EVENTS) as control:
            async for message in control:
                kind = message.WhichOneof("body")
                if kind == "permission_requested":
                    permission = message.permission_requested.permission
                    command = None if "first" in permission.arguments_json.value else "touch other"
                    allow = decisions_pb2.PERMISSION_ANSWER_ALLOW_ONCE if command is None else None
                    await control.answer_permission(permission.permission_id, allow, command=command)
                    permissions += 1
                elif kind == "question_requested":
                    question = message.question_requested.question
                    (item,) = question.items
                    chosen = next(option.option_id for option in item.options if option.label == "Blue")
                    answer = decisions_pb2.QuestionItemAnswer(item_id=item.item_id, option_ids=[chosen])
                    await control.answer_question(question.question_id, [answer])
                elif kind == "decision_requested":
                    step_id = message.decision_requested.step.step_id
                    decided += 1
                    if decided == 1:
                        await control.decide(step_id, GO_ON, guidance="Ask before you paint.", model="claude-haiku-4-5")
                    else:
                        await control.decide(step_id, GO_ON)
                elif kind == "finished":
                    run = message.finished.run
        assert run.state == events_pb2.RUN_STATE_COMPLETED, run
        assert (permissions, decided) == (2, 2)
        assert {path.name for path in play.daemon.workspace.iterdir()} >= {"first", "other"}
        assert not (play.daemon.workspace / "second").exists()
        _, second, third = play.endpoint.main_requests()
        assert "Ask before you paint." in json.dumps(second.messages)
        assert second.body["model"] == "claude-haiku-4-5"
        assert '"Which colour?"="Blue"' in str([block["content"] for block in third.blocks("tool_result")])


async def test_a_steer_reaches_the_model_with_the_next_step_and_a_stop_after_it_is_exact(
    directory: Path, claude: Path
) -> None:
    script = Script([bash("sleep 2"), bash("echo two"), bash("echo three")])
    async with stage(directory, claude, script) as play:
        session_id = await play.session()
        run = await play.client.start_run(session_id, "Begin.", decider=CLIENT_DECIDES)
        play.endpoint.wait_main(1, timeout=30)
        steer_id = await play.client.steer_run(run.run_id, "Mind the tests.")
        await play.client.wait_run(run.run_id, until=runs_pb2.WAIT_UNTIL_NEEDS_ATTENTION)
        step = await play.client.get_step(run.run_id, 1)
        await play.client.submit_decision(run.run_id, step.step_id, GO_ON)
        run = await play.client.wait_run(run.run_id, until=runs_pb2.WAIT_UNTIL_NEEDS_ATTENTION)
        assert "Mind the tests." in json.dumps(play.endpoint.main_requests()[1].messages[-1])
        await play.client.stop_run(run.run_id)
        run = await play.client.wait_run(run.run_id)
        assert run.state == events_pb2.RUN_STATE_STOPPED, run
        assert run.stop_reason.exact
        assert play.model_requests == 2
        delivered = [
            event.steer_delivered.steer_id
            async for event in play.client.watch_run(run.run_id)
            if event.WhichOneof("body") == "steer_delivered"
        ]
        assert delivered == [steer_id]


async def test_a_cost_rule_stops_at_the_step_that_reaches_it(directory: Path, claude: Path) -> None:
    script = Script([bash(f"echo {number}") for number in range(5)])
    async with stage(directory, claude, script) as play:
        session_id = await play.session()
        # 100 tokens in and 20 out are 800 millionths of a dollar at the CLI's list price.
        run = await play.client.start_run(session_id, "Begin.", stop_rules=[cost(1_500)])
        run = await play.client.wait_run(run.run_id)
        assert run.state == events_pb2.RUN_STATE_STOPPED, run
        assert run.step_count == 2
        assert run.stop_reason.exact
        assert run.cost.micro_usd == 1_600
        assert play.model_requests == 2
        again = await play.client.continue_run(run.run_id)
        again = await play.client.wait_run(again.run_id)
        assert (again.step_count, again.cost.micro_usd) == (2, 1_600)


async def test_an_unknown_conversation_cannot_be_taken_up(directory: Path, claude: Path) -> None:
    async with stage(directory, claude, Script([])) as play:
        unknown = str(uuid.uuid4())
        with pytest.raises(NotFound, match=f"RESUME_UNKNOWN: .*{unknown}") as caught:
            await play.client.create_session("claude", str(play.daemon.workspace), resume=unknown)
        assert caught.value.metadata == {"agent_session_id": unknown}
        assert await play.client.list_sessions() == []
        assert play.model_requests == 0


async def test_a_session_whose_conversation_is_gone_fails_to_resume(directory: Path, claude: Path) -> None:
    async with stage(directory, claude, Script([Step(text="Here.")])) as play:
        session = await play.client.create_session("claude", str(play.daemon.workspace))
        run = await play.client.start_run(session.session_id, "Begin.")
        assert (await play.client.wait_run(run.run_id)).state == events_pb2.RUN_STATE_COMPLETED
        os.kill(play.daemon.agent_pid(claude), signal.SIGKILL)
        async for event in play.client.watch_session(session.session_id):
            if event.session_state_changed.state == events_pb2.SESSION_STATE_SUSPENDED:
                break
        session = await play.client.get_session(session.session_id)
        (stored,) = play.daemon.root.rglob(f"{session.agent_session_id}.jsonl")
        stored.unlink()
        run = await play.client.start_run(session.session_id, "Go on.")
        run = await play.client.wait_run(run.run_id)
        assert run.state == events_pb2.RUN_STATE_FAILED
        assert run.failure.reason == "RESUME_FAILED"
        assert play.model_requests == 1
        session = await play.client.get_session(session.session_id)
        assert session.state == events_pb2.SESSION_STATE_BROKEN
