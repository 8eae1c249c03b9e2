"""What is recorded of a session and its runs: facts, each of them also a public event.

The state machine decides and emits facts; whoever wants to know how a run stands folds them (`core.replay`). The live
run folds the same facts in the same way, so that a restart sees what the clients saw. Facts are stored with msgspec's
MessagePack as a tagged union: fields may be added with defaults, never renamed or given another meaning.

Texts of steps are not stored twice: `StepEnded` is kept in its public wire form, the record holds what rules need.
Where a step is recorded before it has a wire form, so that the agent is not kept waiting for it, the record is the
whole step.
"""

from __future__ import annotations

import msgspec

from steprail_daemon.core.model import (
    Capabilities,
    Cost,
    Decision,
    Failure,
    OnTimeout,
    PermissionMode,
    ResolutionSource,
    RunSpec,
    RunState,
    SessionState,
    Step,
    StopReason,
    StopRequest,
    TurnEndReason,
    Usage,
    Verdict,
)


class SessionCreated(msgspec.Struct, frozen=True, kw_only=True, tag="session_created"):
    """A session was made. Not a public event of its own: `SessionStateChanged` follows."""

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


class SessionStateChanged(msgspec.Struct, frozen=True, tag="session_state"):
    """The session's state changed. `previous` is None in its first event."""

    state: SessionState
    previous: SessionState | None
    reason: str = ""


class CapabilitiesChanged(msgspec.Struct, frozen=True, tag="capabilities"):
    """The session can do more or less than before."""

    capabilities: Capabilities
    reason: str


class RunCreated(msgspec.Struct, frozen=True, tag="run_created"):
    """A run was accepted. Not a public event of its own: `RunStateChanged` to QUEUED follows."""

    run_id: str
    session_id: str
    spec: RunSpec
    created_at: int


class RunStateChanged(msgspec.Struct, frozen=True, tag="run_state"):
    """The run's state changed. `previous` is None in its first event."""

    state: RunState
    previous: RunState | None
    at: int
    stop_reason: StopReason | None = None
    failure: Failure | None = None


class StopAsked(msgspec.Struct, frozen=True, tag="stop_asked"):
    """The run was asked to stop at its next boundary. Not a public event; `Run.stop_requested` shows it."""

    request: StopRequest


class AgentStarted(msgspec.Struct, frozen=True, tag="agent_start"):
    """The agent took up the run."""

    agent: str
    version: str
    model: str
    agent_session_id: str
    resumed: bool


class TurnStarted(msgspec.Struct, frozen=True, tag="turn_start"):
    """The agent took a prompt, which is when the run starts. `at` None: with its latest change of state."""

    prompt_synthesized: bool
    at: int | None = None


class TurnFinished(msgspec.Struct, frozen=True, tag="turn_end"):
    """The agent is done with a prompt."""

    reason: TurnEndReason
    reason_raw: str
    text: str = ""


class StepSummary(msgspec.Struct, frozen=True, tag="step"):
    """What is recorded of a step: no texts, which the wire form has."""

    number: int
    step_id: str
    tools: tuple[str, ...]
    usage: Usage | None
    cost: Cost | None
    ended_at: int


class StepEnded(msgspec.Struct, frozen=True):
    """A step is complete. Recorded as its `StepSummary`, or whole as `StepKept`."""

    step: Step
    verdicts: tuple[Verdict, ...]


class StepKept(msgspec.Struct, frozen=True, tag="step_whole"):
    """A step as a whole: what `StepEnded` is recorded as before its wire form is committed, which is made of this."""

    step: Step
    verdicts: tuple[Verdict, ...]


class DecisionAsked(msgspec.Struct, frozen=True, tag="decision_requested"):
    """A client is asked about a step until `deadline_at`."""

    step_id: str
    step_number: int
    asked_at: int
    deadline_at: int
    default: OnTimeout


class DecisionRecorded(msgspec.Struct, frozen=True, tag="decision_recorded"):
    """It was decided. Exactly one per step that was not cut off by an abort."""

    step_id: str
    decision: Decision


class PermissionResolved(msgspec.Struct, frozen=True, tag="permission_resolved"):
    """Leave was given or denied."""

    permission_id: str
    allowed: bool
    source: ResolutionSource
    reason: str


class UsageCounted(msgspec.Struct, frozen=True, tag="usage"):
    """What the whole run used, as the agent gave it at the end of its turn. Not a public event of its own."""

    usage: Usage | None
    cost: Cost | None


class RunEnded(msgspec.Struct, frozen=True, tag="agent_end"):
    """The run is over. Exactly one per run, and its last event."""

    state: RunState
    stop_reason: StopReason | None
    failure: Failure | None
    step_count: int
    usage: Usage | None
    cost: Cost | None
    final_verdicts: tuple[Verdict, ...] = ()


#: What the store keeps, in the order in which it happened.
Record = (
    SessionCreated
    | SessionStateChanged
    | CapabilitiesChanged
    | RunCreated
    | RunStateChanged
    | StopAsked
    | AgentStarted
    | TurnStarted
    | TurnFinished
    | StepSummary
    | StepKept
    | DecisionAsked
    | DecisionRecorded
    | PermissionResolved
    | UsageCounted
    | RunEnded
)

#: What the machine emits.
Fact = (
    SessionStateChanged
    | CapabilitiesChanged
    | RunCreated
    | RunStateChanged
    | StopAsked
    | AgentStarted
    | TurnStarted
    | TurnFinished
    | StepEnded
    | DecisionAsked
    | DecisionRecorded
    | PermissionResolved
    | UsageCounted
    | RunEnded
)
