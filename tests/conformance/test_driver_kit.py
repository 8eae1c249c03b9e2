"""The driver conformance kit notices a driver that does not do what it should: each defect fails the check for it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.conformance.rigs.fake_claude import fake

from steprail_daemon.core.commands import AgentCommand, AnswerBoundary
from steprail_daemon.core.events import AgentEvent, BoundaryReached, RateLimited, RawReceived, ToolEnded, TurnEnded
from steprail_daemon.core.model import Capabilities, DecisionAction, ToolOutcome
from steprail_daemon.drivers.base import Channel, CodecSettings
from steprail_daemon.drivers.claude.codec import ClaudeCodec
from steprail_daemon.drivers.claude.driver import ClaudeDriver
from steprail_daemon.testing import driver_stage
from steprail_daemon.testing.driver_checks import declaring
from steprail_daemon.testing.driver_kit import CHECKS, Parentage, conform, parentage

pytestmark = pytest.mark.anyio


class OpenGate(ClaudeCodec):
    """Answers the boundary as soon as it comes."""

    def receive(self, channel: Channel, data: bytes) -> list[AgentEvent]:
        events = super().receive(channel, data)
        for event in events:
            if isinstance(event, BoundaryReached):
                super().send(AnswerBoundary(event.boundary_id, DecisionAction.CONTINUE))
        return events


class DeafToStops(ClaudeCodec):
    def send(self, command: AgentCommand) -> None:
        if isinstance(command, AnswerBoundary):
            command = replace(command, action=DecisionAction.CONTINUE)
        super().send(command)


class Forgetful(ClaudeCodec):
    """Loses what nobody knows, and what the provider refuses."""

    def receive(self, channel: Channel, data: bytes) -> list[AgentEvent]:
        return [event for event in super().receive(channel, data) if not isinstance(event, RawReceived | RateLimited)]


class Impatient(ClaudeCodec):
    """Takes for a line whatever came."""

    def receive(self, channel: Channel, data: bytes) -> list[AgentEvent]:
        return super().receive(channel, data if data.endswith(b"\n") else data + b"\n")


class Rosy(ClaudeCodec):
    """Takes every result for a success, and counts no tokens."""

    def receive(self, channel: Channel, data: bytes) -> list[AgentEvent]:
        return [_rosy(event) for event in super().receive(channel, data)]


def _rosy(event: AgentEvent) -> AgentEvent:
    if isinstance(event, ToolEnded):
        return replace(event, result=replace(event.result, outcome=ToolOutcome.SUCCEEDED))
    if isinstance(event, BoundaryReached | TurnEnded):
        return replace(event, usage=None)
    return event


class Planted(ClaudeDriver):
    """The driver `claude` with a defect."""

    def __init__(self, codec: type[ClaudeCodec], **claims: object) -> None:
        self._codec = codec
        self._claims = claims

    @property
    def capabilities(self) -> Capabilities:
        return replace(super().capabilities, **self._claims)

    def codec(self, settings: CodecSettings) -> ClaudeCodec:
        return self._codec(settings)


@pytest.fixture(scope="module")
async def parents() -> AsyncIterator[Parentage]:
    async with parentage() as started:
        yield started


DEFECTS: list[tuple[Callable[[], Planted], str]] = [
    (lambda: Planted(OpenGate), "a_held_agent_makes_no_request_until_it_is_told_to_go_on"),
    (lambda: Planted(OpenGate), "a_run_is_aborted_at_the_gate"),
    (lambda: Planted(DeafToStops), "a_rule_stops_at_its_step_and_no_request_follows"),
    (lambda: Planted(Forgetful), "a_message_that_nobody_knows_is_passed_on"),
    (lambda: Planted(Forgetful), "a_rate_limit_is_a_failure_of_its_own_that_is_waited_out"),
    (lambda: Planted(Impatient), "it_does_not_matter_where_the_bytes_are_cut"),
    (lambda: Planted(Rosy), "a_call_that_fails_is_a_failed_result_and_the_run_goes_on"),
    (lambda: Planted(Rosy), "a_run_works_through_its_steps_and_completes_with_the_last_message"),
    (lambda: Planted(ClaudeCodec, images=True), "nothing_is_declared_that_no_verb_reaches"),
    (lambda: Planted(ClaudeCodec, continue_without_prompt=True), "a_run_goes_on_without_a_prompt"),
]


@pytest.mark.parametrize(
    ("plant", "name"), [pytest.param(plant, name, id=f"{plant()._codec.__name__}-{name}") for plant, name in DEFECTS]
)
async def test_a_defect_is_noticed(
    plant: Callable[[], Planted], name: str, parents: Parentage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (driver_stage, declaring):
        monkeypatch.setattr(module, "DRIVERS", {"claude": plant()})
    (check,) = [check for check in CHECKS if check.name == name]
    with pytest.RaisesGroup(AssertionError, allow_unwrapped=True, flatten_subgroups=True):
        await conform(check, fake, parents, tmp_path)
