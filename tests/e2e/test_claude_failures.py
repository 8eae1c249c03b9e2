"""Requests that the provider refuses to the real Claude Code: typed, with the delay, and the session goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.agent import Agent, bash, prompt, results, started

from steprail_daemon.core.events import AgentErrorReported, MessageEnded, RateLimited, RawReceived, TurnEnded
from steprail_daemon.core.model import (
    Failure,
    FailureFault,
    FinishReason,
    RateLimitKind,
    TurnEndReason,
)
from steprail_daemon.testing.messages_endpoint import MessagesEndpoint, Script, Step

ONE_RETRY = {"ANTHROPIC_API_KEY": "sk-ant-none", "CLAUDE_CODE_MAX_RETRIES": "1"}
LOGIN = {"CLAUDE_CODE_OAUTH_TOKEN": "sk-ant-oat01-none", "CLAUDE_CODE_MAX_RETRIES": "1"}


def refused(status: int, kind: str, message: str = "no", **headers: str) -> Step:
    error = {"type": "error", "error": {"type": kind, "message": message}}
    return Step(status=status, error=error, headers={name.replace("_", "-"): value for name, value in headers.items()})


def failure_of(agent: Agent) -> Failure:
    turn = agent.until(TurnEnded)
    assert turn.reason is TurnEndReason.ERROR
    assert turn.failure is not None
    return turn.failure


def test_a_refusal_that_passes_is_told_with_its_delay_and_the_turn_goes_on(claude: Path, tmp_path: Path) -> None:
    script = Script([refused(429, "rate_limit_error", retry_after="1"), Step(text="Served.")])
    with MessagesEndpoint(script) as endpoint, started(tmp_path, claude, endpoint) as agent:
        agent.send(prompt("begin"))
        assert agent.until(TurnEnded).text == "Served."
        (limited,) = agent.of(RateLimited)
        assert (limited.kind, limited.http_status) == (RateLimitKind.TRANSIENT, 429)
        assert limited.retry_after_ns is not None
        assert limited.retry_after_ns >= 1_000_000_000
        assert limited.model == endpoint.main_requests()[0].body["model"]


def test_a_turn_that_the_provider_refused_has_its_reason_and_the_next_has_the_results(
    claude: Path, tmp_path: Path
) -> None:
    """One session through one refusal after the other; each is `subtype: success` in the CLI's own words."""
    credit = "Your credit balance is too low to access the Anthropic API."
    refusals = [
        (refused(403, "permission_error"), "AUTH_FAILED"),
        (refused(402, "billing_error"), "QUOTA_EXHAUSTED"),
        (refused(400, "invalid_request_error", credit), "QUOTA_EXHAUSTED"),
        (refused(413, "request_too_large"), "CONTEXT_OVERFLOW"),
        (refused(400, "invalid_request_error", "something is odd"), "AGENT_ERROR"),
    ]
    # What the provider says to every request from now on, whether the CLI tries it once or twice.
    mood: list[Step] = []
    busy = refused(429, "rate_limit_error", "slow down", retry_after="1")
    script = Script(
        [bash("echo kept"), busy, busy, Step(text="Back again.")], aside=lambda _: mood[0] if mood else None
    )
    with MessagesEndpoint(script) as endpoint, started(tmp_path, claude, endpoint, environment=ONE_RETRY) as agent:
        agent.send(prompt("begin"))
        turn = agent.work()
        assert turn.failure is not None
        assert (turn.failure.reason, turn.failure.fault, turn.failure.retryable) == (
            "RATE_LIMITED",
            FailureFault.PROVIDER,
            True,
        )
        assert turn.failure.retry_after_ns is not None
        limits = [(event.http_status, event.retry_after_ns is None) for event in agent.of(RateLimited)]
        assert limits == [(429, False), (429, True)]
        assert "slow down" in turn.failure.message
        assert not any("slow down" in event.text for event in agent.of(MessageEnded))
        assert agent.codec.eof_is_safe()

        for refusal, reason in refusals:
            mood[:] = [refusal]
            agent.send(prompt(f"again for {reason}"))
            failure = failure_of(agent)
            assert (failure.reason, failure.retryable) == (reason, False)
        mood.clear()
        agent.send(prompt("once more"))
        assert agent.until(TurnEnded).text == "Back again."
        assert results(endpoint) == ["kept"]


def test_a_process_whose_last_turn_failed_ends_with_1_at_an_eof(claude: Path, tmp_path: Path) -> None:
    overloaded = refused(529, "overloaded_error")
    with (
        MessagesEndpoint(Script([], then=overloaded)) as endpoint,
        started(tmp_path, claude, endpoint, environment=ONE_RETRY) as agent,
    ):
        agent.send(prompt("begin"))
        failure = failure_of(agent)
        assert (failure.reason, failure.retryable) == ("RATE_LIMITED", True)
        assert [event.http_status for event in agent.of(RateLimited)] == [529, 529]
        assert agent.end() == 1


@pytest.mark.parametrize(
    ("stop_reason", "reason", "finish"),
    [
        ("refusal", "MODEL_REFUSED", FinishReason.CONTENT_FILTER),
        ("model_context_window_exceeded", "CONTEXT_OVERFLOW", FinishReason.LENGTH),
        ("max_tokens", "AGENT_ERROR", FinishReason.LENGTH),
    ],
)
def test_a_message_that_was_cut_off_for_good_fails_the_turn_with_its_reason(
    claude: Path, tmp_path: Path, stop_reason: str, reason: str, finish: FinishReason
) -> None:
    with (
        MessagesEndpoint(Script([], then=Step(text="I", stop_reason=stop_reason))) as endpoint,
        started(tmp_path, claude, endpoint) as agent,
    ):
        agent.send(prompt("begin"))
        assert failure_of(agent).reason == reason
        # It asks again by itself, without a boundary between: once after a refusal, three times after a cut.
        said = agent.of(MessageEnded)
        assert len(said) == len(endpoint.main_requests()) > 1
        assert {event.finish_reason for event in said} == {finish}


def test_a_prompt_that_is_too_long_overflows_the_context(claude: Path, tmp_path: Path) -> None:
    long = refused(400, "invalid_request_error", "prompt is too long: 250000 tokens > 200000 maximum")
    with MessagesEndpoint(Script([], then=long)) as endpoint, started(tmp_path, claude, endpoint) as agent:
        agent.send(prompt("begin"))
        assert failure_of(agent).reason == "CONTEXT_OVERFLOW"


def test_of_the_limits_of_an_account_only_a_refusal_is_one(claude: Path, tmp_path: Path) -> None:
    def standing(status: str, **headers: str) -> dict[str, str]:
        kept = {
            "status": status,
            "reset": "4000000000",
            "representative-claim": "five_hour",
            "5h-utilization": "0.91",
            "5h-reset": "4000000000",
            "5h-surpassed-threshold": "0.9",
        }
        return {f"anthropic-ratelimit-unified-{name}": value for name, value in kept.items()} | headers

    limit: dict[str, Any] = {"type": "error", "error": {"type": "rate_limit_error", "message": "limit"}}
    rejected = standing("rejected", **{"retry-after": "3600"})
    script = Script(
        [Step(text="ok", headers=standing("allowed_warning"))], then=Step(status=429, error=limit, headers=rejected)
    )
    with MessagesEndpoint(script) as endpoint, started(tmp_path, claude, endpoint, environment=LOGIN) as agent:
        agent.send(prompt("begin"))
        assert agent.until(TurnEnded).text == "ok"
        assert not agent.of(RateLimited)
        assert "rate_limit_event" in {event.vendor_type for event in agent.of(RawReceived)}
        agent.send(prompt("again"))
        failure = failure_of(agent)
        assert (failure.reason, failure.retryable) == ("QUOTA_EXHAUSTED", False)
        assert json.loads(failure.detail_json)["rateLimitType"] == "five_hour"
        assert [event.kind for event in agent.of(RateLimited)] == [RateLimitKind.QUOTA]
        assert not any(event.will_retry for event in agent.of(AgentErrorReported))


def test_another_refusal_that_passes_is_an_error_that_will_be_retried(claude: Path, tmp_path: Path) -> None:
    script = Script([refused(500, "api_error"), Step(text="Served.")])
    with MessagesEndpoint(script) as endpoint, started(tmp_path, claude, endpoint) as agent:
        agent.send(prompt("begin"))
        assert agent.until(TurnEnded).text == "Served."
        (told,) = agent.of(AgentErrorReported)
        assert (told.code, told.will_retry) == ("server_error", True)
        assert "HTTP 500" in told.message
        assert not agent.of(RateLimited)
