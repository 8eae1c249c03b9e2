"""What the recordings do not show: traps of the protocol, odd lines, and answers that come too late."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.unit.drivers.claude_lines import (
    PROMPT,
    SESSION,
    answers,
    assistant,
    batch,
    feed,
    handshake,
    leave,
    lifecycle,
    ready_codec,
    result,
    sent,
    stream,
    stream_message,
    tool_result,
)
from tests.unit.drivers.recordings import settings

from steprail_daemon.core.commands import AnswerBoundary, AnswerPermission, Interrupt, SendPrompt
from steprail_daemon.core.events import (
    AgentReady,
    BoundaryCancelled,
    BoundaryReached,
    MessageDelta,
    MessageEnded,
    MessageStarted,
    PermissionAsked,
    PermissionWithdrawn,
    PromptConfirmed,
    ProtocolFailed,
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
    FinishReason,
    MessageKind,
    ToolKind,
    ToolOutcome,
    TurnEndReason,
    Usage,
)
from steprail_daemon.drivers.base import Channel
from steprail_daemon.drivers.claude.answers import STOP_TEXT
from steprail_daemon.drivers.claude.codec import ClaudeCodec

GO_ON, STOP = DecisionAction.CONTINUE, DecisionAction.STOP


@pytest.fixture
def codec() -> ClaudeCodec:
    return ready_codec()


@pytest.fixture
def working(codec: ClaudeCodec) -> ClaudeCodec:
    codec.send(SendPrompt(PROMPT, "go"))
    feed(codec, lifecycle("queued"), lifecycle("started"))
    codec.data_to_send()
    return codec


class TestHandshake:
    def test_it_asks_for_a_gate_that_waits_for_a_day_and_fails_closed(self) -> None:
        codec = ClaudeCodec(settings())
        codec.start()
        gate = {"matcher": None, "hookCallbackIds": ["PostToolBatch"], "timeout": 86_400, "onFailure": "block"}
        before = {"matcher": "Agent|Task", "hookCallbackIds": ["PreToolUse"], "timeout": 86_400}
        request = {"subtype": "initialize", "hooks": {"PostToolBatch": [gate], "PreToolUse": [before]}}
        assert sent(codec) == [{"type": "control_request", "request_id": "req_1", "request": request}]

    @pytest.mark.parametrize("lacking", ["hooks_applied", "hook_on_failure_supported"])
    def test_a_gate_that_is_not_confirmed_in_both_ways_is_not_held(self, lacking: str) -> None:
        codec = ClaudeCodec(settings())
        codec.start()
        (ready,) = feed(codec, handshake(**{lacking: False}))
        assert ready == AgentReady("2.1.332", SESSION, "", gate_held=False)

    def test_a_refusal_is_a_failure_of_the_protocol(self) -> None:
        codec = ClaudeCodec(settings())
        codec.start()
        response = {"subtype": "error", "request_id": "req_1", "error": "no such thing"}
        (failed,) = feed(codec, {"type": "control_response", "response": response})
        assert isinstance(failed, ProtocolFailed)
        assert "no such thing" in failed.message


class TestPrompt:
    def test_it_goes_out_with_its_id(self, codec: ClaudeCodec) -> None:
        codec.send(SendPrompt(PROMPT, "größer\n{}"))
        (line,) = sent(codec)
        assert line["uuid"] == PROMPT
        assert line["message"] == {"role": "user", "content": "größer\n{}"}

    def test_it_is_confirmed_when_the_cli_starts_it_and_not_when_it_queues_it(self, codec: ClaudeCodec) -> None:
        codec.send(SendPrompt(PROMPT, "go"))
        assert feed(codec, lifecycle("queued")) == []
        assert feed(codec, lifecycle("started", "another")) == []
        assert feed(codec, lifecycle("started")) == [PromptConfirmed(PROMPT, SESSION)]
        assert feed(codec, {"type": "system", "subtype": "init", "session_id": SESSION, "model": "m"}) == []

    def test_without_lifecycle_lines_the_beginning_of_the_turn_confirms_it(self, codec: ClaudeCodec) -> None:
        codec.send(SendPrompt(PROMPT, "go"))
        begun = {"type": "system", "subtype": "init", "session_id": SESSION, "model": "m"}
        assert feed(codec, begun, begun) == [PromptConfirmed(PROMPT, SESSION, "m")]

    def test_a_second_one_before_the_end_of_the_first_is_a_bug(self, working: ClaudeCodec) -> None:
        with pytest.raises(RuntimeError, match="still worked on"):
            working.send(SendPrompt("2", "more"))


class TestBoundary:
    def test_going_on_answers_nothing_but_an_empty_object(self, working: ClaudeCodec) -> None:
        assert feed(working, batch("b1", "t1", "t2")) == [BoundaryReached("b1", ("t1", "t2"))]
        working.send(AnswerBoundary("b1", GO_ON))
        assert answers(working) == [("b1", {})]

    def test_a_stop_shows_the_model_a_fixed_text(self, working: ClaudeCodec) -> None:
        feed(working, batch())
        working.send(AnswerBoundary("b1", STOP))
        assert answers(working) == [("b1", {"continue": False, "stopReason": STOP_TEXT})]
        assert not any(word in STOP_TEXT.lower() for word in ("rule", "budget", "limit", "cost"))

    def test_it_is_answered_once(self, working: ClaudeCodec) -> None:
        feed(working, batch())
        working.send(AnswerBoundary("b1", STOP))
        working.data_to_send()
        working.send(AnswerBoundary("b1", GO_ON))
        assert sent(working) == []

    def test_an_answer_after_the_cli_withdrew_it_sends_nothing(self, working: ClaudeCodec) -> None:
        feed(working, batch())
        withdrawn = {"type": "control_cancel_request", "request_id": "b1"}
        assert feed(working, withdrawn, withdrawn) == [BoundaryCancelled("b1")]
        working.send(AnswerBoundary("b1", GO_ON))
        assert sent(working) == []

    def test_an_answer_after_the_turn_sends_nothing(self, working: ClaudeCodec) -> None:
        feed(working, batch(), result(terminal_reason="aborted_tools", is_error=True))
        working.send(AnswerBoundary("b1", GO_ON))
        assert sent(working) == []

    def test_a_sub_agents_batch_goes_on_at_once(self, working: ClaudeCodec) -> None:
        assert feed(working, batch("s1", "t9", agent_id="a1")) == []
        assert answers(working) == [("s1", {})]

    def test_a_sub_agents_batch_is_stopped_once_the_run_is(self, working: ClaudeCodec) -> None:
        feed(working, batch())
        working.send(AnswerBoundary("b1", STOP))
        working.data_to_send()
        feed(working, batch("s1", agent_id="a1"))
        assert answers(working) == [("s1", {"continue": False, "stopReason": STOP_TEXT})]

    def test_a_stop_does_not_outlive_the_next_prompt(self, working: ClaudeCodec) -> None:
        feed(working, batch())
        working.send(AnswerBoundary("b1", STOP))
        feed(working, result(terminal_reason="hook_stopped"))
        working.send(SendPrompt("2", "on"))
        feed(working, lifecycle("started", "2"))
        working.data_to_send()
        feed(working, batch("s2", agent_id="a1"))
        assert answers(working) == [("s2", {})]

    def test_a_turn_that_no_prompt_asked_for_is_stopped_at_its_boundary(self, codec: ClaudeCodec) -> None:
        begun = {"type": "system", "subtype": "init", "session_id": SESSION}
        events = feed(codec, begun, batch())
        assert [type(event) for event in events] == [RawReceived]
        assert answers(codec) == [("b1", {"continue": False, "stopReason": STOP_TEXT})]
        assert not codec.eof_is_safe()
        events = feed(codec, result(terminal_reason="hook_stopped"))
        assert [type(event) for event in events] == [RawReceived]
        assert codec.eof_is_safe()

    def test_the_end_of_another_turn_is_not_taken_for_the_prompts(self, codec: ClaudeCodec) -> None:
        feed(codec, lifecycle("completed", "an earlier one"))
        codec.send(SendPrompt(PROMPT, "go"))
        (foreign,) = feed(codec, result(origin={"kind": "task-notification"}))
        assert isinstance(foreign, RawReceived)
        assert not codec.eof_is_safe()
        confirmed, ended = feed(codec, lifecycle("started"), result())
        assert isinstance(confirmed, PromptConfirmed)
        assert isinstance(ended, TurnEnded)

    def test_one_of_an_unknown_shape_fails_the_protocol(self, working: ClaudeCodec) -> None:
        line = batch()
        line["request"]["input"]["tool_calls"] = "many"
        (failed,) = feed(working, line)
        assert isinstance(failed, ProtocolFailed)

    def test_it_carries_the_usage_of_its_message_with_the_cache_counted_as_input(self, working: ClaudeCodec) -> None:
        *_, boundary = feed(working, *stream_message("hi"), batch())
        assert boundary == BoundaryReached("b1", (), Usage(550, 500, 40, 33))

    def test_usage_is_not_carried_over_to_the_next_step(self, working: ClaudeCodec) -> None:
        feed(working, *stream_message("hi"), batch("b1"))
        (boundary,) = feed(working, batch("b2"))
        assert boundary == BoundaryReached("b2")


class TestOtherRequests:
    def test_leave_is_asked_with_the_arguments_as_they_are_and_given_with_the_same(self, working: ClaudeCodec) -> None:
        (asked,) = feed(working, leave())
        arguments = '{"command": "touch a", "deep": [1, {"x": null}]}'
        assert asked == PermissionAsked("p1", "t1", "Bash", arguments, "", ToolKind.EXECUTE, "Bash: touch a")
        working.send(AnswerPermission("p1", allow=True, message=""))
        assert answers(working) == [("p1", {"behavior": "allow", "updatedInput": json.loads(arguments)})]

    def test_a_denied_call_is_denied_even_where_the_cli_does_not_say_so(self, working: ClaudeCodec) -> None:
        feed(working, leave())
        working.send(AnswerPermission("p1", allow=False, message="no"))
        assert answers(working) == [("p1", {"behavior": "deny", "message": "no"})]
        (ended,) = feed(working, tool_result("no", is_error=True))
        assert isinstance(ended, ToolEnded)
        assert ended.result.outcome is ToolOutcome.DENIED

    def test_leave_that_was_withdrawn_is_told_and_not_answered(self, working: ClaudeCodec) -> None:
        _, withdrawn = feed(working, leave(), {"type": "control_cancel_request", "request_id": "p1"})
        assert withdrawn == PermissionWithdrawn("p1")
        working.send(AnswerPermission("p1", allow=True, message=""))
        assert sent(working) == []

    def test_another_hook_is_let_go_at_once(self, working: ClaudeCodec) -> None:
        line = batch()
        line["request"]["callback_id"] = "another"
        (raw,) = feed(working, line)
        assert isinstance(raw, RawReceived)
        assert answers(working) == [("b1", {})]

    def test_another_hook_is_let_go_whatever_its_input_is(self, working: ClaudeCodec) -> None:
        line = batch()
        line["request"] |= {"callback_id": "another", "input": {"tool_calls": "none"}}
        (raw,) = feed(working, line)
        assert isinstance(raw, RawReceived)
        assert answers(working) == [("b1", {})]

    def test_a_boundary_of_an_unknown_shape_fails_the_protocol_and_is_not_answered(self, working: ClaudeCodec) -> None:
        line = batch()
        line["request"]["input"]["tool_calls"] = "none"
        (failed,) = feed(working, line)
        assert isinstance(failed, ProtocolFailed)
        assert "step boundary" in failed.message
        assert sent(working) == []

    def test_a_question_about_a_tool_of_an_unknown_shape_fails_the_protocol(self, working: ClaudeCodec) -> None:
        line = leave()
        line["request"]["tool_name"] = 7
        (failed,) = feed(working, line)
        assert isinstance(failed, ProtocolFailed)
        assert sent(working) == []

    @pytest.mark.parametrize("action", [DecisionAction.CONTINUE, DecisionAction.STOP])
    def test_any_text_can_be_the_id_of_a_question(self, working: ClaudeCodec, action: DecisionAction) -> None:
        request_id = 'a "quoted" \\ id,\n\u00e9 \u2028'
        feed(working, batch(request_id))
        working.send(AnswerBoundary(request_id, action))
        ((answered, body),) = answers(working)
        assert answered == request_id
        assert body.get("continue", True) is (action is DecisionAction.CONTINUE)

    @pytest.mark.parametrize("end", [b"\n", b"\r\n"])
    def test_a_line_is_passed_on_without_its_end(self, working: ClaudeCodec, end: bytes) -> None:
        (raw,) = working.receive(Channel.STDOUT, b'{"type":"odd"}' + end)
        assert raw == RawReceived("odd", '{"type":"odd"}')

    def test_an_unknown_request_is_refused_so_that_the_cli_does_not_wait(self, working: ClaudeCodec) -> None:
        (raw,) = feed(working, {"type": "control_request", "request_id": "x", "request": {"subtype": "elicit"}})
        assert isinstance(raw, RawReceived)
        assert raw.vendor_type == "control_request/elicit"
        (line,) = sent(working)
        assert line["response"]["subtype"] == "error"
        assert line["response"]["request_id"] == "x"


class TestInterruptAndEof:
    def test_an_interrupt_goes_out_while_a_turn_runs(self, working: ClaudeCodec) -> None:
        working.send(Interrupt())
        (line,) = sent(working)
        assert line["request"] == {"subtype": "interrupt"}

    def test_an_interrupt_of_nothing_sends_nothing(self, codec: ClaudeCodec) -> None:
        codec.send(Interrupt())
        assert sent(codec) == []

    def test_eof_is_unsafe_from_the_prompt_until_the_result(self, codec: ClaudeCodec) -> None:
        assert codec.eof_is_safe()
        codec.send(SendPrompt(PROMPT, "go"))
        assert not codec.eof_is_safe()
        feed(codec, lifecycle("started"), batch())
        assert not codec.eof_is_safe()
        feed(codec, result())
        assert codec.eof_is_safe()


class TestMessages:
    def test_a_message_that_only_calls_tools_ends_empty_with_its_reason(self, working: ClaudeCodec) -> None:
        call = {"type": "tool_use", "id": "t1", "name": "Read", "input": {"file_path": "/a b"}}
        begun = stream("message_start", message={"id": "m1", "model": "claude-x", "content": []})
        events = feed(
            working,
            begun,
            assistant(call),
            stream("message_delta", delta={"stop_reason": "tool_use"}, usage={"output_tokens": 5}),
            stream("message_stop"),
        )
        assert [type(event) for event in events] == [MessageStarted, ToolStarted, MessageEnded]
        assert isinstance(events[1], ToolStarted)
        assert events[1].call.title == "Read: /a b"
        assert events[1].call.tool_kind is ToolKind.READ
        assert events[1].call.arguments_json == '{"file_path": "/a b"}'
        assert events[2] == MessageEnded("m1", MessageKind.TEXT, "", FinishReason.TOOL_CALLS, "tool_use", "claude-x")

    def test_a_message_without_stream_events_is_told_from_its_lines(self, working: ClaudeCodec) -> None:
        events = feed(working, assistant({"type": "text", "text": "one "}), assistant({"type": "text", "text": "two"}))
        assert [type(event) for event in events].count(MessageStarted) == 1
        ended = feed(working, result())[0]
        assert isinstance(ended, MessageEnded)
        assert (ended.message_id, ended.text) == ("m1", "one two")

    def test_a_message_that_another_one_follows_without_an_end_is_closed(self, working: ClaudeCodec) -> None:
        feed(working, *stream_message("cut")[:3])
        events = feed(working, assistant({"type": "text", "text": "whole"}, message_id="m2"))
        assert isinstance(events[0], MessageEnded)
        assert (events[0].message_id, events[0].finish_reason) == ("m1", FinishReason.UNKNOWN)

    def test_a_sub_agents_text_is_a_message_that_names_it(self, working: ClaudeCodec) -> None:
        line = assistant({"type": "text", "text": "hi"}, parent_tool_use_id="t1", agent_id="a1")
        started, ended = feed(working, line)
        assert started == MessageStarted("u1", MessageKind.TEXT, "a1", "t1")
        assert isinstance(ended, MessageEnded)
        assert (ended.text, ended.subagent_id, ended.parent_call_id) == ("hi", "a1", "t1")

    @pytest.mark.parametrize(
        ("word", "reason"),
        [
            ("end_turn", FinishReason.STOP),
            ("max_tokens", FinishReason.LENGTH),
            ("refusal", FinishReason.CONTENT_FILTER),
            ("a_new_one", FinishReason.OTHER),
        ],
    )
    def test_the_models_stop_reason_is_translated_and_kept(
        self, working: ClaudeCodec, word: str, reason: FinishReason
    ) -> None:
        ended = feed(working, *stream_message("x", word))[-1]
        assert isinstance(ended, MessageEnded)
        assert (ended.finish_reason, ended.finish_reason_raw) == (reason, word)


class TestToolResults:
    @pytest.mark.parametrize(
        ("kind", "outcome"),
        [
            ("user-rejected", ToolOutcome.CANCELLED),
            ("interrupted", ToolOutcome.CANCELLED),
            ("cancelled", ToolOutcome.CANCELLED),
            ("permission-rule", ToolOutcome.DENIED),
            ("automode-blocked", ToolOutcome.DENIED),
            (None, ToolOutcome.FAILED),
        ],
    )
    def test_an_error_is_told_by_why_the_tool_gave_no_result(
        self, working: ClaudeCodec, kind: str | None, outcome: ToolOutcome
    ) -> None:
        meta = [{"id": "t1", "non_execution_kind": kind}]
        (ended,) = feed(working, tool_result("bad", is_error=True, tool_result_meta=meta))
        assert isinstance(ended, ToolEnded)
        assert (ended.result.outcome, ended.result.output, ended.result.error) == (outcome, None, "bad")

    @pytest.mark.parametrize(
        ("content", "output"),
        [
            ("plain", "plain"),
            (
                [{"type": "text", "text": "a"}, {"type": "image", "source": {}}, {"type": "text", "text": "b"}],
                "a\n[image]\nb",
            ),
            ([], ""),
            (None, ""),
        ],
    )
    def test_the_output_is_the_text_of_all_parts(self, working: ClaudeCodec, content: Any, output: str) -> None:
        (ended,) = feed(working, tool_result(content))
        assert isinstance(ended, ToolEnded)
        assert ended.result.output == output

    def test_the_cli_telling_of_an_interruption_is_no_result(self, working: ClaudeCodec) -> None:
        block = {"type": "text", "text": "[Request interrupted by user for tool use]"}
        assert feed(working, {"type": "user", "message": {"role": "user", "content": [block]}}) == []


class TestTurns:
    def test_an_api_error_is_an_error_although_its_subtype_is_success(self, working: ClaudeCodec) -> None:
        (ended,) = feed(
            working, result(is_error=True, terminal_reason="api_error", api_error_status=503, result="busy")
        )
        assert isinstance(ended, TurnEnded)
        assert ended.reason is TurnEndReason.ERROR
        assert ended.failure is not None
        assert (ended.failure.reason, ended.failure.fault, ended.failure.retryable, ended.failure.message) == (
            "AGENT_ERROR",
            FailureFault.PROVIDER,
            True,
            "busy",
        )

    @pytest.mark.parametrize(
        ("fields", "reason", "retryable"),
        [
            ({"api_error_status": 429}, "RATE_LIMITED", True),
            ({"api_error_status": 529}, "RATE_LIMITED", True),
            ({"api_error_status": 413, "terminal_reason": "image_error"}, "CONTEXT_OVERFLOW", False),
            ({"api_error_status": 401}, "AUTH_FAILED", False),
            ({"api_error_status": 403}, "AUTH_FAILED", False),
            ({"api_error_status": 402}, "QUOTA_EXHAUSTED", False),
            ({"api_error_status": 400}, "AGENT_ERROR", False),
            ({"terminal_reason": "prompt_too_long"}, "CONTEXT_OVERFLOW", False),
            ({"subtype": "error_max_turns"}, "MAX_ITERATIONS", False),
            ({"subtype": "error_max_budget_usd"}, "QUOTA_EXHAUSTED", False),
            ({"stop_reason": "refusal"}, "MODEL_REFUSED", False),
            ({"terminal_reason": "", "errors": ["", "[session_crash] x"]}, "AGENT_ERROR", False),
        ],
    )
    def test_a_failure_has_its_reason(
        self, working: ClaudeCodec, fields: dict[str, Any], reason: str, retryable: bool
    ) -> None:
        *_, ended = feed(working, result(**{"is_error": True, "terminal_reason": "api_error"} | fields))
        assert isinstance(ended, TurnEnded)
        assert ended.failure is not None
        assert (ended.failure.reason, ended.failure.retryable) == (reason, retryable)

    def test_a_quota_is_told_from_a_rate_limit_by_the_clis_word(self, working: ClaudeCodec) -> None:
        text = {"type": "text", "text": "Credit balance is too low"}
        *_, ended = feed(
            working, assistant(text, error="billing_error"), result(is_error=True, terminal_reason="api_error")
        )
        assert isinstance(ended, TurnEnded)
        assert ended.failure is not None
        assert ended.failure.reason == "QUOTA_EXHAUSTED"

    def test_an_older_cli_gives_sums_of_the_session_and_the_turn_is_the_difference(self, codec: ClaudeCodec) -> None:
        ended = []
        for number in (1, 2):
            codec.send(SendPrompt(str(number), "go"))
            sums = {"m": {"inputTokens": 100 * number, "outputTokens": 20 * number, "costUSD": 0.001 * number}}
            ended += feed(codec, lifecycle("started", str(number)), result(modelUsage=sums))[1:]
        assert [event.usage for event in ended if isinstance(event, TurnEnded)] == [Usage(100, 0, 0, 20)] * 2
        assert [event.cost for event in ended if isinstance(event, TurnEnded)] == [Cost(1_000, CostBasis.REPORTED)] * 2

    def test_the_first_turn_after_a_resume_has_no_cost_if_the_cli_gives_only_sums(self) -> None:
        codec = ClaudeCodec(settings(resume=True))
        codec.start()
        feed(codec, handshake())
        codec.send(SendPrompt(PROMPT, "go"))
        sums = {"m": {"inputTokens": 900, "outputTokens": 99, "costUSD": 1.0}}
        usage = {"input_tokens": 10, "cache_read_input_tokens": 5, "output_tokens": 7}
        *_, ended = feed(codec, lifecycle("started"), result(modelUsage=sums, usage=usage))
        assert isinstance(ended, TurnEnded)
        assert ended.usage == Usage(15, 5, None, 7)
        assert ended.cost is None

    def test_zeroed_sums_of_a_crash_are_unknown(self, working: ClaudeCodec) -> None:
        crash = result(is_error=True, subtype="error_during_execution", terminal_reason="", modelUsage={}, usage={})
        (ended,) = feed(working, crash)
        assert isinstance(ended, TurnEnded)
        assert (ended.usage, ended.cost) == (None, None)


class TestOddLines:
    def test_a_lone_surrogate_in_the_boundarys_line_is_mended_and_the_boundary_is_seen(
        self, working: ClaudeCodec
    ) -> None:
        line = json.dumps(batch("b1", "t1")).replace('"tool_calls"', '"cut": "\\ud83d", "tool_calls"').encode()
        assert feed(working, line) == [BoundaryReached("b1", ("t1",))]

    def test_a_lone_surrogate_in_a_result_becomes_a_replacement_character(self, working: ClaudeCodec) -> None:
        line = json.dumps(tool_result("CUT")).replace("CUT", "a\\ud83db\\udc00").encode()
        (ended,) = feed(working, line)
        assert isinstance(ended, ToolEnded)
        assert ended.result.output == "a\ufffdb\ufffd"

    def test_a_whole_pair_stays_whole(self, working: ClaudeCodec) -> None:
        line = json.dumps(tool_result("CUT")).replace("CUT", "\\ud83d\\ude00\\ud83d").encode()
        (ended,) = feed(working, line)
        assert isinstance(ended, ToolEnded)
        assert ended.result.output == "\U0001f600\ufffd"

    def test_a_lone_surrogate_in_arguments_and_raw_lines_does_not_leave_the_codec(self, working: ClaudeCodec) -> None:
        call = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "CUT"}}
        lines = [
            json.dumps(line).replace("CUT", "\\ud83d").encode() for line in (assistant(call), {"type": "x", "y": "CUT"})
        ]
        events = feed(working, *lines)
        texts = [event.call.arguments_json for event in events if isinstance(event, ToolStarted)]
        texts += [event.payload_json for event in events if isinstance(event, RawReceived)]
        assert len(texts) == 2
        assert all("\ufffd" in text and "\\ud83d" not in text for text in texts)

    def test_bytes_that_are_no_utf_8_are_replaced(self, working: ClaudeCodec) -> None:
        line = json.dumps(tool_result("CUT")).encode().replace(b"CUT", b"\xff\xfe")
        (ended,) = feed(working, line)
        assert isinstance(ended, ToolEnded)
        assert ended.result.output == "\ufffd\ufffd"

    @pytest.mark.parametrize(
        "line",
        [
            b'{"type":"user","message":{"role"',
            b'{"type":"control_request"}',
            b'{"type":"result","subtype":5}',
            b'{"type":"control_response","response":[]}',
            b"{" + b'"a":{' * 100_000,
            b'{"type":"user","message":1,"rest":',
        ],
    )
    def test_what_begins_like_json_and_is_none_or_is_essential_and_odd_fails_the_protocol(
        self, working: ClaudeCodec, line: bytes
    ) -> None:
        (failed,) = feed(working, line)
        assert isinstance(failed, ProtocolFailed)

    @pytest.mark.parametrize(
        ("line", "vendor_type"),
        [
            (b'{"type":"brand_new","x": 1}', "brand_new"),
            (b'{"type":"system","subtype":"task_started","x": 1}', "system/task_started"),
            (b'{"type":"rate_limit_event","rate_limit_info":{"status":"allowed"}}', "rate_limit_event"),
            (b'{"type":"user","message":7}', "user"),
            (b'{"no_type": true}', ""),
            (b'{"type": 5}', ""),
        ],
    )
    def test_what_is_unknown_is_passed_on_as_it_came(self, working: ClaudeCodec, line: bytes, vendor_type: str) -> None:
        assert feed(working, line) == [RawReceived(vendor_type, line.decode())]

    def test_noise_is_counted_and_skipped(self, working: ClaudeCodec) -> None:
        events = feed(working, b"warning: x", b"", b"  ", b"[debug] y", b"  " + json.dumps(tool_result()).encode())
        assert [type(event) for event in events] == [ToolEnded]
        assert working.noise_lines == 2

    def test_an_overlong_line_fails_the_protocol_and_names_the_limit(self) -> None:
        codec = ClaudeCodec(settings(line_bytes=1_000))
        codec.start()
        failed, ready = feed(codec, b'{"type":"user"' + b" " * 2_000 + b"}", handshake())
        assert isinstance(failed, ProtocolFailed)
        assert "1000 bytes" in failed.message
        assert isinstance(ready, AgentReady)

    def test_a_last_line_without_a_line_end_counts(self, working: ClaudeCodec) -> None:
        assert working.receive(Channel.STDOUT, json.dumps(result()).encode()) == []
        (ended,) = working.receive_eof(Channel.STDOUT)
        assert isinstance(ended, TurnEnded)

    def test_a_sign_of_life_says_nothing(self, working: ClaudeCodec) -> None:
        assert feed(working, {"type": "keep_alive"}) == []


def test_a_delta_longer_than_an_event_may_be_comes_as_several_that_join_to_it() -> None:
    codec = ClaudeCodec(settings())
    start = {"type": "message_start", "message": {"id": "msg_1", "model": "m", "content": [], "usage": {}}}
    text = "\U0001f600x" * 20_000
    delta = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}
    lines = [{"type": "stream_event", "event": event, "parent_tool_use_id": None} for event in (start, delta)]
    deltas = [event for event in feed(codec, *lines) if isinstance(event, MessageDelta)]
    assert "".join(event.text for event in deltas) == text
    assert len(deltas) > 1
    assert all(len(event.text.encode()) <= 64 * 1024 for event in deltas)
