"""The codec over recorded traffic of the real program; what is expected is counted in what the model's endpoint saw."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from tests.unit.drivers import autohand_recordings as recordings
from tests.unit.drivers.autohand_recordings import Recording
from tests.unit.drivers.recordings import random_cutter

from steprail_daemon.core.events import (
    AgentErrorReported,
    AgentEvent,
    AgentReady,
    BoundaryReached,
    ContextWindowChanged,
    FileModified,
    MessageEnded,
    PermissionAsked,
    PermissionWithdrawn,
    PlanProposed,
    PromptConfirmed,
    ProtocolFailed,
    RateLimited,
    ToolEnded,
    ToolStarted,
    TurnEnded,
)
from steprail_daemon.core.model import (
    SECOND,
    ContextWindowKind,
    FileChange,
    MessageKind,
    RateLimitKind,
    ToolKind,
    ToolOutcome,
    TurnEndReason,
    Usage,
)

ALL = recordings.load_all()
every = pytest.mark.parametrize("recording", ALL, ids=str)

COMPLETED, ABORTED = TurnEndReason.COMPLETED, TurnEndReason.ABORTED
STOPPED, FAILED = TurnEndReason.STOP_CONDITION, TurnEndReason.ERROR

#: The host of this one sent lines that are no requests.
MALFORMED = "k-malformed"
#: The model's replies whose calls the loop's guard refused: they make no step.
REFUSED_BY_GUARD = {"d2-reflection-guard": 2}


def of(events: list[AgentEvent], *kinds: type) -> list[Any]:
    return [event for event in events if isinstance(event, kinds)]


def events_of(name: str) -> list[AgentEvent]:
    return recordings.load(name).play().events


def turns_of(name: str) -> list[TurnEnded]:
    return of(events_of(name), TurnEnded)


@every
@given(seed=st.integers(0, 2**32), size=st.sampled_from([1, 7, 100, 4_096]))
@hypothesis_settings(max_examples=5)
def test_events_do_not_depend_on_how_the_bytes_are_cut(recording: Recording, seed: int, size: int) -> None:
    whole, pieces = recording.play(), recording.play(random_cutter(seed, size))
    assert pieces.events == whole.events
    assert pieces.sent == whole.sent


@every
def test_nothing_in_a_recording_breaks_the_protocol(recording: Recording) -> None:
    failed = of(recording.play().events, ProtocolFailed)
    assert len(failed) == (3 if recording.name == MALFORMED else 0)


@every
def test_every_prompt_is_confirmed_once_by_the_start_of_its_turn(recording: Recording) -> None:
    played = recording.play()
    confirmed = [event.prompt_id for event in of(played.events, PromptConfirmed)]
    assert confirmed == played.prompts[: len(confirmed)]
    # An agent that was killed in its first turn took the prompt, too.
    assert len(confirmed) == len(played.prompts)


@every
def test_each_turn_that_ended_is_told_once(recording: Recording) -> None:
    ended = [event for event in of(recording.play().events, TurnEnded) if event.reason_raw != "start"]
    assert [event.reason_raw for event in ended] == [turn.reason for turn in recording.turns()]


@every
def test_the_steps_are_the_models_replies_with_calls_that_were_carried_out(recording: Recording) -> None:
    """A step has the ids of all calls of its reply; the reply's text is its thought."""
    expected: list[list[str]] = []
    thoughts: list[str] = []
    call = 0
    for turn in recording.turns():
        refused = REFUSED_BY_GUARD.get(recording.name, 0)
        for position, reply in enumerate(turn.replies):
            ids = []
            for _ in reply.get("tools", []):
                call += 1
                ids.append(f"call_{call}")
            if not ids or not turn.gated:
                continue
            if position > 0 and refused:
                refused -= 1
                continue
            if turn.reason == "aborted" and not (turn.tools_ended.issuperset(ids) and recording.out("stepEnd")):
                continue
            expected.append(ids)
            thoughts.append(reply.get("text", "").strip())
    events = recording.play().events
    held = [event for event in of(events, BoundaryReached) if event.held]
    assert [list(event.call_ids) for event in held] == expected
    told = [event.text for event in of(events, MessageEnded) if event.kind is MessageKind.THOUGHT]
    assert told == [thought for thought in thoughts if thought]


@every
def test_without_the_host_as_the_gate_each_step_is_told_as_one_that_nobody_held(recording: Recording) -> None:
    """Recorded hosts that asked for no gate stand for a CLI that has none: it must not pass for held."""
    expected = 0
    for turn in recording.turns():
        with_calls = [bool(reply.get("tools")) for reply in turn.replies]
        if not turn.gated and turn.tools_ended:
            expected += sum(with_calls[:-1])
    free = [event for event in of(recording.play().events, BoundaryReached) if not event.held]
    assert len(free) == expected


@every
def test_the_tool_results_told_are_those_that_the_model_gets(recording: Recording) -> None:
    told = {event.result.call_id: event.result for event in of(recording.play().events, ToolEnded)}
    for call_id, content in recording.tool_messages().items():
        if content.startswith("Tool call not executed"):
            assert call_id not in told
        elif call_id in told:
            result = told[call_id]
            text = result.output if result.outcome is ToolOutcome.SUCCEEDED else result.error
            shown = content.partition("...(+")[0]
            assert (text or "").startswith(shown)


@every
def test_each_result_belongs_to_a_call_that_began_before_and_is_told_once(recording: Recording) -> None:
    events = recording.play().events
    open_calls: set[str] = set()
    for event in of(events, ToolStarted, ToolEnded):
        if isinstance(event, ToolStarted):
            open_calls.add(event.call.call_id)
        else:
            open_calls.remove(event.result.call_id)
    # Where the process was killed inside a tool, nothing more came.
    assert open_calls == ({"call_1"} if recording.name == "m-sigkill-tool" else set())


@every
def test_the_tokens_of_each_turn_are_those_of_the_models_replies_in_it(recording: Recording) -> None:
    known = True
    expected: list[Usage | None] = []
    for turn in recording.turns():
        tokens = turn.tokens
        # A call of the model that was cut off, refused or counted nothing makes all that follows unknown.
        asked_in_vain = turn.reason == "aborted" and not turn.replies
        known = known and tokens is not None and not asked_in_vain
        # What slash commands of the recorded host did to the number nobody can tell.
        known = known and not (recording.name == "t9-prompt-fields" and len(expected) == 1)
        expected.append(Usage(reported_total=tokens) if known else None)
    ended = [event for event in of(recording.play().events, TurnEnded) if event.reason_raw != "start"]
    assert [event.usage for event in ended] == expected


@every
def test_the_last_text_of_a_turn_is_the_models_last_reply(recording: Recording) -> None:
    ended = [event for event in of(recording.play().events, TurnEnded) if event.reason_raw != "start"]
    for turn, event in zip(recording.turns(), ended, strict=True):
        last = turn.replies[-1] if turn.replies else {}
        # One turn was cut off after its text.
        whole = (turn.reason == "completed" and not last.get("tools")) or last.get("text") == "hi again"
        assert event.text == (last.get("text", "") if whole else "")


@every
def test_batches_are_accepted_as_soon_as_they_begin(recording: Recording) -> None:
    sent = [line["params"] for line in recording.play().sent if line["method"] == "autohand.changesDecision"]
    assert all(params["action"] == "accept_all" for params in sent)
    begun = [params["batchId"] for params in recording.out("changesBatchStart")]
    left = [params["batchId"] for params in recording.out("changesBatchEnd") if params["changeCount"]]
    assert sorted(params["batchId"] for params in sent) == sorted(begun + left)


@every
def test_questions_are_acknowledged_before_anything_else_is_sent(recording: Recording) -> None:
    sent = [line for line in recording.play().sent if line["method"].endswith("Acknowledged")]
    asked = recording.out("permissionRequest") + recording.out("directoryAccessRequest")
    assert [line["params"]["requestId"] for line in sent] == [params["requestId"] for params in asked]


@pytest.mark.parametrize(
    ("name", "reasons"),
    [
        ("c-stopwhen-stop-then-continue", [STOPPED, COMPLETED]),
        ("f-abort-while-decision-pending", [ABORTED, COMPLETED]),
        ("g1-abort-during-model-call", [ABORTED, COMPLETED]),
        ("h1-429-with-retry-after", [FAILED, COMPLETED]),
        ("h3-500-retries", [FAILED, COMPLETED, FAILED]),
        ("t1-bootstrap-fails", [FAILED]),
        ("t9-prompt-fields", [COMPLETED, COMPLETED]),
        ("m-sigterm-busy", [ABORTED]),
    ],
)
def test_how_turns_end(name: str, reasons: list[TurnEndReason]) -> None:
    assert [event.reason for event in turns_of(name)] == reasons


def test_a_rate_limit_is_told_with_its_time_and_fails_the_turn_that_the_cli_calls_completed() -> None:
    events = events_of("h1-429-with-retry-after")
    (limited,) = of(events, RateLimited)
    assert limited == RateLimited(RateLimitKind.TRANSIENT, "openai", "fixture-model", 429, 2 * SECOND)
    failure = of(events, TurnEnded)[0].failure
    assert (failure.reason, failure.retryable, failure.retry_after_ns) == ("RATE_LIMITED", True, 2 * SECOND)
    assert [event.text for event in of(events, MessageEnded)] == ["recovered"]
    assert len(of(events, AgentErrorReported)) == 1


def test_a_rate_limit_without_a_time_has_none() -> None:
    events = events_of("h2-429-without-retry-after")
    assert of(events, RateLimited)[0].retry_after_ns is None
    assert of(events, TurnEnded)[0].failure.retry_after_ns is None


def test_errors_of_the_provider_have_their_reasons() -> None:
    events = events_of("h3-500-retries")
    failures = [event.failure for event in of(events, TurnEnded)]
    assert [failure and failure.reason for failure in failures] == ["AGENT_ERROR", None, "AUTH_FAILED"]
    # It was 17526 before: the summary is longer than what it stands for.
    assert of(events, ContextWindowChanged) == [
        ContextWindowChanged(ContextWindowKind.WARNING, 17_544),
        ContextWindowChanged(ContextWindowKind.COMPACTED),
    ]


def test_a_denied_call_is_told_although_the_cli_tells_only_its_result() -> None:
    events = events_of("i2-permission-deny")
    first = of(events, ToolEnded)[0]
    assert first.result.outcome is ToolOutcome.DENIED
    started = of(events, ToolStarted)
    assert (started[0].call.call_id, started[0].call.tool_kind) == (first.result.call_id, ToolKind.EXECUTE)


def test_an_alternative_is_what_ran() -> None:
    played = recordings.load("i2-permission-deny").play()
    answers = [line["params"] for line in played.sent if line["method"] == "autohand.permissionResponse"]
    assert [params["decision"] for params in answers] == ["deny_once", "alternative"]
    assert answers[1]["alternative"] == "use printf instead"
    assert of(played.events, ToolStarted)[1].call.arguments_json == '{"command":"use printf instead","args":[]}'


def test_a_permission_names_its_call_with_all_of_its_arguments() -> None:
    (first, _) = of(events_of("s-write-file-preview"), PermissionAsked)
    assert (first.call_id, first.tool, first.tool_kind) == ("call_1", "write_file", ToolKind.EDIT)
    assert "made by the agent" in first.arguments_json
    assert first.title == "Write to this file? new.txt"


def test_a_permission_that_an_abort_made_void_is_withdrawn() -> None:
    events = events_of("i4-abort-while-permission-pending")
    (asked,) = of(events, PermissionAsked)
    assert of(events, PermissionWithdrawn) == [PermissionWithdrawn(asked.permission_id)]


def test_access_to_a_directory_is_a_permission_of_its_tool() -> None:
    played = recordings.load("t4b-directory-access").play()
    (asked,) = of(played.events, PermissionAsked)
    assert (asked.tool, asked.call_id) == ("request_directory_access", "call_1")
    (answer,) = [line["params"] for line in played.sent if line["method"] == "autohand.directoryAccessResponse"]
    assert answer == {"requestId": asked.permission_id, "granted": True}


def test_file_changes_are_told_once() -> None:
    (changed,) = of(events_of("s3-accept-at-batch-start"), FileModified)
    assert changed == FileModified("new.txt", FileChange.CREATED, "call_1")


def test_a_plan_is_proposed() -> None:
    assert of(events_of("r2-plan-mode-no-env"), PlanProposed) == [PlanProposed("1. look\n2. change")]


def test_a_line_that_is_no_json_after_the_end_is_noise() -> None:
    played = recordings.load("m-sigterm-tool").play()
    assert played.codec.noise_lines == 1
    (ended,) = of(played.events, ToolEnded)
    assert ended.result.outcome is ToolOutcome.CANCELLED


def test_an_old_session_is_attached_by_its_saved_id() -> None:
    played = recordings.load("l-reset-state-attach-2").play()
    (ready,) = of(played.events, AgentReady)
    assert ready.agent_session_id == recordings.SAVED
    assert [line["method"] for line in played.sent[:2]] == ["autohand.session.attach", "autohand.permissionModeSet"]


@pytest.mark.parametrize(
    ("name", "reason"), [("n-no-auth", "AUTH_FAILED"), ("v1-bare", "AUTH_FAILED"), ("n-bad-path", "AGENT_START_FAILED")]
)
def test_why_it_did_not_start_is_told(name: str, reason: str) -> None:
    (ended,) = turns_of(name)
    assert ended.failure is not None
    assert (ended.reason, ended.failure.reason) == (FAILED, reason)
