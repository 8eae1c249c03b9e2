"""Conversations of a run that is being cut off."""

from msgspec.structs import replace
from tests.unit.core.conversations import (
    ABORT,
    ABORT_PLEASE,
    ABORTED_TURN,
    AT_TWO,
    COMPLETED_TURN,
    FAILED_TURN,
    RATE_LIMITED,
    STOP_PLEASE,
    STOPPED_TURN,
    aborting,
    awaiting,
    completed,
    ended_step,
    ends,
    failure,
    judged,
    running,
    sent,
    spec,
    step_id,
    turn,
)

from steprail_daemon.core.commands import (
    AnswerPermission,
    AnswerQuestion,
    CancelTimer,
    Emit,
    EndProcess,
    Interrupt,
    LowerGate,
)
from steprail_daemon.core.events import (
    ActivityPastGate,
    AgentExited,
    BoundaryCancelled,
    DaemonRestarted,
    DecisionSubmitted,
    PermissionAsked,
    PermissionWithdrawn,
    PromptConfirmed,
    ProtocolFailed,
    QuestionAsked,
    QuestionWithdrawn,
    Timer,
    TimerFired,
)
from steprail_daemon.core.model import (
    SECOND,
    DecisionAction,
    DecisionSource,
    FailureFault,
    PermissionAnswer,
    PermissionMode,
    ResolutionSource,
    RunState,
    StopRequest,
    VerdictOutcome,
)
from steprail_daemon.core.policy import DENIAL_MESSAGE
from steprail_daemon.core.records import PermissionResolved, QuestionResolved, StopAsked, TurnStarted
from steprail_daemon.testing.playbook import BEGIN

TIMER = (Timer.ABORT,)
UNRESPONSIVE = "the agent did not confirm the abort within 20 s; its process was ended"


def test_it_is_aborted_once_the_agent_ended_the_turn() -> None:
    aborting().hears(ABORTED_TURN).says(
        turn(ABORTED_TURN), *ends(RunState.ABORTED, RunState.ABORTING, BEGIN, timers=TIMER, steps=1)
    )


def test_an_agent_that_had_finished_first_has_completed_the_run() -> None:
    verdict = judged(VerdictOutcome.NOT_MATCHED, 1, 2)
    play = aborting(AT_TWO).hears(COMPLETED_TURN)
    play.says(
        turn(COMPLETED_TURN),
        *ends(RunState.COMPLETED, RunState.ABORTING, BEGIN, timers=TIMER, steps=1, final=(verdict,)),
    )
    assert play.run.view.text == "All done."


def test_what_went_wrong_meanwhile_is_noted_beside_the_abort() -> None:
    aborting().hears(FAILED_TURN).says(
        turn(FAILED_TURN),
        *ends(RunState.ABORTED, RunState.ABORTING, BEGIN, timers=TIMER, steps=1, failure=RATE_LIMITED),
    )


def test_an_exit_aborts_it_and_is_noted() -> None:
    noted = failure("AGENT_EXITED", "the agent's process ended with exit code 1", FailureFault.AGENT)
    aborting().hears(AgentExited(1, None)).says(
        *ends(RunState.ABORTED, RunState.ABORTING, BEGIN, timers=TIMER, steps=1, failure=noted)
    )


def test_an_agent_that_does_not_react_is_ended_and_the_abort_claimed_when_it_is_gone() -> None:
    play = aborting().hears(TimerFired(Timer.ABORT), after=ABORT).says(EndProcess(UNRESPONSIVE))
    play.ends_in(RunState.ABORTING)
    play.hears(AgentExited(None, 9), after=SECOND).says(
        *ends(
            RunState.ABORTED,
            RunState.ABORTING,
            BEGIN + ABORT + SECOND,
            steps=1,
            failure=failure("AGENT_UNRESPONSIVE", UNRESPONSIVE, FailureFault.AGENT),
        )
    )


def test_a_turn_that_ends_while_the_process_is_ended_still_notes_that_it_was_late() -> None:
    view = aborting().hears(TimerFired(Timer.ABORT)).hears(ABORTED_TURN).ends_in(RunState.ABORTED)
    assert view.failure == failure("AGENT_UNRESPONSIVE", UNRESPONSIVE, FailureFault.AGENT)


def test_a_timer_that_was_cancelled_while_it_fired_does_nothing() -> None:
    aborting().hears(TimerFired(Timer.HARD_TIMEOUT)).says().ends_in(RunState.ABORTING)


def test_a_held_interrupt_is_sent_when_the_prompt_is_confirmed() -> None:
    play = sent().hears(ABORT_PLEASE).hears(PromptConfirmed("p1"), after=SECOND)
    play.says(Emit(TurnStarted(False, BEGIN + SECOND)), Interrupt())
    view = play.hears(ABORTED_TURN, after=SECOND).ends_in(RunState.ABORTED)
    assert (view.started_at, view.queued_ns, view.active_ns) == (BEGIN + SECOND, SECOND, SECOND)


def test_a_held_interrupt_is_sent_at_a_boundary_at_the_latest() -> None:
    play = sent().hears(ABORT_PLEASE).hears(completed(1)).says(ended_step(1), Interrupt())
    play.hears(PromptConfirmed("p1")).says(Emit(TurnStarted(False, BEGIN)))


def test_an_agent_that_never_confirms_the_prompt_is_ended_in_time() -> None:
    play = sent().hears(ABORT_PLEASE).hears(TimerFired(Timer.ABORT), after=ABORT).says(EndProcess(UNRESPONSIVE))
    view = play.hears(AgentExited(None, 15)).ends_in(RunState.ABORTED)
    assert (view.started_at, view.queued_ns, view.active_ns) == (None, ABORT, 0)


def test_a_confirmation_that_is_said_again_is_ignored() -> None:
    aborting().hears(PromptConfirmed("p1")).says().ends_in(RunState.ABORTING)


def test_a_step_that_crossed_the_interrupt_is_recorded_and_left_unanswered() -> None:
    play = aborting(AT_TWO).hears(completed(2)).says(ended_step(2, judged(VerdictOutcome.MATCHED, 2, 2)))
    view = play.hears(BoundaryCancelled("b2")).says().ends_in(RunState.ABORTING)
    assert step_id(2) not in view.decisions
    play.hears(ABORTED_TURN).ends_in(RunState.ABORTED)


def test_a_second_step_past_an_unanswered_boundary_lost_the_gate_and_is_noted() -> None:
    what = "step 3 was completed"
    lost = failure("GATE_LOST", f"the agent went past a step boundary without leave: {what}", FailureFault.AGENT)
    play = aborting().hears(completed(2)).hears(completed(3))
    play.says(ended_step(3), LowerGate(what), EndProcess("its step gate did not hold"))
    play.hears(completed(4)).says(ended_step(4)).ends_in(RunState.ABORTING)
    assert play.hears(AgentExited(None, 15)).ends_in(RunState.ABORTED).failure == lost


def test_the_boundary_at_which_it_was_aborted_counts_as_unanswered() -> None:
    play = awaiting().hears(ABORT_PLEASE).hears(completed(2))
    play.says(ended_step(2), LowerGate("step 2 was completed"), EndProcess("its step gate did not hold"))
    play.hears(ABORTED_TURN).ends_in(RunState.ABORTED)


def test_so_does_one_whose_answer_was_not_sent() -> None:
    play = aborting().hears(replace(completed(2), past_gate=True))
    play.says(ended_step(2), LowerGate("step 2 was completed"), EndProcess("its step gate did not hold"))


def test_a_second_abort_is_the_same_abort() -> None:
    aborting().hears(ABORT_PLEASE).says().ends_in(RunState.ABORTING)


def test_a_stop_request_is_noted_and_changes_nothing_more() -> None:
    play = aborting().hears(STOP_PLEASE)
    play.says(Emit(StopAsked(StopRequest(DecisionSource.OPERATOR, "ann", "lunch", BEGIN))))
    assert play.hears(STOPPED_TURN).ends_in(RunState.ABORTED).stop_reason is None


def test_a_decision_comes_too_late() -> None:
    aborting().refuses(DecisionSubmitted(step_id(1), DecisionAction.STOP, "ann"), "DECISION_NOT_PENDING")


def test_what_the_agent_winds_up_with_is_ignored() -> None:
    aborting().hears(ActivityPastGate("MessageEnded")).says().ends_in(RunState.ABORTING)


def test_tools_are_denied_whatever_the_permission_mode_is() -> None:
    play = running(run=spec(mode=PermissionMode.BYPASS)).hears(ABORT_PLEASE)
    reason = "the run is being aborted"
    resolved = PermissionResolved("run_01.p000001", PermissionAnswer.DENY, ResolutionSource.ABORT, reason, tool="Bash")
    play.hears(PermissionAsked("perm", "call", "Bash", "{}")).says(
        Emit(resolved), AnswerPermission("perm", False, DENIAL_MESSAGE)
    )
    declined = QuestionResolved("run_01.q000001", None, ResolutionSource.ABORT)
    play.hears(QuestionAsked("ask", ())).says(Emit(declined), AnswerQuestion("ask", None))
    play.hears(PermissionWithdrawn("perm")).says().hears(QuestionWithdrawn("ask")).says()
    play.ends_in(RunState.ABORTING)


def test_what_cannot_be_understood_ends_the_process_and_is_noted() -> None:
    play = aborting().hears(ProtocolFailed("not JSON"))
    play.says(CancelTimer(Timer.ABORT), EndProcess("not JSON"))
    play.ends_in(RunState.ABORTING)
    noted = failure("PROTOCOL_ERROR", "not JSON", FailureFault.AGENT)
    play.hears(AgentExited(None, 15)).says(*ends(RunState.ABORTED, RunState.ABORTING, BEGIN, steps=1, failure=noted))


def test_a_process_is_ended_once_and_the_first_cause_is_noted() -> None:
    play = aborting().hears(TimerFired(Timer.ABORT)).hears(ProtocolFailed("cut line")).says()
    view = play.hears(AgentExited(None, 15)).ends_in(RunState.ABORTED)
    assert view.failure == failure("AGENT_UNRESPONSIVE", UNRESPONSIVE, FailureFault.AGENT)


def test_a_restart_fails_it() -> None:
    failed = failure("DAEMON_RESTARTED", "the daemon restarted while the run was live", FailureFault.DAEMON, 1)
    aborting().hears(DaemonRestarted()).says(
        *ends(RunState.FAILED, RunState.ABORTING, BEGIN, timers=TIMER, steps=1, failure=failed)
    )
