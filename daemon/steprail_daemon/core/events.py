"""Everything that can happen to a run or to its agent, in past participles.

Two families. What the **agent** said comes from a codec: passive events (a part of a message, a tool's result) change
no state and go past the state machine; the others are its inputs. What **else** happened (a client's word, a timer, an
exit) comes from the engine. Each input of the machine is handed over together with its time, see `core.run`.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

import msgspec

from steprail_daemon.core.model import (
    Capabilities,
    ContextWindowKind,
    Cost,
    DecisionAction,
    DecisionSource,
    Failure,
    FileChange,
    FinishReason,
    MessageKind,
    PermissionAlternative,
    PermissionAnswer,
    QuestionItem,
    QuestionItemAnswer,
    RateLimitKind,
    Step,
    ToolCall,
    ToolKind,
    ToolResult,
    TurnEndReason,
    Usage,
)
from steprail_daemon.core.policy import ASK_PEOPLE, Ruling
from steprail_daemon.core.usage import NO_COST, NO_USAGE

if TYPE_CHECKING:
    from steprail_daemon.core.stops.expressions import ExpressionResult

# --- the agent, passive -------------------------------------------------------------------------------------------


class MessageStarted(msgspec.Struct, frozen=True, gc=False):
    """A message began."""

    message_id: str
    kind: MessageKind
    subagent_id: str = ""
    parent_call_id: str = ""


class MessageDelta(msgspec.Struct, frozen=True, gc=False):
    """A part of a message."""

    message_id: str
    text: str
    subagent_id: str = ""
    parent_call_id: str = ""


class MessageEnded(msgspec.Struct, frozen=True, gc=False):
    """A message is whole."""

    message_id: str
    kind: MessageKind
    text: str
    finish_reason: FinishReason = FinishReason.UNKNOWN
    finish_reason_raw: str = ""
    model: str = ""
    subagent_id: str = ""
    parent_call_id: str = ""


class ToolStarted(msgspec.Struct, frozen=True, gc=False):
    """A tool call began."""

    call: ToolCall
    subagent_id: str = ""
    parent_call_id: str = ""


class ToolEnded(msgspec.Struct, frozen=True, gc=False):
    """A tool call ended. `duration_ns` is None if unknown."""

    result: ToolResult
    duration_ns: int | None = None
    subagent_id: str = ""
    parent_call_id: str = ""


class UsageReported(msgspec.Struct, frozen=True, gc=False):
    """Tokens and money used since the last such event. `side_request`: by a title, a summary or the like."""

    usage: Usage | None
    cost: Cost | None
    model: str = ""
    subagent_id: str = ""
    parent_call_id: str = ""
    side_request: bool = False


class ToolUpdated(msgspec.Struct, frozen=True, gc=False):
    """How far a tool call is, in words; an empty field says nothing new."""

    call_id: str
    title: str = ""
    progress: str = ""
    subagent_id: str = ""
    parent_call_id: str = ""


class OutputProduced(msgspec.Struct, frozen=True, gc=False):
    """A part of a tool's output, from `offset` (in bytes of UTF-8) on."""

    call_id: str
    offset: int
    text: str
    subagent_id: str = ""
    parent_call_id: str = ""


class FileModified(msgspec.Struct, frozen=True, gc=False):
    """A file changed, as the agent reports it. `path` as the agent gave it."""

    path: str
    change: FileChange
    call_id: str = ""
    subagent_id: str = ""
    parent_call_id: str = ""


class PlanProposed(msgspec.Struct, frozen=True, gc=False):
    """The agent shows a plan. `permission_id` is the agent's own of the permission that accepts it, if it waits."""

    text: str
    permission_id: str = ""


class RateLimited(msgspec.Struct, frozen=True, gc=False):
    """The provider refused a request. Notices that refuse nothing are not this. `http_status` 0 is unknown."""

    kind: RateLimitKind
    provider: str = ""
    model: str = ""
    http_status: int = 0
    retry_after_ns: int | None = None


class ContextWindowChanged(msgspec.Struct, frozen=True, gc=False):
    """The model's context was compacted or is nearly full. Tokens are None if unknown."""

    kind: ContextWindowKind
    used_tokens: int | None = None
    limit_tokens: int | None = None


class AgentErrorReported(msgspec.Struct, frozen=True, gc=False):
    """The agent reported an error; the run may go on."""

    code: str
    message: str
    will_retry: bool


class RawReceived(msgspec.Struct, frozen=True, gc=False):
    """Something the agent sent that has no other form here."""

    vendor_type: str
    payload_json: str


PassiveEvent = (
    MessageStarted
    | MessageDelta
    | MessageEnded
    | ToolStarted
    | ToolEnded
    | ToolUpdated
    | OutputProduced
    | UsageReported
    | FileModified
    | PlanProposed
    | RateLimited
    | ContextWindowChanged
    | AgentErrorReported
    | RawReceived
)

PASSIVE_EVENTS: frozenset[type] = frozenset(
    {
        MessageStarted,
        MessageDelta,
        MessageEnded,
        ToolStarted,
        ToolEnded,
        ToolUpdated,
        OutputProduced,
        UsageReported,
        FileModified,
        PlanProposed,
        RateLimited,
        ContextWindowChanged,
        AgentErrorReported,
        RawReceived,
    }
)

# --- the agent, active --------------------------------------------------------------------------------------------


class AgentReady(msgspec.Struct, frozen=True):
    """The agent's process answered its handshake and takes prompts. `gate_held`: it confirmed that its gate works."""

    version: str
    agent_session_id: str
    model: str
    gate_held: bool


class PromptConfirmed(msgspec.Struct, frozen=True):
    """The agent took the prompt `prompt_id` and works on it."""

    prompt_id: str
    agent_session_id: str = ""
    model: str = ""


class BoundaryReached(msgspec.Struct, frozen=True):
    """The agent waits at a step boundary. `boundary_id` is what the answer must name; it is the codec's own.

    `usage` and `cost` are of the step just completed, None where the agent does not say.
    `call_ids` are the calls of the step in the model's order, where the agent lists them.
    `held` False: the agent does not wait for an answer, it only told that the step is complete (an inexact gate).
    """

    boundary_id: str
    call_ids: tuple[str, ...] = ()
    usage: Usage | None = None
    cost: Cost | None = None
    held: bool = True


class UsageSpent(msgspec.Struct, frozen=True):
    """Something beside the main loop's messages was used: by a sub-agent or, if `side_request`, a title or the like."""

    usage: Usage | None
    cost: Cost | None
    side_request: bool = False


class BoundaryCancelled(msgspec.Struct, frozen=True):
    """The agent no longer wants an answer at `boundary_id`."""

    boundary_id: str


class PermissionAsked(msgspec.Struct, frozen=True):
    """The agent asks for leave to use a tool and waits. `tool_kind` UNKNOWN is judged like OTHER.

    `permission_id` is the agent's own. The engine adds the `ruling` of policy before the run sees it.
    """

    permission_id: str
    call_id: str
    tool: str
    arguments_json: str
    subagent_id: str = ""
    tool_kind: ToolKind = ToolKind.UNKNOWN
    title: str = ""
    ruling: Ruling = ASK_PEOPLE


class PermissionWithdrawn(msgspec.Struct, frozen=True):
    """The agent no longer wants an answer to its permission `permission_id`, its own id."""

    permission_id: str


class QuestionAsked(msgspec.Struct, frozen=True):
    """The agent asks a person something and waits. `question_id` is the agent's own."""

    question_id: str
    items: tuple[QuestionItem, ...]
    call_id: str = ""
    subagent_id: str = ""


class QuestionWithdrawn(msgspec.Struct, frozen=True):
    """The agent no longer wants an answer to its question `question_id`, its own id."""

    question_id: str


class ModelChanged(msgspec.Struct, frozen=True):
    """The agent confirmed that it uses `model` from its next request on; `error` says why it does not."""

    model: str
    error: str = ""


class TurnEnded(msgspec.Struct, frozen=True):
    """The agent is done with the prompt. `reason_raw` is its own word, `failure` says what went wrong with ERROR.

    `text` is the last message of the main loop, `finish_reason` why that ended, which the engine adds. `usage` is
    of the main loop's messages in this turn, `cost` of all of it. `denied`: a denied permission ended it without a
    message.
    """

    reason: TurnEndReason
    reason_raw: str
    text: str = ""
    failure: Failure | None = None
    usage: Usage | None = None
    cost: Cost | None = None
    denied: bool = False
    finish_reason: FinishReason = FinishReason.UNKNOWN


class ProtocolFailed(msgspec.Struct, frozen=True):
    """The agent sent something that cannot be understood; what follows cannot be trusted."""

    message: str


# --- the engine ---------------------------------------------------------------------------------------------------


class TurnCame(msgspec.Struct, frozen=True):
    """The run left the queue and is the session's live one.

    `capabilities` are the session's. `steps_before`, `usage_before` and `cost_before` are of the session's earlier
    runs, as in `SessionView`: NO_USAGE and NO_COST where nothing was used, None where it is not known.
    """

    capabilities: Capabilities
    steps_before: int = 0
    usage_before: Usage | None = NO_USAGE
    cost_before: Cost | None = NO_COST


class PromptSent(msgspec.Struct, frozen=True):
    """The run's prompt is about to be handed to the agent's process."""

    prompt_id: str


class StepCompleted(msgspec.Struct, frozen=True):
    """A step is whole and the agent waits for `boundary_id`.

    `past_gate`: the answer to the boundary before had not been sent, so the gate did not hold there. `held` as in
    `BoundaryReached`.
    """

    boundary_id: str
    step: Step
    past_gate: bool = False
    held: bool = True


class RulesEvaluated(msgspec.Struct, frozen=True):
    """The expressions that `EvaluateExpressions` named were evaluated: one result for each, in that order.

    `evaluation_id` is that of the command; results that are no longer wanted are ignored.
    """

    evaluation_id: int
    results: tuple[ExpressionResult, ...]


class ActivityPastGate(msgspec.Struct, frozen=True):
    """The main loop showed a message or a tool before the boundary it had reached was answered."""

    what: str


class AgentStartFailed(msgspec.Struct, frozen=True):
    """The agent's process did not come up."""

    failure: Failure


class AgentExited(msgspec.Struct, frozen=True):
    """The agent's process ended. At most one of `code` and `signal` is set, none if it is not known how.

    `stderr` is the end of what it wrote. `failure` says why it was ended by us, if that is what a run failed of.
    """

    code: int | None
    signal: int | None
    stderr: str = ""
    failure: Failure | None = None


class StopRequested(msgspec.Struct, frozen=True):
    """Somebody asked for a stop at the next boundary."""

    source: DecisionSource
    identity: str
    reason: str


class AbortRequested(msgspec.Struct, frozen=True):
    """Somebody asked to cut the run off."""

    identity: str
    reason: str


class DecisionSubmitted(msgspec.Struct, frozen=True):
    """A client decided about `step_id`, or, with `error` set, reported that it could not."""

    step_id: str
    action: DecisionAction | None
    identity: str
    reason: str = ""
    error: str = ""
    guidance: str = ""
    model: str = ""


class DecidersChanged(msgspec.Struct, frozen=True):
    """So many deciders are registered now."""

    count: int


class PermissionAnswered(msgspec.Struct, frozen=True):
    """A client answered a permission, named by its public id. With `alternative` the answer is ALLOW_ONCE of that."""

    permission_id: str
    answer: PermissionAnswer
    identity: str
    reason: str = ""
    alternative: PermissionAlternative | None = None


class QuestionAnswered(msgspec.Struct, frozen=True):
    """A client answered a question, named by its public id; `answers` None: it declined."""

    question_id: str
    answers: tuple[QuestionItemAnswer, ...] | None
    identity: str


class SteerSubmitted(msgspec.Struct, frozen=True):
    """A client gave a text for the running turn."""

    steer_id: str
    text: str
    identity: str


class AgentSilent(msgspec.Struct, frozen=True):
    """The agent gave no sign of life for `silence_ns` although it had the word."""

    silence_ns: int


class DrainWindowEnding(msgspec.Struct, frozen=True):
    """The window of a drain ends soon: whoever is still asked has no more time."""


class Timer(IntEnum):
    """Timers a run can ask for."""

    HARD_TIMEOUT = 1
    DECISION = 2
    STOP = 3
    ABORT = 4
    PROMPT = 5
    QUEUE = 6
    PERMISSION = 7
    DISCONNECT = 8


class TimerFired(msgspec.Struct, frozen=True):
    """A timer that the run asked for ran out."""

    timer: Timer


class DaemonRestarted(msgspec.Struct, frozen=True):
    """The daemon started anew and found this run live; its agent's process is gone."""


RunEvent = (
    TurnCame
    | PromptSent
    | PromptConfirmed
    | StepCompleted
    | RulesEvaluated
    | UsageSpent
    | BoundaryCancelled
    | ActivityPastGate
    | PermissionAsked
    | PermissionWithdrawn
    | QuestionAsked
    | QuestionWithdrawn
    | TurnEnded
    | ProtocolFailed
    | AgentStartFailed
    | AgentExited
    | AgentSilent
    | StopRequested
    | AbortRequested
    | DecisionSubmitted
    | DecidersChanged
    | PermissionAnswered
    | QuestionAnswered
    | SteerSubmitted
    | DrainWindowEnding
    | TimerFired
    | DaemonRestarted
)

AgentEvent = (
    PassiveEvent
    | AgentReady
    | PromptConfirmed
    | BoundaryReached
    | BoundaryCancelled
    | PermissionAsked
    | PermissionWithdrawn
    | QuestionAsked
    | QuestionWithdrawn
    | ModelChanged
    | TurnEnded
    | ProtocolFailed
)
