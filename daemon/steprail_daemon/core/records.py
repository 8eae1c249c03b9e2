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
    Permission,
    PermissionAlternative,
    PermissionAnswer,
    PermissionMode,
    PermissionRule,
    Question,
    QuestionItemAnswer,
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
    permission_rules: tuple[PermissionRule, ...] = ()
    allowed_tools: tuple[str, ...] = ()
    disallowed_tools: tuple[str, ...] = ()
    instructions: str = ""
    #: The agent's own conversation was given by the caller and must be taken up.
    resumes: bool = False
    request_id: str = ""


class SessionUpdated(msgspec.Struct, frozen=True, kw_only=True, tag="session_updated"):
    """Modes, model or labels were changed; None: as before. Not a public event."""

    permission_mode: PermissionMode | None = None
    plan_mode: bool | None = None
    model: str | None = None
    labels: dict[str, str] | None = None


class QueueHeld(msgspec.Struct, frozen=True, tag="queue_held"):
    """Whether the session's queue waits for somebody's word. Not a public event."""

    held: bool


class ToolGranted(msgspec.Struct, frozen=True, tag="tool_granted"):
    """Until the session ends, calls of this tool with these arguments need no leave. Not a public event."""

    tool: str
    arguments_json: str


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


class RunTurnCame(msgspec.Struct, frozen=True, tag="run_turn"):
    """The run left the queue: it is the session's live one. Not a public event."""


class PromptGiven(msgspec.Struct, frozen=True, tag="prompt_given"):
    """The prompt is about to be written to the agent; from here on it is never given again. Not a public event."""

    prompt_id: str


class AbortAsked(msgspec.Struct, frozen=True, tag="abort_asked"):
    """Who cut the run off, and why. Not a public event."""

    identity: str
    reason: str


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


class StepEnded(msgspec.Struct, frozen=True, tag="step_whole"):
    """A step is complete. Recorded as its `StepSummary`, and whole where its wire form, made of it, follows later."""

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


class PermissionRequested(msgspec.Struct, frozen=True, tag="permission_requested"):
    """Somebody is asked for leave."""

    permission: Permission


class PermissionResolved(msgspec.Struct, frozen=True, tag="permission_resolved"):
    """Leave was given or denied. `answer` None: the agent closed it by itself.

    One that policy settled at once has no `PermissionRequested` before it, and `tool` tells what it was about.
    """

    permission_id: str
    answer: PermissionAnswer | None
    source: ResolutionSource
    reason: str
    identity: str = ""
    alternative: PermissionAlternative | None = None
    tool: str = ""


class QuestionRequested(msgspec.Struct, frozen=True, tag="question_requested"):
    """Somebody is asked something."""

    question: Question


class QuestionResolved(msgspec.Struct, frozen=True, tag="question_resolved"):
    """A question is closed. `answers` leave out secret ones, None: declined."""

    question_id: str
    answers: tuple[QuestionItemAnswer, ...] | None
    source: ResolutionSource
    identity: str = ""


class SteerAccepted(msgspec.Struct, frozen=True, tag="steer_accepted"):
    """A text for the running turn was taken."""

    steer_id: str
    text: str
    identity: str


class SteerDelivered(msgspec.Struct, frozen=True, tag="steer_delivered"):
    """The agent went on with the text."""

    steer_id: str


class SteerDropped(msgspec.Struct, frozen=True, tag="steer_dropped"):
    """The text was not given to the agent and will not be."""

    steer_id: str
    reason: str


class UsageCounted(msgspec.Struct, frozen=True, tag="usage"):
    """What the whole run used, as the agent gave it at the end of its turn; outside of runs, what was used there.

    Not a public event of its own.
    """

    usage: Usage | None
    cost: Cost | None


class UsageBeside(msgspec.Struct, frozen=True, tag="usage_beside"):
    """What was used beside the main loop's messages. Not a public event of its own; `usage` is."""

    usage: Usage | None
    cost: Cost | None
    side_request: bool


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
    | SessionUpdated
    | QueueHeld
    | ToolGranted
    | CapabilitiesChanged
    | RunCreated
    | RunTurnCame
    | PromptGiven
    | AbortAsked
    | RunStateChanged
    | StopAsked
    | AgentStarted
    | TurnStarted
    | TurnFinished
    | StepSummary
    | StepEnded
    | DecisionAsked
    | DecisionRecorded
    | PermissionRequested
    | PermissionResolved
    | QuestionRequested
    | QuestionResolved
    | SteerAccepted
    | SteerDelivered
    | SteerDropped
    | UsageCounted
    | UsageBeside
    | RunEnded
)

#: What the machine emits.
Fact = (
    SessionStateChanged
    | SessionUpdated
    | QueueHeld
    | ToolGranted
    | CapabilitiesChanged
    | RunCreated
    | RunTurnCame
    | PromptGiven
    | AbortAsked
    | RunStateChanged
    | StopAsked
    | AgentStarted
    | TurnStarted
    | TurnFinished
    | StepEnded
    | DecisionAsked
    | DecisionRecorded
    | PermissionRequested
    | PermissionResolved
    | QuestionRequested
    | QuestionResolved
    | SteerAccepted
    | SteerDelivered
    | SteerDropped
    | UsageCounted
    | UsageBeside
    | RunEnded
)
