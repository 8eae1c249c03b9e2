"""Conversations of a run whose agent cannot be held exactly: a stop comes late and says so, or is an abort."""

from msgspec.structs import replace
from tests.unit.core.conversations import (
    ABORT,
    ABORT_PLEASE,
    ABORTED_TURN,
    AT_TWO,
    BASH,
    CLIENT,
    COMPLETED_TURN,
    FAILED_TURN,
    STOP_PLEASE,
    STOPPED_TURN,
    WHICH,
    changes,
    completed,
    decided,
    ended_step,
    ends,
    failure,
    goes_on,
    inexact,
    judged,
    running,
    spec,
    turn,
)

from steprail_daemon.core.commands import AnswerBoundary, CancelTimer, Interrupt, LowerGate, StartTimer
from steprail_daemon.core.events import ActivityPastGate, SteerSubmitted, StepCompleted, Timer, TimerFired
from steprail_daemon.core.model import (
    DecisionAction,
    DecisionSource,
    FailureFault,
    RunState,
    StepGate,
    StopKind,
    StopReason,
    Usage,
    VerdictOutcome,
)
from steprail_daemon.testing.playbook import BEGIN, Playbook

MATCHED = VerdictOutcome.MATCHED
LATE = StopReason(
    kind=StopKind.STEP_COUNT,
    source=DecisionSource.RULE,
    rule_id="two",
    reason="enough seen",
    observed="2",
    limit="2",
    exact=False,
)


def told(number: int, usage: Usage | None = None) -> StepCompleted:
    """That a step is complete, and the agent does not wait."""
    return completed(number, usage, held=False)


def stopped() -> Playbook:
    """A run that was interrupted after its second step."""
    play = inexact(AT_TWO).hears(told(1)).hears(told(2))
    play.ends_in(RunState.STOPPING)
    return play


def test_a_step_that_nothing_stops_is_not_answered() -> None:
    play = inexact().hears(told(1)).says(ended_step(1), goes_on(1, BEGIN)[0])
    play.ends_in(RunState.RUNNING)
    assert not play.run.view.decisions["run_01.000001"].delivered
    play.hears(told(2))
    assert play.run.view.decisions["run_01.000001"].delivered


def test_going_on_without_an_answer_loses_no_gate() -> None:
    play = inexact().hears(told(1)).hears(ActivityPastGate("MessageStarted")).says()
    play.hears(replace(told(2), past_gate=True)).ends_in(RunState.RUNNING)
    assert play.hears(COMPLETED_TURN).ends_in(RunState.COMPLETED).step_count == 2


def test_a_match_interrupts_and_it_is_stopped_once_the_agent_confirms() -> None:
    play = stopped()
    play.says(
        ended_step(2, judged(MATCHED, 2, 2)),
        decided(2, DecisionAction.STOP, DecisionSource.RULE, BEGIN, reason="enough seen", rule_id="two"),
        changes(RunState.STOPPING, RunState.RUNNING, BEGIN, LATE),
        StartTimer(Timer.STOP, BEGIN + 10_000_000_000),
        Interrupt(),
    )
    timers = (Timer.HARD_TIMEOUT, Timer.STOP)
    play.hears(ABORTED_TURN).says(
        turn(ABORTED_TURN), *ends(RunState.STOPPED, RunState.STOPPING, BEGIN, timers=timers, steps=2, reason=LATE)
    )


def test_what_came_through_before_the_interrupt_is_counted_once_per_request() -> None:
    play = stopped().hears(ActivityPastGate("MessageStarted")).says().hears(ActivityPastGate("ToolStarted")).says()
    play.hears(told(3)).says(ended_step(3, judged(MATCHED, 3, 2)))
    play.hears(told(4)).hears(ActivityPastGate("MessageStarted"))
    view = play.hears(STOPPED_TURN).ends_in(RunState.STOPPED)
    assert view.stop_reason == replace(LATE, overshoot_requests=3)
    assert view.step_count == 4


def test_a_tool_after_the_interrupt_is_denied_and_counted() -> None:
    for question in (BASH, WHICH):
        view = stopped().hears(question).hears(ABORTED_TURN).ends_in(RunState.STOPPED)
        assert view.stop_reason == replace(LATE, overshoot_requests=1)


def test_a_late_stop_has_no_whole_sum_of_steps() -> None:
    play = inexact(AT_TWO).hears(told(1, Usage(5, output_tokens=1))).hears(told(2, Usage(5, output_tokens=1)))
    assert play.hears(ABORTED_TURN).ends_in(RunState.STOPPED).usage == Usage(10, output_tokens=2, complete=False)


def test_a_turn_that_was_done_before_the_interrupt_reached_it_is_completed() -> None:
    view = stopped().hears(COMPLETED_TURN).ends_in(RunState.COMPLETED)
    assert view.stop_reason is None
    assert view.text == "All done."


def test_a_turn_that_fails_after_the_interrupt_fails_the_run() -> None:
    view = stopped().hears(FAILED_TURN).ends_in(RunState.FAILED)
    assert view.failure is not None
    assert view.failure.reason == "RATE_LIMITED"


def test_an_abort_after_the_interrupt_interrupts_no_second_time() -> None:
    play = stopped().hears(ABORT_PLEASE)
    assert Interrupt() not in play.commands
    play.hears(told(3)).hears(ActivityPastGate("x"))
    assert play.hears(ABORTED_TURN).ends_in(RunState.ABORTED).stop_reason == replace(LATE, overshoot_requests=2)


def test_an_agent_that_waits_all_the_same_is_answered() -> None:
    play = (
        inexact(AT_TWO)
        .hears(completed(1))
        .says(ended_step(1, judged(VerdictOutcome.NOT_MATCHED, 1, 2)), *goes_on(1, BEGIN))
    )
    play.hears(completed(2))
    assert play.commands[-1] == AnswerBoundary("b2", DecisionAction.STOP)
    assert play.hears(completed(3)).commands[-1] == AnswerBoundary("b3", DecisionAction.STOP)
    reason = play.hears(STOPPED_TURN).ends_in(RunState.STOPPED).stop_reason
    assert reason == replace(LATE, overshoot_requests=1)


def test_a_turn_that_is_cut_off_and_not_by_us_is_not_claimed_as_stopped() -> None:
    inexact(AT_TWO).hears(completed(1)).hears(completed(2)).hears(ABORTED_TURN).ends_in(RunState.FAILED)


def test_an_interrupt_that_is_not_confirmed_in_time_ends_the_process() -> None:
    play = stopped().hears(TimerFired(Timer.STOP))
    play.ends_in(RunState.STOPPING)


def test_where_it_cannot_even_be_interrupted_a_match_is_an_abort_with_the_stops_reason() -> None:
    play = inexact(AT_TWO, gate=StepGate.UNSUPPORTED).hears(told(1)).hears(told(2))
    play.says(
        ended_step(2, judged(MATCHED, 2, 2)),
        decided(2, DecisionAction.STOP, DecisionSource.RULE, BEGIN, reason="enough seen", rule_id="two"),
        changes(RunState.ABORTING, RunState.RUNNING, BEGIN, LATE),
        CancelTimer(Timer.HARD_TIMEOUT),
        StartTimer(Timer.ABORT, BEGIN + ABORT),
        Interrupt(),
    )
    play.hears(told(3)).says(ended_step(3, judged(MATCHED, 3, 2))).hears(ActivityPastGate("ToolStarted")).says()
    view = play.hears(ABORTED_TURN).ends_in(RunState.ABORTED)
    assert view.stop_reason == replace(LATE, overshoot_requests=2)


def test_an_abort_that_somebody_asked_for_counts_no_requests() -> None:
    play = inexact().hears(told(1)).hears(ABORT_PLEASE).hears(told(2)).hears(ActivityPastGate("x")).says()
    assert play.hears(ABORTED_TURN).ends_in(RunState.ABORTED).stop_reason is None


def test_a_stop_request_is_an_inexact_stop_too() -> None:
    reason = inexact().hears(STOP_PLEASE).hears(told(1)).ends_in(RunState.STOPPING).stop_reason
    assert reason is not None
    assert (reason.kind, reason.exact) == (StopKind.STOP_REQUEST, False)


def test_a_text_for_the_turn_could_not_be_handed_over() -> None:
    inexact().refuses(SteerSubmitted("steer_1", "Look there.", "ann"), "STEER_NOT_POSSIBLE")


def test_an_exact_agent_that_does_not_wait_is_taken_as_it_is() -> None:
    play = running(AT_TWO).hears(told(1)).hears(told(2))
    assert play.commands[-1] == Interrupt()
    assert LowerGate not in [type(command) for command in play.commands]
    assert play.hears(ABORTED_TURN).ends_in(RunState.STOPPED).stop_reason == LATE


def test_where_a_client_was_to_be_asked_it_lost_its_gate() -> None:
    play = running(run=spec(decider=CLIENT)).hears(told(1))
    message = "the agent went past a step boundary without leave: it did not wait at its boundary"
    assert play.ends_in(RunState.FAILED).failure == failure("GATE_LOST", message, FailureFault.AGENT, 1)
    assert LowerGate("it did not wait at its boundary") in play.commands
