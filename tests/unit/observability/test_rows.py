"""What the facts of a session move, and what the line of a run's end says."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest
from tests.framework.metrics import BY_FACTS, samples

from steprail_daemon.core.events import MessageDelta, RateLimited
from steprail_daemon.core.model import (
    SECOND,
    Capabilities,
    Cost,
    CostBasis,
    CostSupport,
    Decision,
    DecisionAction,
    DecisionSource,
    Failure,
    FailureFault,
    FinishReason,
    Permission,
    PermissionAnswer,
    PermissionMode,
    RateLimitKind,
    ResolutionSource,
    RunLimits,
    RunSpec,
    RunState,
    SessionState,
    Step,
    StepBoundary,
    StepGate,
    StopKind,
    StopReason,
    ToolCall,
    ToolKind,
    ToolOutcome,
    ToolResult,
    TurnEndReason,
    Usage,
    UsageSupport,
    Verdict,
    VerdictOutcome,
)
from steprail_daemon.core.records import (
    AgentStarted,
    DecisionRecorded,
    PermissionRequested,
    PermissionResolved,
    RunCreated,
    RunEnded,
    RunStateChanged,
    SessionStateChanged,
    StepEnded,
    TurnFinished,
    TurnStarted,
)
from steprail_daemon.core.views import RunView, SessionView
from steprail_daemon.observability.registry import Registry
from steprail_daemon.observability.rows import SHOWN
from steprail_daemon.observability.sink import LONGEST_QUEUE, Sink

START = 1_000 * SECOND
PROMPT = "the secret prompt"
TEXT = "the secret answer"
CAPABILITIES = Capabilities(step_gate=StepGate.EXACT, usage=UsageSupport.PER_STEP, cost=CostSupport.REPORTED)
LIMITS = RunLimits(100, 3600 * SECOND, 30 * SECOND, 10 * SECOND)
USAGE = Usage(100, 60, 10, 20, 5)
COST = Cost(500_000, CostBasis.REPORTED)

KINDS = {10: "message_delta", 36: "rate_limited"}
NUMBERS: Mapping[type, int] = {MessageDelta: 10, RateLimited: 36}


class Batch(msgspec.Struct):
    """What the sink reads of a batch."""

    run_no: int
    at: int
    kinds: bytes


class Stand:
    """A sink before a registry, and a session whose facts it hears. Time is moved by hand."""

    def __init__(self, *, content: bool = False, label_keys: tuple[str, ...] = ()) -> None:
        self.complaints: list[Exception] = []
        self.observed: Counter[str] = Counter()
        self.registry = Registry(
            agents=["claude"], tools=["Bash"], label_keys=label_keys, complain=self.complaints.append
        )
        self.seconds = 0.0
        self.sink = Sink(
            self.observe,
            kinds=KINDS,
            numbers=NUMBERS,
            label_keys=self.registry.label_keys,
            content=content,
            monotonic=lambda: self.seconds,
        )
        self.at = START
        self.session = session("ses_1", team="payments")

    def observe(self, name: str, value: float, labels: Mapping[str, str]) -> None:
        self.observed[name] += 1
        self.registry.observe(name, value, labels)

    def hear(self, *facts: Any, run_no: int = 1, kinds: bytes = b"", events: Sequence[Any] = ()) -> None:
        self.sink.committed(self.session, Batch(run_no, self.at, kinds), facts, events)

    def value(self, name: str, **labels: str) -> float | None:
        self.sink.drain()
        assert self.complaints == []
        return samples(self.registry.collect()).get((f"steprail_{name}", frozenset(labels.items())))

    # Openings

    def begin(self) -> None:
        """A run is accepted and, two seconds later, taken up."""
        spec = RunSpec(PROMPT, (), None, LIMITS)
        self.hear(RunCreated("run_1", "ses_1", spec, self.at), RunStateChanged(RunState.QUEUED, None, self.at))
        self.at += 2 * SECOND
        self.hear(
            AgentStarted("claude", "2.1.332", "model-1", "s", False),
            TurnStarted(False),
            RunStateChanged(RunState.RUNNING, RunState.QUEUED, self.at),
        )

    def end(self, state: RunState = RunState.COMPLETED, **fields: Any) -> None:
        """The run ends."""
        given: dict[str, Any] = {"usage": USAGE, "cost": COST, "step_count": 1, **fields}
        reason, failure = given.pop("stop_reason", None), given.pop("failure", None)
        self.hear(
            TurnFinished(TurnEndReason.COMPLETED, "end_turn", TEXT),
            RunStateChanged(state, RunState.RUNNING, self.at, reason, failure),
            RunEnded(state, reason, failure, **given),
        )


def session(session_id: str, state: SessionState = SessionState.STARTING, **labels: str) -> SessionView:
    return SessionView(
        session_id=session_id,
        agent="claude",
        cwd="/work",
        agent_session_id="s",
        permission_mode=PermissionMode.ASK,
        model="",
        labels=labels,
        tenant="default",
        owner="local",
        capabilities=CAPABILITIES,
        created_at=START,
        last_active_at=START,
        state=state,
    )


def step(
    *tools: tuple[str, ToolOutcome], usage: Usage | None = USAGE, cost: Cost | None = COST, matched: bool = False
) -> StepEnded:
    calls = tuple(ToolCall(f"c{n}", tool, ToolKind.OTHER, "", "{}") for n, (tool, _) in enumerate(tools))
    results = tuple(ToolResult(f"c{n}", outcome, "secret output") for n, (_, outcome) in enumerate(tools))
    outcome = VerdictOutcome.MATCHED if matched else VerdictOutcome.NOT_MATCHED
    return StepEnded(
        Step(
            number=1,
            step_id="run_1.000001",
            text=TEXT,
            thought="",
            tool_calls=calls,
            tool_results=results,
            finish_reason=FinishReason.TOOL_CALLS,
            finish_reason_raw="",
            usage=usage,
            cost=cost,
            model="model-2",
            duration_ns=3 * SECOND,
            ended_at=START,
            boundary=StepBoundary.OBSERVED,
        ),
        (Verdict("r", StopKind.STEP_COUNT, outcome, "1", "1", 1.0, ""),),
    )


def decided(action: DecisionAction, source: DecisionSource, waited_ns: int) -> DecisionRecorded:
    decision = Decision(action=action, source=source, waited_ns=waited_ns, decided_at=START)
    return DecisionRecorded("run_1.000001", decision)


def asked(stand: Stand, permission_id: str) -> PermissionRequested:
    return PermissionRequested(
        Permission(
            permission_id=permission_id,
            step_number=1,
            tool="Bash",
            tool_kind=ToolKind.EXECUTE,
            title="",
            arguments_json="{}",
            asked_at=stand.at,
            deadline_at=stand.at + 60 * SECOND,
        )
    )


def resolved(
    permission_id: str, answer: PermissionAnswer | None, source: ResolutionSource = ResolutionSource.CLIENT
) -> PermissionResolved:
    return PermissionResolved(permission_id, answer, source, "")


# --- sessions and runs ----------------------------------------------------------------------------------------------


def test_a_session_is_counted_under_its_present_state_until_it_is_closed() -> None:
    stand = Stand()
    stand.hear(SessionStateChanged(SessionState.STARTING, None), run_no=0)
    stand.hear(SessionStateChanged(SessionState.IDLE, SessionState.STARTING), run_no=0)
    assert stand.value("sessions", agent="claude", state="starting") == 0
    assert stand.value("sessions", agent="claude", state="idle") == 1
    stand.hear(SessionStateChanged(SessionState.CLOSED, SessionState.IDLE), run_no=0)
    assert stand.value("sessions", agent="claude", state="idle") == 0
    assert stand.value("sessions", agent="claude", state="closed") is None


def test_sessions_of_an_earlier_life_are_counted_once_whether_or_not_their_state_changed() -> None:
    stand = Stand()
    stand.session.state = SessionState.SUSPENDED
    stand.hear(SessionStateChanged(SessionState.SUSPENDED, SessionState.RUNNING), run_no=0)
    for one in (stand.session, session("ses_2", SessionState.SUSPENDED), session("ses_3", SessionState.CLOSED)):
        stand.sink.take_stock(one, {})
    assert stand.value("sessions", agent="claude", state="suspended") == 2


def test_a_broken_session_is_counted_until_it_is_deleted() -> None:
    stand = Stand()
    stand.session.state = SessionState.BROKEN
    stand.sink.take_stock(stand.session, {})
    assert stand.value("sessions", agent="claude", state="broken") == 1
    stand.sink.deleted(stand.session)
    assert stand.value("sessions", agent="claude", state="broken") == 0


def test_a_run_that_an_earlier_life_left_in_the_queue_is_counted_until_it_is_taken_up() -> None:
    stand = Stand()
    waiting, ended = [
        RunView(
            run_id=run_id,
            session_id="ses_1",
            spec=RunSpec(PROMPT, (), None, LIMITS),
            created_at=START,
            state=state,
            state_since=START,
        )
        for run_id, state in (("run_1", RunState.QUEUED), ("run_0", RunState.COMPLETED))
    ]
    stand.sink.take_stock(stand.session, {1: waiting, 9: ended})
    assert stand.value("runs_queued") == 1
    stand.at += 60 * SECOND
    stand.hear(RunStateChanged(RunState.RUNNING, RunState.QUEUED, stand.at))
    stand.end()
    assert stand.value("runs_queued") == 0
    assert stand.value("run_duration_seconds_sum", agent="claude", outcome="completed") == 60


def test_a_run_is_queued_from_its_acceptance_until_it_is_taken_up_and_then_lasts_until_its_end() -> None:
    stand = Stand()
    stand.hear(RunStateChanged(RunState.QUEUED, None, stand.at), run_no=9)
    assert stand.value("runs_queued") == 1
    stand.begin()
    assert stand.value("runs_queued") == 1
    stand.at += 5 * SECOND
    stand.end()
    assert stand.value("runs_total", agent="claude", outcome="completed", reason="") == 1
    assert stand.value("run_duration_seconds_sum", agent="claude", outcome="completed") == 7
    assert stand.value("steps_per_run_count") == 1


def test_a_run_that_ends_in_the_queue_leaves_it() -> None:
    stand = Stand()
    stand.hear(RunStateChanged(RunState.QUEUED, None, stand.at))
    stand.hear(
        RunStateChanged(RunState.ABORTED, RunState.QUEUED, stand.at),
        RunEnded(RunState.ABORTED, None, None, 0, None, None),
    )
    assert stand.value("runs_queued") == 0
    assert stand.value("usage_unknown_total", agent="claude") is None, "it used nothing"


def test_the_reason_of_an_end_is_that_of_the_failure_or_the_kind_of_the_stop() -> None:
    stand = Stand()
    stand.begin()
    stand.end(RunState.STOPPED, stop_reason=StopReason(kind=StopKind.STEP_COUNT, source=DecisionSource.RULE))
    stand.begin()
    failure = Failure(reason="AGENT_EXITED", message="", fault=FailureFault.AGENT)
    stand.end(RunState.FAILED, failure=failure)
    assert stand.value("runs_total", agent="claude", outcome="stopped", reason="STEP_COUNT") == 1
    assert stand.value("runs_total", agent="claude", outcome="failed", reason="AGENT_EXITED") == 1


def test_of_a_run_that_began_in_an_earlier_life_only_the_end_is_counted() -> None:
    stand = Stand()
    failure = Failure(reason="DAEMON_RESTARTED", message="", fault=FailureFault.DAEMON)
    stand.hear(
        RunStateChanged(RunState.FAILED, RunState.QUEUED, stand.at, None, failure),
        RunEnded(RunState.FAILED, None, failure, 3, USAGE, COST),
    )
    assert stand.value("runs_total", agent="claude", outcome="failed", reason="DAEMON_RESTARTED") == 1
    assert stand.value("runs_queued") == 0
    assert stand.value("run_duration_seconds_count", agent="claude", outcome="failed") is None
    assert stand.value("tokens_total", agent="claude", model="unknown", type="input") is None


def test_nothing_is_kept_of_runs_that_have_ended() -> None:
    stand = Stand()
    for _ in range(3):
        stand.begin()
        stand.end()
    stand.sink.drain()
    assert stand.sink._runs == {}


# --- steps ----------------------------------------------------------------------------------------------------------


def test_a_step_counts_its_tools_by_name_and_outcome_and_the_rules_that_matched() -> None:
    stand = Stand()
    stand.begin()
    stand.hear(step(("Bash", ToolOutcome.SUCCEEDED), ("Odd", ToolOutcome.DENIED)))
    stand.hear(step(("Bash", ToolOutcome.SUCCEEDED), matched=True))
    assert stand.value("steps_total", agent="claude") == 2
    assert stand.value("step_duration_seconds_sum", agent="claude") == 6
    assert stand.value("tool_calls_total", agent="claude", tool="Bash", outcome="succeeded") == 2
    assert stand.value("tool_calls_total", agent="claude", tool="other", outcome="denied") == 1
    assert stand.value("stop_rule_fired_total", kind="step_count") == 1


def test_tokens_are_counted_by_step_and_at_the_end_only_what_no_step_had() -> None:
    stand = Stand()
    stand.begin()
    stand.hear(step())
    assert stand.value("tokens_total", agent="claude", model="model-2", type="input") == 100
    stand.hear(step(usage=None, cost=None))
    stand.end(usage=Usage(250, 60, None, 45, 5), cost=Cost(800_000, CostBasis.REPORTED))
    assert stand.value("tokens_total", agent="claude", model="model-2", type="input") == 250
    assert stand.value("tokens_total", agent="claude", model="model-2", type="cached_input") == 60
    assert stand.value("tokens_total", agent="claude", model="model-2", type="cache_write") == 10
    assert stand.value("tokens_total", agent="claude", model="model-2", type="output") == 45
    assert stand.value("tokens_total", agent="claude", model="model-2", type="reasoning") == 5
    assert stand.value("cost_usd_total", agent="claude", model="model-2", basis="reported") == pytest.approx(0.8)
    assert stand.value("usage_unknown_total", agent="claude") is None


@pytest.mark.parametrize("usage", [None, Usage(), Usage(100, output_tokens=3, complete=False)])
def test_a_run_whose_tokens_are_not_all_known_is_counted_and_never_as_zero(usage: Usage | None) -> None:
    stand = Stand()
    stand.begin()
    stand.end(usage=usage)
    assert stand.value("usage_unknown_total", agent="claude") == 1


def test_decisions_are_counted_by_action_and_source_with_how_long_they_took() -> None:
    stand = Stand()
    stand.begin()
    stand.hear(decided(DecisionAction.CONTINUE, DecisionSource.AUTO, 0))
    stand.hear(decided(DecisionAction.STOP, DecisionSource.CLIENT, 4 * SECOND))
    assert stand.value("step_decisions_total", action="continue", source="auto") == 1
    assert stand.value("step_decisions_total", action="stop", source="client") == 1
    assert stand.value("step_decision_wait_seconds_sum", source="client") == 4


# --- permissions and limits -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "source", "outcome"),
    [
        (PermissionAnswer.ALLOW_ONCE, ResolutionSource.CLIENT, "allowed"),
        (PermissionAnswer.ALLOW_SESSION, ResolutionSource.CLIENT, "allowed"),
        (PermissionAnswer.DENY, ResolutionSource.CLIENT, "denied"),
        (PermissionAnswer.DENY, ResolutionSource.TIMEOUT, "timed_out"),
        (None, ResolutionSource.AGENT, "withdrawn"),
    ],
)
def test_a_permission_is_pending_until_it_is_resolved(
    answer: PermissionAnswer | None, source: ResolutionSource, outcome: str
) -> None:
    stand = Stand()
    stand.begin()
    stand.hear(asked(stand, "p1"))
    assert stand.value("permissions_pending") == 1
    stand.at += 8 * SECOND
    stand.hear(resolved("p1", answer, source))
    assert stand.value("permissions_pending") == 0
    assert stand.value("permission_wait_seconds_sum", outcome=outcome) == 8


def test_what_policy_settles_at_once_was_never_pending() -> None:
    stand = Stand()
    stand.begin()
    stand.hear(resolved("p1", PermissionAnswer.DENY, ResolutionSource.POLICY))
    assert stand.value("permissions_pending") == 0
    assert stand.value("permission_wait_seconds_count", outcome="denied") is None


def test_permissions_that_are_open_at_the_end_of_a_run_are_pending_no_more() -> None:
    stand = Stand()
    stand.begin()
    stand.hear(asked(stand, "p1"), asked(stand, "p2"))
    stand.end(RunState.ABORTED)
    assert stand.value("permissions_pending") == 0


def test_a_rate_limit_is_counted_although_it_changes_no_state() -> None:
    stand = Stand()
    stand.begin()
    delta, limit = MessageDelta("m", "text"), RateLimited(RateLimitKind.QUOTA, "anthropic")
    stand.hear(kinds=bytes([10, 36]), events=[delta, limit])
    stand.hear(kinds=bytes([36]), events=[RateLimited(RateLimitKind.TRANSIENT)])
    assert stand.value("rate_limited_total", provider="anthropic", kind="quota") == 1
    assert stand.value("rate_limited_total", provider="unknown", kind="transient") == 1


# --- the sink itself ------------------------------------------------------------------------------------------------


def test_events_are_counted_by_kind_and_their_contents_are_not_kept() -> None:
    stand = Stand()
    stand.hear(kinds=bytes([10] * 5), events=[MessageDelta("m", "text")] * 5)
    stand.hear(kinds=bytes([10, 77]), events=[MessageDelta("m", "text")])
    assert not stand.sink._queue
    assert stand.value("event_batches_total") == 2
    assert stand.value("events_total", kind="message_delta") == 6
    assert stand.value("events_total", kind="77") == 1


def test_what_is_heard_is_only_noted_until_it_is_drained_or_too_much() -> None:
    stand = Stand()
    for _ in range(LONGEST_QUEUE):
        stand.hear(kinds=bytes([10]))
    assert stand.observed["events_total"] == 0
    stand.hear(kinds=bytes([10]))
    assert stand.observed["events_total"] == 1


def test_a_fact_that_cannot_be_counted_is_logged_and_the_next_one_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    stand = Stand()
    stand.hear(DecisionRecorded("s", None), step())  # type: ignore[arg-type]  # a bug elsewhere
    assert stand.value("steps_total", agent="claude") == 1
    assert [record.message for record in caplog.records] == ["a fact could not be counted"]


def test_a_refusal_of_the_journal_holds_for_a_while() -> None:
    stand = Stand()
    assert stand.sink.refusal(5) == ""
    stand.sink.journal_refused("disk full")
    assert stand.sink.refusal(5) == "disk full"
    stand.seconds = 5.0
    assert stand.sink.refusal(5) == ""
    assert stand.value("journal_refusals_total") == 1


def test_session_labels_that_are_configured_are_labels_of_the_metrics_of_runs() -> None:
    stand = Stand(label_keys=("team", "absent"))
    stand.begin()
    stand.hear(step(("Bash", ToolOutcome.SUCCEEDED)))
    stand.end()
    labels = {"agent": "claude", "label_team": "payments", "label_absent": ""}
    assert stand.value("steps_total", **labels) == 1
    assert stand.value("runs_total", outcome="completed", reason="", **labels) == 1
    assert stand.value("tokens_total", model="model-2", type="input", **labels) == 100


# --- the line of a run's end ----------------------------------------------------------------------------------------


def line(caplog: pytest.LogCaptureFixture, stand: Stand) -> dict[str, Any]:
    with caplog.at_level(logging.INFO, "steprail.runs"):
        stand.sink.drain()
    (record,) = [record for record in caplog.records if record.message == "run ended"]
    return vars(record)


def test_a_run_ends_with_one_line_that_has_no_content(caplog: pytest.LogCaptureFixture) -> None:
    stand = Stand()
    stand.begin()
    stand.hear(step(("Bash", ToolOutcome.SUCCEEDED)), decided(DecisionAction.CONTINUE, DecisionSource.CLIENT, SECOND))
    stand.at += 3 * SECOND
    stand.end()
    found = line(caplog, stand)
    expected = {
        "session_id": "ses_1",
        "run_id": "run_1",
        "agent": "claude",
        "outcome": "completed",
        "reason": "",
        "steps": 1,
        "seconds": 5.0,
        "queued_seconds": 2.0,
        "waited_seconds": 1.0,
        "input_tokens": 100,
        "output_tokens": 20,
        "micro_usd": 500_000,
    }
    assert {key: found[key] for key in expected} == expected
    assert "secret" not in repr(found)
    assert not {"prompt", "text", "failure"} & set(found)


def test_with_content_the_line_has_prompt_text_and_failure_cut_to_size(caplog: pytest.LogCaptureFixture) -> None:
    stand = Stand(content=True)
    stand.begin()
    failure = Failure(reason="AGENT_EXITED", message="x" * 10 * SHOWN, fault=FailureFault.AGENT)
    stand.end(RunState.FAILED, failure=failure)
    found = line(caplog, stand)
    assert (found["prompt"], found["text"], found["failure"]) == (PROMPT, TEXT, "x" * SHOWN)


def test_what_is_not_known_is_null_in_the_line(caplog: pytest.LogCaptureFixture) -> None:
    stand = Stand()
    stand.hear(RunEnded(RunState.FAILED, None, None, 0, None, None))
    found = line(caplog, stand)
    unknown = ("seconds", "queued_seconds", "waited_seconds", "input_tokens", "output_tokens", "micro_usd")
    assert [found[key] for key in unknown] == [None] * 6


# --- completeness ---------------------------------------------------------------------------------------------------


def test_one_run_moves_every_metric_that_facts_move() -> None:
    stand = Stand()
    stand.hear(SessionStateChanged(SessionState.STARTING, None), run_no=0)
    stand.begin()
    stand.hear(
        step(("Bash", ToolOutcome.SUCCEEDED), matched=True),
        decided(DecisionAction.STOP, DecisionSource.RULE, 0),
        asked(stand, "p1"),
        resolved("p1", PermissionAnswer.DENY),
        kinds=bytes([36]),
        events=[RateLimited(RateLimitKind.TRANSIENT, "anthropic")],
    )
    stand.end(usage=None)
    stand.sink.drain()
    assert BY_FACTS - set(stand.observed) == set()
    assert stand.registry.collect()
    assert stand.complaints == []
