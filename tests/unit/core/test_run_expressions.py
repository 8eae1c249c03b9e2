"""Conversations of a run whose rules hold expressions, which are evaluated elsewhere while the agent waits."""

from msgspec.structs import replace
from tests.unit.core.conversations import (
    ABORT_ASKED,
    ABORT_PLEASE,
    ABORTED_TURN,
    BASH,
    BY_CEL,
    CLIENT,
    COMPLETED_TURN,
    FAILED_TURN,
    STOP_PLEASE,
    STOP_REASON,
    STOPPED_TURN,
    aborting,
    asked,
    awaiting,
    completed,
    ends,
    evaluating,
    failure,
    goes_on,
    inexact,
    running,
    spec,
    step,
    step_id,
    stopping,
    stops,
    turn,
)

from steprail_daemon.core.commands import (
    AnswerBoundary,
    Emit,
    EndProcess,
    EvaluateExpressions,
    Interrupt,
    LowerGate,
)
from steprail_daemon.core.events import (
    ActivityPastGate,
    AgentExited,
    AgentSilent,
    BoundaryCancelled,
    DaemonRestarted,
    DecidersChanged,
    DecisionSubmitted,
    DrainWindowEnding,
    ProtocolFailed,
    RulesEvaluated,
    SteerSubmitted,
    Timer,
    TimerFired,
)
from steprail_daemon.core.model import (
    SECOND,
    AnyOfRule,
    DecisionAction,
    DecisionSource,
    ExpressionRule,
    FailureFault,
    FinishReason,
    FinishReasonRule,
    OnUnknown,
    RunState,
    StepCountRule,
    StepGate,
    StopKind,
    StopReason,
    StopRule,
    VerdictOutcome,
)
from steprail_daemon.core.records import DecisionRecorded, StepEnded
from steprail_daemon.core.run import Run
from steprail_daemon.core.stops.expressions import ExpressionOutcome, ExpressionResult
from steprail_daemon.testing.playbook import BEGIN, Playbook, replayed

RUNNING, ASKING = RunState.RUNNING, RunState.AWAITING_PERMISSION
HARD_TIMER = (Timer.HARD_TIMEOUT,)
NO = ExpressionResult(ExpressionOutcome.NOT_MATCHED)
YES = ExpressionResult(ExpressionOutcome.MATCHED, "seen enough")
BROKEN = ExpressionResult(ExpressionOutcome.ERROR, "no such key: cost")
MATCHED, NOT_MATCHED, UNKNOWN = VerdictOutcome.MATCHED, VerdictOutcome.NOT_MATCHED, VerdictOutcome.UNKNOWN


def told(*results: ExpressionResult, evaluation: int = 1) -> RulesEvaluated:
    return RulesEvaluated(evaluation, results)


def outcomes(play: Playbook) -> list[VerdictOutcome]:
    """What the rules said of the step that was recorded last."""
    ended = [fact for fact in play.facts if isinstance(fact, StepEnded)]
    return [verdict.outcome for verdict in ended[-1].verdicts]


def finishing() -> Playbook:
    """A run whose turn is over and whose final verdicts are waited for."""
    play = running(BY_CEL).hears(COMPLETED_TURN)
    play.says(turn(COMPLETED_TURN), EvaluateExpressions(1, ("step.number > 1",), None))
    play.ends_in(RUNNING)
    return play


# --- a step -----------------------------------------------------------------------------------------------------------


def test_the_expressions_of_all_rules_are_evaluated_before_anything_is_recorded() -> None:
    group = StopRule("group", AnyOfRule((BY_CEL, StopRule("x", ExpressionRule("true")))))
    play = evaluating(group, StopRule("last", ExpressionRule("false")))
    play.says(EvaluateExpressions(1, ("step.number > 1", "true", "false"), step(1)))
    assert play.ends_in(RUNNING).step_count == 0
    assert play.run.next_step_number == 2


def test_a_step_goes_on_when_no_expression_matches() -> None:
    play = evaluating().hears(told(NO), after=SECOND)
    ended = Emit(next(fact for fact in play.facts if isinstance(fact, StepEnded)))
    play.says(ended, *goes_on(1, BEGIN + SECOND))
    assert outcomes(play) == [NOT_MATCHED]
    assert play.ends_in(RUNNING).step_count == 1
    play.hears(completed(2)).says(EvaluateExpressions(2, ("step.number > 1",), step(2)))
    play.hears(told(NO)).says().hears(told(NO, evaluation=2)).ends_in(RUNNING)


def test_an_expression_that_matches_stops_and_words_the_reason() -> None:
    play = evaluating().hears(told(YES))
    reason = play.ends_in(RunState.STOPPING).stop_reason
    assert reason is not None
    assert (reason.kind, reason.rule_id, reason.source) == (StopKind.EXPRESSION, "cel", DecisionSource.RULE)
    assert "seen enough" in reason.reason
    assert play.commands[2:] == stops(1, BEGIN, reason)
    play.hears(told(YES)).says().hears(STOPPED_TURN).ends_in(RunState.STOPPED)


def test_a_client_is_asked_once_the_expressions_are_known() -> None:
    play = evaluating(decider=CLIENT).hears(told(NO))
    play.ends_in(RunState.AWAITING_DECISION)
    play.hears(told(NO)).says().hears(told(NO, evaluation=2)).says()
    play.hears(DecisionSubmitted(step_id(1), DecisionAction.CONTINUE, "ann"))
    assert play.commands[-1] == AnswerBoundary("b1", DecisionAction.CONTINUE)


def test_a_stop_request_meanwhile_counts_at_this_boundary() -> None:
    play = evaluating().hears(STOP_PLEASE).hears(told(NO))
    assert play.ends_in(RunState.STOPPING).stop_reason == STOP_REASON


def test_an_expression_that_goes_wrong_stops_the_agent_first_and_then_fails_the_run() -> None:
    play = evaluating().hears(told(BROKEN))
    message = "the expression of rule 'cel' went wrong: no such key: cost"
    reason = StopReason(kind=StopKind.EXPRESSION, source=DecisionSource.RULE, rule_id="cel", reason=message)
    view = play.ends_in(RunState.STOPPING)
    assert view.stop_reason is not None
    assert (view.stop_reason.kind, view.stop_reason.rule_id) == (reason.kind, reason.rule_id)
    assert view.stop_reason.reason == message
    assert outcomes(play) == [UNKNOWN]
    assert play.commands[-1] == AnswerBoundary("b1", DecisionAction.STOP)
    view = play.hears(STOPPED_TURN).ends_in(RunState.FAILED)
    assert view.failure == failure("RULE_ERROR", message, FailureFault.CLIENT, 1)


def test_an_expression_within_a_group_that_goes_wrong_is_that_rules_error() -> None:
    group = StopRule("group", AnyOfRule((BY_CEL, StopRule("x", ExpressionRule("true")))))
    play = evaluating(StopRule("plain", StepCountRule(9)), group).hears(told(NO, BROKEN)).hears(STOPPED_TURN)
    failed = play.ends_in(RunState.FAILED).failure
    assert failed is not None
    assert failed.message == "the expression of rule 'group' went wrong: no such key: cost"


def test_what_stops_before_an_error_in_order_of_precedence_is_the_reason() -> None:
    play = evaluating(StopRule("one", StepCountRule(1)), BY_CEL).hears(told(BROKEN))
    play.hears(STOPPED_TURN)
    reason = play.ends_in(RunState.STOPPED).stop_reason
    assert reason is not None
    assert (reason.rule_id, [verdict.rule_id for verdict in reason.also_matched]) == ("one", ["cel"])


def test_an_abort_meanwhile_records_the_step_and_decides_nothing() -> None:
    play = evaluating().hears(ABORT_PLEASE)
    assert play.commands[0] == ABORT_ASKED
    assert play.commands[-1] == Interrupt()
    assert outcomes(play) == [UNKNOWN]
    view = play.ends_in(RunState.ABORTING)
    assert (view.step_count, view.decisions) == (1, {})
    play.hears(told(YES)).says().hears(ABORTED_TURN).ends_in(RunState.ABORTED)


def test_whatever_ends_the_run_meanwhile_records_the_step_and_decides_nothing() -> None:
    for event, reason in (
        (AgentExited(1, None), "AGENT_EXITED"),
        (ProtocolFailed("not JSON"), "PROTOCOL_ERROR"),
        (TimerFired(Timer.HARD_TIMEOUT), "HARD_TIMEOUT"),
        (ActivityPastGate("ToolStarted"), "GATE_LOST"),
        (completed(2, past_gate=True), "GATE_LOST"),
        (completed(2), "GATE_LOST"),
        (COMPLETED_TURN, "GATE_LOST"),
        (FAILED_TURN, "RATE_LIMITED"),
        (BoundaryCancelled("b1"), "AGENT_ERROR"),
    ):
        play = evaluating().hears(event)
        view = play.ends_in(RunState.FAILED)
        assert view.failure is not None
        assert (view.failure.reason, view.decisions) == (reason, {})
        assert view.failure.resumable_at_step == view.step_count >= 1
        assert set(outcomes(play)) == {UNKNOWN}
        assert not any(isinstance(command, AnswerBoundary) for command in play.commands)
        play.hears(told(YES)).says()


def test_an_unknown_verdict_that_would_stop_decides_nothing_once_the_run_is_cut_off() -> None:
    play = evaluating(replace(BY_CEL, on_unknown=OnUnknown.STOP)).hears(ABORT_PLEASE)
    assert not any(isinstance(fact, DecisionRecorded) for fact in play.facts)


def test_a_restart_meanwhile_fails_it_and_the_step_that_was_not_recorded_is_not_counted() -> None:
    view = evaluating().hears(DaemonRestarted()).ends_in(RunState.FAILED)
    assert view.failure is not None
    assert view.failure.reason == "DAEMON_RESTARTED"


def test_an_agent_that_is_held_meanwhile_may_be_silent() -> None:
    evaluating().hears(AgentSilent(60 * SECOND)).says().ends_in(RUNNING)


def test_what_crosses_our_last_answer_meanwhile_is_ignored() -> None:
    evaluating().hears(BoundaryCancelled("b0")).says().ends_in(RUNNING)


def test_results_that_nobody_waits_for_are_ignored() -> None:
    evaluating().hears(told(YES, evaluation=7)).says().ends_in(RUNNING)
    for play in (awaiting(), stopping(), aborting(), running(), asked()):
        play.hears(told(YES)).says()


def test_a_text_for_the_turn_is_refused_while_the_agent_is_held() -> None:
    evaluating().refuses(SteerSubmitted("steer_1", "Look there.", "ann"), "STEER_NOT_POSSIBLE")


# --- while people are asked -------------------------------------------------------------------------------------------


def asking(*rules: StopRule, gate: StepGate = StepGate.EXACT, decider: bool = False) -> Playbook:
    """A run whose step is judged while a sub-agent asks for leave."""
    run = replace(spec(*rules, decider=CLIENT if decider else None), step_gate=gate)
    play = running(run=run).hears(replace(BASH, subagent_id="sub")).hears(completed(1))
    play.ends_in(ASKING)
    return play


def test_a_step_is_decided_whatever_a_sub_agent_waits_for() -> None:
    asking(BY_CEL).hears(told(NO)).ends_in(ASKING)
    asking(BY_CEL).hears(told(YES)).ends_in(RunState.STOPPING)
    asking(BY_CEL, decider=True).hears(told(NO)).ends_in(RunState.AWAITING_DECISION)
    asking(BY_CEL, gate=StepGate.UNSUPPORTED).hears(told(YES)).ends_in(RunState.ABORTING)


def test_an_agent_that_gives_up_waiting_fails_it_there_too() -> None:
    asking(BY_CEL).hears(BoundaryCancelled("b1")).ends_in(RunState.FAILED)


# --- the end of the turn ----------------------------------------------------------------------------------------------


def test_the_final_verdicts_change_nothing() -> None:
    for result, outcome in ((YES, MATCHED), (NO, NOT_MATCHED), (BROKEN, UNKNOWN)):
        play = finishing().hears(told(result), after=SECOND)
        view = play.ends_in(RunState.COMPLETED)
        assert [verdict.outcome for verdict in view.final_verdicts] == [outcome]
        assert (view.text, view.failure, view.stop_reason) == ("All done.", None, None)
        assert play.commands == ends(
            RunState.COMPLETED, RUNNING, BEGIN + SECOND, timers=HARD_TIMER, final=view.final_verdicts
        )


def test_the_last_messages_finish_reason_is_judged_at_the_end() -> None:
    ended = StopRule("length", FinishReasonRule((FinishReason.LENGTH,)))
    cut = replace(COMPLETED_TURN, finish_reason=FinishReason.LENGTH)
    for play in (running(ended).hears(cut), running(ended, BY_CEL).hears(cut).hears(told(NO))):
        assert play.ends_in(RunState.COMPLETED).final_verdicts[0].outcome is MATCHED


def test_an_agent_that_was_done_has_completed_the_run_whatever_comes_then() -> None:
    for event in (ABORT_PLEASE, AgentExited(1, None), ProtocolFailed("not JSON"), TimerFired(Timer.HARD_TIMEOUT)):
        play = finishing().hears(event)
        view = play.ends_in(RunState.COMPLETED)
        assert [verdict.outcome for verdict in view.final_verdicts] == [UNKNOWN]
        assert view.failure is None
        assert (EndProcess("protocol error") in play.commands) == isinstance(event, ProtocolFailed)
        play.hears(told(YES)).says()


def test_a_restart_completes_it_without_final_verdicts() -> None:
    play = finishing()
    restored = Run.restore(replayed(play.facts))
    commands = restored.handle(DaemonRestarted(), play.at)
    play.hears(DaemonRestarted())
    assert play.ends_in(RunState.COMPLETED).final_verdicts == ()
    assert restored.view == play.run.view
    assert [command for command in commands if isinstance(command, Emit)] == play.commands[:2]


def test_the_tail_of_a_turn_that_is_over_is_answered_and_moves_nothing() -> None:
    play = finishing()
    play.hears(completed(1)).says(AnswerBoundary("b1", DecisionAction.STOP))
    play.hears(completed(2, held=False)).says()
    play.hears(ActivityPastGate("MessageStarted")).says()
    play.hears(COMPLETED_TURN).says().hears(AgentSilent(SECOND)).says()
    play.hears(DecidersChanged(0)).says().hears(DrainWindowEnding()).says()
    play.refuses(SteerSubmitted("steer_1", "Look there.", "ann"), "STEER_NOT_POSSIBLE")
    assert play.ends_in(RUNNING).step_count == 0


def test_a_stop_request_meanwhile_is_kept_on_the_completed_run() -> None:
    view = finishing().hears(STOP_PLEASE).hears(told(YES)).ends_in(RunState.COMPLETED)
    assert view.stop_requested is not None
    assert view.stop_reason is None


def test_an_abort_before_the_end_of_the_turn_does_not_wait_for_final_verdicts() -> None:
    view = aborting(BY_CEL_LATE).hears(COMPLETED_TURN).ends_in(RunState.COMPLETED)
    assert [verdict.outcome for verdict in view.final_verdicts] == [UNKNOWN]


BY_CEL_LATE = StopRule("late", ExpressionRule("false"))


# --- gates that are not exact -----------------------------------------------------------------------------------------


def test_an_agent_that_is_not_held_may_overtake_the_evaluation() -> None:
    play = inexact(BY_CEL).hears(completed(1, held=False)).says(EvaluateExpressions(1, ("step.number > 1",), step(1)))
    assert play.run.next_step_number == 2
    play.hears(completed(2, held=False))
    assert play.commands[-1] == EvaluateExpressions(2, ("step.number > 1",), step(2))
    assert outcomes(play) == [UNKNOWN]
    assert play.run.view.decisions[step_id(1)].action is DecisionAction.CONTINUE
    play.hears(told(YES)).says().hears(told(NO, evaluation=2))
    assert play.ends_in(RUNNING).step_count == 2


def test_a_step_that_overtakes_one_that_stops_overshoots() -> None:
    strict = replace(BY_CEL, on_unknown=OnUnknown.STOP)
    play = inexact(strict).hears(completed(1, held=False)).hears(completed(2, held=False))
    assert play.commands[-1] == Interrupt()
    view = play.hears(ABORTED_TURN).ends_in(RunState.STOPPED)
    assert view.stop_reason is not None
    assert (view.stop_reason.exact, view.stop_reason.overshoot_requests, view.step_count) == (False, 1, 2)
    play = inexact(strict, gate=StepGate.UNSUPPORTED).hears(completed(1, held=False)).hears(completed(2, held=False))
    assert play.ends_in(RunState.ABORTING).step_count == 2


def test_a_turn_that_ends_while_the_last_steps_expressions_are_evaluated_has_ended() -> None:
    play = inexact(BY_CEL).hears(completed(1, held=False)).hears(COMPLETED_TURN)
    assert play.commands[-1] == EvaluateExpressions(2, ("step.number > 1",), None)
    assert play.hears(told(NO, evaluation=2)).ends_in(RunState.COMPLETED).step_count == 1


def test_an_agent_that_waits_although_nobody_relies_on_it_is_answered_unless_it_gave_up() -> None:
    play = inexact(BY_CEL).hears(completed(1)).hears(told(NO))
    assert play.commands[-1] == AnswerBoundary("b1", DecisionAction.CONTINUE)
    play = inexact(BY_CEL).hears(completed(1)).hears(BoundaryCancelled("b1")).says().hears(told(NO))
    assert not any(isinstance(command, AnswerBoundary | LowerGate) for command in play.commands)
    play.ends_in(RUNNING)


def test_a_rule_error_where_a_stop_is_an_abort_is_noted_beside_the_abort() -> None:
    play = inexact(BY_CEL, gate=StepGate.UNSUPPORTED).hears(completed(1, held=False)).hears(told(BROKEN))
    view = play.hears(ABORTED_TURN).ends_in(RunState.ABORTED)
    assert view.failure is not None
    assert view.failure.reason == "RULE_ERROR"
    play = inexact(BY_CEL).hears(completed(1, held=False)).hears(told(BROKEN))
    assert play.commands[-1] == Interrupt()
    view = play.hears(ABORTED_TURN).ends_in(RunState.FAILED)
    assert view.failure is not None
    assert view.failure.reason == "RULE_ERROR"
