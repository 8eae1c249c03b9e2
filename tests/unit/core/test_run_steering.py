"""Conversations in which people give the agent a text: with a decision, or for the running turn."""

import pytest
from msgspec.structs import replace
from tests.unit.core.conversations import (
    ABORT_PLEASE,
    AT_TWO,
    BY_CEL,
    CLIENT,
    COMPLETED_TURN,
    FAILED_TURN,
    INCAPABLE,
    STOP_PLEASE,
    awaiting,
    changes,
    completed,
    ended_step,
    goes_on,
    running,
    spec,
    step_id,
    stopping,
)

from steprail_daemon.core.commands import AnswerBoundary, CancelTimer, Emit
from steprail_daemon.core.errors import Invalid
from steprail_daemon.core.events import (
    DaemonRestarted,
    DecisionSubmitted,
    RulesEvaluated,
    RunEvent,
    SteerSubmitted,
    Timer,
)
from steprail_daemon.core.model import SECOND, Decision, DecisionAction, DecisionSource, RunState
from steprail_daemon.core.records import DecisionRecorded, SteerAccepted, SteerDelivered, SteerDropped
from steprail_daemon.core.run import Run
from steprail_daemon.core.stops.expressions import ExpressionOutcome, ExpressionResult
from steprail_daemon.testing.playbook import BEGIN, Playbook, replayed

FIRST = SteerSubmitted("steer_1", "Look there.", "ann")
SECOND_TEXT = SteerSubmitted("steer_2", "And there.", "bob")
CONTINUE = DecisionAction.CONTINUE
DELIVERED = Emit(SteerDelivered("steer_1"))
GO_ON = DecisionSubmitted(step_id(1), CONTINUE, "ann")


def dropped(reason: str, steer_id: str = "steer_1") -> Emit:
    return Emit(SteerDropped(steer_id, reason))


def steered() -> Playbook:
    """A run that was given a text, which its agent has not got yet."""
    return running().hears(FIRST).says(Emit(SteerAccepted("steer_1", "Look there.", "ann")))


# --- texts for the running turn ---------------------------------------------------------------------------------------


def test_a_text_is_held_until_the_next_boundary_and_delivered_when_the_agent_went_on() -> None:
    play = steered().hears(SECOND_TEXT).hears(completed(1))
    answer = AnswerBoundary("b1", CONTINUE, ("Look there.", "And there."))
    play.says(ended_step(1), goes_on(1, BEGIN)[0], answer)
    assert [steer.steer_id for steer in play.run.view.pending_steers] == ["steer_1", "steer_2"]
    play.hears(completed(2))
    play.says(ended_step(2), DELIVERED, Emit(SteerDelivered("steer_2")), *goes_on(2, BEGIN))
    assert play.run.view.pending_steers == []


def test_a_text_that_comes_after_another_was_handed_over_waits_for_its_own_boundary() -> None:
    play = steered().hears(completed(1)).hears(SECOND_TEXT).hears(completed(2))
    play.says(ended_step(2), DELIVERED, goes_on(2, BEGIN)[0], AnswerBoundary("b2", CONTINUE, ("And there.",)))


def test_an_answer_of_the_agent_shows_that_it_got_the_text() -> None:
    play = steered().hears(completed(1)).hears(COMPLETED_TURN)
    assert play.commands[0] == DELIVERED
    play.ends_in(RunState.COMPLETED)


def test_texts_come_before_the_guidance_of_the_decision() -> None:
    play = running(run=spec(decider=CLIENT)).hears(FIRST).hears(completed(1))
    play.hears(replace(GO_ON, guidance="Carefully."))
    assert play.commands[-1] == AnswerBoundary("b1", CONTINUE, ("Look there.", "Carefully."))
    assert play.hears(completed(2)).commands[0] == DELIVERED


def test_a_text_waits_for_expressions_too() -> None:
    play = running(BY_CEL).hears(FIRST).hears(completed(1))
    play.hears(RulesEvaluated(1, (ExpressionResult(ExpressionOutcome.NOT_MATCHED),)))
    assert play.commands[-1] == AnswerBoundary("b1", CONTINUE, ("Look there.",))
    play.hears(completed(2)).hears(ABORT_PLEASE)
    assert DELIVERED in play.commands


def test_a_text_that_the_agent_never_got_is_dropped_and_says_why() -> None:
    ends: list[tuple[Playbook, RunEvent, str]] = [
        (steered(), COMPLETED_TURN, "the run ended first"),
        (steered(), FAILED_TURN, "the run ended first"),
        (steered(), ABORT_PLEASE, "the run was aborted first"),
        (steered().hears(STOP_PLEASE), completed(1), "the run was stopped first"),
        (running(AT_TWO).hears(completed(1)).hears(FIRST), completed(2), "the run was stopped first"),
        (steered().hears(completed(1)), ABORT_PLEASE, "the run was aborted first"),
        (steered(), DaemonRestarted(), "the run ended first"),
    ]
    for play, event, reason in ends:
        play.hears(event)
        assert dropped(reason) in play.commands
        assert play.run.view.pending_steers == []
        assert not any(isinstance(fact, SteerDelivered) for fact in play.facts)


def test_a_restart_drops_it_from_the_record_alone() -> None:
    restored = Run.restore(replayed(steered().facts))
    assert dropped("the run ended first") in restored.handle(DaemonRestarted(), BEGIN)


def test_a_text_is_refused_where_it_cannot_go_along_with_anything() -> None:
    for play in (awaiting(), stopping(), running().hears(ABORT_PLEASE), running().hears(STOP_PLEASE)):
        play.refuses(FIRST, "STEER_NOT_POSSIBLE")
    error = running().hears(STOP_PLEASE).refuses(FIRST, "STEER_NOT_POSSIBLE")
    assert error.message.startswith("the run was asked to stop;")
    assert awaiting().refuses(FIRST, "STEER_NOT_POSSIBLE").message.startswith("the run is AWAITING_DECISION;")


def test_a_text_is_refused_where_the_agent_takes_none() -> None:
    play = running()
    play.run.capabilities = INCAPABLE
    assert play.refuses(FIRST, "CAPABILITY_MISSING").metadata["capability"] == "steer"


# --- with a decision --------------------------------------------------------------------------------------------------


def test_a_decision_may_bring_guidance_and_another_model() -> None:
    play = awaiting().hears(replace(GO_ON, guidance="Carefully.", model="model-2"), after=SECOND)
    decision = Decision(
        action=CONTINUE,
        source=DecisionSource.CLIENT,
        identity="ann",
        waited_ns=SECOND,
        decided_at=BEGIN + SECOND,
        guidance="Carefully.",
        model="model-2",
    )
    play.says(
        Emit(DecisionRecorded(step_id(1), decision)),
        changes(RunState.RUNNING, RunState.AWAITING_DECISION, BEGIN + SECOND),
        CancelTimer(Timer.DECISION),
        AnswerBoundary("b1", CONTINUE, ("Carefully.",), "model-2"),
    )


def test_what_the_agent_cannot_do_is_refused_and_the_decision_goes_on_waiting() -> None:
    play = awaiting()
    play.run.capabilities = INCAPABLE
    for event, capability in (
        (replace(GO_ON, guidance="Carefully."), "guidance"),
        (replace(GO_ON, model="model-2"), "model_switch"),
    ):
        assert play.refuses(event, "CAPABILITY_MISSING").metadata["capability"] == capability
    play.hears(GO_ON).ends_in(RunState.RUNNING)


def test_a_stop_brings_neither() -> None:
    play = awaiting()
    for field in ("guidance", "model"):
        event = DecisionSubmitted(step_id(1), DecisionAction.STOP, "ann", **{field: "x"})
        with pytest.raises(Invalid, match=f"{field} goes with CONTINUE only") as refused:
            play.run.handle(event, BEGIN)
        assert refused.value.field == field
    play.ends_in(RunState.AWAITING_DECISION)
