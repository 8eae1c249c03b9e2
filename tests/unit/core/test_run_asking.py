"""Conversations in which the agent asks people: for leave to use a tool, or something else."""

import pytest
from msgspec.structs import replace
from tests.unit.core.conversations import (
    ABORT,
    ABORT_ASKED,
    ABORT_PLEASE,
    BASH,
    BY_CEL,
    CLIENT,
    COMPLETED_TURN,
    FAILED_TURN,
    FIRST_PERMISSION,
    FIRST_QUESTION,
    INCAPABLE,
    STOP_PLEASE,
    STOP_REASON,
    WHICH,
    asked,
    asks,
    awaiting,
    changes,
    completed,
    ended_step,
    ends,
    failure,
    goes_on,
    inexact,
    running,
    spec,
    step_id,
    turn,
)

from steprail_daemon.core.commands import (
    AnswerBoundary,
    AnswerPermission,
    AnswerQuestion,
    CancelTimer,
    Command,
    Emit,
    EndProcess,
    EvaluateExpressions,
    Interrupt,
    StartTimer,
)
from steprail_daemon.core.errors import Invalid
from steprail_daemon.core.events import (
    ActivityPastGate,
    AgentExited,
    AgentSilent,
    BoundaryCancelled,
    DaemonRestarted,
    DecidersChanged,
    DecisionSubmitted,
    DrainWindowEnding,
    PermissionAnswered,
    PermissionWithdrawn,
    PromptConfirmed,
    ProtocolFailed,
    QuestionAnswered,
    QuestionAsked,
    QuestionWithdrawn,
    SteerSubmitted,
    Timer,
    TimerFired,
)
from steprail_daemon.core.model import (
    SECOND,
    DecisionAction,
    DecisionSource,
    DurationRule,
    FailureFault,
    Permission,
    PermissionAction,
    PermissionAlternative,
    PermissionAnswer,
    Question,
    QuestionItemAnswer,
    ResolutionSource,
    RuleClock,
    RunState,
    StepCountRule,
    StepGate,
    StopKind,
    StopReason,
    StopRule,
    ToolKind,
    TurnEndReason,
)
from steprail_daemon.core.policy import DENIAL_MESSAGE, Ruling
from steprail_daemon.core.records import (
    PermissionRequested,
    PermissionResolved,
    QuestionRequested,
    QuestionResolved,
    SteerAccepted,
    ToolGranted,
)
from steprail_daemon.testing.playbook import BEGIN, Playbook

RUNNING, ASKING, DECIDING = RunState.RUNNING, RunState.AWAITING_PERMISSION, RunState.AWAITING_DECISION
PATIENCE = 300 * SECOND
TIMERS = (Timer.HARD_TIMEOUT, Timer.PERMISSION)
SECOND_PERMISSION = "run_01.p000002"
OF_SUBAGENT = replace(BASH, permission_id="sub", subagent_id="sub")

YES = PermissionAnswered(FIRST_PERMISSION, PermissionAnswer.ALLOW_ONCE, "ann", "go ahead")
NO = PermissionAnswered(FIRST_PERMISSION, PermissionAnswer.DENY, "ann", "not here")
ANSWERS = (QuestionItemAnswer("colour", ("r",)), QuestionItemAnswer("key", text="hunter2"))
RED = QuestionAnswered(FIRST_QUESTION, ANSWERS, "ann")


def permission(at: int = BEGIN, permission_id: str = FIRST_PERMISSION, subagent: str = "") -> Permission:
    return Permission(
        permission_id=permission_id,
        step_number=1,
        tool="Bash",
        tool_kind=ToolKind.EXECUTE,
        title="List files",
        arguments_json='{"command":"ls"}',
        asked_at=at,
        deadline_at=at + PATIENCE,
        subagent_id=subagent,
        call_id="call",
    )


def resolved(
    answer: PermissionAnswer | None,
    source: ResolutionSource,
    reason: str,
    *,
    identity: str = "",
    permission_id: str = FIRST_PERMISSION,
    alternative: PermissionAlternative | None = None,
) -> Emit:
    return Emit(PermissionResolved(permission_id, answer, source, reason, identity, alternative, "Bash"))


def denied(source: ResolutionSource, reason: str) -> Emit:
    return resolved(PermissionAnswer.DENY, source, reason)


def withdrawn(reason: str) -> Emit:
    return resolved(None, ResolutionSource.AGENT, reason)


def back(at: int = BEGIN) -> list[Command]:
    """That nothing is open any more."""
    return [changes(RUNNING, ASKING, at), CancelTimer(Timer.PERMISSION)]


NOT_ALLOWED = AnswerPermission("perm", False, DENIAL_MESSAGE)

# --- policy -----------------------------------------------------------------------------------------------------------


def test_what_policy_allows_is_recorded_before_it_is_answered() -> None:
    play = running().hears(replace(BASH, ruling=Ruling(PermissionAction.ALLOW, "listing is fine")))
    allowed = resolved(PermissionAnswer.ALLOW_ONCE, ResolutionSource.POLICY, "listing is fine")
    play.says(allowed, AnswerPermission("perm", True, "")).ends_in(RUNNING)


def test_a_denial_of_policy_tells_people_why_and_the_model_only_that() -> None:
    play = running().hears(replace(BASH, ruling=Ruling(PermissionAction.DENY, "no shell")))
    play.says(denied(ResolutionSource.POLICY, "no shell"), NOT_ALLOWED).ends_in(RUNNING)


def test_what_policy_settles_while_something_is_open_leaves_that_open() -> None:
    play = asked().hears(replace(OF_SUBAGENT, ruling=Ruling(PermissionAction.DENY, "no shell")))
    assert [one.permission_id for one in play.ends_in(ASKING).pending_permissions] == [FIRST_PERMISSION]


# --- people -----------------------------------------------------------------------------------------------------------


def test_what_policy_leaves_to_people_is_asked_and_waits_with_a_deadline() -> None:
    play = running().hears(BASH, after=SECOND)
    at = BEGIN + SECOND
    play.says(
        Emit(PermissionRequested(permission(at))),
        changes(ASKING, RUNNING, at),
        StartTimer(Timer.PERMISSION, at + PATIENCE),
    )
    view = play.ends_in(ASKING)
    assert view.needs_attention
    assert view.pending_permissions == [permission(at)]
    view = play.hears(YES, after=3 * SECOND).ends_in(RUNNING)
    assert not view.needs_attention
    assert (view.active_ns, view.awaiting_permission_ns) == (SECOND, 3 * SECOND)


def test_somebody_allows_it_once() -> None:
    allowed = resolved(PermissionAnswer.ALLOW_ONCE, ResolutionSource.CLIENT, "go ahead", identity="ann")
    asked().hears(YES).says(allowed, *back(), AnswerPermission("perm", True, ""))


def test_somebody_allows_it_for_the_session() -> None:
    play = asked().hears(replace(YES, answer=PermissionAnswer.ALLOW_SESSION))
    play.says(
        Emit(ToolGranted("Bash", '{"command":"ls"}')),
        resolved(PermissionAnswer.ALLOW_SESSION, ResolutionSource.CLIENT, "go ahead", identity="ann"),
        *back(),
        AnswerPermission("perm", True, ""),
    )


def test_somebody_denies_it_and_the_model_may_be_told_why() -> None:
    refused = resolved(PermissionAnswer.DENY, ResolutionSource.CLIENT, "not here", identity="ann")
    asked().hears(NO).says(refused, *back(), AnswerPermission("perm", False, "not here"))
    assert asked().hears(replace(NO, reason="")).commands[-1] == NOT_ALLOWED


def test_somebody_wants_another_call_in_its_place() -> None:
    instead = PermissionAlternative(command="ls -l")
    play = asked().hears(replace(YES, alternative=instead))
    allowed = resolved(
        PermissionAnswer.ALLOW_ONCE, ResolutionSource.CLIENT, "go ahead", identity="ann", alternative=instead
    )
    play.says(allowed, *back(), AnswerPermission("perm", True, "", instead))


def test_an_alternative_that_the_agent_cannot_take_is_refused_and_the_permission_goes_on_waiting() -> None:
    play = asked()
    play.run.capabilities = INCAPABLE
    refusal = play.refuses(replace(YES, alternative=PermissionAlternative(command="ls -l")), "CAPABILITY_MISSING")
    assert refusal.metadata["capability"] == "permission_alternatives"
    play.hears(YES).ends_in(RUNNING)


@pytest.mark.parametrize(
    ("answer", "alternative", "message"),
    [
        (PermissionAnswer.DENY, PermissionAlternative("ls"), "alternative goes with ALLOW_ONCE only, not with DENY"),
        (PermissionAnswer.ALLOW_ONCE, PermissionAlternative(), "exactly one of command and arguments_json"),
        (PermissionAnswer.ALLOW_ONCE, PermissionAlternative("ls", "{}"), "exactly one of command and arguments_json"),
    ],
)
def test_an_alternative_must_be_one(answer: PermissionAnswer, alternative: PermissionAlternative, message: str) -> None:
    play = asked()
    with pytest.raises(Invalid, match=message):
        play.run.handle(replace(YES, answer=answer, alternative=alternative), BEGIN)
    play.ends_in(ASKING)


def test_only_the_first_answer_acts_and_none_reaches_the_agent_after_it() -> None:
    play = asked().hears(YES)
    play.refuses(NO, "PERMISSION_NOT_PENDING")
    play = asked()
    error = play.refuses(replace(YES, permission_id="perm"), "PERMISSION_NOT_PENDING")
    assert "permission 'perm' is not pending; the run is AWAITING_PERMISSION" in error.message
    play.hears(NO).refuses(YES, "PERMISSION_NOT_PENDING")


def test_it_goes_on_asking_until_everything_is_answered() -> None:
    play = asked().hears(OF_SUBAGENT, after=SECOND)
    play.says(Emit(PermissionRequested(permission(BEGIN + SECOND, SECOND_PERMISSION, "sub"))))
    play.hears(YES).says(
        resolved(PermissionAnswer.ALLOW_ONCE, ResolutionSource.CLIENT, "go ahead", identity="ann"),
        StartTimer(Timer.PERMISSION, BEGIN + SECOND + PATIENCE),
        AnswerPermission("perm", True, ""),
    )
    play.ends_in(ASKING)
    play.hears(replace(YES, permission_id=SECOND_PERMISSION)).ends_in(RUNNING)


def test_a_question_that_is_said_again_is_asked_once() -> None:
    asked().hears(BASH).says().hears(WHICH).hears(WHICH).says().ends_in(ASKING)


def test_a_permission_and_a_question_of_the_same_name_are_two() -> None:
    play = asked().hears(QuestionAsked("perm", ()))
    play.hears(QuestionWithdrawn("perm")).ends_in(ASKING)
    assert [one.permission_id for one in play.run.view.pending_permissions] == [FIRST_PERMISSION]


def test_the_active_clock_of_a_rule_stands_still_while_people_are_asked() -> None:
    for clock, state in ((RuleClock.ACTIVE, ASKING), (RuleClock.WALL, RunState.STOPPING)):
        late = StopRule("late", DurationRule(60 * SECOND, clock))
        play = asked(None, late, subagent="sub").hears(completed(1), after=100 * SECOND)
        play.ends_in(state)
    worked = running(StopRule("late", DurationRule(60 * SECOND))).hears(completed(1), after=60 * SECOND)
    worked.ends_in(RunState.STOPPING)


# --- questions --------------------------------------------------------------------------------------------------------


def questioned() -> Playbook:
    play = running().hears(WHICH)
    play.ends_in(ASKING)
    return play


def test_a_question_waits_like_a_permission() -> None:
    question = Question(
        question_id=FIRST_QUESTION,
        step_number=1,
        items=WHICH.items,
        asked_at=BEGIN,
        deadline_at=BEGIN + PATIENCE,
        call_id="call",
    )
    play = questioned().says(
        Emit(QuestionRequested(question)),
        changes(ASKING, RUNNING, BEGIN),
        StartTimer(Timer.PERMISSION, BEGIN + PATIENCE),
    )
    assert play.run.view.pending_questions == [question]
    assert play.run.view.needs_attention


def test_an_answer_reaches_the_agent_whole_and_the_record_without_its_secrets() -> None:
    play = questioned().hears(RED)
    recorded = QuestionResolved(FIRST_QUESTION, ANSWERS[:1], ResolutionSource.CLIENT, "ann")
    play.says(Emit(recorded), *back(), AnswerQuestion("ask", ANSWERS))
    play.refuses(RED, "QUESTION_NOT_PENDING")


def test_somebody_declines_to_answer() -> None:
    play = questioned().hears(QuestionAnswered(FIRST_QUESTION, None, "ann"))
    recorded = QuestionResolved(FIRST_QUESTION, None, ResolutionSource.CLIENT, "ann")
    play.says(Emit(recorded), *back(), AnswerQuestion("ask", None))


def test_an_answer_to_another_question_is_refused() -> None:
    questioned().refuses(replace(RED, question_id="ask"), "QUESTION_NOT_PENDING")


def test_an_answer_to_one_of_two_leaves_the_other_open() -> None:
    play = questioned().hears(replace(WHICH, question_id="again", subagent_id="sub")).hears(RED)
    assert [one.question_id for one in play.ends_in(ASKING).pending_questions] == ["run_01.q000002"]


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ((), r"exactly one for each of the items \['colour', 'key'\]; they are for \[\]"),
        ((ANSWERS[0], ANSWERS[0], ANSWERS[1]), "exactly one for each"),
        ((*ANSWERS, QuestionItemAnswer("size")), "exactly one for each"),
        ((QuestionItemAnswer("colour", ("g",)), ANSWERS[1]), r"answers\[0\].option_ids has 'g'; accepted are \['r'\]"),
        ((QuestionItemAnswer("colour", ("r", "r")), ANSWERS[1]), "has 2 options; accepted is one"),
        ((QuestionItemAnswer("colour", (), "blue"), ANSWERS[1]), r"answers\[0\].text is set; accepted are the options"),
        ((ANSWERS[0], QuestionItemAnswer("key")), r"answers\[1\] is empty"),
    ],
)
def test_an_answer_must_fit_what_was_asked(answers: tuple[QuestionItemAnswer, ...], message: str) -> None:
    play = questioned()
    with pytest.raises(Invalid, match=message):
        play.run.handle(replace(RED, answers=answers), BEGIN)
    play.hears(RED).ends_in(RUNNING)


# --- nobody answers, or nobody asks any more --------------------------------------------------------------------------


def test_nobody_in_time_means_no() -> None:
    play = asked().hears(WHICH).hears(OF_SUBAGENT, after=SECOND)
    play.hears(TimerFired(Timer.PERMISSION), after=PATIENCE - 2 * SECOND)
    at = BEGIN + PATIENCE - SECOND
    play.says(
        denied(ResolutionSource.TIMEOUT, "nobody answered in time"),
        Emit(QuestionResolved(FIRST_QUESTION, None, ResolutionSource.TIMEOUT)),
        StartTimer(Timer.PERMISSION, BEGIN + SECOND + PATIENCE),
        NOT_ALLOWED,
        AnswerQuestion("ask", None),
    )
    play.ends_in(ASKING)
    play.refuses(YES, "PERMISSION_NOT_PENDING")
    play.hears(TimerFired(Timer.PERMISSION), after=2 * SECOND)
    timed_out = resolved(
        PermissionAnswer.DENY, ResolutionSource.TIMEOUT, "nobody answered in time", permission_id=SECOND_PERMISSION
    )
    play.says(timed_out, changes(RUNNING, ASKING, at + 2 * SECOND), AnswerPermission("sub", False, DENIAL_MESSAGE))


def test_the_time_to_answer_is_a_limit_of_the_run() -> None:
    limits = replace(spec().limits, permission_timeout_ns=5 * SECOND)
    play = running(run=spec(limits=limits)).hears(BASH)
    assert StartTimer(Timer.PERMISSION, BEGIN + 5 * SECOND) in play.commands


def test_what_the_agent_no_longer_asks_is_closed_and_not_answered() -> None:
    play = asked().hears(PermissionWithdrawn("perm")).says(withdrawn("the agent no longer asks"), *back())
    play.refuses(YES, "PERMISSION_NOT_PENDING")
    play.hears(PermissionWithdrawn("perm")).says().ends_in(RUNNING)
    closed = QuestionResolved(FIRST_QUESTION, None, ResolutionSource.AGENT)
    play = questioned().hears(QuestionWithdrawn("ask")).says(Emit(closed), *back())
    play.hears(QuestionWithdrawn("ask")).says()
    play.refuses(RED, "QUESTION_NOT_PENDING")


def test_what_is_no_longer_asked_beside_others_leaves_those_open() -> None:
    asked().hears(OF_SUBAGENT).hears(PermissionWithdrawn("sub")).ends_in(ASKING)
    asked().hears(WHICH).hears(QuestionWithdrawn("ask")).ends_in(ASKING)


def test_a_step_that_is_complete_closes_what_its_main_loop_asked() -> None:
    play = asked().hears(completed(1))
    closed = withdrawn("the step was complete before anybody answered")
    play.says(
        closed,
        changes(RUNNING, ASKING, BEGIN),
        ended_step(1),
        goes_on(1, BEGIN)[0],
        CancelTimer(Timer.PERMISSION),
        AnswerBoundary("b1", DecisionAction.CONTINUE),
    )
    play.refuses(YES, "PERMISSION_NOT_PENDING")


def test_a_step_leaves_open_what_a_sub_agent_asked() -> None:
    play = asked(subagent="sub").hears(completed(1)).says(ended_step(1), *goes_on(1, BEGIN))
    assert play.ends_in(ASKING).needs_attention
    play.hears(YES).ends_in(RUNNING)


def test_a_client_may_be_asked_about_a_step_while_a_sub_agent_asks() -> None:
    play = asked(CLIENT, subagent="sub").hears(completed(1))
    wanted = asks(1, BEGIN)
    wanted[1] = changes(DECIDING, ASKING, BEGIN)
    play.says(ended_step(1), *wanted)
    play.hears(DecisionSubmitted(step_id(1), DecisionAction.CONTINUE, "ann")).ends_in(ASKING)
    play.hears(YES).ends_in(RUNNING)


def test_a_stop_at_the_boundary_denies_what_a_sub_agent_asked() -> None:
    play = asked(None, StopRule("one", StepCountRule(1)), subagent="sub").hears(completed(1))
    at = play.commands.index(denied(ResolutionSource.ABORT, "the run is being stopped"))
    assert play.commands[at + 1 :][-2:] == [NOT_ALLOWED, AnswerBoundary("b1", DecisionAction.STOP)]
    assert not play.ends_in(RunState.STOPPING).needs_attention


def test_a_boundary_past_a_gate_fails_it_while_it_asks() -> None:
    play = asked(subagent="sub").hears(completed(1, past_gate=True))
    assert denied(ResolutionSource.ABORT, "the run ended") in play.commands
    view = play.ends_in(RunState.FAILED)
    assert view.failure is not None
    assert view.failure.reason == "GATE_LOST"
    assert view.pending_permissions == []


def test_the_end_of_the_turn_closes_everything() -> None:
    play = asked().hears(replace(WHICH, subagent_id="sub")).hears(COMPLETED_TURN)
    play.says(
        withdrawn("the turn ended before anybody answered"),
        Emit(QuestionResolved(FIRST_QUESTION, None, ResolutionSource.AGENT)),
        turn(COMPLETED_TURN),
        *ends(RunState.COMPLETED, ASKING, BEGIN, timers=TIMERS),
    )
    asked().hears(FAILED_TURN).ends_in(RunState.FAILED)


def test_a_turn_that_a_denial_ended_is_stopped_and_tells_who_denied() -> None:
    end = replace(COMPLETED_TURN, text="", denied=True)
    play = asked().hears(NO).hears(end)
    reason = StopReason(kind=StopKind.PERMISSION_DENIED, source=DecisionSource.CLIENT, reason="not here")
    play.says(turn(end), *ends(RunState.STOPPED, RUNNING, BEGIN, timers=(Timer.HARD_TIMEOUT,), reason=reason))
    sources = {}
    for answer in (TimerFired(Timer.PERMISSION), DrainWindowEnding()):
        found = asked().hears(answer).hears(end).ends_in(RunState.STOPPED).stop_reason
        assert found is not None
        sources[found.source] = found.reason
    assert sources == {
        DecisionSource.TIMEOUT: "nobody answered in time",
        DecisionSource.DRAIN: "the daemon is draining",
    }
    found = running().hears(end).ends_in(RunState.STOPPED).stop_reason
    assert found is not None
    assert (found.source, found.reason) == (DecisionSource.AUTO, "A denied permission ended the turn.")
    asked().hears(replace(end, reason=TurnEndReason.ABORTED)).ends_in(RunState.STOPPED)


# --- stops, aborts, drains, ends --------------------------------------------------------------------------------------


def test_a_request_to_stop_leaves_it_open() -> None:
    play = asked().hears(STOP_PLEASE)
    play.ends_in(ASKING)
    play.hears(YES).hears(completed(1))
    assert play.ends_in(RunState.STOPPING).stop_reason == STOP_REASON


def test_an_abort_closes_everything_before_it_reaches_the_agent() -> None:
    play = asked().hears(WHICH).hears(ABORT_PLEASE)
    play.says(
        ABORT_ASKED,
        denied(ResolutionSource.ABORT, "the run is being aborted"),
        Emit(QuestionResolved(FIRST_QUESTION, None, ResolutionSource.ABORT)),
        changes(RunState.ABORTING, ASKING, BEGIN),
        CancelTimer(Timer.HARD_TIMEOUT),
        CancelTimer(Timer.PERMISSION),
        StartTimer(Timer.ABORT, BEGIN + ABORT),
        NOT_ALLOWED,
        AnswerQuestion("ask", None),
        Interrupt(),
    )
    play.refuses(YES, "PERMISSION_NOT_PENDING")
    play.refuses(RED, "QUESTION_NOT_PENDING")


def test_the_end_of_a_drains_window_denies_what_is_open_and_what_comes_after() -> None:
    play = asked().hears(DrainWindowEnding())
    play.says(denied(ResolutionSource.DRAIN, "the daemon is draining"), *back(), NOT_ALLOWED)
    source = ResolutionSource.DRAIN
    later = resolved(PermissionAnswer.DENY, source, "the daemon is draining", permission_id=SECOND_PERMISSION)
    play.hears(BASH).says(later, NOT_ALLOWED)
    play.hears(WHICH).says(Emit(QuestionResolved(FIRST_QUESTION, None, source)), AnswerQuestion("ask", None))
    play.ends_in(RUNNING)


def test_the_end_of_the_process_or_of_the_daemon_closes_everything() -> None:
    for event, reason in (
        (AgentExited(1, None), "AGENT_EXITED"),
        (ProtocolFailed("not JSON"), "PROTOCOL_ERROR"),
        (DaemonRestarted(), "DAEMON_RESTARTED"),
        (TimerFired(Timer.HARD_TIMEOUT), "HARD_TIMEOUT"),
    ):
        play = asked().hears(WHICH).hears(event)
        assert play.commands[0] == denied(ResolutionSource.ABORT, "the run ended")
        assert NOT_ALLOWED not in play.commands
        view = play.ends_in(RunState.FAILED)
        assert view.failure is not None
        assert (view.failure.reason, view.needs_attention) == (reason, False)


def test_an_agent_that_waits_for_people_may_be_silent() -> None:
    asked().hears(AgentSilent(SECOND)).says().ends_in(ASKING)


def test_what_does_not_matter_there_is_ignored() -> None:
    play = asked().hears(PromptConfirmed("p1")).says()
    play.hears(BoundaryCancelled("b0")).says().hears(DecidersChanged(1)).says()
    play.refuses(DecisionSubmitted(step_id(1), DecisionAction.STOP, "ann"), "DECISION_NOT_PENDING")
    play.ends_in(ASKING)


def test_a_text_for_the_turn_is_taken_there_too() -> None:
    accepted = SteerAccepted("steer_1", "Look there.", "ann")
    asked().hears(SteerSubmitted("steer_1", "Look there.", "ann")).says(Emit(accepted)).ends_in(ASKING)


def test_an_agent_that_went_on_before_our_answer_reached_it_lost_its_gate() -> None:
    play = asked(subagent="sub").hears(completed(1)).hears(ActivityPastGate("ToolStarted"))
    failed = play.ends_in(RunState.FAILED).failure
    assert failed is not None
    assert failed.reason == "GATE_LOST"


def test_on_a_gate_that_is_not_exact_it_may_go_on() -> None:
    play = inexact().hears(BASH).hears(ActivityPastGate("ToolStarted")).says()
    play.ends_in(ASKING)
    unsupported = inexact(StopRule("one", StepCountRule(1)), gate=StepGate.UNSUPPORTED)
    play = unsupported.hears(OF_SUBAGENT).hears(completed(1, held=False))
    assert AnswerPermission("sub", False, DENIAL_MESSAGE) in play.commands
    play.ends_in(RunState.ABORTING)


# --- while a client is asked about a step, and when the agent should stop ---------------------------------------------


def test_a_sub_agent_asks_while_a_client_is_asked_about_a_step() -> None:
    play = awaiting().hears(OF_SUBAGENT)
    play.says(
        Emit(PermissionRequested(replace(permission(subagent="sub"), step_number=2))),
        StartTimer(Timer.PERMISSION, BEGIN + PATIENCE),
    )
    play.ends_in(DECIDING)
    play.hears(YES)
    play.says(
        resolved(PermissionAnswer.ALLOW_ONCE, ResolutionSource.CLIENT, "go ahead", identity="ann"),
        CancelTimer(Timer.PERMISSION),
        AnswerPermission("sub", True, ""),
    )
    play.hears(replace(WHICH, subagent_id="sub")).hears(RED).ends_in(DECIDING)
    play.refuses(RED, "QUESTION_NOT_PENDING")


def test_what_a_sub_agent_asks_there_can_be_withdrawn_and_can_expire() -> None:
    sub = replace(WHICH, subagent_id="sub")
    play = awaiting().hears(OF_SUBAGENT).hears(sub)
    play.hears(PermissionWithdrawn("sub")).hears(QuestionWithdrawn("ask")).ends_in(DECIDING)
    view = awaiting().hears(OF_SUBAGENT).hears(TimerFired(Timer.PERMISSION)).ends_in(DECIDING)
    assert not view.asks


def test_the_default_of_a_decision_leaves_open_what_a_sub_agent_asks() -> None:
    on = replace(CLIENT, on_timeout=CLIENT.on_timeout.CONTINUE)
    awaiting(on).hears(OF_SUBAGENT).hears(TimerFired(Timer.DECISION)).ends_in(ASKING)


def test_the_end_of_a_drains_window_denies_it_and_stops() -> None:
    play = awaiting().hears(OF_SUBAGENT).hears(DrainWindowEnding())
    assert play.commands[0] == denied(ResolutionSource.DRAIN, "the daemon is draining")
    assert AnswerPermission("sub", False, DENIAL_MESSAGE) in play.commands
    play.ends_in(RunState.STOPPING)


def test_a_question_of_the_main_loop_at_a_boundary_lost_the_gate() -> None:
    for play in (awaiting(), running(StopRule("one", StepCountRule(1))).hears(completed(1))):
        play.hears(WHICH)
        assert play.commands[0] == Emit(QuestionResolved(FIRST_QUESTION, None, ResolutionSource.ABORT))
        assert AnswerQuestion("ask", None) in play.commands
        failed = play.ends_in(RunState.FAILED).failure
        assert failed is not None
        message = "the agent went past a step boundary without leave: a question was asked"
        assert failed == failure("GATE_LOST", message, FailureFault.AGENT, 1)


def test_nobody_is_asked_while_it_is_being_stopped() -> None:
    play = running(StopRule("one", StepCountRule(1))).hears(completed(1))
    declined = QuestionResolved(FIRST_QUESTION, None, ResolutionSource.POLICY)
    play.hears(replace(WHICH, subagent_id="sub")).says(Emit(declined), AnswerQuestion("ask", None))
    play.hears(PermissionWithdrawn("x")).says().hears(QuestionWithdrawn("x")).says()
    play.refuses(YES, "PERMISSION_NOT_PENDING")
    play.refuses(RED, "QUESTION_NOT_PENDING")
    play.ends_in(RunState.STOPPING)


# --- while expressions are evaluated ----------------------------------------------------------------------------------


def test_a_step_whose_expressions_are_evaluated_leaves_open_what_a_sub_agent_asked() -> None:
    play = asked(None, BY_CEL, subagent="sub").hears(completed(1))
    play.says(EvaluateExpressions(1, ("step.number > 1",), completed(1).step))
    play.ends_in(ASKING)


def test_the_final_verdicts_are_waited_for_with_nothing_open() -> None:
    play = asked(None, BY_CEL).hears(COMPLETED_TURN)
    play.says(
        withdrawn("the turn ended before anybody answered"),
        turn(COMPLETED_TURN),
        *back(),
        EvaluateExpressions(1, ("step.number > 1",), None),
    )
    play.hears(BASH).says(NOT_ALLOWED).hears(WHICH).says(AnswerQuestion("ask", None))
    play.ends_in(RUNNING)


def test_the_main_loop_asks_while_it_should_wait() -> None:
    for question in (BASH, WHICH):
        for play in (
            running(BY_CEL).hears(completed(1)),
            running(BY_CEL).hears(completed(1)).hears(OF_SUBAGENT),
        ):
            play.hears(question)
            failed = play.ends_in(RunState.FAILED).failure
            assert failed is not None
            assert (failed.reason, failed.resumable_at_step) == ("GATE_LOST", 1)
            assert EndProcess("its step gate did not hold") in play.commands
            assert play.run.view.step_count == 1
