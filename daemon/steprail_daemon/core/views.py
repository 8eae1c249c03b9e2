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
    PermissionMode,
    RunSpec,
    RunState,
    SessionState,
    StopReason,
    StopRequest,
    Usage,
    Verdict,
)
from steprail_daemon.core.records import StepSummary


class RunView(msgspec.Struct, kw_only=True):
    """A run as it stands. The four spans partition the time from `created_at` to `state_since`.

    The time in the present state, from `state_since` on, is not in them yet; `core.replay.spans_at` adds it.
    `decisions` are by step id, with `delivered` as far as the agent confirmed it by now; a step may have none (yet).
    """

    run_id: str
    session_id: str
    spec: RunSpec
    created_at: int
    state: RunState = RunState.QUEUED
    state_since: int
    started_at: int | None = None
    ended_at: int | None = None
    steps: list[StepSummary] = []
    decisions: dict[str, Decision] = {}
    text: str = ""
    #: Whether the agent ended a turn of this run by itself or by our word.
    turn_ended: bool = False
    stop_requested: StopRequest | None = None
    stop_reason: StopReason | None = None
    final_verdicts: tuple[Verdict, ...] = ()
    failure: Failure | None = None
    pending_decision: PendingDecision | None = None
    usage: Usage | None = None
    cost: Cost | None = None
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
        return self.pending_decision is not None


class SessionView(msgspec.Struct, kw_only=True):
    """A session as it stands."""

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
    active_run_id: str = ""
    run_ids: list[str] = []
    steps_before: int = 0
    epoch: str = ""
    last_seq: int = 0
