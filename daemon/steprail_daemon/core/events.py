"""Everything that can happen to a run or to its agent, in past participles.

Two families. What the **agent** said comes from a codec: passive events (a part of a message, a tool's result) change
no state and go past the state machine; the others are its inputs. What **else** happened (a client's word, a timer, an
exit) comes from the engine. Each input of the machine is handed over together with its time, see `core.run`.
"""

from __future__ import annotations

from enum import IntEnum

import msgspec

from steprail_daemon.core.model import (
    Cost,
    DecisionAction,
    DecisionSource,
    Failure,
    FinishReason,
    MessageKind,
    Step,
    ToolCall,
    ToolKind,
    ToolResult,
    TurnEndReason,
    Usage,
)

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
    """Tokens and money used since the last such event."""

    usage: Usage | None
    cost: Cost | None
    model: str = ""
    subagent_id: str = ""
    parent_call_id: str = ""


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
    | UsageReported
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
        UsageReported,
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
    """

    boundary_id: str
    call_ids: tuple[str, ...] = ()
    usage: Usage | None = None
    cost: Cost | None = None


class BoundaryCancelled(msgspec.Struct, frozen=True):
    """The agent no longer wants an answer at `boundary_id`."""

    boundary_id: str


class PermissionAsked(msgspec.Struct, frozen=True):
    """The agent asks for leave to use a tool and waits. `tool_kind` UNKNOWN is judged like OTHER."""

    permission_id: str
    call_id: str
    tool: str
    arguments_json: str
    subagent_id: str = ""
    tool_kind: ToolKind = ToolKind.UNKNOWN


class TurnEnded(msgspec.Struct, frozen=True):
    """The agent is done with the prompt. `reason_raw` is its own word, `failure` says what went wrong with ERROR.

    `text` is the last message of the main loop. `usage` and `cost` are of this turn.
    """

    reason: TurnEndReason
    reason_raw: str
    text: str = ""
    failure: Failure | None = None
    usage: Usage | None = None
    cost: Cost | None = None


class ProtocolFailed(msgspec.Struct, frozen=True):
    """The agent sent something that cannot be understood; what follows cannot be trusted."""

    message: str


# --- the engine ---------------------------------------------------------------------------------------------------


class PromptSent(msgspec.Struct, frozen=True):
    """The run's prompt was handed to the agent's process."""

    prompt_id: str


class StepCompleted(msgspec.Struct, frozen=True):
    """A step is whole and the agent waits for `boundary_id`.

    `session_steps` counts the session's completed steps, this one included. `past_gate`: the answer to the boundary
    before had not been sent, so the gate did not hold there.
    """

    boundary_id: str
    step: Step
    session_steps: int
    past_gate: bool = False


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


class Timer(IntEnum):
    """Timers a run can ask for."""

    HARD_TIMEOUT = 1
    DECISION = 2
    STOP = 3
    ABORT = 4
    PROMPT = 5


class TimerFired(msgspec.Struct, frozen=True):
    """A timer that the run asked for ran out."""

    timer: Timer


class DaemonRestarted(msgspec.Struct, frozen=True):
    """The daemon started anew and found this run live; its agent's process is gone."""


RunEvent = (
    PromptSent
    | PromptConfirmed
    | StepCompleted
    | BoundaryCancelled
    | ActivityPastGate
    | PermissionAsked
    | TurnEnded
    | ProtocolFailed
    | AgentStartFailed
    | AgentExited
    | StopRequested
    | AbortRequested
    | DecisionSubmitted
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
    | TurnEnded
    | ProtocolFailed
)
