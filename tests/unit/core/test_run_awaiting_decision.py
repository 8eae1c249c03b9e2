"""Conversations of a run that is held at a boundary while a client is asked."""

import pytest
from tests.unit.core.conversations import (
    ABORT,
    ABORT_ASKED,
    ABORT_PLEASE,
    ABORTED_TURN,
    COMPLETED_TURN,
    FAILED_TURN,
    PATIENCE,
    STOP_PLEASE,
    STOP_REASON,
    STOPPED_TURN,
    awaiting,
    changes,
    completed,
    decided,
    ended_step,
    ends,
    failure,
    step_id,
    stops,
    turn,
)

from steprail_daemon.core.commands import (
    AnswerBoundary,
    AnswerPermission,
    CancelTimer,
    Emit,
    EndProcess,
    Interrupt,
    LowerGate,
    StartTimer,
)
from steprail_daemon.core.errors import Invalid
from steprail_daemon.core.events import (
    ActivityPastGate,
    AgentExited,
    BoundaryCancelled,
    DaemonRestarted,
    DecisionSubmitted,
    PermissionAsked,
    PromptConfirmed,
    ProtocolFailed,
    Timer,
    TimerFired,
)
from steprail_daemon.core.model import (
    SECOND,
    Decider,
    DecisionAction,
    DecisionSource,
    FailureFault,
    OnTimeout,
    PermissionAction,
    PermissionAnswer,
    ResolutionSource,
    RunState,
    StopKind,
    StopReason,
    StopRequest,
)
from steprail_daemon.core.policy import DENIAL_MESSAGE, Ruling
from steprail_daemon.core.records import PermissionResolved, StopAsked
from steprail_daemon.testing.playbook import BEGIN

BOTH_TIMERS = (Timer.HARD_TIMEOUT, Timer.DECISION)
PERMISSION = "run_01.p000001"
WAITING = RunState.AWAITING_DECISION
GO_ON = DecisionSubmitted(step_id(1), DecisionAction.CONTINUE, "ann", "looks fine")
STOP_IT = DecisionSubmitted(step_id(1), DecisionAction.STOP, "ann", "seen enough")


def test_a_client_lets_the_agent_go_on() -> None:
    play = awaiting().hears(GO_ON, after=3 * SECOND)
    at = BEGIN + 3 * SECOND
    action, source = DecisionAction.CONTINUE, DecisionSource.CLIENT
    play.says(
        decided(1, action, source, at, reason="looks fine", identity="ann", waited=3 * SECOND),
        changes(RunState.RUNNING, WAITING, at),
        CancelTimer(Timer.DECISION),
        AnswerBoundary("b1", DecisionAction.CONTINUE),
    )
    view = play.ends_in(RunState.RUNNING)
    assert view.pending_decision is None
    assert view.awaiting_decision_ns == 3 * SECOND


def test_a_client_stops_the_agent() -> None:
    play = awaiting().hears(STOP_IT, after=SECOND)
    at = BEGIN + SECOND
    reason = StopReason(kind=StopKind.CLIENT_DECISION, source=DecisionSource.CLIENT, reason="seen enough")
    action, source = DecisionAction.STOP, DecisionSource.CLIENT
    play.says(
        decided(1, action, source, at, reason="seen enough", identity="ann", waited=SECOND),
        *stops(1, at, reason, previous=WAITING),
    )
    play.hears(STOPPED_TURN).ends_in(RunState.STOPPED)


def test_a_clock_that_ran_backwards_stood_still() -> None:
    play = awaiting().hears(GO_ON, after=-5 * SECOND)
    play.says(
        decided(1, DecisionAction.CONTINUE, DecisionSource.CLIENT, BEGIN, reason="looks fine", identity="ann"),
        changes(RunState.RUNNING, WAITING, BEGIN),
        CancelTimer(Timer.DECISION),
        AnswerBoundary("b1", DecisionAction.CONTINUE),
    )


def test_only_the_first_decision_acts() -> None:
    play = awaiting().hears(GO_ON)
    play.refuses(GO_ON, "DECISION_NOT_PENDING")
    play.refuses(STOP_IT, "DECISION_NOT_PENDING")


def test_a_decision_about_another_step_is_refused_and_the_right_one_still_counts() -> None:
    play = awaiting()
    other = DecisionSubmitted(step_id(7), DecisionAction.STOP, "ann")
    error = play.refuses(other, "DECISION_NOT_PENDING")
    assert error.metadata["step_id"] == step_id(7)
    play.hears(GO_ON).ends_in(RunState.RUNNING)


def test_a_decision_that_says_nothing_is_refused_and_goes_on_waiting() -> None:
    play = awaiting()
    with pytest.raises(Invalid, match="action is not set; accepted are CONTINUE and STOP"):
        play.run.handle(DecisionSubmitted(step_id(1), None, "ann"), BEGIN)
    play.ends_in(WAITING)


def test_a_client_that_could_not_decide_stops_the_agent_first_and_then_fails_the_run() -> None:
    play = awaiting().hears(DecisionSubmitted(step_id(1), None, "ann", error="KeyError: 'x'"), after=SECOND)
    at = BEGIN + SECOND
    reason = StopReason(kind=StopKind.CLIENT_DECISION, source=DecisionSource.CLIENT, reason="KeyError: 'x'")
    action, source = DecisionAction.STOP, DecisionSource.CLIENT
    play.says(
        decided(1, action, source, at, reason="KeyError: 'x'", identity="ann", waited=SECOND),
        *stops(1, at, reason, previous=WAITING),
    )
    play.hears(STOPPED_TURN).says(
        turn(STOPPED_TURN),
        *ends(
            RunState.FAILED,
            RunState.STOPPING,
            at,
            timers=(Timer.HARD_TIMEOUT, Timer.STOP),
            steps=1,
            reason=reason,
            failure=failure("DECIDER_ERROR", "KeyError: 'x'", FailureFault.CLIENT, 1),
        ),
    )


def test_nobody_in_time_means_stop_unless_told_otherwise() -> None:
    play = awaiting().hears(TimerFired(Timer.DECISION), after=PATIENCE)
    at = BEGIN + PATIENCE
    text = "Nobody decided in time; the default is STOP."
    reason = StopReason(kind=StopKind.TIMEOUT, source=DecisionSource.TIMEOUT, reason=text)
    says = stops(1, at, reason)
    says[0] = changes(RunState.STOPPING, WAITING, at, reason)
    decision = decided(1, DecisionAction.STOP, DecisionSource.TIMEOUT, at, reason=text, waited=PATIENCE)
    play.says(decision, *says)
    play.refuses(GO_ON, "DECISION_NOT_PENDING")


def test_nobody_in_time_can_mean_go_on() -> None:
    play = awaiting(Decider(PATIENCE, OnTimeout.CONTINUE)).hears(TimerFired(Timer.DECISION), after=PATIENCE)
    at = BEGIN + PATIENCE
    text = "Nobody decided in time; the default is CONTINUE."
    play.says(
        decided(1, DecisionAction.CONTINUE, DecisionSource.TIMEOUT, at, reason=text, waited=PATIENCE),
        changes(RunState.RUNNING, WAITING, at),
        AnswerBoundary("b1", DecisionAction.CONTINUE),
    )


def test_nobody_in_time_can_mean_abort_and_the_run_says_why() -> None:
    play = awaiting(Decider(PATIENCE, OnTimeout.ABORT)).hears(TimerFired(Timer.DECISION))
    text = "Nobody decided in time; the default is ABORT."
    reason = StopReason(kind=StopKind.TIMEOUT, source=DecisionSource.TIMEOUT, reason=text)
    play.says(
        changes(RunState.ABORTING, WAITING, BEGIN, reason),
        CancelTimer(Timer.HARD_TIMEOUT),
        StartTimer(Timer.ABORT, BEGIN + ABORT),
        Interrupt(),
    )
    assert play.hears(ABORTED_TURN).ends_in(RunState.ABORTED).stop_reason == reason


def test_a_stop_request_is_the_decision() -> None:
    play = awaiting().hears(STOP_PLEASE, after=SECOND)
    at = BEGIN + SECOND
    action, source = DecisionAction.STOP, DecisionSource.OPERATOR
    play.says(
        Emit(StopAsked(StopRequest(DecisionSource.OPERATOR, "ann", "lunch", at))),
        decided(1, action, source, at, reason="lunch", identity="ann", waited=SECOND),
        *stops(1, at, STOP_REASON, previous=WAITING),
    )


def test_an_abort_wins_and_no_decision_is_recorded_or_sent() -> None:
    play = awaiting().hears(ABORT_PLEASE)
    play.says(
        ABORT_ASKED,
        changes(RunState.ABORTING, WAITING, BEGIN),
        CancelTimer(Timer.HARD_TIMEOUT),
        CancelTimer(Timer.DECISION),
        StartTimer(Timer.ABORT, BEGIN + ABORT),
        Interrupt(),
    )
    play.refuses(GO_ON, "DECISION_NOT_PENDING")
    view = play.hears(ABORTED_TURN).ends_in(RunState.ABORTED)
    assert view.decisions == {}
    assert view.pending_decision is None


def test_an_agent_that_does_not_wait_lost_its_gate() -> None:
    failed = failure("GATE_LOST", "the agent went past a step boundary without leave: a message", FailureFault.AGENT, 1)
    awaiting().hears(ActivityPastGate("a message")).says(
        LowerGate("a message"),
        *ends(
            RunState.FAILED,
            WAITING,
            BEGIN,
            Interrupt(),
            EndProcess("its step gate did not hold"),
            timers=BOTH_TIMERS,
            steps=1,
            failure=failed,
        ),
    )


def test_a_further_step_is_recorded_and_shows_that_the_gate_was_lost() -> None:
    play = awaiting().hears(completed(2))
    what = "step 2 was completed"
    failed = failure("GATE_LOST", f"the agent went past a step boundary without leave: {what}", FailureFault.AGENT, 2)
    play.says(
        ended_step(2),
        LowerGate(what),
        *ends(
            RunState.FAILED,
            WAITING,
            BEGIN,
            Interrupt(),
            EndProcess("its step gate did not hold"),
            timers=BOTH_TIMERS,
            steps=2,
            failure=failed,
        ),
    )
    assert play.run.view.decisions == {}


def test_a_further_tool_of_the_main_loop_is_denied_and_shows_that_the_gate_was_lost() -> None:
    what = "leave was asked for the tool 'Bash'"
    failed = failure("GATE_LOST", f"the agent went past a step boundary without leave: {what}", FailureFault.AGENT, 1)
    reason = "the agent had to wait at a step boundary"
    resolved = PermissionResolved(PERMISSION, PermissionAnswer.DENY, ResolutionSource.ABORT, reason, tool="Bash")
    end = ends(
        RunState.FAILED,
        WAITING,
        BEGIN,
        Interrupt(),
        EndProcess("its step gate did not hold"),
        timers=BOTH_TIMERS,
        steps=1,
        failure=failed,
    )
    awaiting().hears(PermissionAsked("perm", "call", "Bash", "{}")).says(
        Emit(resolved), LowerGate(what), *end[:2], AnswerPermission("perm", False, DENIAL_MESSAGE), *end[2:]
    )


def test_a_tool_of_a_sub_agent_is_judged_as_ever() -> None:
    denied = Ruling(PermissionAction.DENY, "no shell")
    play = awaiting().hears(PermissionAsked("perm", "call", "Bash", "{}", subagent_id="sub", ruling=denied))
    resolved = PermissionResolved(PERMISSION, PermissionAnswer.DENY, ResolutionSource.POLICY, "no shell", tool="Bash")
    play.says(Emit(resolved), AnswerPermission("perm", False, DENIAL_MESSAGE))
    play.ends_in(WAITING)


def test_an_agent_that_gives_up_waiting_is_ended_before_it_can_go_on() -> None:
    failed = failure("AGENT_ERROR", "the agent no longer waited for the decision about step 1", FailureFault.AGENT, 1)
    play = awaiting().hears(BoundaryCancelled("b1"))
    play.says(
        *ends(
            RunState.FAILED,
            WAITING,
            BEGIN,
            EndProcess("it no longer waits at its step boundary"),
            timers=BOTH_TIMERS,
            steps=1,
            failure=failed,
        )
    )
    play.refuses(GO_ON, "DECISION_NOT_PENDING")


def test_a_turn_that_completes_without_leave_lost_the_gate_and_is_over() -> None:
    what = "the turn was completed"
    failed = failure("GATE_LOST", f"the agent went past a step boundary without leave: {what}", FailureFault.AGENT, 1)
    awaiting().hears(COMPLETED_TURN).says(
        turn(COMPLETED_TURN),
        LowerGate(what),
        *ends(RunState.FAILED, WAITING, BEGIN, timers=BOTH_TIMERS, steps=1, failure=failed),
    )


def test_a_turn_that_ends_otherwise_fails_the_run_truthfully() -> None:
    reasons = []
    for event in (FAILED_TURN, ABORTED_TURN, STOPPED_TURN):
        found = awaiting().hears(event).ends_in(RunState.FAILED).failure
        assert found is not None
        reasons.append((found.reason, found.resumable_at_step))
    assert reasons == [("RATE_LIMITED", 1), ("AGENT_ERROR", 1), ("AGENT_ERROR", 1)]


def test_an_exit_fails_it_and_says_where_to_go_on() -> None:
    failed = failure("AGENT_EXITED", "the agent's process ended with exit code 1", FailureFault.AGENT, 1)
    awaiting().hears(AgentExited(1, None)).says(
        *ends(RunState.FAILED, WAITING, BEGIN, timers=BOTH_TIMERS, steps=1, failure=failed)
    )


def test_what_cannot_be_understood_fails_the_run_and_ends_the_process() -> None:
    failed = failure("PROTOCOL_ERROR", "not JSON", FailureFault.AGENT, 1)
    awaiting().hears(ProtocolFailed("not JSON")).says(
        *ends(
            RunState.FAILED,
            WAITING,
            BEGIN,
            EndProcess("protocol error"),
            timers=BOTH_TIMERS,
            steps=1,
            failure=failed,
        )
    )


def test_the_hard_timeout_counts_while_a_client_is_asked() -> None:
    message = "the run took longer than its hard_timeout of 3600 s"
    play = awaiting().hears(TimerFired(Timer.HARD_TIMEOUT), after=SECOND)
    play.says(
        *ends(
            RunState.FAILED,
            WAITING,
            BEGIN + SECOND,
            EndProcess("hard timeout of its run"),
            timers=(Timer.DECISION,),
            steps=1,
            failure=failure("HARD_TIMEOUT", message, FailureFault.CLIENT, 1),
        )
    )
    assert play.run.view.pending_decision is None


def test_a_timer_that_was_cancelled_while_it_fired_does_nothing() -> None:
    awaiting().hears(TimerFired(Timer.STOP)).says().ends_in(WAITING)


def test_a_confirmation_that_is_said_again_is_ignored() -> None:
    awaiting().hears(PromptConfirmed("p1")).says().ends_in(WAITING)


def test_a_restart_closes_the_decision_as_never_delivered() -> None:
    play = awaiting().hears(DaemonRestarted(), after=SECOND)
    at = BEGIN + SECOND
    reason = "The daemon restarted while the decision was pending."
    failed = failure("DAEMON_RESTARTED", "the daemon restarted while the run was live", FailureFault.DAEMON, 1)
    play.says(
        decided(1, DecisionAction.STOP, DecisionSource.RESTART, at, reason=reason, waited=SECOND),
        *ends(RunState.FAILED, WAITING, at, timers=BOTH_TIMERS, steps=1, failure=failed),
    )
    assert not play.run.view.decisions[step_id(1)].delivered
