"""Conversations of a run that the agent works on."""

import pytest
from msgspec.structs import replace
from tests.unit.core.conversations import (
    ABORT,
    ABORT_ASKED,
    ABORT_PLEASE,
    ABORTED_TURN,
    AT_TWO,
    CAPABLE,
    CLIENT,
    COMPLETED_TURN,
    FAILED_TURN,
    LIMITS,
    STOP_PLEASE,
    STOP_REASON,
    STOPPED_TURN,
    asks,
    changes,
    completed,
    decided,
    ended_step,
    ends,
    failure,
    goes_on,
    judged,
    running,
    spec,
    step_id,
    stops,
    turn,
)

from steprail_daemon.core.commands import (
    CancelTimer,
    Emit,
    EndProcess,
    Interrupt,
    LowerGate,
    StartTimer,
)
from steprail_daemon.core.errors import IllegalTransition
from steprail_daemon.core.events import (
    ActivityPastGate,
    AgentExited,
    BoundaryCancelled,
    DaemonRestarted,
    DecisionSubmitted,
    PromptConfirmed,
    PromptSent,
    ProtocolFailed,
    StopRequested,
    Timer,
    TimerFired,
    TurnCame,
    TurnEnded,
)
from steprail_daemon.core.model import (
    SECOND,
    Cost,
    CostBasis,
    DecisionAction,
    DecisionSource,
    Failure,
    FailureFault,
    RuleScope,
    RunLimits,
    RunState,
    StepCountRule,
    StopKind,
    StopReason,
    StopRequest,
    StopRule,
    TurnEndReason,
    Usage,
    Verdict,
    VerdictOutcome,
)
from steprail_daemon.core.records import StopAsked, UsageCounted
from steprail_daemon.testing.playbook import BEGIN

AFTER_THREE = TurnCame(CAPABLE, steps_before=3)
HARD_TIMER = (Timer.HARD_TIMEOUT,)
MATCHED, NOT_MATCHED = VerdictOutcome.MATCHED, VerdictOutcome.NOT_MATCHED


def test_a_step_that_nothing_stops_goes_on_and_starts_no_timer() -> None:
    play = running().hears(completed(1)).says(ended_step(1), *goes_on(1, BEGIN))
    play.ends_in(RunState.RUNNING)


def test_every_rule_has_a_verdict_at_every_step_also_where_it_does_not_match() -> None:
    play = running(AT_TWO).hears(completed(1))
    play.says(ended_step(1, judged(NOT_MATCHED, 1, 2)), *goes_on(1, BEGIN))


def test_the_next_step_confirms_that_the_agent_was_let_go() -> None:
    play = running().hears(completed(1))
    assert not play.run.view.decisions[step_id(1)].delivered
    play.hears(completed(2))
    assert play.run.view.decisions[step_id(1)].delivered
    assert not play.run.view.decisions[step_id(2)].delivered


def test_a_rule_that_matches_stops_the_agent_there() -> None:
    reason = StopReason(
        kind=StopKind.STEP_COUNT,
        source=DecisionSource.RULE,
        rule_id="two",
        reason="enough seen",
        observed="2",
        limit="2",
    )
    play = running(AT_TWO).hears(completed(1)).hears(completed(2))
    play.says(
        ended_step(2, judged(MATCHED, 2, 2)),
        decided(2, DecisionAction.STOP, DecisionSource.RULE, BEGIN, reason="enough seen", rule_id="two"),
        *stops(2, BEGIN, reason),
    )
    assert play.ends_in(RunState.STOPPING).stop_reason == reason


def test_the_first_rule_in_the_list_is_the_reason_and_the_others_also_matched() -> None:
    plain = StopRule("plain", StepCountRule(1))
    play = running(StopRule("late", StepCountRule(9)), plain, StopRule("also", StepCountRule(1))).hears(completed(1))
    reason = play.ends_in(RunState.STOPPING).stop_reason
    assert reason == StopReason(
        kind=StopKind.STEP_COUNT,
        source=DecisionSource.RULE,
        rule_id="plain",
        reason="Completed steps of the run: 1, limit 1.",
        observed="1",
        limit="1",
        also_matched=(judged(MATCHED, 1, 1, "also"),),
    )


def test_a_stop_request_comes_before_the_ceiling_and_the_ceiling_before_rules() -> None:
    low = RunLimits(2, LIMITS.hard_timeout_ns, LIMITS.stop_timeout_ns, LIMITS.abort_timeout_ns)
    play = running(run=spec(AT_TWO, decider=None, limits=low)).hears(completed(1)).hears(STOP_PLEASE)
    play.hears(completed(2))
    reason = play.ends_in(RunState.STOPPING).stop_reason
    ceiling = Verdict("", StopKind.MAX_STEPS, MATCHED, "2", "2", 1.0, "Completed steps of the run: 2, ceiling 2.")
    assert reason == StopReason(
        kind=StopKind.STOP_REQUEST,
        source=DecisionSource.OPERATOR,
        reason="lunch",
        also_matched=(ceiling, judged(MATCHED, 2, 2)),
    )
    assert play.run.view.decisions[step_id(2)].identity == "ann"


def test_the_ceiling_alone_stops_too() -> None:
    low = RunLimits(1, LIMITS.hard_timeout_ns, LIMITS.stop_timeout_ns, LIMITS.abort_timeout_ns)
    message = "Completed steps of the run: 1, ceiling 1."
    reason = StopReason(kind=StopKind.MAX_STEPS, source=DecisionSource.LIMIT, reason=message, observed="1", limit="1")
    running(run=spec(limits=low)).hears(completed(1)).says(
        ended_step(1),
        decided(1, DecisionAction.STOP, DecisionSource.LIMIT, BEGIN, reason=message),
        *stops(1, BEGIN, reason),
    )


def test_a_client_is_asked_where_nothing_else_stops() -> None:
    play = running(run=spec(decider=CLIENT)).hears(completed(1)).says(ended_step(1), *asks(1, BEGIN))
    assert play.ends_in(RunState.AWAITING_DECISION).needs_attention


def test_a_client_is_not_asked_where_a_rule_stops() -> None:
    play = running(run=spec(StopRule("one", StepCountRule(1)), decider=CLIENT)).hears(completed(1))
    assert play.ends_in(RunState.STOPPING).pending_decision is None


def test_a_rule_over_the_session_counts_the_steps_of_earlier_runs() -> None:
    rule = StopRule("all", StepCountRule(5, RuleScope.SESSION))
    play = running(rule, turn=AFTER_THREE).hears(completed(1))
    play.ends_in(RunState.RUNNING)
    play.hears(completed(2))
    reason = play.ends_in(RunState.STOPPING).stop_reason
    assert reason is not None
    assert (reason.observed, reason.limit) == ("5", "5")


def test_a_text_only_end_completes_it() -> None:
    play = running().hears(completed(1)).hears(COMPLETED_TURN)
    play.says(turn(COMPLETED_TURN), *ends(RunState.COMPLETED, RunState.RUNNING, BEGIN, timers=HARD_TIMER, steps=1))
    assert play.ends_in(RunState.COMPLETED).text == "All done."
    assert play.run.view.decisions[step_id(1)].delivered


def test_rules_that_are_met_at_a_text_only_end_are_noted_and_change_nothing() -> None:
    session = StopRule("all", StepCountRule(3, RuleScope.SESSION))
    final = Verdict("all", StopKind.STEP_COUNT, MATCHED, "3", "3", 1.0, "Completed steps of the session: 3, limit 3.")
    running(session, turn=AFTER_THREE).hears(COMPLETED_TURN).says(
        turn(COMPLETED_TURN),
        *ends(RunState.COMPLETED, RunState.RUNNING, BEGIN, timers=HARD_TIMER, final=(final,)),
    )


def test_the_session_is_counted_up_to_the_text_only_end() -> None:
    session = StopRule("all", StepCountRule(9, RuleScope.SESSION))
    play = running(session, turn=AFTER_THREE).hears(completed(1)).hears(COMPLETED_TURN)
    assert [verdict.observed for verdict in play.ends_in(RunState.COMPLETED).final_verdicts] == ["4"]


def test_a_stop_that_found_no_boundary_is_kept_on_the_completed_run() -> None:
    view = running().hears(STOP_PLEASE).hears(COMPLETED_TURN).ends_in(RunState.COMPLETED)
    assert view.stop_requested == StopRequest(DecisionSource.OPERATOR, "ann", "lunch", BEGIN)
    assert view.stop_reason is None


def test_the_usage_of_the_turn_is_that_of_the_run() -> None:
    whole, price = Usage(100, output_tokens=9), Cost(1_500, CostBasis.REPORTED)
    end = TurnEnded(TurnEndReason.COMPLETED, "completed", "", None, whole, price)
    play = running().hears(completed(1, Usage(40, output_tokens=4))).hears(end)
    play.says(
        Emit(UsageCounted(whole, price)),
        turn(end),
        *ends(RunState.COMPLETED, RunState.RUNNING, BEGIN, timers=HARD_TIMER, steps=1, usage=whole, cost=price),
    )


def test_without_the_usage_of_the_turn_the_sum_of_the_steps_is_incomplete() -> None:
    some, price = Usage(40, output_tokens=4), Cost(7, CostBasis.REPORTED)
    view = running().hears(completed(1, some, price)).hears(COMPLETED_TURN).ends_in(RunState.COMPLETED)
    assert view.usage == Usage(40, output_tokens=4, complete=False)
    assert view.cost == Cost(7, CostBasis.REPORTED, complete=False)


def test_what_the_turn_does_not_tell_stays_the_incomplete_sum_of_the_steps() -> None:
    price = Cost(9, CostBasis.REPORTED)
    play = running().hears(completed(1, Usage(40, output_tokens=4)))
    view = play.hears(TurnEnded(TurnEndReason.COMPLETED, "completed", cost=price)).ends_in(RunState.COMPLETED)
    assert (view.usage, view.cost) == (Usage(40, output_tokens=4, complete=False), price)


def test_an_agent_that_knows_better_where_to_go_on_is_believed() -> None:
    lost = failure("CONTEXT_OVERFLOW", "too long", FailureFault.AGENT, 1)
    end = TurnEnded(TurnEndReason.ERROR, "too_long", failure=lost)
    assert running().hears(completed(1)).hears(completed(2)).hears(end).ends_in(RunState.FAILED).failure == lost


def test_a_turn_that_fails_fails_the_run_with_its_failure_and_says_where_to_go_on() -> None:
    resumable = Failure(
        reason="RATE_LIMITED", message="429", fault=FailureFault.PROVIDER, retryable=True, resumable_at_step=1
    )
    running().hears(completed(1)).hears(FAILED_TURN).says(
        turn(FAILED_TURN),
        *ends(RunState.FAILED, RunState.RUNNING, BEGIN, timers=HARD_TIMER, steps=1, failure=resumable),
    )


def test_a_turn_that_fails_without_saying_why_is_an_error_of_the_agent() -> None:
    bare = TurnEnded(TurnEndReason.ERROR, "error_during_execution")
    message = "the agent ended its turn with an error ('error_during_execution') and said no more about it"
    running().hears(bare).says(
        turn(bare),
        *ends(
            RunState.FAILED,
            RunState.RUNNING,
            BEGIN,
            timers=HARD_TIMER,
            failure=failure("AGENT_ERROR", message, FailureFault.AGENT),
        ),
    )


def test_a_turn_that_somebody_else_cut_off_is_not_claimed_as_aborted() -> None:
    message = "the agent's turn was cut off ('aborted_tools'), and not by this daemon"
    view = running().hears(ABORTED_TURN).ends_in(RunState.FAILED)
    assert view.failure == failure("AGENT_ERROR", message, FailureFault.AGENT)


def test_a_stop_that_nobody_ordered_is_not_claimed_as_stopped() -> None:
    message = "the agent ended its turn as stopped ('hook_stopped'), and this daemon had not stopped it"
    view = running().hears(STOPPED_TURN).ends_in(RunState.FAILED)
    assert view.failure == failure("AGENT_ERROR", message, FailureFault.AGENT)
    assert view.stop_reason is None


def test_an_exit_fails_it_with_the_end_of_stderr() -> None:
    event = AgentExited(134, None, "x" * 3_000 + "\nFATAL ERROR: heap out of memory\n")
    view = running().hears(completed(1)).hears(event).ends_in(RunState.FAILED)
    assert view.failure is not None
    assert view.failure.reason == "AGENT_EXITED"
    assert view.failure.resumable_at_step == 1
    assert view.failure.message.startswith("the agent's process ended with exit code 134; the end of its stderr: xxx")
    assert view.failure.message.endswith("FATAL ERROR: heap out of memory")
    assert len(view.failure.message) < 2_200


def test_a_crash_is_the_agents_fault_and_a_kill_is_not() -> None:
    crash = running().hears(AgentExited(None, 11)).ends_in(RunState.FAILED).failure
    kill = running().hears(AgentExited(None, 9)).ends_in(RunState.FAILED).failure
    assert crash is not None
    assert kill is not None
    assert (crash.fault, kill.fault) == (FailureFault.AGENT, FailureFault.ENVIRONMENT)


def test_an_exit_of_which_nothing_is_known_says_so() -> None:
    view = running().hears(AgentExited(None, None)).ends_in(RunState.FAILED)
    assert view.failure == failure(
        "AGENT_EXITED", "the agent's process is gone, it is not known how", FailureFault.AGENT
    )


def test_what_cannot_be_understood_fails_the_run_and_ends_the_process() -> None:
    running().hears(ProtocolFailed("not JSON")).says(
        *ends(
            RunState.FAILED,
            RunState.RUNNING,
            BEGIN,
            EndProcess("protocol error"),
            timers=HARD_TIMER,
            failure=failure("PROTOCOL_ERROR", "not JSON", FailureFault.AGENT),
        )
    )


def test_the_hard_timeout_fails_it_and_ends_the_process() -> None:
    message = "the run took longer than its hard_timeout of 3600 s"
    running().hears(TimerFired(Timer.HARD_TIMEOUT)).says(
        *ends(
            RunState.FAILED,
            RunState.RUNNING,
            BEGIN,
            EndProcess("hard timeout of its run"),
            failure=failure("HARD_TIMEOUT", message, FailureFault.CLIENT),
        )
    )


def test_a_timer_that_was_cancelled_while_it_fired_does_nothing() -> None:
    running().hears(TimerFired(Timer.DECISION)).says().ends_in(RunState.RUNNING)


def test_the_first_stop_request_stays() -> None:
    play = running().hears(STOP_PLEASE)
    play.says(Emit(StopAsked(StopRequest(DecisionSource.OPERATOR, "ann", "lunch", BEGIN))))
    play.hears(StopRequested(DecisionSource.DRAIN, "", "shutting down"), after=SECOND).says()
    assert play.hears(completed(1)).ends_in(RunState.STOPPING).stop_reason == STOP_REASON


def test_an_abort_interrupts_it_and_is_bounded() -> None:
    play = running().hears(ABORT_PLEASE)
    play.says(
        ABORT_ASKED,
        changes(RunState.ABORTING, RunState.RUNNING, BEGIN),
        CancelTimer(Timer.HARD_TIMEOUT),
        StartTimer(Timer.ABORT, BEGIN + ABORT),
        Interrupt(),
    )


def test_nobody_can_decide_while_it_runs() -> None:
    late = DecisionSubmitted(step_id(1), DecisionAction.CONTINUE, "ann")
    error = running().hears(completed(1)).refuses(late, "DECISION_NOT_PENDING")
    assert error.metadata == {"run_id": "run_01", "step_id": step_id(1)}


def test_what_crosses_our_answer_is_ignored() -> None:
    play = running().hears(completed(1)).hears(BoundaryCancelled("b1")).says()
    play.hears(PromptConfirmed("p1")).says().ends_in(RunState.RUNNING)


def test_an_agent_that_went_on_before_our_answer_reached_it_lost_its_gate() -> None:
    failed = failure(
        "GATE_LOST", "the agent went past a step boundary without leave: ToolStarted", FailureFault.AGENT, 1
    )
    running().hears(completed(1)).hears(ActivityPastGate("ToolStarted")).says(
        LowerGate("ToolStarted"),
        *ends(
            RunState.FAILED,
            RunState.RUNNING,
            BEGIN,
            Interrupt(),
            EndProcess("its step gate did not hold"),
            timers=HARD_TIMER,
            steps=1,
            failure=failed,
        ),
    )


def test_a_step_before_our_answer_to_the_last_one_was_sent_is_recorded_and_lost_the_gate() -> None:
    what = "step 2 was completed"
    failed = failure("GATE_LOST", f"the agent went past a step boundary without leave: {what}", FailureFault.AGENT, 2)
    play = running(AT_TWO).hears(completed(1)).hears(replace(completed(2), past_gate=True))
    play.says(
        ended_step(2, judged(MATCHED, 2, 2)),
        LowerGate(what),
        *ends(
            RunState.FAILED,
            RunState.RUNNING,
            BEGIN,
            Interrupt(),
            EndProcess("its step gate did not hold"),
            timers=HARD_TIMER,
            steps=2,
            failure=failed,
        ),
    )
    assert step_id(2) not in play.run.view.decisions


def test_a_restart_fails_it_and_says_where_to_go_on() -> None:
    failed = failure("DAEMON_RESTARTED", "the daemon restarted while the run was live", FailureFault.DAEMON, 1)
    running().hears(completed(1)).hears(DaemonRestarted()).says(
        *ends(RunState.FAILED, RunState.RUNNING, BEGIN, timers=HARD_TIMER, steps=1, failure=failed)
    )


def test_an_event_that_cannot_happen_there_is_a_bug_and_changes_nothing() -> None:
    play = running()
    with pytest.raises(IllegalTransition, match="PromptSent in state RUNNING of run run_01"):
        play.run.handle(PromptSent("p2"), BEGIN)
    play.ends_in(RunState.RUNNING)


def test_an_exit_that_we_brought_about_is_a_failure_of_what_it_was_for() -> None:
    why = failure("JOURNAL_UNAVAILABLE", "nothing could be recorded", FailureFault.ENVIRONMENT)
    play = running().hears(AgentExited(143, None, "terminated", why))
    assert play.ends_in(RunState.FAILED).failure == why
