"""What a fold of records gives."""

import msgspec
import pytest
from tests.unit.core.conversations import (
    COMPLETED_TURN,
    STOPPED_TURN,
    awaiting,
    completed,
    running,
    spec,
    step,
    step_id,
    stopping,
)

from steprail_daemon.core.model import (
    SECOND,
    Capabilities,
    Cost,
    CostBasis,
    CostSupport,
    DecisionAction,
    PermissionMode,
    ResolutionSource,
    RunState,
    SessionState,
    StepGate,
    Usage,
    UsageSupport,
)
from steprail_daemon.core.records import (
    AgentStarted,
    CapabilitiesChanged,
    Fact,
    PermissionResolved,
    Record,
    RunCreated,
    RunStateChanged,
    SessionCreated,
    SessionStateChanged,
    StepEnded,
    StepSummary,
    TurnStarted,
)
from steprail_daemon.core.replay import Spans, fold_run, open_run, replay_session, spans_at, summarise
from steprail_daemon.testing.playbook import BEGIN, Playbook

CAPABILITIES = Capabilities(step_gate=StepGate.EXACT, usage=UsageSupport.PER_STEP, cost=CostSupport.REPORTED)
CREATED = SessionCreated(
    session_id="ses_01",
    agent="claude",
    cwd="/project",
    agent_session_id="uuid",
    permission_mode=PermissionMode.ASK,
    model="",
    labels={"team": "a"},
    tenant="",
    owner="ann",
    capabilities=CAPABILITIES,
    created_at=BEGIN,
)


def records(facts: list[Fact]) -> list[Record]:
    return [summarise(fact.step) if isinstance(fact, StepEnded) else fact for fact in facts]


def renamed(play: Playbook, run_id: str) -> list[Record]:
    first, *rest = records(play.facts)
    return [msgspec.structs.replace(first, run_id=run_id), *rest]


def test_a_session_and_its_runs_are_folded_from_its_records_alone() -> None:
    lowered = msgspec.structs.replace(CAPABILITIES, step_gate=StepGate.BEST_EFFORT)
    session, runs = replay_session(
        [
            CREATED,
            SessionStateChanged(SessionState.STARTING, None),
            *renamed(stopping().hears(STOPPED_TURN, after=SECOND), "run_a"),
            SessionStateChanged(SessionState.SUSPENDED, SessionState.RUNNING, "idle"),
            *renamed(running().hears(completed(1), after=5 * SECOND), "run_b"),
            AgentStarted("claude", "2.1.332", "model-1", "uuid-2", True),
            CapabilitiesChanged(lowered, "its gate did not hold"),
            SessionStateChanged(SessionState.RUNNING, SessionState.SUSPENDED),
        ]
    )
    assert list(runs) == ["run_a", "run_b"]
    assert runs["run_a"].state is RunState.STOPPED
    assert runs["run_a"].step_count == 2
    assert runs["run_b"].state is RunState.RUNNING
    assert (session.run_ids, session.active_run_id, session.steps_before) == (["run_a", "run_b"], "run_b", 2)
    assert (session.agent_session_id, session.model, session.capabilities) == ("uuid-2", "model-1", lowered)
    assert (session.state, session.state_reason) == (SessionState.RUNNING, "")
    assert (session.created_at, session.last_active_at, session.labels) == (BEGIN, BEGIN + SECOND, {"team": "a"})


def test_a_session_without_a_live_run_has_no_active_one() -> None:
    session, _ = replay_session([CREATED, *records(running().hears(COMPLETED_TURN).facts)])
    assert session.active_run_id == ""


def test_an_agent_that_does_not_say_its_id_and_model_leaves_them_as_they_were() -> None:
    session, _ = replay_session([CREATED, AgentStarted("claude", "2.1.332", "", "", False)])
    assert (session.agent_session_id, session.model) == ("uuid", "")


def test_records_that_do_not_begin_with_the_session_are_refused() -> None:
    with pytest.raises(ValueError, match="a session's records begin with session_created"):
        replay_session([])
    with pytest.raises(ValueError, match="a session's records begin with session_created"):
        replay_session([SessionStateChanged(SessionState.IDLE, None)])


def test_a_record_of_a_run_before_any_run_is_refused() -> None:
    with pytest.raises(ValueError, match="TurnStarted before any run_created"):
        replay_session([CREATED, TurnStarted(False)])


def test_the_spans_partition_the_time() -> None:
    play = awaiting()
    view = play.run.view
    assert spans_at(view, BEGIN + 3 * SECOND) == Spans(0, 0, 3 * SECOND, 0)
    assert view.awaiting_decision_ns == 0
    created = open_run(RunCreated("run_01", "ses_01", spec(), BEGIN))
    assert spans_at(created, BEGIN + SECOND) == Spans(SECOND, 0, 0, 0)
    assert spans_at(created, BEGIN - SECOND).total_ns == 0


def test_a_question_of_the_agent_has_a_span_of_its_own() -> None:
    view = running().run.view
    fold_run(view, RunStateChanged(RunState.AWAITING_PERMISSION, RunState.RUNNING, BEGIN + SECOND))
    fold_run(view, RunStateChanged(RunState.RUNNING, RunState.AWAITING_PERMISSION, BEGIN + 3 * SECOND))
    assert spans_at(view, BEGIN + 4 * SECOND) == Spans(0, 2 * SECOND, 0, 2 * SECOND)


def test_the_spans_of_an_ended_run_stand_still() -> None:
    view = running().hears(COMPLETED_TURN, after=SECOND).run.view
    assert view.ended_at == BEGIN + SECOND
    assert spans_at(view, BEGIN + 9 * SECOND) == Spans(0, SECOND, 0, 0)


def test_a_start_without_a_time_of_its_own_is_that_of_the_state() -> None:
    view = open_run(RunCreated("run_01", "ses_01", spec(), BEGIN))
    fold_run(view, RunStateChanged(RunState.RUNNING, RunState.QUEUED, BEGIN + SECOND))
    fold_run(view, TurnStarted(False))
    assert (view.started_at, view.queued_ns) == (BEGIN + SECOND, SECOND)


def test_time_that_runs_backwards_is_not_counted() -> None:
    view = running().run.view
    fold_run(view, RunStateChanged(RunState.FAILED, RunState.RUNNING, BEGIN - SECOND))
    assert view.ended_at == BEGIN
    assert spans_at(view, BEGIN).total_ns == 0


def test_a_step_without_figures_among_steps_with_some_makes_the_sum_a_lower_bound() -> None:
    view = running().hears(completed(1)).run.view
    fold_run(view, summarise(step(2, Usage(5, output_tokens=1), Cost(3, CostBasis.REPORTED))))
    assert view.usage == Usage(5, output_tokens=1, complete=False)
    assert view.cost == Cost(3, CostBasis.REPORTED, complete=False)


def test_only_the_decision_that_the_agent_acted_on_is_delivered() -> None:
    view = stopping().hears(STOPPED_TURN).run.view
    delivered = [(view.decisions[step_id(n)].action, view.decisions[step_id(n)].delivered) for n in (1, 2)]
    assert delivered == [(DecisionAction.CONTINUE, True), (DecisionAction.STOP, True)]
    view = stopping().hears(COMPLETED_TURN).run.view
    assert not view.decisions[step_id(2)].delivered


def test_a_step_is_recorded_without_its_texts() -> None:
    assert summarise(step(1)) == StepSummary(1, step_id(1), ("Read",), None, None, BEGIN)


def test_what_says_nothing_of_a_run_leaves_it_as_it_is() -> None:
    play = running()
    before = msgspec.msgpack.encode(play.run.view)
    for record in (
        PermissionResolved("perm", True, ResolutionSource.POLICY, ""),
        SessionStateChanged(SessionState.RUNNING, SessionState.IDLE),
        AgentStarted("claude", "2.1.332", "model-1", "uuid", False),
        CapabilitiesChanged(CAPABILITIES, ""),
    ):
        fold_run(play.run.view, record)
    assert msgspec.msgpack.encode(play.run.view) == before
