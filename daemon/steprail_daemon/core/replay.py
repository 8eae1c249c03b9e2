"""The fold of records to how runs and sessions stand; the only place where a view changes.

A live run folds the facts that it emits, a restart folds the records that were kept of them, and both get the same
views. Facts and records differ in one class: a step is emitted as `StepEnded` and kept as its `StepSummary`, or as a
whole in `StepKept`.

**Time.** From its creation to its end a run is at any moment in exactly one of four spans: queued until the agent took
the prompt, then active, waiting for a decision, or waiting for a permission. `RunView.state_since` is the moment up to
which they are counted, so that queued + active + awaiting_decision + awaiting_permission = state_since - created_at
holds after every record. A clock that ran backwards (between two lives of the daemon) is taken as having stood still.

**Delivery.** A decision is recorded before it is written to the agent, so the record itself never says `delivered`.
What the agent does next does: another step, or the end of the turn as a completion, confirms a CONTINUE; the end of the
turn as a stop confirms a STOP.

**What is not folded.** `SessionView.epoch` and `last_seq` belong to the journal, whoever reads it sets them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from msgspec.structs import replace

from steprail_daemon.core.model import (
    TERMINAL_STATES,
    DecisionAction,
    PendingDecision,
    RunState,
    Step,
    TurnEndReason,
)
from steprail_daemon.core.records import (
    AgentStarted,
    CapabilitiesChanged,
    DecisionAsked,
    DecisionRecorded,
    Fact,
    Record,
    RunCreated,
    RunEnded,
    RunStateChanged,
    SessionCreated,
    SessionStateChanged,
    StepEnded,
    StepKept,
    StepSummary,
    StopAsked,
    TurnFinished,
    TurnStarted,
    UsageCounted,
)
from steprail_daemon.core.usage import add_cost, add_usage
from steprail_daemon.core.views import RunView, SessionView

# A member of an enumeration costs a function call to look up; these are on the way to every decision.
_AWAITING_DECISION = RunState.AWAITING_DECISION
_AWAITING_PERMISSION = RunState.AWAITING_PERMISSION
_CONTINUE = DecisionAction.CONTINUE


class Spans(msgspec.Struct, frozen=True):
    """The four spans of a run, in nanoseconds."""

    queued_ns: int
    active_ns: int
    awaiting_decision_ns: int
    awaiting_permission_ns: int

    @property
    def total_ns(self) -> int:
        """All of them: the run's wall time."""
        return self.queued_ns + self.active_ns + self.awaiting_decision_ns + self.awaiting_permission_ns


# --- runs ---------------------------------------------------------------------------------------------------------


def open_run(record: RunCreated) -> RunView:
    """Give the view of a run that was just created."""
    return RunView(
        run_id=record.run_id,
        session_id=record.session_id,
        spec=record.spec,
        created_at=record.created_at,
        state_since=record.created_at,
    )


def fold_run(view: RunView, record: Record | Fact) -> None:
    """Change `view` by what was recorded of its run. What says nothing of a run is ignored."""
    fold = _RUN_FOLDS.get(type(record))
    if fold is not None:
        fold(view, record)


def summarise(step: Step) -> StepSummary:
    """Give what is recorded of a step."""
    calls = step.tool_calls
    # Nearly every step has one call; a list of them would be one more frame on the way to every decision.
    tools = (calls[0].tool,) if len(calls) == 1 else tuple([call.tool for call in calls])
    return StepSummary(step.number, step.step_id, tools, step.usage, step.cost, step.ended_at)


def spans_at(view: RunView, now: int) -> Spans:
    """Give the four spans up to `now`, or up to the run's end."""
    spans = Spans(view.queued_ns, view.active_ns, view.awaiting_decision_ns, view.awaiting_permission_ns)
    more = now - view.state_since
    if view.ended_at is not None or more <= 0:
        return spans
    field = _span(view)
    return replace(spans, **{field: getattr(spans, field) + more})


def _span(view: RunView) -> str:
    """Name the span that time counts in as things stand."""
    if view.started_at is None:
        return "queued_ns"
    if view.state is _AWAITING_DECISION:
        return "awaiting_decision_ns"
    if view.state is _AWAITING_PERMISSION:
        return "awaiting_permission_ns"
    return "active_ns"


def _count_until(view: RunView, at: int) -> None:
    if at > view.state_since:
        field = _span(view)
        setattr(view, field, getattr(view, field) + at - view.state_since)
        view.state_since = at


def fold_state(view: RunView, record: RunStateChanged) -> None:
    """Change the state."""
    if record.at > view.state_since:
        _count_until(view, record.at)
    view.state = state = record.state
    if state is not _AWAITING_DECISION:
        view.pending_decision = None
    if record.stop_reason is not None:
        view.stop_reason = record.stop_reason
    if record.failure is not None:
        view.failure = record.failure
    if state in TERMINAL_STATES:
        view.ended_at = view.state_since


def _fold_turn_started(view: RunView, record: TurnStarted) -> None:
    if record.at is not None:
        _count_until(view, record.at)
    view.started_at = view.state_since


def _fold_turn_finished(view: RunView, record: TurnFinished) -> None:
    view.turn_ended = True
    if record.reason is TurnEndReason.COMPLETED:
        view.text = record.text
        _confirm(view, DecisionAction.CONTINUE)
    elif record.reason is TurnEndReason.STOP_CONDITION:
        _confirm(view, DecisionAction.STOP)


def fold_step_ended(view: RunView, record: StepEnded | StepKept) -> None:
    """Add a step."""
    _fold_step(view, summarise(record.step))


def _fold_step(view: RunView, record: StepSummary) -> None:
    steps = view.steps
    if steps:
        # `_confirm` written out, as this is on the way to every decision.
        step_id = steps[-1].step_id
        decision = view.decisions.get(step_id)
        if decision is not None and decision.action is _CONTINUE:
            view.decisions[step_id] = replace(decision, delivered=True)
        if view.usage is not None or record.usage is not None:
            view.usage = add_usage(view.usage, record.usage)
        if view.cost is not None or record.cost is not None:
            view.cost = add_cost(view.cost, record.cost)
    else:
        view.usage = record.usage
        view.cost = record.cost
    steps.append(record)


def _confirm(view: RunView, action: DecisionAction) -> None:
    """Note that the agent acted on the decision about its latest step, if that was `action`."""
    if not view.steps:
        return
    step_id = view.steps[-1].step_id
    decision = view.decisions.get(step_id)
    if decision is not None and decision.action is action:
        view.decisions[step_id] = replace(decision, delivered=True)


def fold_decision_asked(view: RunView, record: DecisionAsked) -> None:
    """Wait for a decision."""
    view.pending_decision = PendingDecision(
        record.step_id, record.step_number, record.asked_at, record.deadline_at, record.default
    )


def fold_decision(view: RunView, record: DecisionRecorded) -> None:
    """Keep a decision."""
    view.decisions[record.step_id] = record.decision
    view.pending_decision = None


def _fold_stop_asked(view: RunView, record: StopAsked) -> None:
    view.stop_requested = record.request


def _fold_usage(view: RunView, record: UsageCounted) -> None:
    if record.usage is not None:
        view.usage = record.usage
    if record.cost is not None:
        view.cost = record.cost


def _fold_end(view: RunView, record: RunEnded) -> None:
    view.usage = record.usage
    view.cost = record.cost
    view.final_verdicts = record.final_verdicts


_RUN_FOLDS: dict[type, Callable[[RunView, Any], None]] = {
    RunStateChanged: fold_state,
    TurnStarted: _fold_turn_started,
    TurnFinished: _fold_turn_finished,
    StepEnded: fold_step_ended,
    StepKept: fold_step_ended,
    StepSummary: _fold_step,
    DecisionAsked: fold_decision_asked,
    DecisionRecorded: fold_decision,
    StopAsked: _fold_stop_asked,
    UsageCounted: _fold_usage,
    RunEnded: _fold_end,
}

# --- sessions -----------------------------------------------------------------------------------------------------


def open_session(record: SessionCreated) -> SessionView:
    """Give the view of a session that was just created."""
    return SessionView(
        session_id=record.session_id,
        agent=record.agent,
        cwd=record.cwd,
        agent_session_id=record.agent_session_id,
        permission_mode=record.permission_mode,
        model=record.model,
        labels=record.labels,
        tenant=record.tenant,
        owner=record.owner,
        capabilities=record.capabilities,
        created_at=record.created_at,
        last_active_at=record.created_at,
    )


def fold_session(view: SessionView, record: Record | Fact) -> None:
    """Change `view` by what was recorded of its session or of one of its runs. What says nothing new is ignored.

    `active_run_id` is the run created last until it ended, `steps_before` the completed steps of ended runs.
    """
    fold = _SESSION_FOLDS.get(type(record))
    if fold is not None:
        fold(view, record)


def _fold_session_state(view: SessionView, record: SessionStateChanged) -> None:
    view.state = record.state
    view.state_reason = record.reason


def _fold_capabilities(view: SessionView, record: CapabilitiesChanged) -> None:
    view.capabilities = record.capabilities


def _fold_agent_started(view: SessionView, record: AgentStarted) -> None:
    view.agent_session_id = record.agent_session_id or view.agent_session_id
    view.model = record.model or view.model


def _fold_run_created(view: SessionView, record: RunCreated) -> None:
    view.run_ids.append(record.run_id)
    view.active_run_id = record.run_id
    view.last_active_at = max(view.last_active_at, record.created_at)


def _fold_run_state(view: SessionView, record: RunStateChanged) -> None:
    view.last_active_at = max(view.last_active_at, record.at)


def _fold_run_ended(view: SessionView, record: RunEnded) -> None:
    view.active_run_id = ""
    view.steps_before += record.step_count


_SESSION_FOLDS: dict[type, Callable[[SessionView, Any], None]] = {
    SessionStateChanged: _fold_session_state,
    CapabilitiesChanged: _fold_capabilities,
    AgentStarted: _fold_agent_started,
    RunCreated: _fold_run_created,
    RunStateChanged: _fold_run_state,
    RunEnded: _fold_run_ended,
}
#: Classes of facts of which `fold_session` makes something.
SESSION_FACTS: frozenset[type] = frozenset(_SESSION_FOLDS)


def replay_session(records: Iterable[Record]) -> tuple[SessionView, dict[str, RunView]]:
    """Fold a whole session: its records in the order in which they happened.

    A record of a run belongs to the run that was created last: a session has one live run at a time, and what is
    recorded outside of runs changes none. Gives the session and its runs by id, in the order of their creation.

    Raises:
        ValueError: the records do not begin with `SessionCreated`, or speak of a run before any `RunCreated`.
    """
    ordered = iter(records)
    first = next(ordered, None)
    if not isinstance(first, SessionCreated):
        raise ValueError("a session's records begin with session_created")
    session = open_session(first)
    runs: dict[str, RunView] = {}
    run: RunView | None = None
    for record in ordered:
        fold_session(session, record)
        if isinstance(record, RunCreated):
            run = runs[record.run_id] = open_run(record)
        elif run is not None:
            fold_run(run, record)
        elif type(record) in _RUN_FOLDS:
            raise ValueError(f"{type(record).__name__} before any run_created")
    return session, runs
