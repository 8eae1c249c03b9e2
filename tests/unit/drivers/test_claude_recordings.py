"""The codec over recorded traffic of the real program; what is expected is counted in the recording itself."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from tests.unit.drivers import recordings
from tests.unit.drivers.recordings import Recording

from steprail_daemon.core.events import (
    AgentErrorReported,
    AgentEvent,
    AgentReady,
    BoundaryReached,
    ContextWindowChanged,
    FileModified,
    MessageDelta,
    MessageEnded,
    MessageStarted,
    ModelChanged,
    PermissionAsked,
    PlanProposed,
    PromptConfirmed,
    ProtocolFailed,
    QuestionAsked,
    RateLimited,
    RawReceived,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    UsageReported,
)
from steprail_daemon.core.model import (
    ContextWindowKind,
    Cost,
    CostBasis,
    FailureFault,
    FileChange,
    FinishReason,
    MessageKind,
    ToolKind,
    ToolOutcome,
    TurnEndReason,
    Usage,
)

ALL = recordings.load_all()
every = pytest.mark.parametrize("recording", ALL, ids=str)
#: Those in which the conversation was not summed up.
whole = pytest.mark.parametrize("recording", [each for each in ALL if each.name != "compaction"], ids=str)

COMPLETED, ABORTED = TurnEndReason.COMPLETED, TurnEndReason.ABORTED
STOPPED, FAILED = TurnEndReason.STOP_CONDITION, TurnEndReason.ERROR


def of(events: list[AgentEvent], *kinds: type) -> list[Any]:
    return [event for event in events if isinstance(event, kinds)]


def current(name: str) -> Recording:
    return recordings.load("2.1.332", name)


def main_messages(recording: Recording) -> list[str]:
    """Ids of the main loop's messages of the model, in order."""
    ids = [
        line["message"]["id"]
        for line in recording.out("assistant")
        if line["parent_tool_use_id"] is None and "error" not in line
    ]
    return list(dict.fromkeys(ids))


def tool_result_ids(recording: Recording) -> list[str]:
    contents = [line["message"]["content"] for line in recording.out("user")]
    blocks = [block for content in contents if isinstance(content, list) for block in content]
    return [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]


@every
@given(seed=st.integers(0, 2**32), size=st.sampled_from([1, 7, 100, 4_096]))
@hypothesis_settings(max_examples=5)
def test_events_do_not_depend_on_how_the_bytes_are_cut(recording: Recording, seed: int, size: int) -> None:
    assert recording.events(recordings.random_cutter(seed, size)) == recording.events()


@every
def test_nothing_in_a_recording_breaks_the_protocol(recording: Recording) -> None:
    assert of(recording.events(), ProtocolFailed) == []


@every
def test_each_model_message_of_the_main_loop_is_one_message(recording: Recording) -> None:
    events = recording.events()
    kept = [event for event in of(events, MessageStarted, MessageEnded) if event.kind is MessageKind.TEXT]
    main = [event for event in kept if not event.parent_call_id]
    expected = main_messages(recording)
    assert [event.message_id for event in main if isinstance(event, MessageStarted)] == expected
    assert [event.message_id for event in main if isinstance(event, MessageEnded)] == expected


@every
def test_the_parts_of_a_message_joined_are_the_message(recording: Recording) -> None:
    events = recording.events()
    for ended in of(events, MessageEnded):
        if not ended.parent_call_id:
            parts = [event.text for event in of(events, MessageDelta) if event.message_id == ended.message_id]
            assert "".join(parts) == ended.text


@every
def test_the_gates_hook_for_the_main_loop_is_a_boundary_and_for_a_sub_agent_is_none(recording: Recording) -> None:
    batches = [
        line
        for line in recording.out("control_request")
        if line["request"].get("callback_id") == "PostToolBatch" and "agent_id" not in line["request"]["input"]
    ]
    expected = [
        (line["request_id"], tuple(call["tool_use_id"] for call in line["request"]["input"]["tool_calls"]))
        for line in batches
    ]
    assert [(event.boundary_id, event.call_ids) for event in of(recording.events(), BoundaryReached)] == expected


@every
def test_each_tool_result_is_told_once_and_belongs_to_a_call_that_began(recording: Recording) -> None:
    events = recording.events()
    ended = [event.result.call_id for event in of(events, ToolEnded)]
    assert ended == tool_result_ids(recording)
    assert len(set(ended)) == len(ended)
    assert set(ended) <= {event.call.call_id for event in of(events, ToolStarted)}


@whole
def test_the_tool_results_told_are_those_that_the_model_gets(recording: Recording) -> None:
    """What the endpoint received last, against what the events said until then."""
    received = [
        block.removeprefix("ERR ").removeprefix("tool_result:")
        for _, blocks in (recording.requests or [{"messages": []}])[-1]["messages"]
        for block in blocks
        if "tool_result:" in block
    ]
    told = [
        (event.result.output or event.result.error or "")[:70].replace("\n", " ")
        for event in of(recording.events(), ToolEnded)
        if not event.parent_call_id
    ]
    # The results of a turn's end reach the endpoint with the next prompt only, so the last ones may be missing.
    assert sorted(received) == sorted(told[: len(received)])
    assert len(told) - len(received) <= 3


@every
def test_the_turns_usage_and_cost_add_up_to_the_sessions(recording: Recording) -> None:
    turns = of(recording.events(), TurnEnded)
    sums = [line for line in recording.out("result") if line.get("modelUsage")]
    if not sums:
        assert [turn.reason for turn in turns] == [FAILED]
        return
    models = sums[-1]["modelUsage"].values()
    kinds = ("inputTokens", "cacheReadInputTokens", "cacheCreationInputTokens")
    counted = [*turns, *of(recording.events(), UsageReported)]
    usages = [event.usage for event in counted if event.usage is not None]
    assert sum(usage.input_tokens or 0 for usage in usages) == sum(model[kind] for model in models for kind in kinds)
    assert sum(usage.output_tokens or 0 for usage in usages) == sum(model["outputTokens"] for model in models)
    spent = sum(turn.cost.micro_usd for turn in turns if turn.cost is not None)
    assert spent == round(sums[-1]["total_cost_usd"] * 1e6)


@every
def test_every_prompt_is_confirmed_once(recording: Recording) -> None:
    prompts = [r["msg"]["uuid"] for r in recording.records if r["dir"] == "in" and r["msg"]["type"] == "user"]
    assert [event.prompt_id for event in of(recording.events(), PromptConfirmed)] == prompts


@pytest.mark.parametrize(
    ("name", "reasons"),
    [
        ("batch_stop", [STOPPED, STOPPED, COMPLETED]),
        ("denied", [COMPLETED]),
        ("hook_error", [STOPPED]),
        ("hook_timeout", [FAILED, COMPLETED]),
        ("interrupt_at_boundary", [ABORTED, COMPLETED]),
        ("interrupt_stream", [ABORTED, COMPLETED, ABORTED, COMPLETED]),
        ("interrupt_tool", [ABORTED, COMPLETED]),
        ("interrupts", [ABORTED, ABORTED, ABORTED]),
        ("max_turns", [FAILED, COMPLETED]),
        ("parallel_tools", [STOPPED, COMPLETED]),
        ("permission_rewritten", [ABORTED, COMPLETED, ABORTED, COMPLETED]),
        ("permissions", [ABORTED]),
        ("rate_limited", [FAILED, COMPLETED, FAILED]),
        ("resume_unknown", [FAILED]),
        ("retries", [COMPLETED, ABORTED, COMPLETED, COMPLETED, COMPLETED, COMPLETED, COMPLETED, COMPLETED]),
        ("stop_resume", [STOPPED, COMPLETED]),
        ("sub_agent", [COMPLETED]),
        ("sub_agents_parallel", [STOPPED, COMPLETED]),
    ],
)
def test_turns_end_for_the_reason_that_the_cli_gave(name: str, reasons: list[TurnEndReason]) -> None:
    assert [turn.reason for turn in of(current(name).events(), TurnEnded)] == reasons


@pytest.mark.parametrize(
    "name",
    [
        "compaction",
        "edits",
        "guided",
        "interrupts",
        "permissions",
        "plan",
        "questions",
        "stop_resume",
        "sub_agent",
        "sub_agents_parallel",
    ],
)
def test_the_codec_sends_what_was_sent_when_it_was_recorded(name: str) -> None:
    recording = current(name)
    sent = [line for life in recording.play() for line in life.sent]
    recorded = [record["msg"] for record in recording.records if record["dir"] == "in"]
    # Older recordings asked for fewer hooks.
    assert without_handshake(sent) == without_handshake(recorded)


def without_handshake(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [line for line in lines if line.get("request", {}).get("subtype") != "initialize"]


def test_a_stopped_run_and_its_continuation_word_for_word() -> None:
    first, second = current("stop_resume").play()
    assert [event.usage for event in of(first.events, BoundaryReached)] == [Usage(100, 0, 0, 20, None)] * 2
    (ended,) = of(first.events, TurnEnded)
    assert ended == TurnEnded(
        TurnEndReason.STOP_CONDITION,
        "hook_stopped",
        "I work.",
        usage=Usage(200, 0, 0, 40, 0),
        cost=Cost(1_600, CostBasis.REPORTED),
    )
    results = [event.result for event in of(first.events, ToolEnded)]
    assert {result.output for result in results if result.outcome is ToolOutcome.SUCCEEDED} == {"one", "two", "three"}
    (failed,) = [result for result in results if result.outcome is ToolOutcome.FAILED]
    assert "missing.txt" in (failed.error or "")

    thought, text = of(second.events, MessageEnded)
    assert (thought.kind, thought.text) == (MessageKind.THOUGHT, "Let me see.")
    assert (text.kind, text.text, text.finish_reason, text.finish_reason_raw, text.model) == (
        MessageKind.TEXT,
        "I saw it all.",
        FinishReason.STOP,
        "end_turn",
        "claude-opus-5-5",
    )
    (ended,) = of(second.events, TurnEnded)
    assert ended.text == "I saw it all."
    assert ended.usage == Usage(1_057, 1_000, 50, 33, 0)


def test_the_handshake_of_2_1_332_confirms_the_gate_and_that_of_2_1_197_does_not() -> None:
    (new,) = of(current("hook_error").events(), AgentReady)
    (old,) = of(recordings.load("2.1.197", "batch_stop").events(), AgentReady)
    assert (new.version, new.gate_held) == ("2.1.332", True)
    assert (old.version, old.gate_held) == ("", False)


def test_usage_without_stream_events_is_not_taken_for_the_whole() -> None:
    boundaries = of(current("batch_stop").events(), BoundaryReached)
    assert {boundary.usage for boundary in boundaries} == {Usage(100, 0, 0, None, None, complete=False)}


def test_denied_calls_are_denied_and_the_turn_goes_on() -> None:
    events = current("denied").events()
    assert [asked.call_id for asked in of(events, PermissionAsked)] == tool_result_ids(current("denied"))
    assert {(event.result.outcome, event.result.error) for event in of(events, ToolEnded)} == {
        (ToolOutcome.DENIED, "no")
    }


def test_a_call_that_was_cut_off_is_cancelled_and_its_sibling_succeeded() -> None:
    outcomes = [event.result.outcome for event in of(current("interrupt_tool").events(), ToolEnded)]
    assert outcomes == [ToolOutcome.SUCCEEDED, ToolOutcome.CANCELLED]


def test_an_interrupted_text_is_kept_and_has_no_finish_reason() -> None:
    first = of(current("interrupt_stream").events(), MessageEnded)[0]
    assert (first.text, first.finish_reason, first.finish_reason_raw) == (
        "w0 w1 w2 w3 w4 w5 ",
        FinishReason.UNKNOWN,
        "",
    )


def test_a_tool_call_that_the_interrupt_cut_while_it_was_written_never_began() -> None:
    assert of(current("interrupt_stream").events(), ToolStarted) == []


def test_a_rate_limit_that_ends_a_turn_is_a_typed_failure_and_no_message() -> None:
    events = current("rate_limited").events()
    failure = of(events, TurnEnded)[0].failure
    assert (failure.reason, failure.fault, failure.retryable) == ("RATE_LIMITED", FailureFault.PROVIDER, True)
    assert [(event.code, event.will_retry) for event in of(events, AgentErrorReported)] == [("rate_limit", False)] * 2
    # Each refused request: the retried one with its delay, the last one without.
    limits = of(events, RateLimited)
    assert [event.http_status for event in limits] == [429] * 4
    assert [event.retry_after_ns is None for event in limits] == [False, True] * 2
    assert failure.retry_after_ns == limits[0].retry_after_ns
    assert not any("API Error" in event.text for event in of(events, MessageEnded))


def test_a_turn_limit_is_max_iterations_and_a_crash_is_the_agents_fault() -> None:
    (limited, _) = of(current("max_turns").events(), TurnEnded)
    (crashed, _) = of(current("hook_timeout").events(), TurnEnded)
    assert limited.failure.reason == "MAX_ITERATIONS"
    assert (crashed.failure.reason, crashed.failure.fault) == ("AGENT_ERROR", FailureFault.AGENT)
    assert "[session_crash]" in crashed.failure.message


def test_an_unknown_session_is_a_failed_resume() -> None:
    events = current("resume_unknown").events()
    (ended,) = of(events, TurnEnded)
    assert events == [ended]
    assert ended.failure.reason == "RESUME_FAILED"
    assert "No conversation found" in ended.failure.message


def test_a_sub_agents_events_name_it_and_its_call() -> None:
    events = current("sub_agent").events()
    outer, inner = of(events, ToolStarted)
    assert (outer.subagent_id, outer.parent_call_id) == ("", "")
    assert (inner.subagent_id != "", inner.parent_call_id) == (True, outer.call.call_id)
    assert [event.subagent_id for event in of(events, ToolEnded)] == [inner.subagent_id, ""]


def test_what_a_sub_agent_used_is_told_once_before_the_boundary_of_its_call() -> None:
    events = current("sub_agent").events()
    used, boundary = of(events, UsageReported, BoundaryReached)
    (_, inner) = of(events, ToolStarted)
    assert used == UsageReported(
        Usage(200, 0, 0, 40, 0), Cost(1_600, CostBasis.REPORTED), "", inner.subagent_id, inner.parent_call_id
    )
    assert (boundary.usage, boundary.cost) == (Usage(100, 0, 0, 20, None), None)


def test_what_two_sub_agents_used_at_the_same_time_is_told_under_both_their_ids() -> None:
    events = current("sub_agents_parallel").events()
    (used,) = of(events, UsageReported)
    inner = [event for event in of(events, ToolStarted) if event.subagent_id]
    assert set(used.subagent_id.split()) == {event.subagent_id for event in inner}
    assert set(used.parent_call_id.split()) == {event.parent_call_id for event in inner}
    assert used.usage == Usage(400, 0, 0, 80, 0)


def test_a_summary_is_told_with_its_use_and_its_text_is_no_message() -> None:
    events = current("compaction").events()
    (side,), (changed,) = of(events, UsageReported), of(events, ContextWindowChanged)
    assert side.side_request
    assert changed == ContextWindowChanged(ContextWindowKind.COMPACTED, changed.used_tokens)
    assert changed.used_tokens is not None
    assert not any("Two echoes" in event.text for event in of(events, MessageEnded))
    steps = of(events, BoundaryReached)
    (turn,) = of(events, TurnEnded)
    money = [event.cost.micro_usd for event in (*steps, side)]
    # And the last message, which has no boundary.
    assert sum(money) + 800 == turn.cost.micro_usd


def test_a_model_and_texts_go_with_the_answer_at_the_boundary() -> None:
    events = current("guided").events()
    assert of(events, ModelChanged) == [ModelChanged("claude-sonnet-4-5")]
    assert [event.model for event in of(events, MessageEnded)][1:] == ["claude-sonnet-4-5"] * 2
    # 100 tokens in and 20 out, at the prices of the two models.
    assert [event.cost.micro_usd for event in of(events, BoundaryReached)] == [800, 600]


def test_a_plan_is_told_with_the_permission_that_accepts_it() -> None:
    proposed, asked = of(current("plan").events(), PlanProposed, PermissionAsked)
    assert proposed == PlanProposed("# The plan\n1. Touch.", asked.permission_id)
    assert (asked.tool, asked.tool_kind) == ("ExitPlanMode", ToolKind.OTHER)


def test_questions_are_no_permissions_and_one_that_nobody_answers_is_denied() -> None:
    events = current("questions").events()
    first, second = of(events, QuestionAsked)
    assert not of(events, PermissionAsked)
    assert [item.text for item in first.items] == ["Which colour?", "Which fruits?"]
    outcomes = [(event.result.call_id, event.result.outcome) for event in of(events, ToolEnded)]
    assert outcomes == [(first.call_id, ToolOutcome.SUCCEEDED), (second.call_id, ToolOutcome.DENIED)]


def test_files_that_editing_tools_change_are_told_as_created_or_modified() -> None:
    changed = [(event.path, event.change) for event in of(current("edits").events(), FileModified)]
    assert changed == [("a.txt", FileChange.CREATED), *[("a.txt", FileChange.MODIFIED)] * 2]


def test_what_has_no_form_of_its_own_is_passed_on_with_its_type() -> None:
    kinds = {event.vendor_type for event in of(current("sub_agent").events(), RawReceived)}
    assert {"system/task_started", "system/task_notification"} <= kinds
