"""How runs and sessions stand, as folded from their records; what Get and List show.

Views are changed by `core.replay.fold_run` and `fold_session` only, with the same facts live and after a restart.
"""

from __future__ import annotations

import msgspec

from steprail_daemon.core.model import (
    Capabilities,
    Cost,
    Decision,
    Failure,
    PendingDecision,
    Permission,
    PermissionMode,
    PermissionRule,
    Question,
    RunSpec,
    RunState,
    SessionState,
    StopReason,
    StopRequest,
    Usage,
    Verdict,
)
from steprail_daemon.core.records import AbortAsked, SteerAccepted, StepSummary, ToolGranted
from steprail_daemon.core.usage import NO_COST, NO_USAGE


class RunView(msgspec.Struct, kw_only=True):
    """A run as it stands. The four spans partition the time from `created_at` to `state_since`.

    The time in the present state, from `state_since` on, is not in them yet; `core.replay.spans_at` adds it.
    `decisions` are by step id, with `delivered` as far as the agent confirmed it by now; a step may have none (yet).
    What waits for people is listed oldest first. `pending_steers` are the texts that were accepted and of which it is
    not settled yet whether the agent got them.
    """

    run_id: str
    session_id: str
    spec: RunSpec
    created_at: int
    state: RunState = RunState.QUEUED
    state_since: int
    started_at: int | None = None
    ended_at: int | None = None
    #: Whether the run left the queue.
    turn_came: bool = False
    #: The prompt that was, or is about to be, written to the agent; empty before.
    prompt_id: str = ""
    steps: list[StepSummary] = []
    decisions: dict[str, Decision] = {}
    text: str = ""
    #: Whether the agent ended a turn of this run by itself or by our word.
    turn_ended: bool = False
    stop_requested: StopRequest | None = None
    abort_asked: AbortAsked | None = None
    stop_reason: StopReason | None = None
    final_verdicts: tuple[Verdict, ...] = ()
    failure: Failure | None = None
    pending_decision: PendingDecision | None = None
    pending_permissions: list[Permission] = []
    pending_questions: list[Question] = []
    pending_steers: list[SteerAccepted] = []
    usage: Usage | None = None
    cost: Cost | None = None
    #: The parts of `usage` that sub-agents, and titles, summaries and the like used; None: nothing is known of any.
    subagent_usage: Usage | None = None
    side_usage: Usage | None = None
    #: Whether `usage` and `cost` are the agent's own figures of the whole turn, and not sums of steps.
    usage_counted: bool = False
    cost_counted: bool = False
    queued_ns: int = 0
    active_ns: int = 0
    awaiting_decision_ns: int = 0
    awaiting_permission_ns: int = 0

    @property
    def step_count(self) -> int:
        """Completed steps."""
        return len(self.steps)

    @property
    def ended(self) -> bool:
        """Whether the run is in a terminal state."""
        return self.ended_at is not None

    @property
    def stored(self) -> bool:
        """Whether the agent has provably kept something of this run: a step, or the end of a turn."""
        return bool(self.steps) or self.turn_ended

    @property
    def needs_attention(self) -> bool:
        """Whether the run waits for somebody."""
        return self.pending_decision is not None or self.asks

    @property
    def asks(self) -> bool:
        """Whether a permission or a question is open."""
        return bool(self.pending_permissions or self.pending_questions)


class SessionView(msgspec.Struct, kw_only=True):
    """A session as it stands.

    `active_run_id` is the run whose turn it is, `queued_run_ids` are those that wait for theirs, the next one first.
    `steps_before`, `usage_before` and `cost_before` are of the ended runs, the figures also of what was used outside of
    runs; None is unknown.
    """

    session_id: str
    agent: str
    cwd: str
    agent_session_id: str
    permission_mode: PermissionMode
    model: str
    labels: dict[str, str]
    tenant: str
    owner: str
    capabilities: Capabilities
    created_at: int
    last_active_at: int
    state: SessionState = SessionState.STARTING
    state_reason: str = ""
    plan_mode: bool = False
    permission_rules: tuple[PermissionRule, ...] = ()
    allowed_tools: tuple[str, ...] = ()
    disallowed_tools: tuple[str, ...] = ()
    instructions: str = ""
    #: Whether it took up a conversation that the agent had before.
    resumes: bool = False
    #: Calls that a person allowed for the rest of the session.
    grants: list[ToolGranted] = []
    active_run_id: str = ""
    queued_run_ids: list[str] = []
    #: Whether the queue waits for somebody's word, see `core.queue`.
    queue_held: bool = False
    run_ids: list[str] = []
    steps_before: int = 0
    usage_before: Usage | None = NO_USAGE
    cost_before: Cost | None = NO_COST
    #: Whether the live run's prompt was given to the agent, so that its figures count.
    prompt_given: bool = False
    epoch: str = ""
    last_seq: int = 0
