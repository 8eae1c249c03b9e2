"""What a fold of records gives."""

import msgspec
import pytest
from msgspec.structs import replace
from tests.unit.core.conversations import (
    ABORT_PLEASE,
    COMPLETED_TURN,
    STOPPED_TURN,
    awaiting,
    begun,
    completed,
    queued,
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
    PermissionAction,
    PermissionMode,
    PermissionRule,
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
    QueueHeld,
    Record,
    RunCreated,
    RunStateChanged,
    RunTurnCame,
    SessionCreated,
    SessionStateChanged,
    SessionUpdated,
    StepEnded,
    StepSummary,
    ToolGranted,
    TurnStarted,
    UsageCounted,
)
from steprail_daemon.core.replay import Spans, fold_run, open_run, replay_session, spans_at, summarise
from steprail_daemon.core.usage import NO_COST, NO_USAGE
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


Numbered = tuple[int, Record]


def records(facts: list[Fact]) -> list[Record]:
    return [summarise(fact.step) if isinstance(fact, StepEnded) else fact for fact in facts]


def numbered(run_no: int, play: Playbook, continued_from: str = "") -> list[Numbered]:
    """The records of a conversation as those of run `run_<number>`."""
    first, *rest = records(play.facts)
    assert isinstance(first, RunCreated)
    first = replace(first, run_id=f"run_{run_no}", spec=replace(first.spec, continued_from=continued_from))
    return [(run_no, record) for record in (first, *rest)]


def outside(*given: Record) -> list[Numbered]:
    return [(0, record) for record in given]


def test_a_session_and_its_runs_are_folded_from_its_records_alone() -> None:
    lowered = replace(CAPABILITIES, step_gate=StepGate.BEST_EFFORT)
    session, runs = replay_session(
        [
            *outside(CREATED, SessionStateChanged(SessionState.STARTING, None)),
            *numbered(1, stopping().hears(STOPPED_TURN, after=SECOND)),
            *outside(SessionStateChanged(SessionState.SUSPENDED, SessionState.RUNNING, "idle")),
            *numbered(2, running().hears(completed(1), after=5 * SECOND)),
            (2, AgentStarted("claude", "2.1.332", "model-1", "uuid-2", True)),
            (2, CapabilitiesChanged(lowered, "its gate did not hold")),
            *outside(SessionStateChanged(SessionState.RUNNING, SessionState.SUSPENDED)),
        ]
    )
    assert list(runs) == ["run_1", "run_2"]
    assert runs["run_1"].state is RunState.STOPPED
    assert runs["run_1"].step_count == 2
    assert runs["run_2"].state is RunState.RUNNING
    assert (session.run_ids, session.active_run_id, session.steps_before) == (["run_1", "run_2"], "run_2", 2)
    assert (session.agent_session_id, session.model, session.capabilities) == ("uuid-2", "model-1", lowered)
    assert (session.state, session.state_reason) == (SessionState.RUNNING, "")
    assert (session.created_at, session.last_active_at, session.labels) == (BEGIN, BEGIN + SECOND, {"team": "a"})


def test_records_of_a_live_run_and_of_one_that_waits_may_be_mixed() -> None:
    live, waiting = numbered(1, running().hears(completed(1)).hears(COMPLETED_TURN)), numbered(2, queued())
    session, runs = replay_session([*outside(CREATED), *live[:6], *waiting, *live[6:]])
    assert (runs["run_1"].state, runs["run_1"].step_count) == (RunState.COMPLETED, 1)
    assert (runs["run_2"].state, runs["run_2"].step_count) == (RunState.QUEUED, 0)
    assert (session.active_run_id, session.queued_run_ids, session.steps_before) == ("", ["run_2"], 1)


def test_a_run_waits_until_its_turn_comes_and_one_that_continues_another_is_next() -> None:
    waiting = [*outside(CREATED), *numbered(1, queued()), *numbered(2, queued()), *numbered(3, queued(), "run_0")]
    session, _ = replay_session(waiting)
    assert (session.queued_run_ids, session.active_run_id) == (["run_3", "run_1", "run_2"], "")
    session, _ = replay_session([*waiting, (3, RunTurnCame()), *outside(QueueHeld(True))])
    assert (session.queued_run_ids, session.active_run_id, session.queue_held) == (["run_1", "run_2"], "run_3", True)
    aborted = [(2, record) for record in records(queued().hears(ABORT_PLEASE).facts)[2:]]
    session, _ = replay_session([*waiting, (3, RunTurnCame()), *aborted])
    assert (session.queued_run_ids, session.active_run_id) == (["run_1"], "run_3")


def test_a_session_sums_up_what_its_runs_used_and_what_was_used_outside_of_them() -> None:
    used, price = Usage(10, output_tokens=1), Cost(5, CostBasis.REPORTED)
    end = replace(COMPLETED_TURN, usage=used, cost=price)
    never_prompted = numbered(2, begun().hears(ABORT_PLEASE))
    not_told = numbered(4, running().hears(COMPLETED_TURN))
    before = [*outside(CREATED), *numbered(1, running().hears(end)), *never_prompted]
    session, _ = replay_session(before)
    assert (session.usage_before, session.cost_before) == (used, price)
    session, _ = replay_session([*before, *outside(UsageCounted(used, price)), *numbered(3, running().hears(end))])
    assert session.usage_before == Usage(30, output_tokens=3)
    assert session.cost_before == Cost(15, CostBasis.REPORTED)
    session, _ = replay_session([*before, *not_told])
    assert session.usage_before == replace(used, complete=False)
    assert session.cost_before == replace(price, complete=False)
    session, _ = replay_session([*outside(CREATED), *not_told])
    assert (session.usage_before, session.cost_before) == (None, None)
    session, _ = replay_session(outside(CREATED))
    assert (session.usage_before, session.cost_before) == (NO_USAGE, NO_COST)


def test_what_was_updated_and_granted_stays_with_the_session() -> None:
    rule = PermissionRule(action=PermissionAction.DENY, tool="Bash")
    grant = ToolGranted("Bash", "{}")
    session, _ = replay_session(
        outside(
            replace(CREATED, permission_rules=(rule,)),
            SessionUpdated(plan_mode=True, model="model-2"),
            grant,
            SessionUpdated(permission_mode=PermissionMode.READ_ONLY, labels={"team": "b"}),
            grant,
        )
    )
    assert (session.permission_mode, session.plan_mode) == (PermissionMode.READ_ONLY, True)
    assert (session.model, session.labels) == ("model-2", {"team": "b"})
    assert (session.permission_rules, session.grants) == ((rule,), [grant])


def test_a_session_without_a_live_run_has_no_active_one() -> None:
    session, _ = replay_session([*outside(CREATED), *numbered(1, running().hears(COMPLETED_TURN))])
    assert session.active_run_id == ""


def test_an_agent_that_does_not_say_its_id_and_model_leaves_them_as_they_were() -> None:
    session, _ = replay_session(outside(CREATED, AgentStarted("claude", "2.1.332", "", "", False)))
    assert (session.agent_session_id, session.model) == ("uuid", "")


def test_records_that_do_not_begin_with_the_session_are_refused() -> None:
    with pytest.raises(ValueError, match="a session's records begin with session_created"):
        replay_session([])
    with pytest.raises(ValueError, match="a session's records begin with session_created"):
        replay_session(outside(SessionStateChanged(SessionState.IDLE, None)))


def test_a_record_of_a_run_before_it_was_created_is_refused() -> None:
    with pytest.raises(ValueError, match="TurnStarted of run 1 before its run_created"):
        replay_session([*outside(CREATED), (1, TurnStarted(False))])


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
        PermissionResolved("perm", None, ResolutionSource.POLICY, ""),
        SessionStateChanged(SessionState.RUNNING, SessionState.IDLE),
        AgentStarted("claude", "2.1.332", "model-1", "uuid", False),
        CapabilitiesChanged(CAPABILITIES, ""),
    ):
        fold_run(play.run.view, record)
    assert msgspec.msgpack.encode(play.run.view) == before
