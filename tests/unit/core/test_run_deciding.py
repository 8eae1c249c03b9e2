"""Conversations about who decides while a decision is pending: deciders that come and go, a drain, a silent agent."""

import pytest
from msgspec.structs import replace
from tests.unit.core.conversations import (
    CLIENT,
    STOP_PLEASE,
    STOPPED_TURN,
    aborting,
    awaiting,
    changes,
    completed,
    decided,
    ends,
    failure,
    running,
    spec,
    step_id,
    stopping,
)

from steprail_daemon.core.commands import AnswerBoundary, CancelTimer, Command, Emit, EndProcess, StartTimer
from steprail_daemon.core.events import (
    AgentSilent,
    DecidersChanged,
    DecisionSubmitted,
    DrainWindowEnding,
    PermissionAnswered,
    QuestionAnswered,
    StopRequested,
    Timer,
    TimerFired,
)
from steprail_daemon.core.model import (
    SECOND,
    Decider,
    DecisionAction,
    DecisionSource,
    FailureFault,
    OnDisconnect,
    OnTimeout,
    PermissionAnswer,
    RunState,
    StopKind,
    StopReason,
    StopRequest,
)
from steprail_daemon.core.records import StopAsked
from steprail_daemon.testing.playbook import BEGIN, Playbook

WAITING, RUNNING = RunState.AWAITING_DECISION, RunState.RUNNING
STOP, CONTINUE = DecisionAction.STOP, DecisionAction.CONTINUE
GRACE = 30 * SECOND
STRICT = replace(CLIENT, on_disconnect=OnDisconnect.STOP)
GONE = "No decider has been registered for 30 s."
COUNTDOWN = StartTimer(Timer.DISCONNECT, BEGIN + GRACE)

DRAIN = StopRequested(DecisionSource.DRAIN, "", "the daemon is draining")
DRAIN_NOTED = Emit(StopAsked(StopRequest(DecisionSource.DRAIN, "", "the daemon is draining", BEGIN)))
GO_ON = DecisionSubmitted(step_id(1), CONTINUE, "ann")


# --- deciders come and go ---------------------------------------------------------------------------------------------


def abandoned(decider: Decider) -> Playbook:
    """A run whose only decider went while a decision was pending."""
    return awaiting(decider).hears(DecidersChanged(1)).hears(DecidersChanged(0))


def test_the_last_decider_that_goes_has_a_grace() -> None:
    play = awaiting(STRICT).hears(DecidersChanged(1)).says().hears(DecidersChanged(0)).says(COUNTDOWN)
    play.hears(DecidersChanged(0)).says()
    play.hears(DecidersChanged(1)).says(CancelTimer(Timer.DISCONNECT)).ends_in(WAITING)
    play.hears(TimerFired(Timer.DISCONNECT)).says()


def test_nobody_connected_for_the_grace_can_mean_stop() -> None:
    play = abandoned(STRICT).hears(TimerFired(Timer.DISCONNECT), after=GRACE)
    at = BEGIN + GRACE
    reason = StopReason(kind=StopKind.DISCONNECT, source=DecisionSource.DISCONNECT, reason=GONE)
    play.says(
        decided(1, STOP, DecisionSource.DISCONNECT, at, reason=GONE, waited=GRACE),
        changes(RunState.STOPPING, WAITING, at, reason),
        CancelTimer(Timer.DECISION),
        StartTimer(Timer.STOP, at + 10 * SECOND),
        AnswerBoundary("b1", STOP),
    )


def test_nobody_connected_for_the_grace_can_mean_go_on() -> None:
    decider = replace(CLIENT, on_disconnect=OnDisconnect.CONTINUE)
    play = abandoned(decider).hears(TimerFired(Timer.DISCONNECT), after=GRACE)
    at = BEGIN + GRACE
    play.says(
        decided(1, CONTINUE, DecisionSource.DISCONNECT, at, reason=GONE, waited=GRACE),
        changes(RUNNING, WAITING, at),
        CancelTimer(Timer.DECISION),
        AnswerBoundary("b1", CONTINUE),
    )


def test_by_default_a_decision_waits_for_another_decider() -> None:
    awaiting().hears(DecidersChanged(1)).hears(DecidersChanged(0)).says().ends_in(WAITING)


def test_one_that_went_before_the_boundary_counts_from_when_it_went() -> None:
    play = running(run=spec(decider=STRICT)).hears(DecidersChanged(1)).hears(DecidersChanged(0)).says()
    play.hears(completed(1), after=10 * SECOND)
    assert play.commands[-1] == COUNTDOWN
    play.hears(DecisionSubmitted(step_id(1), CONTINUE, "ann"))
    assert play.commands[2:] == [
        CancelTimer(Timer.DECISION),
        CancelTimer(Timer.DISCONNECT),
        AnswerBoundary("b1", CONTINUE),
    ]


def test_where_nobody_had_ever_registered_nobody_is_missed() -> None:
    assert COUNTDOWN not in awaiting(STRICT).commands
    awaiting(STRICT).hears(DecidersChanged(0)).says()


def test_a_decision_by_another_way_ends_the_grace() -> None:
    play = abandoned(STRICT).hears(STOP_PLEASE)
    assert CancelTimer(Timer.DISCONNECT) in play.commands


def test_deciders_of_a_run_that_is_ending_do_not_matter() -> None:
    stopping().hears(DecidersChanged(0)).says()
    aborting().hears(DecidersChanged(0)).says()


# --- a drain ----------------------------------------------------------------------------------------------------------


def drained() -> Playbook:
    """A run that waits for a client while the daemon drains."""
    play = awaiting().hears(DRAIN).says(DRAIN_NOTED)
    play.ends_in(WAITING)
    return play


def test_a_drain_leaves_the_turn_to_whoever_is_asked_but_not_to_go_on() -> None:
    play = drained()
    play.refuses(GO_ON, "DRAINING")
    play.refuses(replace(GO_ON, step_id="x"), "DECISION_NOT_PENDING")
    reason = play.hears(replace(GO_ON, action=STOP, reason="enough")).ends_in(RunState.STOPPING).stop_reason
    assert reason == StopReason(kind=StopKind.CLIENT_DECISION, source=DecisionSource.CLIENT, reason="enough")


def test_the_end_of_its_window_is_the_decision() -> None:
    play = drained().hears(DrainWindowEnding(), after=SECOND)
    at, why = BEGIN + SECOND, "the daemon is draining"
    reason = StopReason(kind=StopKind.DRAIN, source=DecisionSource.DRAIN, reason=why)
    play.says(
        decided(1, STOP, DecisionSource.DRAIN, at, reason=why, waited=SECOND),
        changes(RunState.STOPPING, WAITING, at, reason),
        CancelTimer(Timer.DECISION),
        StartTimer(Timer.STOP, at + 10 * SECOND),
        AnswerBoundary("b1", STOP),
    )
    play.refuses(GO_ON, "DECISION_NOT_PENDING")
    play.hears(DrainWindowEnding()).says().hears(STOPPED_TURN).ends_in(RunState.STOPPED)


def test_the_end_of_a_window_of_which_the_run_had_not_heard_stops_it_too() -> None:
    reason = awaiting().hears(DrainWindowEnding()).ends_in(RunState.STOPPING).stop_reason
    assert reason == StopReason(kind=StopKind.DRAIN, source=DecisionSource.DRAIN, reason="The daemon is draining.")


@pytest.mark.parametrize("timer", [Timer.DECISION, Timer.DISCONNECT])
def test_a_default_to_go_on_is_none_in_a_drain(timer: Timer) -> None:
    decider = replace(CLIENT, on_timeout=OnTimeout.CONTINUE, on_disconnect=OnDisconnect.CONTINUE)
    play = abandoned(decider).hears(DRAIN).hears(TimerFired(timer))
    reason = play.ends_in(RunState.STOPPING).stop_reason
    assert reason is not None
    assert reason.source is DecisionSource.DRAIN


def test_an_operators_stop_in_a_drain_is_the_operators() -> None:
    play = drained().hears(STOP_PLEASE)
    view = play.ends_in(RunState.STOPPING)
    assert view.stop_reason is not None
    assert (view.stop_reason.source, view.stop_reason.reason) == (DecisionSource.OPERATOR, "lunch")
    assert view.stop_requested is not None
    assert view.stop_requested.source is DecisionSource.DRAIN


def test_the_end_of_the_window_means_nothing_to_a_run_that_is_ending() -> None:
    aborting().hears(DrainWindowEnding()).says()


# --- a silent agent ---------------------------------------------------------------------------------------------------


def test_an_agent_that_has_the_word_and_is_silent_fails_the_run() -> None:
    message = "the agent gave no sign of life for 600 s; its process was ended"
    failed = failure("AGENT_UNRESPONSIVE", message, FailureFault.AGENT)
    end: list[Command] = ends(
        RunState.FAILED, RUNNING, BEGIN, EndProcess(message), timers=(Timer.HARD_TIMEOUT,), failure=failed
    )
    running().hears(AgentSilent(600 * SECOND)).says(*end)


def test_an_agent_that_waits_or_is_bounded_otherwise_may_be_silent() -> None:
    for play in (awaiting(), stopping(), aborting()):
        play.hears(AgentSilent(600 * SECOND)).says()


# --- what is refused while it ends ------------------------------------------------------------------------------------


def test_nothing_can_be_answered_that_is_not_open() -> None:
    for play in (running(), aborting(), awaiting()):
        play.refuses(PermissionAnswered("run_01.p000001", PermissionAnswer.DENY, "ann"), "PERMISSION_NOT_PENDING")
        play.refuses(QuestionAnswered("run_01.q000001", None, "ann"), "QUESTION_NOT_PENDING")
