"""Conversations that go on after a run has ended: nothing moves it any more."""

from collections.abc import Callable

import pytest
from tests.unit.core.conversations import (
    ABORT_PLEASE,
    ABORTED_TURN,
    AT_TWO,
    COMPLETED_TURN,
    FAILED_TURN,
    STOP_PLEASE,
    STOPPED_TURN,
    TURN,
    aborting,
    awaiting,
    completed,
    failure,
    queued,
    running,
    sent,
    step_id,
    stopping,
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
    RunEvent,
    SteerSubmitted,
    Timer,
    TimerFired,
    UsageSpent,
)
from steprail_daemon.core.model import SECOND, DecisionAction, FailureFault, PermissionAnswer, RunState
from steprail_daemon.core.run import Run
from steprail_daemon.testing.playbook import BEGIN, Playbook, replayed

LATE: tuple[RunEvent, ...] = (
    PromptConfirmed("p1"),
    completed(3),
    RulesEvaluated(1, ()),
    STOP_PLEASE,
    ABORT_PLEASE,
    BoundaryCancelled("b2"),
    ActivityPastGate("MessageStarted"),
    PermissionAsked("perm", "call", "Bash", "{}"),
    PermissionWithdrawn("perm"),
    QuestionAsked("ask", ()),
    QuestionWithdrawn("ask"),
    DecidersChanged(0),
    DrainWindowEnding(),
    AgentSilent(SECOND),
    UsageSpent(None, None),
    STOPPED_TURN,
    COMPLETED_TURN,
    ProtocolFailed("not JSON"),
    AgentExited(0, None),
    TimerFired(Timer.HARD_TIMEOUT),
)

ENDS: dict[RunState, Callable[[], Playbook]] = {
    RunState.COMPLETED: lambda: running().hears(COMPLETED_TURN),
    RunState.STOPPED: lambda: stopping().hears(STOPPED_TURN),
    RunState.ABORTED: lambda: aborting().hears(ABORTED_TURN),
    RunState.FAILED: lambda: running().hears(FAILED_TURN),
}


def test_whatever_comes_late_moves_nothing() -> None:
    for state, end in ENDS.items():
        play = end()
        facts = list(play.facts)
        for event in LATE:
            play.hears(event, after=SECOND).says()
        assert play.ends_in(state) == replayed(facts)


def test_a_late_decision_is_refused() -> None:
    for end in ENDS.values():
        error = end().refuses(DecisionSubmitted(step_id(1), DecisionAction.CONTINUE, "ann"), "DECISION_NOT_PENDING")
        assert "no decision about step run_01.000001 is pending" in error.message


def test_a_late_answer_and_a_late_text_are_refused() -> None:
    for end in ENDS.values():
        play = end()
        allowed = PermissionAnswered("run_01.p000001", PermissionAnswer.ALLOW_ONCE, "ann")
        error = play.refuses(allowed, "PERMISSION_NOT_PENDING")
        assert error.metadata == {"run_id": "run_01", "permission_id": "run_01.p000001"}
        error = play.refuses(QuestionAnswered("run_01.q000001", None, "ann"), "QUESTION_NOT_PENDING")
        assert error.metadata == {"run_id": "run_01", "question_id": "run_01.q000001"}
        play.refuses(SteerSubmitted("steer_1", "Look there.", "ann"), "STEER_NOT_POSSIBLE")


def test_a_start_that_was_overtaken_may_still_fail() -> None:
    late = AgentStartFailed(failure("AGENT_START_FAILED", "no such file", FailureFault.ENVIRONMENT))
    queued().hears(STOP_PLEASE).hears(late).says().ends_in(RunState.STOPPED)
    queued().hears(ABORT_PLEASE).hears(late).says().ends_in(RunState.ABORTED)


def test_a_prompt_for_an_ended_run_is_a_bug() -> None:
    for end in ENDS.values():
        play = end()
        with pytest.raises(IllegalTransition):
            play.run.handle(PromptSent("p2"), BEGIN)
        with pytest.raises(IllegalTransition):
            play.run.handle(TURN, BEGIN)


def test_a_restart_finds_no_ended_run_live() -> None:
    for end in ENDS.values():
        play = end()
        with pytest.raises(IllegalTransition):
            play.run.handle(DaemonRestarted(), BEGIN)


def test_a_replayed_run_is_closed_like_the_live_one_would_have_been() -> None:
    for play in (sent(AT_TWO), running(AT_TWO).hears(completed(1)), awaiting(), stopping(), aborting()):
        restored = Run.restore(replayed(play.facts))
        restored.handle(DaemonRestarted(), play.at + SECOND)
        play.hears(DaemonRestarted(), after=SECOND).ends_in(RunState.FAILED)
        assert restored.view == play.run.view
