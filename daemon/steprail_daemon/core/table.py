"""The state machine of a run: what can happen in which state, and what the run then asks of the world.

**Rules first.** `TABLE` below is the whole of it: (state, class of event) -> row. A row names the method of
`core.run.Run` that handles the event (they are in `core.handlers`), and every state the run may be in afterwards;
`core.diagram` draws the table. A pair that is not in the table is a bug of the daemon and raises `IllegalTransition`,
nothing is guessed. An agent cannot bring that about: whatever it says has a row in every state, and what it or a timer
can legitimately say too late is handled by `_ignore`. A row without states afterwards refuses: the event is an error of
whoever sent it and changes nothing.

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

**The queue.** Several runs of a session may be QUEUED, one at a time has its turn (`TurnCame`), and the QUEUE timer
bounds the time until its prompt is given. That moment is recorded before the prompt is written (`PromptGiven`): a
restart of the daemon leaves a run QUEUED before it and fails it after it, since a prompt is never given twice. A drain
leaves QUEUED runs for the next start likewise.

**Rules with expressions.** They are evaluated elsewhere. The step waits, not yet recorded, in RUNNING (or
AWAITING_PERMISSION), and is recorded, judged and decided with `RulesEvaluated`. Whatever ends the run first records the
step with the expressions' verdicts UNKNOWN and decides nothing. After a text-only end the run stays RUNNING until its
final verdicts are there; the agent was done first, so whatever else comes then leaves it COMPLETED.

**The gate.** From a boundary until it is answered with CONTINUE the main loop of the agent must be silent. If it is
not, the run is FAILED with GATE_LOST, cut off, and the session's capability falls. That holds in RUNNING too, where an
answer was decided and may not have been sent yet, or expressions are being evaluated. While a run is being aborted,
only a second step is taken for a lost gate, as the rest is how an agent winds up its turn; such a run ends as ABORTED
and tells of the failure. An agent that itself no longer waits for an answer (its own time limit) can no longer be held;
it is ended before it can go on. A turn that ends as completed at a boundary which was not released needed one more
model request than it was given, so that is a lost gate too.

**Gates that are not exact.** There a step is a report and not a question (unless the agent does wait, then it is
answered). A match interrupts a BEST_EFFORT agent: STOPPING until it confirmed, with `exact` False and the requests that
came through counted; it may be COMPLETED first. A match aborts an UNSUPPORTED one: ABORTED, with the stop's reason.

**People.** AWAITING_PERMISSION while a permission or a question is open, unless the main loop is held at a boundary:
then only sub-agents can ask, and the decision is the state. A boundary closes what the main loop asked, the end of a
turn all of it: the agent no longer waits for that. A stop and an abort deny what is open before they reach the agent. A
request to stop (RUNNING, AWAITING_PERMISSION) leaves it open, since it acts at the boundary after it.

**A decision.** One valid answer acts, by a client, by nobody in time, by nobody being there (`DecidersChanged`), by an
operator, by the end of a drain's window; until then a drain leaves the turn to whoever is asked, but for going on.

**Steers** are held by the run and go along with the next CONTINUE. The agent's next step or its completion shows that
it got them; what ends or stops the run before drops them.

**Abort.** It wins over everything that is not confirmed yet. An agent must not be interrupted before it confirmed the
prompt (the Autohand CLI 0.8.2 wedges for good), so until then the interrupt is held, with the ABORT timer running. An
interrupt is sent once: CLIs take it while they wait at a boundary as well as before, so a boundary that crosses it is
left unanswered.

**Exactly once.** Each step that no abort and no failure cut off has one decision, each boundary at most one answer,
each permission and question one resolution, each steer one outcome, each run one `RunEnded` and one `FinishRun`, which
is the last command of its life.
"""

from __future__ import annotations

import msgspec

from steprail_daemon.core.events import (
    AbortRequested,
    ActivityPastGate,
    AgentExited,
    AgentSilent,
    AgentStartFailed,
    BoundaryCancelled,
    DaemonRestarted,
    DecidersChanged,
    DecisionSubmitted,
    DrainWindowEnding,
    PermissionAnswered,
    PermissionAsked,
    PermissionWithdrawn,
    PromptConfirmed,
    PromptSent,
    ProtocolFailed,
    QuestionAnswered,
    QuestionAsked,
    QuestionWithdrawn,
    RulesEvaluated,
    SteerSubmitted,
    StepCompleted,
    StopRequested,
    TimerFired,
    TurnCame,
    TurnEnded,
    UsageSpent,
)
from steprail_daemon.core.model import RunState


class Row(msgspec.Struct, frozen=True):
    """How a pair is handled: name of the method of `Run`, and the states the run can be in afterwards."""

    handler: str
    to: tuple[RunState, ...]


QUEUED = RunState.QUEUED
RUNNING = RunState.RUNNING
DECISION = RunState.AWAITING_DECISION
PERMISSION = RunState.AWAITING_PERMISSION
STOPPING = RunState.STOPPING
ABORTING = RunState.ABORTING
COMPLETED = RunState.COMPLETED
STOPPED = RunState.STOPPED
ABORTED = RunState.ABORTED
FAILED = RunState.FAILED

TABLE: dict[tuple[RunState, type], Row] = {
    # Accepted. Its turn may have to come; the agent may still be starting; the prompt may not be confirmed.
    (QUEUED, TurnCame): Row("_turn_came", (QUEUED,)),
    (QUEUED, PromptSent): Row("_prompt_sent", (QUEUED,)),
    (QUEUED, UsageSpent): Row("_ignore", (QUEUED,)),  # the tail of an earlier turn
    (QUEUED, PromptConfirmed): Row("_start", (QUEUED, RUNNING)),
    (QUEUED, StopRequested): Row("_stop_queued", (QUEUED, STOPPED)),
    (QUEUED, AbortRequested): Row("_abort_queued", (ABORTED, ABORTING)),
    (QUEUED, DecisionSubmitted): Row("_refuse_decision", ()),
    (QUEUED, PermissionAnswered): Row("_refuse_permission", ()),
    (QUEUED, QuestionAnswered): Row("_refuse_question", ()),
    (QUEUED, SteerSubmitted): Row("_refuse_steer", ()),
    (QUEUED, DecidersChanged): Row("_deciders_changed", (QUEUED,)),
    (QUEUED, DrainWindowEnding): Row("_ignore", (QUEUED,)),
    (QUEUED, StepCompleted): Row("_step_queued", (QUEUED, FAILED)),
    (QUEUED, RulesEvaluated): Row("_ignore", (QUEUED,)),  # of an earlier run
    (QUEUED, BoundaryCancelled): Row("_ignore", (QUEUED,)),  # the tail of an earlier turn
    (QUEUED, ActivityPastGate): Row("_ignore", (QUEUED,)),  # likewise
    (QUEUED, PermissionAsked): Row("_permission_queued", (QUEUED,)),
    (QUEUED, PermissionWithdrawn): Row("_ignore", (QUEUED,)),
    (QUEUED, QuestionAsked): Row("_question_queued", (QUEUED,)),
    (QUEUED, QuestionWithdrawn): Row("_ignore", (QUEUED,)),
    (QUEUED, TurnEnded): Row("_turn_ended_queued", (QUEUED, FAILED)),
    (QUEUED, ProtocolFailed): Row("_protocol_failed", (FAILED,)),
    (QUEUED, AgentStartFailed): Row("_start_failed", (FAILED,)),
    (QUEUED, AgentExited): Row("_exited_queued", (FAILED,)),
    (QUEUED, AgentSilent): Row("_silent_queued", (QUEUED, FAILED)),
    (QUEUED, TimerFired): Row("_timer", (QUEUED, FAILED)),
    (QUEUED, DaemonRestarted): Row("_restarted_queued", (QUEUED, FAILED)),
    # The agent works; or expressions are evaluated, at a boundary or after the end of the turn.
    (RUNNING, UsageSpent): Row("_spent", (RUNNING,)),
    (RUNNING, PromptConfirmed): Row("_ignore", (RUNNING,)),  # said again
    (RUNNING, StepCompleted): Row("_step", (RUNNING, DECISION, STOPPING, ABORTING, FAILED)),
    (RUNNING, RulesEvaluated): Row("_rules_evaluated", (RUNNING, DECISION, STOPPING, ABORTING, COMPLETED)),
    (RUNNING, StopRequested): Row("_note_stop", (RUNNING,)),
    (RUNNING, AbortRequested): Row("_abort", (ABORTING, COMPLETED)),
    (RUNNING, DecisionSubmitted): Row("_refuse_decision", ()),
    (RUNNING, PermissionAnswered): Row("_refuse_permission", ()),
    (RUNNING, QuestionAnswered): Row("_refuse_question", ()),
    (RUNNING, SteerSubmitted): Row("_steer", (RUNNING,)),
    (RUNNING, DecidersChanged): Row("_deciders_changed", (RUNNING,)),
    (RUNNING, DrainWindowEnding): Row("_drain_ending", (RUNNING,)),
    (RUNNING, BoundaryCancelled): Row("_cancelled", (RUNNING, FAILED)),
    (RUNNING, ActivityPastGate): Row("_activity_past_gate", (RUNNING, FAILED)),  # before our answer had reached it
    (RUNNING, PermissionAsked): Row("_permission", (RUNNING, PERMISSION, FAILED)),
    (RUNNING, PermissionWithdrawn): Row("_permission_withdrawn", (RUNNING,)),  # crossed our answer
    (RUNNING, QuestionAsked): Row("_question", (RUNNING, PERMISSION, FAILED)),
    (RUNNING, QuestionWithdrawn): Row("_question_withdrawn", (RUNNING,)),  # likewise
    (RUNNING, TurnEnded): Row("_turn_ended", (RUNNING, COMPLETED, STOPPED, FAILED)),
    (RUNNING, ProtocolFailed): Row("_protocol_failed", (COMPLETED, FAILED)),
    (RUNNING, AgentExited): Row("_exited", (COMPLETED, FAILED)),
    (RUNNING, AgentSilent): Row("_silent", (RUNNING, FAILED)),
    (RUNNING, TimerFired): Row("_timer", (RUNNING, COMPLETED, FAILED)),
    (RUNNING, DaemonRestarted): Row("_restarted", (COMPLETED, FAILED)),
    # The agent works, and waits for people with some call.
    (PERMISSION, UsageSpent): Row("_spent", (PERMISSION,)),
    (PERMISSION, PromptConfirmed): Row("_ignore", (PERMISSION,)),
    (PERMISSION, StepCompleted): Row("_step_asked", (RUNNING, PERMISSION, DECISION, STOPPING, ABORTING, FAILED)),
    (PERMISSION, RulesEvaluated): Row("_rules_evaluated", (PERMISSION, DECISION, STOPPING, ABORTING)),
    (PERMISSION, StopRequested): Row("_note_stop", (PERMISSION,)),
    (PERMISSION, AbortRequested): Row("_abort", (ABORTING,)),
    (PERMISSION, DecisionSubmitted): Row("_refuse_decision", ()),
    (PERMISSION, PermissionAnswered): Row("_permission_answered", (RUNNING, PERMISSION)),
    (PERMISSION, QuestionAnswered): Row("_question_answered", (RUNNING, PERMISSION)),
    (PERMISSION, SteerSubmitted): Row("_steer", (PERMISSION,)),
    (PERMISSION, DecidersChanged): Row("_deciders_changed", (PERMISSION,)),
    (PERMISSION, DrainWindowEnding): Row("_drain_ending", (RUNNING,)),
    (PERMISSION, BoundaryCancelled): Row("_cancelled", (PERMISSION, FAILED)),
    (PERMISSION, ActivityPastGate): Row("_activity_past_gate", (PERMISSION, FAILED)),
    (PERMISSION, PermissionAsked): Row("_permission", (PERMISSION, FAILED)),
    (PERMISSION, PermissionWithdrawn): Row("_permission_withdrawn", (RUNNING, PERMISSION)),
    (PERMISSION, QuestionAsked): Row("_question", (PERMISSION, FAILED)),
    (PERMISSION, QuestionWithdrawn): Row("_question_withdrawn", (RUNNING, PERMISSION)),
    (PERMISSION, TurnEnded): Row("_turn_ended", (RUNNING, COMPLETED, STOPPED, FAILED)),
    (PERMISSION, ProtocolFailed): Row("_protocol_failed", (FAILED,)),
    (PERMISSION, AgentExited): Row("_exited", (FAILED,)),
    (PERMISSION, AgentSilent): Row("_ignore", (PERMISSION,)),  # it waits for people
    (PERMISSION, TimerFired): Row("_timer", (RUNNING, PERMISSION, FAILED)),
    (PERMISSION, DaemonRestarted): Row("_restarted", (FAILED,)),
    # The agent is held at a boundary, a client is asked.
    (DECISION, UsageSpent): Row("_spent", (DECISION,)),
    (DECISION, PromptConfirmed): Row("_ignore", (DECISION,)),
    (DECISION, StepCompleted): Row("_step_past_gate", (FAILED,)),
    (DECISION, RulesEvaluated): Row("_ignore", (DECISION,)),
    (DECISION, StopRequested): Row("_stop_pending", (DECISION, STOPPING)),
    (DECISION, AbortRequested): Row("_abort", (ABORTING,)),
    (DECISION, DecisionSubmitted): Row("_decision", (RUNNING, PERMISSION, DECISION, STOPPING)),
    (DECISION, PermissionAnswered): Row("_permission_answered", (DECISION,)),
    (DECISION, QuestionAnswered): Row("_question_answered", (DECISION,)),
    (DECISION, SteerSubmitted): Row("_refuse_steer", ()),
    (DECISION, DecidersChanged): Row("_deciders_changed", (DECISION,)),
    (DECISION, DrainWindowEnding): Row("_drain_decides", (STOPPING,)),
    (DECISION, BoundaryCancelled): Row("_gave_up_waiting", (FAILED,)),
    (DECISION, ActivityPastGate): Row("_activity_past_gate", (FAILED,)),
    (DECISION, PermissionAsked): Row("_permission_gated", (DECISION, FAILED)),
    (DECISION, PermissionWithdrawn): Row("_permission_withdrawn", (DECISION,)),
    (DECISION, QuestionAsked): Row("_question_gated", (DECISION, FAILED)),
    (DECISION, QuestionWithdrawn): Row("_question_withdrawn", (DECISION,)),
    (DECISION, TurnEnded): Row("_turn_ended_gated", (FAILED,)),
    (DECISION, ProtocolFailed): Row("_protocol_failed", (FAILED,)),
    (DECISION, AgentExited): Row("_exited", (FAILED,)),
    (DECISION, AgentSilent): Row("_ignore", (DECISION,)),  # it waits for people
    (DECISION, TimerFired): Row("_timer", (RUNNING, PERMISSION, DECISION, STOPPING, ABORTING, FAILED)),
    (DECISION, DaemonRestarted): Row("_restarted", (FAILED,)),
    # A stop was written to the agent and is not confirmed.
    (STOPPING, UsageSpent): Row("_spent", (STOPPING,)),
    (STOPPING, PromptConfirmed): Row("_ignore", (STOPPING,)),
    (STOPPING, StepCompleted): Row("_step_past_gate", (STOPPING, FAILED)),
    (STOPPING, RulesEvaluated): Row("_ignore", (STOPPING,)),
    (STOPPING, StopRequested): Row("_note_stop", (STOPPING,)),
    (STOPPING, AbortRequested): Row("_abort", (ABORTING,)),
    (STOPPING, DecisionSubmitted): Row("_refuse_decision", ()),
    (STOPPING, PermissionAnswered): Row("_refuse_permission", ()),
    (STOPPING, QuestionAnswered): Row("_refuse_question", ()),
    (STOPPING, SteerSubmitted): Row("_refuse_steer", ()),
    (STOPPING, DecidersChanged): Row("_ignore", (STOPPING,)),
    (STOPPING, DrainWindowEnding): Row("_ignore", (STOPPING,)),
    # Crossed our answer; the STOP timer bounds what follows.
    (STOPPING, BoundaryCancelled): Row("_ignore", (STOPPING,)),
    (STOPPING, ActivityPastGate): Row("_activity_past_gate", (STOPPING, FAILED)),
    (STOPPING, PermissionAsked): Row("_permission_gated", (STOPPING, FAILED)),
    (STOPPING, PermissionWithdrawn): Row("_ignore", (STOPPING,)),
    (STOPPING, QuestionAsked): Row("_question_gated", (STOPPING, FAILED)),
    (STOPPING, QuestionWithdrawn): Row("_ignore", (STOPPING,)),
    (STOPPING, TurnEnded): Row("_turn_ended_stopping", (COMPLETED, STOPPED, FAILED)),
    (STOPPING, ProtocolFailed): Row("_protocol_failed", (FAILED,)),
    (STOPPING, AgentExited): Row("_exited", (FAILED,)),
    (STOPPING, AgentSilent): Row("_ignore", (STOPPING,)),  # the STOP timer bounds it
    (STOPPING, TimerFired): Row("_timer", (STOPPING, FAILED)),
    (STOPPING, DaemonRestarted): Row("_restarted", (FAILED,)),
    # An interrupt was written to the agent, or is held until it can take one; its end is not confirmed.
    (ABORTING, UsageSpent): Row("_spent", (ABORTING,)),
    (ABORTING, PromptConfirmed): Row("_start_aborting", (ABORTING,)),
    (ABORTING, StepCompleted): Row("_step_aborting", (ABORTING,)),
    (ABORTING, RulesEvaluated): Row("_ignore", (ABORTING,)),
    (ABORTING, StopRequested): Row("_note_stop", (ABORTING,)),
    (ABORTING, AbortRequested): Row("_ignore", (ABORTING,)),
    (ABORTING, DecisionSubmitted): Row("_refuse_decision", ()),
    (ABORTING, PermissionAnswered): Row("_refuse_permission", ()),
    (ABORTING, QuestionAnswered): Row("_refuse_question", ()),
    (ABORTING, SteerSubmitted): Row("_refuse_steer", ()),
    (ABORTING, DecidersChanged): Row("_ignore", (ABORTING,)),
    (ABORTING, DrainWindowEnding): Row("_ignore", (ABORTING,)),
    (ABORTING, BoundaryCancelled): Row("_ignore", (ABORTING,)),  # how a held agent takes an interrupt
    (ABORTING, ActivityPastGate): Row("_activity_aborting", (ABORTING,)),
    (ABORTING, PermissionAsked): Row("_permission_aborting", (ABORTING,)),
    (ABORTING, PermissionWithdrawn): Row("_ignore", (ABORTING,)),
    (ABORTING, QuestionAsked): Row("_question_aborting", (ABORTING,)),
    (ABORTING, QuestionWithdrawn): Row("_ignore", (ABORTING,)),
    (ABORTING, TurnEnded): Row("_turn_ended_aborting", (COMPLETED, ABORTED)),
    (ABORTING, ProtocolFailed): Row("_protocol_failed_aborting", (ABORTING,)),
    (ABORTING, AgentExited): Row("_exited_aborting", (ABORTED,)),
    (ABORTING, AgentSilent): Row("_ignore", (ABORTING,)),  # the ABORT timer bounds it
    (ABORTING, TimerFired): Row("_timer", (ABORTING,)),
    (ABORTING, DaemonRestarted): Row("_restarted", (FAILED,)),
    # The process of a start that was overtaken by a stop or an abort.
    (STOPPED, AgentStartFailed): Row("_ignore", (STOPPED,)),
    (ABORTED, AgentStartFailed): Row("_ignore", (ABORTED,)),
}

#: What can still come after the end: verbs of clients that did not know, and the last words of agents and timers.
_LATE = (
    UsageSpent,
    PromptConfirmed,
    StepCompleted,
    RulesEvaluated,
    StopRequested,
    AbortRequested,
    DecidersChanged,
    DrainWindowEnding,
    BoundaryCancelled,
    ActivityPastGate,
    PermissionAsked,
    PermissionWithdrawn,
    QuestionAsked,
    QuestionWithdrawn,
    TurnEnded,
    ProtocolFailed,
    AgentExited,
    AgentSilent,
    TimerFired,
)
#: And what is refused then.
_TOO_LATE = {
    DecisionSubmitted: "_refuse_decision",
    PermissionAnswered: "_refuse_permission",
    QuestionAnswered: "_refuse_question",
    SteerSubmitted: "_refuse_steer",
}
for _state in (COMPLETED, STOPPED, ABORTED, FAILED):
    for _event in _LATE:
        TABLE[_state, _event] = Row("_ignore", (_state,))
    for _refused, _handler in _TOO_LATE.items():
        TABLE[_state, _refused] = Row(_handler, ())
