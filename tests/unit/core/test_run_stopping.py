"""Conversations of a run that was told to stop and whose agent has not confirmed it."""

from msgspec.structs import replace
from tests.unit.core.conversations import (
    ABORT,
    ABORT_ASKED,
    ABORT_PLEASE,
    ABORTED_TURN,
    AT_TWO,
    COMPLETED_TURN,
    FAILED_TURN,
    STOP,
    STOP_PLEASE,
    STOPPED_TURN,
    changes,
    completed,
    ended_step,
    ends,
    failure,
    judged,
    running,
    step_id,
    stopping,
    turn,
)

from steprail_daemon.core.commands import (
    AnswerPermission,
    CancelTimer,
    Emit,
    EndProcess,
    Interrupt,
    LowerGate,
    StartTimer,
)
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
    TurnEnded,
)
from steprail_daemon.core.model import (
    SECOND,
    DecisionAction,
    DecisionSource,
    Failure,
    FailureFault,
    PermissionAnswer,
    ResolutionSource,
    RunState,
    StopKind,
    StopReason,
    StopRequest,
    TurnEndReason,
    Usage,
    VerdictOutcome,
)
from steprail_daemon.core.policy import DENIAL_MESSAGE
from steprail_daemon.core.records import PermissionResolved, StopAsked
from steprail_daemon.testing.playbook import BEGIN

TIMERS = (Timer.HARD_TIMEOUT, Timer.STOP)
REASON = StopReason(
    kind=StopKind.STEP_COUNT, source=DecisionSource.RULE, rule_id="two", reason="enough seen", observed="2", limit="2"
)
OVERSHOT = replace(REASON, exact=False, overshoot_requests=1)


def past_gate(what: str, steps: int = 2) -> Failure:
    """How a lost gate is told."""
    message = f"the agent went past a step boundary without leave: {what}"
    return failure("GATE_LOST", message, FailureFault.AGENT, steps)


def test_it_is_stopped_once_the_agent_confirms_it() -> None:
    play = stopping()
    assert not play.run.view.decisions[step_id(2)].delivered
    play.hears(STOPPED_TURN, after=SECOND).says(
        turn(STOPPED_TURN),
        *ends(RunState.STOPPED, RunState.STOPPING, BEGIN + SECOND, timers=TIMERS, steps=2, reason=REASON),
    )
    view = play.ends_in(RunState.STOPPED)
    assert view.decisions[step_id(2)].delivered
    assert (view.text, view.failure, view.stop_reason) == ("", None, REASON)
    assert (view.active_ns, view.queued_ns, view.awaiting_decision_ns) == (SECOND, 0, 0)


def test_the_steps_of_a_stopped_run_are_its_whole_usage() -> None:
    play = running(AT_TWO).hears(completed(1, Usage(10, output_tokens=1)))
    view = play.hears(completed(2, Usage(20, output_tokens=2))).hears(STOPPED_TURN).ends_in(RunState.STOPPED)
    assert view.usage == Usage(30, output_tokens=3)
    assert view.usage.total_tokens == 33


def test_a_turn_that_completes_after_a_stop_lost_the_gate() -> None:
    what = "the turn was completed"
    play = stopping().hears(COMPLETED_TURN)
    play.says(
        turn(COMPLETED_TURN),
        LowerGate(what),
        *ends(
            RunState.FAILED,
            RunState.STOPPING,
            BEGIN,
            timers=TIMERS,
            steps=2,
            reason=OVERSHOT,
            failure=past_gate(what),
        ),
    )
    assert not play.run.view.decisions[step_id(2)].delivered


def test_a_turn_that_fails_after_a_stop_fails_the_run() -> None:
    play = stopping().hears(FAILED_TURN)
    view = play.ends_in(RunState.FAILED)
    assert view.failure is not None
    assert (view.failure.reason, view.failure.resumable_at_step) == ("RATE_LIMITED", 2)
    assert view.stop_reason == REASON


def test_a_turn_that_is_cut_off_instead_of_stopped_is_not_claimed_as_stopped() -> None:
    view = stopping().hears(ABORTED_TURN).ends_in(RunState.FAILED)
    message = "the agent's turn was cut off ('aborted_tools'), and not by this daemon"
    assert view.failure == failure("AGENT_ERROR", message, FailureFault.AGENT, 2)


def test_an_agent_that_does_not_confirm_in_time_is_ended_and_nothing_is_claimed_yet() -> None:
    message = "the agent did not confirm the stop within 10 s; its process was ended"
    play = stopping().hears(TimerFired(Timer.STOP), after=STOP).says(EndProcess(message))
    play.ends_in(RunState.STOPPING)
    play.hears(AgentExited(None, 15), after=SECOND).says(
        *ends(
            RunState.FAILED,
            RunState.STOPPING,
            BEGIN + STOP + SECOND,
            timers=(Timer.HARD_TIMEOUT,),
            steps=2,
            reason=REASON,
            failure=failure("AGENT_UNRESPONSIVE", message, FailureFault.AGENT, 2),
        )
    )


def test_a_confirmation_that_comes_while_the_process_is_ended_still_counts() -> None:
    play = stopping().hears(TimerFired(Timer.STOP)).hears(STOPPED_TURN)
    play.ends_in(RunState.STOPPED)
    play.hears(AgentExited(None, 15)).says()


def test_a_process_is_ended_once() -> None:
    message = "the run took longer than its hard_timeout of 3600 s"
    play = stopping().hears(TimerFired(Timer.STOP)).hears(TimerFired(Timer.HARD_TIMEOUT))
    play.says(
        *ends(
            RunState.FAILED,
            RunState.STOPPING,
            BEGIN,
            steps=2,
            reason=REASON,
            failure=failure("HARD_TIMEOUT", message, FailureFault.CLIENT, 2),
        )
    )


def test_a_timer_that_was_cancelled_while_it_fired_does_nothing() -> None:
    stopping().hears(TimerFired(Timer.DECISION)).says().ends_in(RunState.STOPPING)


def test_an_abort_wins_over_a_stop_that_is_not_confirmed() -> None:
    play = stopping().hears(ABORT_PLEASE)
    play.says(
        ABORT_ASKED,
        changes(RunState.ABORTING, RunState.STOPPING, BEGIN),
        CancelTimer(Timer.HARD_TIMEOUT),
        CancelTimer(Timer.STOP),
        StartTimer(Timer.ABORT, BEGIN + ABORT),
        Interrupt(),
    )
    play.hears(STOPPED_TURN).says(
        turn(STOPPED_TURN),
        *ends(RunState.ABORTED, RunState.ABORTING, BEGIN, timers=(Timer.ABORT,), steps=2, reason=REASON),
    )


def test_activity_after_a_stop_lost_the_gate() -> None:
    stopping().hears(ActivityPastGate("a tool")).says(
        LowerGate("a tool"),
        *ends(
            RunState.FAILED,
            RunState.STOPPING,
            BEGIN,
            Interrupt(),
            EndProcess("its step gate did not hold"),
            timers=TIMERS,
            steps=2,
            reason=OVERSHOT,
            failure=past_gate("a tool"),
        ),
    )


def test_a_step_after_a_stop_is_recorded_and_lost_the_gate() -> None:
    what = "step 3 was completed"
    play = stopping().hears(completed(3))
    play.says(
        ended_step(3, judged(VerdictOutcome.MATCHED, 3, 2)),
        LowerGate(what),
        *ends(
            RunState.FAILED,
            RunState.STOPPING,
            BEGIN,
            Interrupt(),
            EndProcess("its step gate did not hold"),
            timers=TIMERS,
            steps=3,
            reason=OVERSHOT,
            failure=past_gate(what, 3),
        ),
    )
    assert not play.run.view.decisions[step_id(2)].delivered


def test_a_tool_of_the_main_loop_after_a_stop_is_denied_and_lost_the_gate() -> None:
    play = stopping().hears(PermissionAsked("perm", "call", "Bash", "{}"))
    assert AnswerPermission("perm", False, DENIAL_MESSAGE) in play.commands
    assert play.ends_in(RunState.FAILED).failure == past_gate("leave was asked for the tool 'Bash'")


def test_a_tool_of_a_sub_agent_after_a_stop_is_denied() -> None:
    play = stopping().hears(PermissionAsked("perm", "call", "Bash", "{}", subagent_id="sub"))
    reason = "the run is being stopped"
    resolved = PermissionResolved("run_01.p000001", PermissionAnswer.DENY, ResolutionSource.POLICY, reason, tool="Bash")
    play.says(Emit(resolved), AnswerPermission("perm", False, DENIAL_MESSAGE))
    play.ends_in(RunState.STOPPING)


def test_an_exit_instead_of_a_confirmation_fails_it_and_says_where_to_go_on() -> None:
    failed = failure("AGENT_EXITED", "the agent's process ended with exit code 0", FailureFault.AGENT, 2)
    stopping().hears(AgentExited(0, None)).says(
        *ends(RunState.FAILED, RunState.STOPPING, BEGIN, timers=TIMERS, steps=2, reason=REASON, failure=failed)
    )


def test_what_cannot_be_understood_fails_the_run_and_ends_the_process() -> None:
    stopping().hears(ProtocolFailed("not JSON")).says(
        *ends(
            RunState.FAILED,
            RunState.STOPPING,
            BEGIN,
            EndProcess("protocol error"),
            timers=TIMERS,
            steps=2,
            reason=REASON,
            failure=failure("PROTOCOL_ERROR", "not JSON", FailureFault.AGENT, 2),
        )
    )


def test_a_stop_request_is_noted_and_changes_nothing_more() -> None:
    play = stopping().hears(STOP_PLEASE)
    play.says(Emit(StopAsked(StopRequest(DecisionSource.OPERATOR, "ann", "lunch", BEGIN))))
    assert play.hears(STOPPED_TURN).ends_in(RunState.STOPPED).stop_reason == REASON


def test_a_decision_comes_too_late() -> None:
    stopping().refuses(DecisionSubmitted(step_id(2), DecisionAction.CONTINUE, "ann"), "DECISION_NOT_PENDING")


def test_what_crosses_our_answer_is_ignored() -> None:
    play = stopping().hears(BoundaryCancelled("b2")).says()
    play.hears(PromptConfirmed("p1")).says().ends_in(RunState.STOPPING)


def test_a_restart_leaves_the_decision_undelivered() -> None:
    play = stopping().hears(DaemonRestarted())
    failed = failure("DAEMON_RESTARTED", "the daemon restarted while the run was live", FailureFault.DAEMON, 2)
    play.says(*ends(RunState.FAILED, RunState.STOPPING, BEGIN, timers=TIMERS, steps=2, reason=REASON, failure=failed))
    assert not play.run.view.decisions[step_id(2)].delivered


def test_the_usage_of_the_turn_replaces_the_sum_of_the_steps() -> None:
    end = TurnEnded(TurnEndReason.STOP_CONDITION, "hook_stopped", usage=Usage(50, output_tokens=5))
    view = running(AT_TWO).hears(completed(1)).hears(completed(2)).hears(end).ends_in(RunState.STOPPED)
    assert view.usage == Usage(50, output_tokens=5)
