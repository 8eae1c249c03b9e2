"""The traps of the Autohand CLI, one test each, and what the codec owes the engine."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.unit.drivers.autohand_agent import PROCESS, Agent, answer, line
from tests.unit.drivers.autohand_recordings import SAVED

from steprail_daemon.core.commands import (
    AnswerBoundary,
    AnswerPermission,
    Interrupt,
    SendPrompt,
    SetPermissionMode,
)
from steprail_daemon.core.events import (
    AgentErrorReported,
    AgentEvent,
    AgentReady,
    BoundaryReached,
    MessageDelta,
    MessageEnded,
    MessageStarted,
    PermissionAsked,
    PermissionWithdrawn,
    PromptConfirmed,
    ProtocolFailed,
    RateLimited,
    RawReceived,
    ToolEnded,
    ToolStarted,
    TurnEnded,
)
from steprail_daemon.core.model import (
    Cost,
    CostBasis,
    DecisionAction,
    FailureFault,
    MessageKind,
    PermissionAlternative,
    PermissionMode,
    RateLimitKind,
    ToolOutcome,
    TurnEndReason,
    Usage,
)
from steprail_daemon.drivers.autohand.handshake import own_session
from steprail_daemon.drivers.autohand.reading import SavedSession
from steprail_daemon.drivers.base import Channel

GO_ON = AnswerBoundary("s1", DecisionAction.CONTINUE)
STOP = AnswerBoundary("s1", DecisionAction.STOP)
BUSY = {"code": -32603, "message": "Agent is already processing"}


def of(events: list[AgentEvent], *kinds: type) -> list[Any]:
    return [event for event in events if isinstance(event, kinds)]


def methods(requests: list[dict[str, Any]]) -> list[str]:
    return [request["method"].removeprefix("autohand.") for request in requests]


def ended(events: list[AgentEvent]) -> TurnEnded:
    (event,) = of(events, TurnEnded)
    assert isinstance(event, TurnEnded)
    return event


# --- the start ----------------------------------------------------------------------------------------------------


def test_nothing_is_sent_before_the_agent_says_that_it_is_up() -> None:
    agent = Agent()
    assert agent.sent() == []
    assert list(agent.begin()) == ["getHistory", "permissionModeSet"]


def test_it_is_ready_once_all_of_the_handshake_is_answered() -> None:
    agent = Agent()
    requests = agent.begin()
    saved = "57a36ff1-d575-4ad4-92ad-8f75f156ab75-1796030540560"
    entry = {"sessionId": saved, "messageCount": 0, "status": "active"}
    assert agent.say(answer(requests["permissionModeSet"]["id"], {"success": True})) == []
    (ready,) = agent.say(answer(requests["getHistory"]["id"], {"sessions": [entry]}))
    assert ready == AgentReady("", saved, "m", gate_held=True)


def test_the_saved_id_is_not_the_one_of_the_start_and_goes_with_the_prompt() -> None:
    agent = Agent().ready()
    (request,) = agent.send(SendPrompt("p1", "do it"))
    (confirmed,) = agent.say(answer(request["id"], {"success": True}), line("turnStart", turnId="t1"))
    assert isinstance(confirmed, PromptConfirmed)
    assert confirmed.agent_session_id.endswith("-1796030540560")
    assert confirmed.agent_session_id != PROCESS


def made(at: int, count: int = 0, status: str = "active") -> SavedSession:
    return SavedSession(f"id-{at}", count, status)


@pytest.mark.parametrize(
    ("sessions", "found"),
    [
        ([made(1796030540560)], "id-1796030540560"),
        ([made(1796030540560), made(1796030540100)], ""),
        ([made(1796030540560), made(1796030540500, count=2)], "id-1796030540560"),
        ([made(1796030540560), made(1796030540500, status="completed")], "id-1796030540560"),
        ([made(1796030540700), made(1796030540560)], "id-1796030540560"),
        ([made(1796030540560), made(1796030500000)], "id-1796030540560"),
        ([], ""),
    ],
)
def test_of_two_sessions_that_may_be_the_own_one_none_is_taken(sessions: list[SavedSession], found: str) -> None:
    assert own_session(sessions, PROCESS) == found


def test_an_agent_that_tells_its_saved_id_is_not_asked_for_it() -> None:
    agent = Agent()
    agent.say(line("agentStart", sessionId=PROCESS, model="m", savedSessionId="mine"))
    (request,) = agent.sent()
    (ready,) = agent.say(answer(request["id"], {"success": True}))
    assert ready == AgentReady("", "mine", "m", gate_held=True)


def test_an_old_session_is_attached() -> None:
    agent = Agent(resume=True)
    requests = agent.begin()
    assert requests["session.attach"]["params"] == {"sessionId": SAVED}
    events = agent.say(
        answer(requests["session.attach"]["id"], {"success": True, "sessionId": SAVED, "messageCount": 4}),
        answer(requests["permissionModeSet"]["id"], {"success": True}),
    )
    assert events == [AgentReady("", SAVED, "m", gate_held=True)]


@pytest.mark.parametrize(
    "reply",
    [
        answer(1, error={"code": -32603, "message": f"Session not found: {SAVED}"}),
        answer(1, {"success": True, "sessionId": SAVED, "messageCount": 0}),
        answer(1, {"success": True, "sessionId": "another", "messageCount": 4}),
        answer(1, {"success": False}),
        answer(1, "odd"),
    ],
)
def test_a_resume_that_did_not_resume_is_an_error_and_never_ready(reply: bytes) -> None:
    agent = Agent(resume=True)
    requests = agent.begin()
    assert requests["session.attach"]["id"] == 1
    events = agent.say(reply, answer(requests["permissionModeSet"]["id"], {"success": True}))
    failure = ended(events).failure
    assert failure is not None
    assert failure.reason == "RESUME_FAILED"
    assert of(events, AgentReady) == []


def test_a_history_that_cannot_be_read_leaves_the_id_unknown() -> None:
    agent = Agent()
    requests = agent.begin()
    events = agent.say(
        answer(requests["getHistory"]["id"], error={"code": -32603, "message": "disk"}),
        answer(requests["permissionModeSet"]["id"], {"success": True}),
    )
    (told,) = of(events, AgentErrorReported)
    assert "cannot be resumed" in told.message
    assert of(events, AgentReady)[0].agent_session_id == ""


@pytest.mark.parametrize(
    ("mode", "word"),
    [
        (PermissionMode.ASK, "interactive"),
        (PermissionMode.ACCEPT_EDITS, "interactive"),
        (PermissionMode.READ_ONLY, "restricted"),
        (PermissionMode.BYPASS, "interactive"),
    ],
)
def test_the_permission_mode_is_said_so_that_the_users_configuration_cannot_choose(
    mode: PermissionMode, word: str
) -> None:
    assert Agent(mode=mode).begin()["permissionModeSet"]["params"] == {"mode": word}


@pytest.mark.parametrize(
    ("mode", "reply"),
    [
        (PermissionMode.READ_ONLY, {"error": {"code": -32601, "message": "unknown"}}),
        (PermissionMode.READ_ONLY, {"result": {"success": False}}),
        (PermissionMode.ASK, {"error": {"code": -32603, "message": "disk"}}),
        (PermissionMode.ASK, {"result": {"success": False}}),
    ],
)
def test_a_session_without_its_mode_does_not_start(mode: PermissionMode, reply: dict[str, Any]) -> None:
    agent = Agent(mode=mode)
    requests = agent.begin()
    events = agent.say(answer(requests["permissionModeSet"]["id"], **reply))
    failure = ended(events).failure
    assert failure is not None
    assert failure.reason == "AGENT_START_FAILED"
    assert agent.say(answer(requests["getHistory"]["id"], {"sessions": []})) == []


def test_an_agent_that_knows_no_modes_starts_unless_it_must_not_write() -> None:
    agent = Agent()
    requests = agent.begin()
    agent.say(answer(requests["getHistory"]["id"], {"sessions": []}))
    unknown = {"code": -32601, "message": "unknown"}
    events = agent.say(answer(requests["permissionModeSet"]["id"], error=unknown))
    assert events == [
        AgentErrorReported("permission_mode", "unknown", will_retry=False),
        AgentReady("", "", "m", gate_held=True),
    ]


@pytest.mark.parametrize(
    ("reply", "outcome"),
    [
        ({"result": {"success": True}}, AgentReady),
        ({"result": {"success": False}}, TurnEnded),
        ({"error": {"code": -32601, "message": "unknown"}}, TurnEnded),
    ],
)
def test_a_process_that_comes_back_in_plan_mode_is_told_so_before_it_is_ready(
    reply: dict[str, Any], outcome: type
) -> None:
    agent = Agent(plan_mode=True)
    requests = agent.begin()
    assert requests["planModeSet"]["params"] == {"enabled": True}
    agent.say(answer(requests["getHistory"]["id"], {"sessions": []}))
    agent.say(answer(requests["permissionModeSet"]["id"], {"success": True}))
    (event,) = agent.say(answer(requests["planModeSet"]["id"], **reply))
    assert isinstance(event, outcome)


def test_why_the_process_refuses_to_start_is_told() -> None:
    events = Agent().say(answer(None, error={"code": -32011, "message": "Authentication required."}))
    failure = ended(events).failure
    assert failure is not None
    assert (failure.reason, failure.fault) == ("AUTH_FAILED", FailureFault.ENVIRONMENT)


def test_a_second_start_is_passed_on_and_asks_nothing() -> None:
    agent = Agent().ready()
    (raw,) = agent.say(line("agentStart", sessionId="session_5_2", model="m"))
    assert isinstance(raw, RawReceived)
    assert agent.sent() == []


# --- the prompt ---------------------------------------------------------------------------------------------------


def test_the_prompt_asks_for_the_gate() -> None:
    (request,) = Agent().ready().send(SendPrompt("p1", "do it"))
    assert request["method"] == "autohand.prompt"
    assert request["params"] == {"message": "do it", "stopWhen": {"mode": "host"}}


def test_the_prompts_answer_is_no_confirmation() -> None:
    agent = Agent().ready()
    (request,) = agent.send(SendPrompt("p1", "do it"))
    assert agent.say(answer(request["id"], {"success": True})) == []
    assert agent.say(line("turnStart", turnId="t1")) != []


def test_a_busy_agent_is_told_by_its_message_and_only_another_process_helps() -> None:
    agent = Agent().ready()
    (request,) = agent.send(SendPrompt("p1", "do it"))
    (failed,) = agent.say(answer(request["id"], error=BUSY))
    assert isinstance(failed, ProtocolFailed)
    assert "already processing" in failed.message


def test_another_refusal_with_the_same_code_fails_the_prompt_alone() -> None:
    agent = Agent().ready()
    (request,) = agent.send(SendPrompt("p1", "do it"))
    event = ended(agent.say(answer(request["id"], error={"code": -32603, "message": "Boom"})))
    assert event.reason is TurnEndReason.ERROR
    assert event.failure is not None
    assert "Boom" in event.failure.message
    assert methods(agent.send(SendPrompt("p2", "again"))) == ["prompt"]


def test_two_prompts_at_a_time_are_a_mistake_of_the_caller() -> None:
    agent = Agent().ready().prompted()
    with pytest.raises(RuntimeError, match="p1"):
        agent.codec.send(SendPrompt("p2", "too"))


# --- the abort ----------------------------------------------------------------------------------------------------


def test_an_abort_waits_for_the_start_of_the_turn() -> None:
    agent = Agent().ready()
    agent.send(SendPrompt("p1", "do it"))
    assert agent.send(Interrupt()) == []
    agent.say(line("turnStart", turnId="t1"))
    assert methods(agent.sent()) == ["abort"]


def test_an_abort_is_sent_once_and_only_while_a_turn_runs() -> None:
    agent = Agent().ready()
    assert agent.send(Interrupt()) == []
    agent.prompted()
    assert methods(agent.send(Interrupt())) == ["abort"]
    assert agent.send(Interrupt()) == []


def test_an_abort_that_waited_does_not_hit_the_next_turn() -> None:
    agent = Agent().ready()
    (request,) = agent.send(SendPrompt("p1", "do it"))
    agent.send(Interrupt())
    agent.say(answer(request["id"], error={"code": -32603, "message": "Boom"}))
    agent.prompted()
    assert agent.sent() == []


def test_after_an_abort_no_decision_is_sent() -> None:
    agent = Agent().ready().prompted()
    agent.tool()
    agent.step()
    agent.send(Interrupt())
    assert agent.send(GO_ON) == []
    assert ended(agent.turn_end("aborted")).reason is TurnEndReason.ABORTED


def test_a_boundary_that_crossed_an_abort_gets_no_decision() -> None:
    agent = Agent().ready().prompted()
    agent.tool()
    agent.send(Interrupt())
    assert len(of(agent.step(), BoundaryReached)) == 1
    assert agent.send(GO_ON) == []


def test_a_call_that_the_abort_cut_off_is_cancelled() -> None:
    agent = Agent().ready().prompted()
    agent.say(line("toolStart", toolId="c1", toolName="run_command", args={"command": "sleep 9"}))
    agent.send(Interrupt())
    text = "Command execution aborted"
    (result,) = agent.say(line("toolEnd", toolId="c1", toolName="run_command", success=False, output=text, error=text))
    assert isinstance(result, ToolEnded)
    assert (result.result.outcome, result.result.error) == (ToolOutcome.CANCELLED, text)


# --- staged writes ------------------------------------------------------------------------------------------------


def test_staged_writes_are_accepted_at_once_and_again_if_some_are_left() -> None:
    agent = Agent().ready().prompted()
    agent.say(line("changesBatchStart", batchId="b1", turnId="t1"))
    (request,) = agent.sent()
    assert request["params"] == {"batchId": "b1", "action": "accept_all"}
    agent.say(line("changesBatchEnd", batchId="b1", changeCount=0))
    assert agent.sent() == []
    agent.say(line("changesBatchEnd", batchId="b1", changeCount=2))
    assert methods(agent.sent()) == ["changesDecision"]


def test_writes_that_were_not_accepted_are_told() -> None:
    agent = Agent().ready().prompted()
    agent.say(line("changesBatchStart", batchId="b1", turnId="t1"))
    (request,) = agent.sent()
    (told,) = agent.say(answer(request["id"], {"success": False, "appliedCount": 0}))
    assert isinstance(told, AgentErrorReported)
    assert "b1" in told.message


# --- steps --------------------------------------------------------------------------------------------------------


def test_a_step_is_its_thought_its_calls_and_a_boundary() -> None:
    agent = Agent().ready().prompted()
    started, done = agent.tool(path="a.txt")
    assert isinstance(started, ToolStarted)
    assert started.call.arguments_json == '{"path":"a.txt"}'
    assert isinstance(done, ToolEnded)
    assert done.duration_ns == 3_000_000
    assert agent.step() == [
        MessageStarted("s1/thought", MessageKind.THOUGHT),
        MessageEnded("s1/thought", MessageKind.THOUGHT, "why"),
        BoundaryReached("s1", ("c1",)),
    ]


@pytest.mark.parametrize(("command", "stop"), [(GO_ON, False), (STOP, True)])
def test_a_decision_names_the_step(command: AnswerBoundary, stop: bool) -> None:
    agent = Agent().ready().prompted()
    agent.tool()
    agent.step()
    (request,) = agent.send(command)
    assert (request["method"], request["params"]) == ("autohand.stepDecision", {"stepId": "s1", "stop": stop})
    assert agent.send(command) == []


def test_steps_are_keyed_by_id_for_their_numbers_have_gaps_and_begin_again() -> None:
    agent = Agent().ready().prompted()
    found = []
    for step_id, number in (("s1", 1), ("s2", 3), ("s3", 1)):
        agent.tool(step_id)
        found += of(agent.step(step_id, step_id, number), BoundaryReached)
        assert methods(agent.send(AnswerBoundary(step_id, DecisionAction.CONTINUE))) == ["stepDecision"]
    assert [event.boundary_id for event in found] == ["s1", "s2", "s3"]


def test_a_decision_about_another_step_sends_nothing() -> None:
    agent = Agent().ready().prompted()
    agent.tool()
    agent.step()
    assert agent.send(AnswerBoundary("s0", DecisionAction.CONTINUE)) == []


def test_a_decision_that_came_too_late_is_noted() -> None:
    agent = Agent().ready().prompted()
    agent.tool()
    agent.step()
    (request,) = agent.send(GO_ON)
    (told,) = agent.say(answer(request["id"], {"success": False}))
    assert isinstance(told, AgentErrorReported)
    assert "s1" in told.message


def test_a_decision_that_crossed_an_abort_is_not_worth_a_word() -> None:
    agent = Agent().ready().prompted()
    agent.tool()
    agent.step()
    (request,) = agent.send(GO_ON)
    agent.send(Interrupt())
    assert agent.say(answer(request["id"], {"success": False})) == []


def test_a_decision_that_is_refused_breaks_the_protocol() -> None:
    agent = Agent().ready().prompted()
    agent.tool()
    agent.step()
    (request,) = agent.send(GO_ON)
    (failed,) = agent.say(answer(request["id"], error={"code": -32602, "message": "stop"}))
    assert isinstance(failed, ProtocolFailed)


def test_results_are_matched_by_their_place_and_calls_that_never_ran_are_told() -> None:
    agent = Agent().ready().prompted()
    agent.tool("c2")
    calls = [{"id": f"c{n}", "tool": "read_file", "args": {"n": n}} for n in (1, 2, 3, 4)]
    results = [
        {"tool": "read_file", "success": False, "kind": "authorization", "error": "no", "output": "no"},
        {"tool": "read_file", "success": True, "output": "out"},
        {"tool": "read_file", "success": False, "kind": "validation", "error": "bad path"},
    ]
    step = {"stepNumber": 1, "toolCalls": calls, "toolResults": results}
    events = agent.say(line("stepEnd", stepId="s1", step=step))
    told = {event.result.call_id: event.result for event in of(events, ToolEnded)}
    assert {call: result.outcome for call, result in told.items()} == {
        "c1": ToolOutcome.DENIED,
        "c3": ToolOutcome.FAILED,
    }
    assert (told["c1"].output, told["c1"].error) == (None, "no")
    assert [event.call.call_id for event in of(events, ToolStarted)] == ["c1", "c3", "c4"]
    assert of(events, BoundaryReached)[0].call_ids == ("c1", "c2", "c3", "c4")


def test_an_agent_that_goes_on_without_its_boundary_is_told_as_not_held() -> None:
    agent = Agent().ready().prompted()
    agent.tool("c1")
    (boundary, *_) = agent.tool("c2")
    assert isinstance(boundary, BoundaryReached)
    assert (boundary.call_ids, boundary.held) == (("c1",), False)
    (boundary, *_) = agent.says("done")
    assert (boundary.call_ids, boundary.held) == (("c2",), False)


def test_calls_of_one_reply_are_no_passed_gate() -> None:
    agent = Agent().ready().prompted()
    for call in ("c1", "c2"):
        agent.say(line("hook.preTool", toolId=call, toolName="read_file", args={}))
    for call in ("c1", "c2"):
        events = agent.say(
            line("toolStart", toolId=call, toolName="read_file", args={}),
            line("toolEnd", toolId=call, toolName="read_file", success=True, output=""),
        )
        assert of(events, BoundaryReached) == []


def test_a_step_of_a_turn_that_nobody_asked_for_is_stopped() -> None:
    agent = Agent().ready()
    agent.say(line("turnStart", turnId="t9"))
    events = agent.step()
    assert of(events, BoundaryReached) == []
    (request,) = agent.sent()
    assert request["params"] == {"stepId": "s1", "stop": True}
    assert of(agent.turn_end("stop_condition"), TurnEnded) == []


# --- permissions --------------------------------------------------------------------------------------------------


def ask(agent: Agent, request_id: str = "r1", call_id: str = "c1", command: str = "ls") -> PermissionAsked:
    args = {"command": command}
    events = agent.say(
        line("hook.preTool", toolId=call_id, toolName="run_command", args=args),
        line("hook.permissionRequest", tool="run_command", command=command, args=args),
        line("permissionRequest", requestId=request_id, tool="run_command", description="Run?", context=args),
    )
    (asked,) = of(events, PermissionAsked)
    assert isinstance(asked, PermissionAsked)
    return asked


def test_a_question_is_acknowledged_at_once() -> None:
    agent = Agent().ready().prompted()
    asked = ask(agent)
    (request,) = agent.sent()
    assert (request["method"], request["params"]) == ("autohand.permissionAcknowledged", {"requestId": "r1"})
    assert (asked.permission_id, asked.call_id, asked.title) == ("r1", "c1", "Run?")
    assert json.loads(asked.arguments_json) == {"command": "ls"}


def test_titles_have_one_line_and_a_bound() -> None:
    agent = Agent().ready().prompted()
    args = {"command": "echo a\n\techo b"}
    events = agent.say(
        line("toolStart", toolId="c1", toolName="run_command", args=args),
        line("toolStart", toolId="c2", toolName="run_command", args={"command": "x" * 1_000}),
        line("permissionRequest", requestId="r1", tool="write_file", description="Write to this file?\n  a.txt"),
        line("permissionRequest", requestId="r2", tool="write_file", description="x" * 1_000),
        line("directoryAccessRequest", requestId="r3", path="/data", reason="To read.\r\nAnd write."),
    )
    assert [event.call.title for event in of(events, ToolStarted)] == [
        "run_command: echo a echo b",
        f"run_command: {'x' * 187}",
    ]
    assert json.loads(of(events, ToolStarted)[0].call.arguments_json) == args
    assert [event.title for event in of(events, PermissionAsked)] == [
        "Write to this file? a.txt",
        "x" * 200,
        "Use files in /data? To read. And write.",
    ]


@pytest.mark.parametrize(
    ("command", "params"),
    [
        (AnswerPermission("r1", True, ""), {"decision": "allow_once"}),
        (AnswerPermission("r1", False, "no"), {"decision": "deny_once"}),
        (
            AnswerPermission("r1", True, "", PermissionAlternative(command="pwd")),
            {"decision": "alternative", "alternative": "pwd"},
        ),
        (
            AnswerPermission("r1", True, "", PermissionAlternative(arguments_json='{"command":"pwd"}')),
            {"decision": "alternative", "alternative": "pwd"},
        ),
        (
            AnswerPermission("r1", True, "", PermissionAlternative(arguments_json='{"path":"x"}')),
            {"decision": "deny_once"},
        ),
    ],
)
def test_answers_are_for_once_or_another_command(command: AnswerPermission, params: dict[str, str]) -> None:
    agent = Agent().ready().prompted()
    ask(agent)
    agent.sent()
    (request,) = agent.send(command)
    assert request["method"] == "autohand.permissionResponse"
    assert request["params"] == {"requestId": "r1", **params}
    assert agent.send(command) == []


def test_two_questions_of_one_reply_are_told_apart() -> None:
    agent = Agent().ready().prompted()
    for call, command in (("c1", "ls"), ("c2", "pwd")):
        agent.say(line("hook.preTool", toolId=call, toolName="run_command", args={"command": command}))
    found = []
    for request, command in (("r1", "ls"), ("r2", "pwd")):
        events = agent.say(
            line("hook.permissionRequest", tool="run_command", args={"command": command}),
            line("permissionRequest", requestId=request, tool="run_command", context={"command": command}),
        )
        found += [event.call_id for event in of(events, PermissionAsked)]
    assert found == ["c1", "c2"]


def test_a_question_is_void_after_an_abort_and_withdrawn_with_the_turn() -> None:
    agent = Agent().ready().prompted()
    ask(agent)
    agent.sent()
    agent.send(Interrupt())
    assert agent.send(AnswerPermission("r1", True, "")) == []
    events = agent.turn_end("aborted")
    assert of(events, PermissionWithdrawn) == [PermissionWithdrawn("r1")]


def test_a_question_that_the_agent_gave_up_is_withdrawn_at_the_boundary() -> None:
    agent = Agent().ready().prompted()
    ask(agent)
    assert of(agent.step(), PermissionWithdrawn) == [PermissionWithdrawn("r1")]
    assert methods(agent.send(AnswerPermission("r1", True, ""))) == ["permissionAcknowledged"]


def test_an_answer_that_came_too_late_is_noted() -> None:
    agent = Agent().ready().prompted()
    ask(agent)
    agent.sent()
    (request,) = agent.send(AnswerPermission("r1", True, ""))
    (told,) = agent.say(answer(request["id"], {"success": False}))
    assert isinstance(told, AgentErrorReported)


def test_a_denial_without_another_word_ends_the_turn_as_denied() -> None:
    agent = Agent().ready().prompted()
    ask(agent)
    results = [{"tool": "run_command", "success": False, "kind": "authorization", "error": "no"}]
    calls = [{"id": "c1", "tool": "run_command", "args": {"command": "ls"}}]
    agent.say(line("stepEnd", stepId="s1", step={"stepNumber": 1, "toolCalls": calls, "toolResults": results}))
    agent.send(GO_ON)
    event = ended(agent.turn_end())
    assert (event.reason, event.denied) == (TurnEndReason.COMPLETED, True)


# --- messages -----------------------------------------------------------------------------------------------------


def test_a_text_is_one_message_in_parts_that_fit() -> None:
    agent = Agent().ready().prompted()
    text = "ab" * 20_000
    events = agent.says(text)
    assert [type(event) for event in events][:1] == [MessageStarted]
    assert "".join(event.text for event in of(events, MessageDelta)) == text
    assert max(len(event.text) for event in of(events, MessageDelta)) <= 16 * 1024
    assert of(events, MessageEnded)[0].text == text
    assert ended(agent.turn_end()).text == text


def test_a_stopped_turn_has_no_message() -> None:
    agent = Agent().ready().prompted()
    agent.tool()
    agent.step()
    agent.send(STOP)
    assert agent.say(line("messageEnd", messageId="m1", content="")) == []
    event = ended(agent.turn_end("stop_condition"))
    assert (event.reason, event.text, event.failure) == (TurnEndReason.STOP_CONDITION, "", None)


def test_pings_and_doubles_are_no_events() -> None:
    agent = Agent().ready().prompted()
    lines = (
        line("ping", status="processing"),
        line("messageStart", messageId="m1", role="assistant"),
        line("hook.stop", tokensUsed=1),
        line("hook.postResponse", tokensUsed=1),
        line("hook.postTool", toolId="c1", toolName="x", success=True, output="y" * 1000, duration=1),
        line("changesBatchUpdate", batchId="b", change={}),
    )
    assert agent.say(*lines) == []


# --- the end of a turn --------------------------------------------------------------------------------------------

LIMIT = "Rate limit exceeded.\nslow down"


def error_lines(message: str, **error: Any) -> tuple[bytes, ...]:
    return (
        line("hook.sessionError", error=message, code="x"),
        line("hook.sessionError", error=message),
        line("messageUpdate", messageId="m1", delta=f"! {message}"),
        line("error", message=message, **error),
        line("messageEnd", messageId="m1", content=f"! {message}"),
    )


@pytest.mark.parametrize(
    ("message", "error", "reason", "retryable"),
    [
        ("slow down", {"code": 429, "errorType": "rate_limit"}, "RATE_LIMITED", True),
        ("You exceeded your current quota", {"code": 429, "errorType": "rate_limit"}, "QUOTA_EXHAUSTED", False),
        ("bad key", {"code": 401, "errorType": "auth"}, "AUTH_FAILED", False),
        ("boom", {"code": 503, "errorType": "unknown"}, "AGENT_ERROR", True),
        ("maximum context length is 8192", {"code": -32000}, "CONTEXT_OVERFLOW", False),
        ("Reached max iterations", {"code": -32000}, "MAX_ITERATIONS", False),
        ("odd", {"code": -32000, "errorType": "unknown"}, "AGENT_ERROR", False),
    ],
)
def test_completed_with_an_error_is_a_failure_and_its_text_no_message(
    message: str, error: dict[str, Any], reason: str, retryable: bool
) -> None:
    agent = Agent().ready().prompted()
    events = agent.say(*error_lines(message, **error))
    assert of(events, MessageStarted, MessageDelta, MessageEnded) == []
    assert len(of(events, AgentErrorReported)) == 1
    event = ended(agent.turn_end())
    assert event.reason is TurnEndReason.ERROR
    assert event.failure is not None
    assert (event.failure.reason, event.failure.retryable, event.text) == (reason, retryable, "")


def test_an_error_that_only_the_hook_told_is_a_failure() -> None:
    agent = Agent().ready().prompted()
    assert agent.say(line("hook.sessionError", error="boom", code="server_error")) == []
    events = agent.turn_end()
    assert len(of(events, AgentErrorReported)) == 1
    failure = ended(events).failure
    assert failure is not None
    assert (failure.reason, failure.retryable) == ("AGENT_ERROR", True)


def test_a_rate_limit_keeps_its_time() -> None:
    agent = Agent().ready().prompted()
    events = agent.say(
        line("hook.rateLimit", error=LIMIT, code="rate_limited", retryAfterMs=1500, httpStatus=429, provider="p"),
        *error_lines(LIMIT, code=429, errorType="rate_limit"),
    )
    assert of(events, RateLimited)[0].retry_after_ns == 1_500_000_000
    failure = ended(agent.turn_end()).failure
    assert failure is not None
    assert failure.retry_after_ns == 1_500_000_000


def test_an_exhausted_quota_is_no_transient_limit() -> None:
    agent = Agent().ready().prompted()
    events = agent.say(line("hook.rateLimit", error="insufficient_quota", code="rate_limited", httpStatus=429))
    assert of(events, RateLimited)[0].kind is RateLimitKind.QUOTA


def test_an_error_after_which_the_model_answered_did_not_end_the_turn() -> None:
    agent = Agent().ready().prompted()
    agent.say(line("error", code=-32000, message="no images"))
    agent.says("y")
    event = ended(agent.turn_end())
    assert (event.reason, event.text, event.failure) == (TurnEndReason.COMPLETED, "y", None)


@pytest.mark.parametrize(("tokens", "fault"), [(0, FailureFault.ENVIRONMENT), (240, FailureFault.AGENT)])
def test_completed_without_a_text_a_tool_or_an_error_is_a_failure(tokens: int, fault: FailureFault) -> None:
    event = ended(Agent().ready().prompted().turn_end("completed", tokens))
    assert event.reason is TurnEndReason.ERROR
    assert event.failure is not None
    assert (event.failure.reason, event.failure.fault) == ("AGENT_ERROR", fault)


def test_an_unknown_end_is_an_error() -> None:
    assert ended(Agent().ready().prompted().turn_end("error")).reason is TurnEndReason.ERROR


def test_the_turn_after_a_failed_one_is_judged_by_itself() -> None:
    agent = Agent().ready().prompted()
    agent.say(*error_lines("boom", code=500))
    agent.turn_end()
    agent.prompted()
    agent.says("fine")
    event = ended(agent.turn_end())
    assert (event.reason, event.failure) == (TurnEndReason.COMPLETED, None)


# --- tokens -------------------------------------------------------------------------------------------------------


def tokens_of(agent: Agent, reported: int, status: str = "actual") -> Usage | None:
    agent.prompted()
    agent.says("x")
    return ended(agent.turn_end("completed", reported, status)).usage


def test_the_doubled_number_is_taken_apart_turn_by_turn() -> None:
    agent = Agent().ready()
    assert [tokens_of(agent, n) for n in (4440, 4640)] == [Usage(reported_total=2220), Usage(reported_total=1210)]


def test_one_turn_without_figures_makes_all_later_ones_unknown() -> None:
    agent = Agent().ready()
    assert tokens_of(agent, 240) == Usage(reported_total=120)
    assert tokens_of(agent, 240, "unavailable") is None
    assert tokens_of(agent, 480) is None


@pytest.mark.parametrize("reported", [239, 100])
def test_a_number_that_cannot_be_is_not_believed(reported: int) -> None:
    agent = Agent().ready()
    tokens_of(agent, 400)
    assert tokens_of(agent, reported) is None


def test_after_a_turn_that_nobody_asked_for_the_number_means_nothing() -> None:
    agent = Agent().ready()
    assert tokens_of(agent, 240) == Usage(reported_total=120)
    agent.say(line("turnStart", turnId="t9"))
    agent.turn_end("completed", 240)
    assert tokens_of(agent, 360) is None


def test_a_turn_cut_off_inside_a_tool_is_counted_once() -> None:
    agent = Agent().ready().prompted()
    agent.say(line("toolStart", toolId="c1", toolName="run_command", args={}))
    assert ended(agent.turn_end("aborted", 121)).usage == Usage(reported_total=121)


def test_steps_have_usage_and_cost_where_the_agent_tells_them() -> None:
    agent = Agent().ready().prompted()
    agent.tool()
    told = {"input_tokens": 100, "cached_input_tokens": 40, "output_tokens": 20, "model": "m2", "cost_micro_usd": 7}
    events = agent.step(usage=told)
    (boundary,) = of(events, BoundaryReached)
    assert boundary.usage == Usage(100, 40, None, 20)
    assert boundary.cost == Cost(7, CostBasis.REPORTED)
    assert of(events, MessageEnded)[0].model == "m2"
    agent.send(STOP)
    event = ended(agent.turn_end("stop_condition", 240))
    assert (event.usage, event.cost) == (Usage(100, 40, None, 20), Cost(7, CostBasis.REPORTED))


def test_the_last_message_of_a_turn_is_known_by_the_total_alone() -> None:
    agent = Agent().ready().prompted()
    agent.tool()
    agent.step(usage={"input_tokens": 100, "output_tokens": 20})
    agent.send(GO_ON)
    agent.says("done")
    usage = ended(agent.turn_end("completed", 500)).usage
    assert usage == Usage(100, None, None, 20, complete=False, reported_total=250)
    assert usage is not None
    assert usage.total_tokens == 250


# --- lines --------------------------------------------------------------------------------------------------------


def test_noise_is_counted_and_skipped() -> None:
    agent = Agent().ready()
    assert agent.say(b"Failed in 0m 11s\n", b"\n", b"[1, 2]\n") == []
    assert agent.codec.noise_lines == 2


def test_a_broken_line_breaks_the_protocol_before_the_end_and_is_noise_after_it() -> None:
    agent = Agent().ready()
    (failed,) = agent.say(b'{"jsonrpc": "2.0", "meth\n')
    assert isinstance(failed, ProtocolFailed)
    agent.say(line("agentEnd", sessionId="x", reason="aborted"))
    assert agent.say(b'{"jsonrpc": "2.0", "meth\n') == []
    assert agent.codec.noise_lines == 1


@pytest.mark.parametrize("name", ["stepEnd", "permissionRequest", "turnEnd", "changesBatchStart"])
def test_a_line_that_the_agent_waits_at_must_have_its_shape(name: str) -> None:
    (failed,) = Agent().ready().prompted().say(line(name, odd=1))
    assert isinstance(failed, ProtocolFailed)
    assert name in failed.message


def test_what_is_not_known_is_passed_on() -> None:
    agent = Agent().ready()
    (raw,) = agent.say(line("pipe.output", text="x"))
    assert isinstance(raw, RawReceived)
    assert raw.vendor_type == "pipe.output"
    assert json.loads(raw.payload_json)["params"] == {"text": "x"}
    (raw,) = agent.say(answer("theirs", {"success": True}))
    assert isinstance(raw, RawReceived)


def test_a_lone_surrogate_in_a_boundarys_line_does_not_lose_it() -> None:
    agent = Agent().ready().prompted()
    calls = '[{"id":"c1","tool":"read_file","args":{}}]'
    results = '[{"tool":"read_file","success":true,"output":"cut \\ud83d"}]'
    step = f'{{"stepNumber":1,"toolCalls":{calls},"toolResults":{results}}}'
    text = f'{{"jsonrpc":"2.0","method":"autohand.stepEnd","params":{{"stepId":"s1","step":{step}}}}}\n'
    events = agent.say(text.encode())
    assert of(events, BoundaryReached)[0].boundary_id == "s1"
    assert of(events, ToolEnded)[0].result.output == "cut \ufffd"


def test_a_line_over_the_limit_is_one_error_and_the_next_line_is_read() -> None:
    agent = Agent(line_bytes=1 << 16).ready().prompted()
    at_limit = line("messageUpdate", messageId="m", delta="")
    fitting = line("messageUpdate", messageId="m", delta="x" * ((1 << 16) - len(at_limit) + 1))
    assert len(fitting) == (1 << 16) + 1
    assert of(agent.say(fitting), ProtocolFailed) == []
    events = agent.say(line("messageUpdate", messageId="m", delta="x" * (1 << 16)), line("ping"), line("odd"))
    assert [type(event) for event in events] == [ProtocolFailed, RawReceived]


def test_a_last_line_without_an_end_is_read() -> None:
    agent = Agent().ready()
    assert agent.say(line("odd")[:-1]) == []
    (raw,) = agent.codec.receive_eof(Channel.STDOUT)
    assert isinstance(raw, RawReceived)


def test_an_error_about_no_request_means_that_a_line_was_lost() -> None:
    (failed,) = Agent().ready().say(answer(None, error={"code": -32700, "message": "Parse error"}))
    assert isinstance(failed, ProtocolFailed)


# --- modes and the end --------------------------------------------------------------------------------------------


def test_modes_change_by_two_requests_and_a_refusal_is_told() -> None:
    agent = Agent().ready()
    requests = agent.send(SetPermissionMode(PermissionMode.READ_ONLY, plan_mode=True))
    assert [(request["method"], request["params"]) for request in requests] == [
        ("autohand.planModeSet", {"enabled": True}),
        ("autohand.permissionModeSet", {"mode": "restricted"}),
    ]
    assert agent.say(answer(requests[0]["id"], {"success": True})) == []
    (told,) = agent.say(answer(requests[1]["id"], {"success": False}))
    assert isinstance(told, AgentErrorReported)


def test_the_end_of_input_is_safe_unless_a_tool_runs_or_the_bootstrap_may() -> None:
    agent = Agent().ready()
    assert agent.codec.eof_is_safe()
    agent.prompted()
    assert not agent.codec.eof_is_safe()
    agent.say(line("hook.preTool", toolId="c1", toolName="run_command", args={}))
    assert agent.codec.eof_is_safe()
    agent.say(line("toolStart", toolId="c1", toolName="run_command", args={}))
    assert not agent.codec.eof_is_safe()
    agent.say(line("toolEnd", toolId="c1", toolName="run_command", success=True, output=""))
    agent.step()
    assert agent.codec.eof_is_safe()
