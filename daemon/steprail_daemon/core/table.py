"""The state machine of a run: what can happen in which state, and what the run then asks of the world.

**Rules first.** `TABLE` below is the whole of it: (state, class of event) -> row. A row names the method of
`core.run.Run` that handles the event, and every state the run may be in afterwards; `core.diagram` draws the table. A
pair that is not in the table is a bug of the daemon and raises `IllegalTransition`, nothing is guessed. An agent cannot
bring that about: whatever it says has a row in every state, and what it or a timer can legitimately say too late is
handled by `_ignore`.

**Facts first.** A handler decides by the view and a few private notes, emits facts, and then asks for effects. The view
changes by folding the emitted facts (`core.replay`) and in no other way, so that a restart sees what was seen live.
Facts are committed before any effect of the same call; in particular a step and its decision before the answer to the
agent.

**Claims.** STOPPED, ABORTED and COMPLETED are claimed when the agent said so or its process is gone, never because we
asked. A stop, an abort and a decision are bounded by timers; when one runs out the process is ended, and the state is
claimed when its exit arrives. For that the interpreter owes one `AgentExited` to every `EndProcess` of a run that has
not ended, in the bounds of the shutdown ladder. FAILED is our own judgement and needs no confirmation: it says that the
run is given up, not what the agent does; where the agent may still be at work, `EndProcess` goes with it. So a prompt
that the agent does not confirm in time (PROMPT) and a run that lasts too long (HARD_TIMEOUT) fail at once.

**The gate.** From a boundary until it is answered with CONTINUE the main loop of the agent must be silent. If it is
not, the run is FAILED with GATE_LOST, cut off, and the session's capability falls. That holds in RUNNING too, where an
answer was decided and may not have been sent yet. While a run is being aborted, only a second step is taken for a lost
gate, as the rest is how an agent winds up its turn; such a run ends as ABORTED and tells of the failure. An agent that
itself no longer waits for an answer (its own time limit) can no longer be held; it is ended before it can go on. A turn
that ends as completed at a boundary which was not released needed one more model request than it was given, so that is
a lost gate too.

**Abort.** It wins over everything that is not confirmed yet. An agent must not be interrupted before it confirmed the
prompt (the Autohand CLI 0.8.2 wedges for good), so until then the interrupt is held, with the ABORT timer running. An
interrupt is sent once: CLIs take it while they wait at a boundary as well as before, so a boundary that crosses it is
left unanswered.

**Exactly once.** Each step that no abort and no failure cut off has one decision, each boundary at most one answer,
each run one `RunEnded` and one `FinishRun`, which is the last command of its life.
"""

from __future__ import annotations

import msgspec

from steprail_daemon.core.events import (
    AbortRequested,
    ActivityPastGate,
    AgentExited,
    AgentStartFailed,
    BoundaryCancelled,
    DaemonRestarted,
    DecisionSubmitted,
    PermissionAsked,
    PromptConfirmed,
    PromptSent,
    ProtocolFailed,
    StepCompleted,
    StopRequested,
    TimerFired,
    TurnEnded,
)
from steprail_daemon.core.model import RunState


class Row(msgspec.Struct, frozen=True):
    """How a pair is handled: name of the method of `Run`, and the states the run can be in afterwards."""

    handler: str
    to: tuple[RunState, ...]


QUEUED = RunState.QUEUED
RUNNING = RunState.RUNNING
AWAITING_DECISION = RunState.AWAITING_DECISION
STOPPING = RunState.STOPPING
ABORTING = RunState.ABORTING
COMPLETED = RunState.COMPLETED
STOPPED = RunState.STOPPED
ABORTED = RunState.ABORTED
FAILED = RunState.FAILED

TABLE: dict[tuple[RunState, type], Row] = {
    # Accepted. The agent may still be starting; the prompt may have been sent, and is not confirmed.
    (QUEUED, PromptSent): Row("_prompt_sent", (QUEUED,)),
    (QUEUED, PromptConfirmed): Row("_start", (QUEUED, RUNNING)),
    (QUEUED, StopRequested): Row("_stop_queued", (QUEUED, STOPPED)),
    (QUEUED, AbortRequested): Row("_abort_queued", (ABORTED, ABORTING)),
    (QUEUED, DecisionSubmitted): Row("_refuse_decision", ()),
    (QUEUED, StepCompleted): Row("_step_queued", (QUEUED, FAILED)),
    (QUEUED, BoundaryCancelled): Row("_ignore", (QUEUED,)),  # the tail of an earlier turn
    (QUEUED, ActivityPastGate): Row("_ignore", (QUEUED,)),  # likewise
    (QUEUED, PermissionAsked): Row("_permission_queued", (QUEUED,)),
    (QUEUED, TurnEnded): Row("_turn_ended_queued", (QUEUED, FAILED)),
    (QUEUED, ProtocolFailed): Row("_protocol_failed", (FAILED,)),
    (QUEUED, AgentStartFailed): Row("_start_failed", (FAILED,)),
    (QUEUED, AgentExited): Row("_exited_queued", (FAILED,)),
    (QUEUED, TimerFired): Row("_timer", (QUEUED, FAILED)),
    (QUEUED, DaemonRestarted): Row("_restarted", (FAILED,)),
    # The agent works.
    (RUNNING, PromptConfirmed): Row("_ignore", (RUNNING,)),  # said again
    (RUNNING, StepCompleted): Row("_step", (RUNNING, AWAITING_DECISION, STOPPING, FAILED)),
    (RUNNING, StopRequested): Row("_note_stop", (RUNNING,)),
    (RUNNING, AbortRequested): Row("_abort", (ABORTING,)),
    (RUNNING, DecisionSubmitted): Row("_refuse_decision", ()),
    (RUNNING, BoundaryCancelled): Row("_ignore", (RUNNING,)),  # crossed our answer
    (RUNNING, ActivityPastGate): Row("_activity_past_gate", (FAILED,)),  # before our answer had reached it
    (RUNNING, PermissionAsked): Row("_permission", (RUNNING,)),
    (RUNNING, TurnEnded): Row("_turn_ended", (COMPLETED, FAILED)),
    (RUNNING, ProtocolFailed): Row("_protocol_failed", (FAILED,)),
    (RUNNING, AgentExited): Row("_exited", (FAILED,)),
    (RUNNING, TimerFired): Row("_timer", (RUNNING, FAILED)),
    (RUNNING, DaemonRestarted): Row("_restarted", (FAILED,)),
    # The agent is held at a boundary, a client is asked.
    (AWAITING_DECISION, PromptConfirmed): Row("_ignore", (AWAITING_DECISION,)),
    (AWAITING_DECISION, StepCompleted): Row("_step_past_gate", (FAILED,)),
    (AWAITING_DECISION, StopRequested): Row("_stop_pending", (STOPPING,)),
    (AWAITING_DECISION, AbortRequested): Row("_abort", (ABORTING,)),
    (AWAITING_DECISION, DecisionSubmitted): Row("_decision", (AWAITING_DECISION, RUNNING, STOPPING)),
    (AWAITING_DECISION, BoundaryCancelled): Row("_gave_up_waiting", (FAILED,)),
    (AWAITING_DECISION, ActivityPastGate): Row("_activity_past_gate", (FAILED,)),
    (AWAITING_DECISION, PermissionAsked): Row("_permission_gated", (AWAITING_DECISION, FAILED)),
    (AWAITING_DECISION, TurnEnded): Row("_turn_ended_gated", (FAILED,)),
    (AWAITING_DECISION, ProtocolFailed): Row("_protocol_failed", (FAILED,)),
    (AWAITING_DECISION, AgentExited): Row("_exited", (FAILED,)),
    (AWAITING_DECISION, TimerFired): Row("_timer", (AWAITING_DECISION, RUNNING, STOPPING, ABORTING, FAILED)),
    (AWAITING_DECISION, DaemonRestarted): Row("_restarted", (FAILED,)),
    # A stop was written to the agent and is not confirmed.
    (STOPPING, PromptConfirmed): Row("_ignore", (STOPPING,)),
    (STOPPING, StepCompleted): Row("_step_past_gate", (FAILED,)),
    (STOPPING, StopRequested): Row("_note_stop", (STOPPING,)),
    (STOPPING, AbortRequested): Row("_abort", (ABORTING,)),
    (STOPPING, DecisionSubmitted): Row("_refuse_decision", ()),
    (STOPPING, BoundaryCancelled): Row(
        "_ignore", (STOPPING,)
    ),  # crossed our answer; the STOP timer bounds what follows
    (STOPPING, ActivityPastGate): Row("_activity_past_gate", (FAILED,)),
    (STOPPING, PermissionAsked): Row("_permission_gated", (STOPPING, FAILED)),
    (STOPPING, TurnEnded): Row("_turn_ended_stopping", (STOPPED, FAILED)),
    (STOPPING, ProtocolFailed): Row("_protocol_failed", (FAILED,)),
    (STOPPING, AgentExited): Row("_exited", (FAILED,)),
    (STOPPING, TimerFired): Row("_timer", (STOPPING, FAILED)),
    (STOPPING, DaemonRestarted): Row("_restarted", (FAILED,)),
    # An interrupt was written to the agent, or is held until it can take one; its end is not confirmed.
    (ABORTING, PromptConfirmed): Row("_start_aborting", (ABORTING,)),
    (ABORTING, StepCompleted): Row("_step_aborting", (ABORTING,)),
    (ABORTING, StopRequested): Row("_note_stop", (ABORTING,)),
    (ABORTING, AbortRequested): Row("_ignore", (ABORTING,)),
    (ABORTING, DecisionSubmitted): Row("_refuse_decision", ()),
    (ABORTING, BoundaryCancelled): Row("_ignore", (ABORTING,)),  # how a held agent takes an interrupt
    (ABORTING, ActivityPastGate): Row("_ignore", (ABORTING,)),  # how it winds up its turn
    (ABORTING, PermissionAsked): Row("_permission_aborting", (ABORTING,)),
    (ABORTING, TurnEnded): Row("_turn_ended_aborting", (COMPLETED, ABORTED)),
    (ABORTING, ProtocolFailed): Row("_protocol_failed_aborting", (ABORTING,)),
    (ABORTING, AgentExited): Row("_exited_aborting", (ABORTED,)),
    (ABORTING, TimerFired): Row("_timer", (ABORTING,)),
    (ABORTING, DaemonRestarted): Row("_restarted", (FAILED,)),
    # The process of a start that was overtaken by a stop or an abort.
    (STOPPED, AgentStartFailed): Row("_ignore", (STOPPED,)),
    (ABORTED, AgentStartFailed): Row("_ignore", (ABORTED,)),
}

#: What can still come after the end: verbs of clients that did not know, and the last words of agents and timers.
_LATE = (
    PromptConfirmed,
    StepCompleted,
    StopRequested,
    AbortRequested,
    BoundaryCancelled,
    ActivityPastGate,
    PermissionAsked,
    TurnEnded,
    ProtocolFailed,
    AgentExited,
    TimerFired,
)
for _state in (COMPLETED, STOPPED, ABORTED, FAILED):
    TABLE[_state, DecisionSubmitted] = Row("_refuse_decision", ())
    for _event in _LATE:
        TABLE[_state, _event] = Row("_ignore", (_state,))
