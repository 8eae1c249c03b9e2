"""Conversations of a run that the agent has not taken up yet."""

from msgspec.structs import replace
from tests.unit.core.conversations import (
    ABORT,
    ABORT_PLEASE,
    COMPLETED_TURN,
    FAILED_TURN,
    HARD,
    LIMITS,
    RATE_LIMITED,
    STOP_PLEASE,
    STOP_REASON,
    TAKE_UP,
    changes,
    completed,
    ends,
    failure,
    queued,
    sent,
    spec,
    starts,
    turn,
)

from steprail_daemon.core.commands import (
    AnswerBoundary,
    AnswerPermission,
    CancelTimer,
    Emit,
    EndProcess,
    FinishRun,
    StartTimer,
)
from steprail_daemon.core.events import (
    ActivityPastGate,
    AgentExited,
    AgentStartFailed,
    BoundaryCancelled,
    DaemonRestarted,
    DecisionSubmitted,
    PermissionAsked,
    PromptConfirmed,
    PromptSent,
    ProtocolFailed,
    StopRequested,
    Timer,
    TimerFired,
)
from steprail_daemon.core.model import (
    SECOND,
    DecisionAction,
    DecisionSource,
    FailureFault,
    PermissionMode,
    ResolutionSource,
    RunState,
    StopKind,
    StopReason,
    StopRequest,
)
from steprail_daemon.core.policy import DENIAL_MESSAGE
from steprail_daemon.core.records import PermissionResolved, RunCreated, RunStateChanged, StopAsked, TurnStarted
from steprail_daemon.testing.playbook import BEGIN, RUN_ID, SESSION_ID

ASKED_TO_STOP = Emit(StopAsked(StopRequest(DecisionSource.OPERATOR, "ann", "lunch", BEGIN)))
PROMPT = (Timer.PROMPT,)
WRITE = PermissionAsked("perm", "call", "Write", "{}")


def test_a_new_run_is_recorded_as_queued() -> None:
    queued().says(
        Emit(RunCreated(RUN_ID, SESSION_ID, spec(), BEGIN)),
        Emit(RunStateChanged(RunState.QUEUED, None, BEGIN)),
    )


def test_it_runs_from_the_moment_the_agent_confirms_the_prompt() -> None:
    play = queued().hears(PromptSent("p1"), after=SECOND).says(StartTimer(Timer.PROMPT, BEGIN + SECOND + TAKE_UP))
    play.ends_in(RunState.QUEUED)
    play.hears(PromptConfirmed("p1"), after=2 * SECOND).says(*starts(BEGIN + 3 * SECOND))
    view = play.ends_in(RunState.RUNNING)
    assert (view.started_at, view.queued_ns, view.active_ns) == (BEGIN + 3 * SECOND, 3 * SECOND, 0)


def test_a_prompt_that_the_daemon_worded_is_told_as_such() -> None:
    play = sent(run=spec(synthesized=True)).hears(PromptConfirmed("p1"))
    play.says(
        changes(RunState.RUNNING, RunState.QUEUED, BEGIN),
        Emit(TurnStarted(True, BEGIN)),
        CancelTimer(Timer.PROMPT),
        StartTimer(Timer.HARD_TIMEOUT, BEGIN + HARD),
    )


def test_an_agent_that_does_not_take_the_prompt_is_ended_and_fails_the_run() -> None:
    message = "the agent did not take the prompt within 30 s; its process was ended"
    failed = failure("AGENT_UNRESPONSIVE", message, FailureFault.AGENT)
    play = sent().hears(STOP_PLEASE).hears(TimerFired(Timer.PROMPT), after=TAKE_UP)
    play.says(*ends(RunState.FAILED, RunState.QUEUED, BEGIN + TAKE_UP, EndProcess(message), failure=failed))
    view = play.ends_in(RunState.FAILED)
    assert (view.started_at, view.queued_ns) == (None, TAKE_UP)


def test_the_time_to_take_the_prompt_is_a_limit_of_the_run() -> None:
    limits = replace(LIMITS, prompt_timeout_ns=3 * SECOND)
    queued(run=spec(limits=limits)).hears(PromptSent("p1")).says(StartTimer(Timer.PROMPT, BEGIN + 3 * SECOND))


def test_a_timer_that_was_cancelled_while_it_fired_does_nothing() -> None:
    queued().hears(TimerFired(Timer.PROMPT)).says().ends_in(RunState.QUEUED)


def test_a_stop_before_the_prompt_was_sent_stops_it_without_steps() -> None:
    play = queued().hears(STOP_PLEASE)
    play.says(ASKED_TO_STOP, *ends(RunState.STOPPED, RunState.QUEUED, BEGIN, reason=STOP_REASON))
    assert play.ends_in(RunState.STOPPED).stop_reason == STOP_REASON


def test_a_drain_before_the_prompt_was_sent_is_told_as_a_drain() -> None:
    asked = StopRequest(DecisionSource.DRAIN, "", "", BEGIN)
    reason = StopReason(kind=StopKind.DRAIN, source=DecisionSource.DRAIN, reason="A stop was requested.")
    queued().hears(StopRequested(DecisionSource.DRAIN, "", "")).says(
        Emit(StopAsked(asked)), *ends(RunState.STOPPED, RunState.QUEUED, BEGIN, reason=reason)
    )


def test_a_stop_after_the_prompt_was_sent_waits_for_the_first_boundary() -> None:
    play = sent().hears(STOP_PLEASE).says(ASKED_TO_STOP)
    play.ends_in(RunState.QUEUED)
    play.hears(PromptConfirmed("p1")).hears(completed(1))
    assert play.ends_in(RunState.STOPPING).stop_reason == STOP_REASON


def test_an_abort_before_the_prompt_was_sent_is_done_at_once() -> None:
    queued().hears(ABORT_PLEASE).says(*ends(RunState.ABORTED, RunState.QUEUED, BEGIN))


def test_an_abort_before_the_agent_can_take_it_is_held_and_bounded() -> None:
    play = sent().hears(ABORT_PLEASE)
    play.says(
        changes(RunState.ABORTING, RunState.QUEUED, BEGIN),
        CancelTimer(Timer.PROMPT),
        StartTimer(Timer.ABORT, BEGIN + ABORT),
    )
    play.ends_in(RunState.ABORTING)


def test_nobody_can_decide_about_it() -> None:
    queued().refuses(DecisionSubmitted("run_01.000001", DecisionAction.STOP, "ann"), "DECISION_NOT_PENDING")


def test_a_step_before_the_prompt_was_confirmed_is_a_protocol_error() -> None:
    message = "it completed a step ('b1') before it took the prompt"
    failed = failure("PROTOCOL_ERROR", message, FailureFault.AGENT)
    sent().hears(completed(1)).says(
        *ends(RunState.FAILED, RunState.QUEUED, BEGIN, EndProcess("protocol error"), timers=PROMPT, failure=failed)
    )


def test_the_boundary_of_an_earlier_turn_is_stopped_and_is_no_step_of_this_run() -> None:
    play = queued().hears(completed(1)).says(AnswerBoundary("b1", DecisionAction.STOP))
    assert play.ends_in(RunState.QUEUED).step_count == 0


def test_what_else_an_earlier_turn_leaves_behind_is_ignored() -> None:
    play = queued().hears(BoundaryCancelled("b9")).says()
    play.hears(ActivityPastGate("MessageStarted")).says()
    play.hears(COMPLETED_TURN).says()
    play.hears(PromptConfirmed("p0")).says()
    play.ends_in(RunState.QUEUED)


def test_the_tools_of_an_earlier_turn_are_denied() -> None:
    queued(run=spec(mode=PermissionMode.BYPASS)).hears(WRITE).says(AnswerPermission("perm", False, DENIAL_MESSAGE))


def test_a_tool_between_prompt_and_confirmation_is_judged_by_the_permission_mode() -> None:
    resolved = PermissionResolved("perm", True, ResolutionSource.POLICY, "permission mode BYPASS allows every tool")
    sent(run=spec(mode=PermissionMode.BYPASS)).hears(WRITE).says(Emit(resolved), AnswerPermission("perm", True, ""))


def test_a_turn_that_fails_before_it_began_fails_the_run() -> None:
    sent().hears(FAILED_TURN).says(
        turn(FAILED_TURN), *ends(RunState.FAILED, RunState.QUEUED, BEGIN, timers=PROMPT, failure=RATE_LIMITED)
    )


def test_a_turn_that_ends_well_before_it_began_is_a_protocol_error() -> None:
    failed = failure("PROTOCOL_ERROR", "it ended a turn ('completed') that it had not begun", FailureFault.AGENT)
    sent().hears(COMPLETED_TURN).says(
        turn(COMPLETED_TURN),
        *ends(RunState.FAILED, RunState.QUEUED, BEGIN, EndProcess("protocol error"), timers=PROMPT, failure=failed),
    )


def test_what_cannot_be_understood_fails_the_run_and_ends_the_process() -> None:
    failed = failure("PROTOCOL_ERROR", "a line over the limit", FailureFault.AGENT)
    queued().hears(ProtocolFailed("a line over the limit")).says(
        *ends(RunState.FAILED, RunState.QUEUED, BEGIN, EndProcess("protocol error"), failure=failed)
    )


def test_an_agent_that_does_not_start_fails_the_run_with_its_own_failure() -> None:
    failed = failure("AUTH_FAILED", "not logged in", FailureFault.CLIENT)
    queued().hears(AgentStartFailed(failed)).says(*ends(RunState.FAILED, RunState.QUEUED, BEGIN, failure=failed))


def test_an_exit_before_the_prompt_was_sent_is_a_failed_start() -> None:
    message = "the agent's process ended with exit code 2; the end of its stderr: no such model"
    failed = failure("AGENT_START_FAILED", message, FailureFault.AGENT)
    queued().hears(AgentExited(2, None, "no such model\n")).says(
        *ends(RunState.FAILED, RunState.QUEUED, BEGIN, failure=failed)
    )


def test_an_exit_after_the_prompt_was_sent_is_an_exit() -> None:
    failed = failure("AGENT_EXITED", "the agent's process was killed by signal 9", FailureFault.ENVIRONMENT)
    play = sent().hears(AgentExited(None, 9))
    play.says(*ends(RunState.FAILED, RunState.QUEUED, BEGIN, timers=PROMPT, failure=failed))


def test_a_restart_fails_it() -> None:
    failed = failure("DAEMON_RESTARTED", "the daemon restarted while the run was live", FailureFault.DAEMON)
    play = queued().hears(DaemonRestarted(), after=SECOND)
    play.says(*ends(RunState.FAILED, RunState.QUEUED, BEGIN + SECOND, failure=failed))
    view = play.ends_in(RunState.FAILED)
    assert (view.started_at, view.queued_ns, view.ended_at) == (None, SECOND, BEGIN + SECOND)


def test_finishing_is_the_last_command_of_its_life() -> None:
    assert queued().hears(ABORT_PLEASE).commands[-1] == FinishRun()
