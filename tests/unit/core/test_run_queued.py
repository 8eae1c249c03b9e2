"""Conversations of a run that the agent has not taken up yet."""

import pytest
from msgspec.structs import replace
from tests.unit.core.conversations import (
    ABORT,
    ABORT_ASKED,
    ABORT_PLEASE,
    CAPABLE,
    COMPLETED_TURN,
    FAILED_TURN,
    HARD,
    INCAPABLE,
    LIMITS,
    QUEUE_TIMER,
    RATE_LIMITED,
    STOP_PLEASE,
    STOP_REASON,
    TAKE_UP,
    TURN,
    begun,
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
    AnswerQuestion,
    CancelTimer,
    Emit,
    EndProcess,
    FinishRun,
    StartTimer,
)
from steprail_daemon.core.errors import IllegalTransition
from steprail_daemon.core.events import (
    ActivityPastGate,
    AgentExited,
    AgentSilent,
    AgentStartFailed,
    BoundaryCancelled,
    DaemonRestarted,
    DecidersChanged,
    DecisionSubmitted,
    DrainWindowEnding,
    PermissionAnswered,
    PermissionAsked,
    PermissionWithdrawn,
    PromptConfirmed,
    PromptSent,
    ProtocolFailed,
    QuestionAnswered,
    QuestionAsked,
    QuestionWithdrawn,
    RulesEvaluated,
    SteerSubmitted,
    StopRequested,
    Timer,
    TimerFired,
    TurnCame,
    UsageSpent,
)
from steprail_daemon.core.model import (
    SECOND,
    DecisionAction,
    DecisionSource,
    FailureFault,
    PermissionAction,
    PermissionAnswer,
    ResolutionSource,
    RunState,
    StopKind,
    StopReason,
    StopRequest,
)
from steprail_daemon.core.policy import DENIAL_MESSAGE, Ruling
from steprail_daemon.core.records import (
    AbortAsked,
    PermissionResolved,
    PromptGiven,
    QuestionResolved,
    RunCreated,
    RunStateChanged,
    RunTurnCame,
    StopAsked,
    TurnStarted,
)
from steprail_daemon.core.run import Run
from steprail_daemon.testing.playbook import BEGIN, RUN_ID, SESSION_ID, replayed

ASKED_TO_STOP = Emit(StopAsked(StopRequest(DecisionSource.OPERATOR, "ann", "lunch", BEGIN)))
PROMPT = (Timer.PROMPT,)
WRITE = PermissionAsked("perm", "call", "Write", "{}")
ALLOWED = Ruling(PermissionAction.ALLOW, "fine")
QUEUE = 3_600 * SECOND


def test_a_new_run_is_recorded_as_queued() -> None:
    queued().says(
        Emit(RunCreated(RUN_ID, SESSION_ID, spec(), BEGIN)),
        Emit(RunStateChanged(RunState.QUEUED, None, BEGIN)),
        StartTimer(Timer.QUEUE, BEGIN + QUEUE),
    )


def test_its_turn_comes_once_and_tells_what_the_session_did_before() -> None:
    play = queued().hears(TurnCame(CAPABLE, 3)).says(Emit(RunTurnCame()))
    assert play.run.capabilities == CAPABLE
    play.hears(TurnCame(INCAPABLE)).says()
    assert play.run.capabilities == INCAPABLE


def test_a_prompt_before_its_turn_is_a_bug() -> None:
    play = queued()
    with pytest.raises(IllegalTransition, match="whose turn has not come"):
        play.run.handle(PromptSent("p1"), BEGIN)


def test_it_waits_no_longer_than_it_may() -> None:
    for play in (queued(), begun()):
        play.hears(TimerFired(Timer.QUEUE), after=QUEUE)
        message = "the run waited longer than its queue_timeout of 3600 s"
        failed = replace(failure("QUEUE_TIMEOUT", message, FailureFault.CLIENT), retryable=True)
        play.says(*ends(RunState.FAILED, RunState.QUEUED, BEGIN + QUEUE, failure=failed))


def test_the_time_to_wait_is_a_limit_of_the_run() -> None:
    limits = replace(LIMITS, queue_timeout_ns=5 * SECOND)
    assert StartTimer(Timer.QUEUE, BEGIN + 5 * SECOND) in queued(run=spec(limits=limits)).commands


def test_it_runs_from_the_moment_the_agent_confirms_the_prompt() -> None:
    play = begun().hears(PromptSent("p1"), after=SECOND)
    play.says(Emit(PromptGiven("p1")), CancelTimer(Timer.QUEUE), StartTimer(Timer.PROMPT, BEGIN + SECOND + TAKE_UP))
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
    assert StartTimer(Timer.PROMPT, BEGIN + 3 * SECOND) in sent(run=spec(limits=limits)).commands


def test_a_timer_that_was_cancelled_while_it_fired_does_nothing() -> None:
    queued().hears(TimerFired(Timer.PROMPT)).says().ends_in(RunState.QUEUED)


def test_a_stop_before_the_prompt_was_sent_stops_it_without_steps() -> None:
    play = queued().hears(STOP_PLEASE)
    end = ends(RunState.STOPPED, RunState.QUEUED, BEGIN, timers=QUEUE_TIMER, reason=STOP_REASON)
    play.says(ASKED_TO_STOP, *end)
    assert play.ends_in(RunState.STOPPED).stop_reason == STOP_REASON


def test_a_drain_leaves_it_for_the_next_start() -> None:
    drain = StopRequested(DecisionSource.DRAIN, "", "")
    play = begun().hears(drain).says().hears(DrainWindowEnding()).says()
    assert play.ends_in(RunState.QUEUED).stop_requested is None
    after = sent().hears(drain).says(Emit(StopAsked(StopRequest(DecisionSource.DRAIN, "", "", BEGIN))))
    after.hears(PromptConfirmed("p1")).hears(completed(1)).ends_in(RunState.STOPPING)


def test_an_exhausted_budget_stops_it_without_steps() -> None:
    view = queued().hears(StopRequested(DecisionSource.BUDGET, "", "team budget")).ends_in(RunState.STOPPED)
    assert view.stop_reason == StopReason(kind=StopKind.BUDGET, source=DecisionSource.BUDGET, reason="team budget")


def test_a_stop_after_the_prompt_was_sent_waits_for_the_first_boundary() -> None:
    play = sent().hears(STOP_PLEASE).says(ASKED_TO_STOP)
    play.ends_in(RunState.QUEUED)
    play.hears(PromptConfirmed("p1")).hears(completed(1))
    assert play.ends_in(RunState.STOPPING).stop_reason == STOP_REASON


def test_an_abort_before_the_prompt_was_sent_is_done_at_once() -> None:
    play = queued().hears(ABORT_PLEASE)
    play.says(ABORT_ASKED, *ends(RunState.ABORTED, RunState.QUEUED, BEGIN, timers=QUEUE_TIMER))
    assert play.run.view.abort_asked == AbortAsked("ann", "wrong directory")


def test_an_abort_before_the_agent_can_take_it_is_held_and_bounded() -> None:
    play = sent().hears(ABORT_PLEASE)
    play.says(
        ABORT_ASKED,
        changes(RunState.ABORTING, RunState.QUEUED, BEGIN),
        CancelTimer(Timer.PROMPT),
        StartTimer(Timer.ABORT, BEGIN + ABORT),
    )
    play.ends_in(RunState.ABORTING)


def test_nobody_can_decide_about_it() -> None:
    play = queued()
    play.refuses(DecisionSubmitted("run_01.000001", DecisionAction.STOP, "ann"), "DECISION_NOT_PENDING")
    play.refuses(PermissionAnswered("run_01.p000001", PermissionAnswer.DENY, "ann"), "PERMISSION_NOT_PENDING")
    play.refuses(QuestionAnswered("run_01.q000001", None, "ann"), "QUESTION_NOT_PENDING")
    play.refuses(SteerSubmitted("steer_1", "Look there.", "ann"), "STEER_NOT_POSSIBLE")


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
    play.hears(RulesEvaluated(1, ())).says()
    play.hears(PermissionWithdrawn("perm")).says()
    play.hears(QuestionWithdrawn("ask")).says()
    play.hears(AgentSilent(SECOND)).says()
    play.hears(UsageSpent(None, None)).says()
    play.hears(replace(completed(1), held=False)).says()
    play.ends_in(RunState.QUEUED)


def test_the_tools_of_an_earlier_turn_are_denied() -> None:
    play = begun().hears(replace(WRITE, ruling=ALLOWED)).says(AnswerPermission("perm", False, DENIAL_MESSAGE))
    play.hears(QuestionAsked("ask", ())).says(AnswerQuestion("ask", None))


def test_a_tool_between_prompt_and_confirmation_is_ruled_on_by_policy_and_nobody_is_asked() -> None:
    play = sent().hears(replace(WRITE, ruling=ALLOWED))
    source = ResolutionSource.POLICY
    resolved = PermissionResolved("run_01.p000001", PermissionAnswer.ALLOW_ONCE, source, "fine", tool="Write")
    play.says(Emit(resolved), AnswerPermission("perm", True, ""))
    reason = "the agent asked before it had taken the prompt"
    resolved = PermissionResolved("run_01.p000002", PermissionAnswer.DENY, source, reason, tool="Write")
    play.hears(WRITE).says(Emit(resolved), AnswerPermission("perm", False, DENIAL_MESSAGE))
    declined = QuestionResolved("run_01.q000001", None, source)
    play.hears(QuestionAsked("ask", ())).says(Emit(declined), AnswerQuestion("ask", None))
    play.ends_in(RunState.QUEUED)


def test_an_agent_that_is_silent_although_it_was_given_the_prompt_fails_it() -> None:
    message = "the agent gave no sign of life for 60 s; its process was ended"
    failed = failure("AGENT_UNRESPONSIVE", message, FailureFault.AGENT)
    sent().hears(AgentSilent(60 * SECOND)).says(
        *ends(RunState.FAILED, RunState.QUEUED, BEGIN, EndProcess(message), timers=PROMPT, failure=failed)
    )


def test_who_decides_may_come_and_go_before_it_begins() -> None:
    queued().hears(DecidersChanged(1)).says().hears(DecidersChanged(0)).says().ends_in(RunState.QUEUED)


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
        *ends(RunState.FAILED, RunState.QUEUED, BEGIN, EndProcess("protocol error"), timers=QUEUE_TIMER, failure=failed)
    )


def test_an_agent_that_does_not_start_fails_the_run_with_its_own_failure() -> None:
    failed = failure("AUTH_FAILED", "not logged in", FailureFault.CLIENT)
    end = ends(RunState.FAILED, RunState.QUEUED, BEGIN, timers=QUEUE_TIMER, failure=failed)
    queued().hears(AgentStartFailed(failed)).says(*end)


def test_an_exit_before_the_prompt_was_sent_is_a_failed_start() -> None:
    message = "the agent's process ended with exit code 2; the end of its stderr: no such model"
    failed = failure("AGENT_START_FAILED", message, FailureFault.AGENT)
    queued().hears(AgentExited(2, None, "no such model\n")).says(
        *ends(RunState.FAILED, RunState.QUEUED, BEGIN, timers=QUEUE_TIMER, failure=failed)
    )


def test_an_exit_after_the_prompt_was_sent_is_an_exit() -> None:
    failed = failure("AGENT_EXITED", "the agent's process was killed by signal 9", FailureFault.ENVIRONMENT)
    play = sent().hears(AgentExited(None, 9))
    play.says(*ends(RunState.FAILED, RunState.QUEUED, BEGIN, timers=PROMPT, failure=failed))


def test_a_restart_leaves_it_queued_while_its_prompt_was_not_given() -> None:
    for play in (queued(), begun()):
        play.hears(DaemonRestarted(), after=SECOND).says(StartTimer(Timer.QUEUE, BEGIN + QUEUE))
        view = play.ends_in(RunState.QUEUED)
        restored = Run.restore(replayed(play.facts))
        assert restored.handle(DaemonRestarted(), play.at) == play.commands
        assert restored.view == view
        assert restored.handle(TURN, play.at) == ([] if view.turn_came else [Emit(RunTurnCame())])


def test_a_restart_fails_it_once_its_prompt_was_given() -> None:
    failed = failure("DAEMON_RESTARTED", "the daemon restarted while the run was live", FailureFault.DAEMON)
    play = sent().hears(DaemonRestarted(), after=SECOND)
    play.says(*ends(RunState.FAILED, RunState.QUEUED, BEGIN + SECOND, timers=PROMPT, failure=failed))
    view = play.ends_in(RunState.FAILED)
    assert (view.started_at, view.queued_ns, view.ended_at) == (None, SECOND, BEGIN + SECOND)


def test_finishing_is_the_last_command_of_its_life() -> None:
    assert queued().hears(ABORT_PLEASE).commands[-1] == FinishRun()
