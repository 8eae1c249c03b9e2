"""What the provider refuses: told with its delay, and as the reason of a turn that ended by it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.unit.drivers.claude_lines import (
    PROMPT,
    assistant,
    feed,
    lifecycle,
    result,
    stream_message,
    working_codec,
)

from steprail_daemon.core.commands import SendPrompt
from steprail_daemon.core.events import AgentErrorReported, RateLimited, RawReceived, ToolUpdated, TurnEnded
from steprail_daemon.core.model import Failure, RateLimitKind
from steprail_daemon.drivers.claude.codec import ClaudeCodec

RESETS_AT = 1_796_935_000


@pytest.fixture
def working() -> ClaudeCodec:
    codec = working_codec()
    feed(codec, {"type": "system", "subtype": "init", "model": "claude-x"})
    return codec


def retry(status: int | None, error: str = "rate_limit", delay: float | None = 1_069.5) -> dict[str, Any]:
    line = {"type": "system", "subtype": "api_retry", "attempt": 1, "max_retries": 10, "retry_delay_ms": delay}
    return line | {"error_status": status, "error": error}


def limit(status: str) -> dict[str, Any]:
    info = {"status": status, "resetsAt": RESETS_AT, "rateLimitType": "five_hour", "unifiedWindows": {"new": 1}}
    return {"type": "rate_limit_event", "rate_limit_info": info}


def failed(**fields: Any) -> dict[str, Any]:
    return result(**{"is_error": True, "terminal_reason": "api_error", "result": "no"} | fields)


def failure_of(event: object) -> Failure:
    assert isinstance(event, TurnEnded)
    assert event.failure is not None
    return event.failure


@pytest.mark.parametrize("status", [429, 529])
def test_a_busy_provider_is_a_rate_limit_with_its_delay(working: ClaudeCodec, status: int) -> None:
    assert feed(working, retry(status)) == [
        RateLimited(RateLimitKind.TRANSIENT, model="claude-x", http_status=status, retry_after_ns=1_069_500_000)
    ]


def test_a_delay_that_is_not_told_is_unknown(working: ClaudeCodec) -> None:
    (limited,) = feed(working, retry(429, delay=None))
    assert isinstance(limited, RateLimited)
    assert limited.retry_after_ns is None


@pytest.mark.parametrize(("status", "words"), [(500, "HTTP 500"), (401, "HTTP 401"), (None, "no connection")])
def test_another_refusal_that_is_retried_is_an_error(working: ClaudeCodec, status: int | None, words: str) -> None:
    (told,) = feed(working, retry(status, "server_error"))
    assert isinstance(told, AgentErrorReported)
    assert (told.code, told.will_retry) == ("server_error", True)
    assert words in told.message


def test_a_rate_limit_that_ends_the_turn_is_told_and_names_the_last_delay(working: ClaudeCodec) -> None:
    _, _, limited, ended = feed(
        working, retry(429), assistant({"type": "text", "text": "no"}, error="rate_limit"), failed(api_error_status=429)
    )
    assert limited == RateLimited(RateLimitKind.TRANSIENT, model="claude-x", http_status=429)
    failure = failure_of(ended)
    assert (failure.reason, failure.retryable, failure.retry_after_ns) == ("RATE_LIMITED", True, 1_069_500_000)


def test_a_delay_is_not_carried_over_to_the_next_turn(working: ClaudeCodec) -> None:
    feed(working, retry(429), result())
    working.send(SendPrompt(PROMPT, "on"))
    *_, ended = feed(working, lifecycle("started"), failed(api_error_status=429))
    assert failure_of(ended).retry_after_ns is None


@pytest.mark.parametrize("status", ["allowed", "allowed_warning", "brand_new"])
def test_a_limit_that_refuses_nothing_is_passed_on_and_is_no_rate_limit(working: ClaudeCodec, status: str) -> None:
    (raw,) = feed(working, limit(status))
    assert isinstance(raw, RawReceived)
    assert (raw.vendor_type, json.loads(raw.payload_json)) == ("rate_limit_event", limit(status))


def test_a_limit_of_the_account_that_is_used_up_is_a_quota_and_is_not_to_be_retried(working: ClaudeCodec) -> None:
    events = feed(
        working,
        limit("rejected"),
        assistant({"type": "text", "text": "no"}, error="rate_limit"),
        failed(api_error_status=429),
    )
    assert [event for event in events if isinstance(event, RateLimited)] == [
        RateLimited(RateLimitKind.QUOTA, model="claude-x", http_status=429)
    ]
    failure = failure_of(events[-1])
    assert (failure.reason, failure.retryable) == ("QUOTA_EXHAUSTED", False)
    assert json.loads(failure.detail_json) == {
        "status": "rejected",
        "resetsAt": RESETS_AT,
        "rateLimitType": "five_hour",
    }


@pytest.mark.parametrize(
    ("stop_reason", "reason"),
    [("model_context_window_exceeded", "CONTEXT_OVERFLOW"), ("max_tokens", "AGENT_ERROR")],
)
def test_why_the_last_message_was_cut_off_tells_what_the_result_does_not(
    working: ClaudeCodec, stop_reason: str, reason: str
) -> None:
    *_, ended = feed(working, *stream_message("x", stop_reason), failed(stop_reason="stop_sequence"))
    assert failure_of(ended).reason == reason


def test_how_far_a_task_is_is_told_of_its_call(working: ClaudeCodec) -> None:
    line = {"type": "system", "subtype": "task_progress", "task_id": "a1", "tool_use_id": "t1", "usage": {"new": 1}}
    assert feed(working, line | {"description": "Running x"}) == [ToolUpdated("t1", progress="Running x")]
    assert feed(working, line) == []
