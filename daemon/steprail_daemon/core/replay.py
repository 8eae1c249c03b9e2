"""The fold of records to how runs and sessions stand; the only place where a view changes.

A live run folds the facts that it emits, a restart folds the records that were kept of them, and both get the same
views. Facts and records differ in one class: a step is emitted as `StepEnded`, and kept as that or as its
`StepSummary`.

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
    Usage,
)
from steprail_daemon.core.records import (
    AbortAsked,
    AgentStarted,
    CapabilitiesChanged,
    DecisionAsked,
    DecisionRecorded,
    Fact,
    PermissionRequested,
    PermissionResolved,
    PromptGiven,
    QuestionRequested,
    QuestionResolved,
    QueueHeld,
    Record,
    RunCreated,
    RunEnded,
    RunStateChanged,
    RunTurnCame,
    SessionCreated,
    SessionStateChanged,
    SessionUpdated,
    SteerAccepted,
    SteerDelivered,
    SteerDropped,
    StepEnded,
    StepSummary,
    StopAsked,
    ToolGranted,
    TurnFinished,
    TurnStarted,
    UsageBeside,
    UsageCounted,
)
from steprail_daemon.core.usage import add_cost, add_usage, further_cost, further_usage
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
        if state is RunState.COMPLETED:
            view.stop_reason = None  # it had been told to stop and was done first


def _fold_turn_came(view: RunView, _record: RunTurnCame) -> None:
    view.turn_came = True


def _fold_prompt_given(view: RunView, record: PromptGiven) -> None:
    view.prompt_id = record.prompt_id


def _fold_abort_asked(view: RunView, record: AbortAsked) -> None:
    view.abort_asked = record


def _fold_permission_requested(view: RunView, record: PermissionRequested) -> None:
    view.pending_permissions.append(record.permission)


def _fold_permission_resolved(view: RunView, record: PermissionResolved) -> None:
    left = [one for one in view.pending_permissions if one.permission_id != record.permission_id]
    view.pending_permissions = left


def _fold_question_requested(view: RunView, record: QuestionRequested) -> None:
    view.pending_questions.append(record.question)


def _fold_question_resolved(view: RunView, record: QuestionResolved) -> None:
    view.pending_questions = [one for one in view.pending_questions if one.question_id != record.question_id]


def _fold_steer_accepted(view: RunView, record: SteerAccepted) -> None:
    view.pending_steers.append(record)


def _fold_steer_settled(view: RunView, record: SteerDelivered | SteerDropped) -> None:
    view.pending_steers = [one for one in view.pending_steers if one.steer_id != record.steer_id]


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


def fold_step(view: RunView, record: StepSummary) -> None:
    """Add a step."""
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
        # A sub-agent of the first step may have used something before.
        view.usage = record.usage if view.usage is None else add_usage(view.usage, record.usage)
        view.cost = record.cost if view.cost is None else add_cost(view.cost, record.cost)
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
        # The agent counts its main loop.
        usage: Usage | None = record.usage
        for part in (view.subagent_usage, view.side_usage):
            usage = usage if part is None else add_usage(usage, part)
        view.usage, view.usage_counted = usage, True
    if record.cost is not None:
        view.cost, view.cost_counted = record.cost, True


def _fold_usage_beside(view: RunView, record: UsageBeside) -> None:
    if record.side_request:
        view.side_usage = _further(view.side_usage, record.usage)
    else:
        view.subagent_usage = _further(view.subagent_usage, record.usage)
    view.usage = _further(view.usage, record.usage)
    if record.cost is not None:
        view.cost = record.cost if view.cost is None else add_cost(view.cost, record.cost)


def _further(total: Usage | None, part: Usage | None) -> Usage | None:
    return part if total is None else add_usage(total, part)


def _fold_end(view: RunView, record: RunEnded) -> None:
    view.usage = record.usage
    view.cost = record.cost
    view.final_verdicts = record.final_verdicts


_RUN_FOLDS: dict[type, Callable[[RunView, Any], None]] = {
    RunTurnCame: _fold_turn_came,
    PromptGiven: _fold_prompt_given,
    AbortAsked: _fold_abort_asked,
    RunStateChanged: fold_state,
    TurnStarted: _fold_turn_started,
    TurnFinished: _fold_turn_finished,
    StepEnded: lambda view, record: fold_step(view, summarise(record.step)),
    StepSummary: fold_step,
    DecisionAsked: fold_decision_asked,
    DecisionRecorded: fold_decision,
    StopAsked: _fold_stop_asked,
    PermissionRequested: _fold_permission_requested,
    PermissionResolved: _fold_permission_resolved,
    QuestionRequested: _fold_question_requested,
    QuestionResolved: _fold_question_resolved,
    SteerAccepted: _fold_steer_accepted,
    SteerDelivered: _fold_steer_settled,
    SteerDropped: _fold_steer_settled,
    UsageCounted: _fold_usage,
    UsageBeside: _fold_usage_beside,
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
        permission_rules=record.permission_rules,
        allowed_tools=record.allowed_tools,
        disallowed_tools=record.disallowed_tools,
        instructions=record.instructions,
        resumes=record.resumes,
    )


def fold_session(view: SessionView, record: Record | Fact, run_id: str) -> None:
    """Change `view` by what was recorded of its session, or of its run `run_id` (empty: outside of runs).

    What says nothing of the session is ignored.
    """
    fold = _SESSION_FOLDS.get(type(record))
    if fold is not None:
        fold(view, record, run_id)


def _fold_session_state(view: SessionView, record: SessionStateChanged, _run_id: str) -> None:
    view.state = record.state
    view.state_reason = record.reason


def _fold_session_updated(view: SessionView, record: SessionUpdated, _run_id: str) -> None:
    if record.permission_mode is not None:
        view.permission_mode = record.permission_mode
    if record.plan_mode is not None:
        view.plan_mode = record.plan_mode
    if record.model is not None:
        view.model = record.model
    if record.labels is not None:
        view.labels = record.labels


def _fold_tool_granted(view: SessionView, record: ToolGranted, _run_id: str) -> None:
    if record not in view.grants:
        view.grants.append(record)


def _fold_queue_held(view: SessionView, record: QueueHeld, _run_id: str) -> None:
    view.queue_held = record.held


def _fold_capabilities(view: SessionView, record: CapabilitiesChanged, _run_id: str) -> None:
    view.capabilities = record.capabilities


def _fold_agent_started(view: SessionView, record: AgentStarted, _run_id: str) -> None:
    view.agent_session_id = record.agent_session_id or view.agent_session_id
    view.model = record.model or view.model


def _fold_run_created(view: SessionView, record: RunCreated, _run_id: str) -> None:
    view.run_ids.append(record.run_id)
    # A run that goes on after another is the next one: the queue was held for it.
    place = 0 if record.spec.continued_from else len(view.queued_run_ids)
    view.queued_run_ids.insert(place, record.run_id)
    view.last_active_at = max(view.last_active_at, record.created_at)


def _leave_queue(view: SessionView, run_id: str) -> None:
    if run_id in view.queued_run_ids:
        view.queued_run_ids.remove(run_id)


def _fold_active(view: SessionView, _record: RunTurnCame, run_id: str) -> None:
    _leave_queue(view, run_id)
    view.active_run_id = run_id


def _fold_run_state(view: SessionView, record: RunStateChanged, _run_id: str) -> None:
    view.last_active_at = max(view.last_active_at, record.at)


def _fold_active_prompt(view: SessionView, _record: PromptGiven, _run_id: str) -> None:
    view.prompt_given = True


def _fold_usage_outside(view: SessionView, record: UsageCounted, run_id: str) -> None:
    if not run_id:
        view.usage_before = further_usage(view.usage_before, record.usage)
        view.cost_before = further_cost(view.cost_before, record.cost)


def _fold_run_ended(view: SessionView, record: RunEnded, run_id: str) -> None:
    if view.active_run_id != run_id:
        _leave_queue(view, run_id)
        return
    view.active_run_id = ""
    view.steps_before += record.step_count
    if view.prompt_given:
        view.usage_before = further_usage(view.usage_before, record.usage)
        view.cost_before = further_cost(view.cost_before, record.cost)
    view.prompt_given = False


_SESSION_FOLDS: dict[type, Callable[[SessionView, Any, str], None]] = {
    SessionStateChanged: _fold_session_state,
    SessionUpdated: _fold_session_updated,
    ToolGranted: _fold_tool_granted,
    QueueHeld: _fold_queue_held,
    CapabilitiesChanged: _fold_capabilities,
    AgentStarted: _fold_agent_started,
    RunCreated: _fold_run_created,
    RunTurnCame: _fold_active,
    PromptGiven: _fold_active_prompt,
    RunStateChanged: _fold_run_state,
    UsageCounted: _fold_usage_outside,
    RunEnded: _fold_run_ended,
}
#: Classes of facts of which `fold_session` makes something.
SESSION_FACTS: frozenset[type] = frozenset(_SESSION_FOLDS)


def replay_session(records: Iterable[tuple[int, Record]]) -> tuple[SessionView, dict[str, RunView]]:
    """Fold a whole session: its records in the order in which they happened, each with the number of its run.

    The number is the one under which the store keeps the run, 0 for what is recorded outside of runs, so that records
    of runs that wait and of the one that is live may be mixed. Gives the session and its runs by id, in the order of
    their creation.

    Raises:
        ValueError: the records do not begin with `SessionCreated`, or speak of a run before its `RunCreated`.
    """
    ordered = iter(records)
    _, first = next(ordered, (0, None))
    if not isinstance(first, SessionCreated):
        raise ValueError("a session's records begin with session_created")
    session = open_session(first)
    runs: dict[int, RunView] = {}
    for run_no, record in ordered:
        if isinstance(record, RunCreated):
            runs[run_no] = open_run(record)
        elif run_no and run_no not in runs:
            raise ValueError(f"{type(record).__name__} of run {run_no} before its run_created")
        run = runs.get(run_no)
        fold_session(session, record, run.run_id if run is not None else "")
        if run is not None:
            fold_run(run, record)
    return session, {run.run_id: run for run in runs.values()}
