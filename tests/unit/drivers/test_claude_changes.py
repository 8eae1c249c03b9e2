"""Changes of the model and the modes while the CLI runs, and texts that go with the answer at a boundary."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.drivers.claude_lines import PROMPT, answers, batch, feed, ready_codec, result, sent, working_codec

from steprail_daemon.core.commands import AnswerBoundary, Interrupt, SendPrompt, SetModel, SetPermissionMode
from steprail_daemon.core.events import AgentErrorReported, BoundaryCancelled, ModelChanged, TurnEnded
from steprail_daemon.core.model import DecisionAction, PermissionMode
from steprail_daemon.drivers.claude.codec import ClaudeCodec

GO_ON = DecisionAction.CONTINUE


@pytest.fixture
def held() -> ClaudeCodec:
    """A codec whose process waits at the boundary `b1`."""
    codec = working_codec()
    feed(codec, batch("b1"))
    codec.data_to_send()
    return codec


def done(request_id: str, **body: Any) -> dict[str, Any]:
    response = {"subtype": "success", "request_id": request_id, "response": body}
    return {"type": "control_response", "response": response}


def refused(request_id: str) -> dict[str, Any]:
    response = {"subtype": "error", "request_id": request_id, "error": "not a recognized model id"}
    return {"type": "control_response", "response": response}


def asked(codec: ClaudeCodec) -> dict[str, Any]:
    """The one request that the codec sends."""
    (line,) = sent(codec)
    assert line["type"] == "control_request"
    request: dict[str, Any] = line
    return request


def test_texts_go_with_the_answer_joined_in_their_order(held: ClaudeCodec) -> None:
    held.send(AnswerBoundary("b1", GO_ON, ('first "one"', "second")))
    note = {"hookEventName": "PostToolBatch", "additionalContext": 'first "one"\n\nsecond'}
    assert answers(held) == [("b1", {"hookSpecificOutput": note})]


def test_a_model_is_confirmed_before_the_boundary_is_answered(held: ClaudeCodec) -> None:
    held.send(AnswerBoundary("b1", GO_ON, ("be brief",), "claude-x"))
    request = asked(held)
    assert request["request"] == {"subtype": "set_model", "model": "claude-x"}
    assert feed(held, done(request["request_id"], model="claude-x")) == [ModelChanged("claude-x")]
    ((boundary_id, answer),) = answers(held)
    assert boundary_id == "b1"
    assert answer["hookSpecificOutput"]["additionalContext"] == "be brief"


def test_a_model_that_is_refused_is_told_and_the_agent_goes_on_with_the_old_one(held: ClaudeCodec) -> None:
    held.send(AnswerBoundary("b1", GO_ON, model="nonsense"))
    (changed,) = feed(held, refused(asked(held)["request_id"]))
    assert changed == ModelChanged("nonsense", "not a recognized model id")
    assert answers(held) == [("b1", {})]


def test_a_stop_waits_for_no_change(held: ClaudeCodec) -> None:
    held.send(SetModel("claude-x"))
    held.data_to_send()
    held.send(AnswerBoundary("b1", DecisionAction.STOP))
    ((_, answer),) = answers(held)
    assert answer["continue"] is False


def test_an_interrupt_while_an_answer_is_kept_back_drops_it(held: ClaudeCodec) -> None:
    held.send(AnswerBoundary("b1", GO_ON, model="claude-x"))
    request = asked(held)
    held.send(Interrupt())
    assert asked(held)["request"] == {"subtype": "interrupt"}
    # The CLI still waited at the boundary, which was answered as far as anybody else knows.
    events = feed(
        held,
        {"type": "control_cancel_request", "request_id": "b1"},
        done(request["request_id"], model="claude-x"),
        result(terminal_reason="aborted_tools", is_error=True),
    )
    assert not any(isinstance(event, BoundaryCancelled) for event in events)
    assert isinstance(events[-1], TurnEnded)
    assert sent(held) == []


def test_several_changes_are_all_confirmed_first(held: ClaudeCodec) -> None:
    held.send(SetPermissionMode(PermissionMode.ASK, plan_mode=True))
    held.send(AnswerBoundary("b1", GO_ON, model="claude-x"))
    mode, model = sent(held)
    assert mode["request"] == {"subtype": "set_permission_mode", "mode": "plan"}
    feed(held, done(model["request_id"], model="claude-x"))
    assert sent(held) == []
    feed(held, done(mode["request_id"], mode="plan"))
    assert answers(held) == [("b1", {})]


def test_between_runs_the_prompt_waits_for_the_change() -> None:
    codec = ready_codec()
    codec.send(SetModel(""))
    codec.send(SendPrompt(PROMPT, "go"))
    request = asked(codec)
    assert request["request"] == {"subtype": "set_model"}
    assert feed(codec, done(request["request_id"], model="claude-own")) == [ModelChanged("claude-own")]
    assert [line["type"] for line in sent(codec)] == ["user"]


@pytest.mark.parametrize("mode", PermissionMode)
def test_modes_differ_for_the_cli_in_whether_it_plans(mode: PermissionMode) -> None:
    codec = ready_codec()
    codec.send(SetPermissionMode(mode, plan_mode=False))
    assert asked(codec)["request"] == {"subtype": "set_permission_mode", "mode": "default"}


def test_a_mode_that_is_refused_is_an_error_of_the_agent() -> None:
    codec = ready_codec()
    codec.send(SetPermissionMode(PermissionMode.ASK, plan_mode=True))
    (told,) = feed(codec, refused(asked(codec)["request_id"]))
    assert isinstance(told, AgentErrorReported)
    assert (told.code, told.will_retry) == ("set_permission_mode", False)
    assert "'plan'" in told.message
