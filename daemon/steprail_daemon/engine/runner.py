"""The one interpreter: what happens to a session goes through here, one event at a time, synchronously.

One call from the read callback decodes (in the host), runs the core, commits, writes the answer and publishes, in
this order and without a task in between. The order is the promise: **what was decided is committed before any effect of
it leaves the daemon, and every event is committed before anybody sees it.** At a step boundary the agent waits for us,
so there the facts (the step and its decision) are committed alone, the answer is written, and then their events are
encoded, committed and published; a crash in between is mended at the next start, which makes the events from the facts.
Likewise a client that wants no events is asked by the facts, and the events are held for its answer; nothing else is
interpreted before they are published.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import msgspec

from steprail_daemon.core import queue
from steprail_daemon.core.assembly import StepAssembly
from steprail_daemon.core.commands import (
    AgentCommand,
    AnswerBoundary,
    AnswerPermission,
    AnswerQuestion,
    CancelTimer,
    Command,
    Emit,
    EndProcess,
    EvaluateExpressions,
    FinishRun,
    Interrupt,
    LowerGate,
    SendPrompt,
    SetModel,
    SetPermissionMode,
    StartTimer,
)
from steprail_daemon.core.events import (
    PASSIVE_EVENTS,
    ActivityPastGate,
    AgentEvent,
    AgentExited,
    AgentReady,
    AgentSilent,
    AgentStartFailed,
    BoundaryReached,
    DecidersChanged,
    DecisionSubmitted,
    MessageEnded,
    MessageStarted,
    ModelChanged,
    PassiveEvent,
    PermissionAsked,
    PermissionWithdrawn,
    PromptConfirmed,
    PromptSent,
    ProtocolFailed,
    QuestionAsked,
    RateLimited,
    RulesEvaluated,
    RunEvent,
    StepCompleted,
    Timer,
    TimerFired,
    ToolStarted,
    TurnCame,
    TurnEnded,
    UsageReported,
)
from steprail_daemon.core.failures import journal_unavailable
from steprail_daemon.core.model import DecisionAction, Failure, RunState, SessionState, StepGate
from steprail_daemon.core.policy import DENIAL_MESSAGE
from steprail_daemon.core.records import (
    AgentStarted,
    CapabilitiesChanged,
    Fact,
    RunEnded,
    SessionCreated,
    SessionStateChanged,
    SessionUpdated,
    UsageCounted,
)
from steprail_daemon.core.replay import SESSION_FACTS, fold_session
from steprail_daemon.core.run import Run
from steprail_daemon.core.stops import needs
from steprail_daemon.core.views import SessionView
from steprail_daemon.engine.batch import BatchBuilder
from steprail_daemon.engine.broker import Feed
from steprail_daemon.engine.changes import Changes
from steprail_daemon.engine.expressions import ExpressionDesk
from steprail_daemon.engine.host import AgentHost
from steprail_daemon.engine.ledger import Ledger, not_written
from steprail_daemon.engine.lineup import Lineup, RunPlace
from steprail_daemon.engine.permissions import PermissionDesk
from steprail_daemon.engine.silence import SilenceWatch
from steprail_daemon.engine.timers import Timers
from steprail_daemon.engine.world import World

__all__ = ["MAX_CALLS", "RunPlace", "SessionRunner"]

#: How long the events of a step that a client was asked about ahead of them may be held.
HOLD_SECONDS = 0.002
#: Calls of one message: a step is given as one message of the API, which has a bound.
MAX_CALLS = 256

_AGENT_COMMANDS = frozenset(
    {SendPrompt, AnswerBoundary, AnswerPermission, AnswerQuestion, Interrupt, SetModel, SetPermissionMode}
)
# A member of an enumeration costs a function call to look up.
_CONTINUE = DecisionAction.CONTINUE
_SIGNS_OF_A_REQUEST = frozenset({MessageStarted, MessageEnded, ToolStarted})
#: Passive events that nobody but their readers cares about.
_PLAIN_EVENTS = PASSIVE_EVENTS - {RateLimited}


class SessionRunner(Lineup):
    """Interprets one session; see the module docstring. All methods are called on the loop's thread."""

    def __init__(self, world: World, view: SessionView, session_no: int, places: dict[str, RunPlace]) -> None:
        super().__init__(places)
        self.world = world
        self.view = view
        self.session_no = session_no
        closed = view.state is SessionState.CLOSED
        self.feed = Feed(session_no, view.last_seq, world.store, world.arrivals, closed=closed, observe=world.observe)
        self.host = AgentHost(world, view, self)
        encoder = world.encoders.for_session(view.session_id)
        self._builder = BatchBuilder(session_no, view.last_seq, encoder, world.records)
        self.ledger = Ledger(world, view, self.feed, self._builder, self)
        self._assembly = StepAssembly()
        self._timers = Timers(world, self._timer_fired)
        self._permissions = PermissionDesk(world, view)
        self._expressions = ExpressionDesk(world, view, self._rules_evaluated)
        self._silence = SilenceWatch(world, self.host, self._silent)
        self._changes = Changes(world, view)
        self._deciders: dict[str, int] = {}
        #: Permissions that policy has not ruled on yet, by the agent's own ids.
        self._ruling: set[str] = set()
        #: Runs while events are held whose facts are committed; see `_ask_at_once`.
        self._held: asyncio.TimerHandle | None = None
        self._commands: list[Command] = []
        #: The run that they are of.
        self._commands_of = ""
        self._answers = False
        self._asks = False
        self._gate_shut = False
        self._prompted = False
        self._gave_up = False
        self._broken = view.state_reason if view.state is SessionState.BROKEN else ""

    # --- verbs ------------------------------------------------------------------------------------------------------

    def open(self, created: SessionCreated) -> None:
        """Record a new session and begin to start its agent.

        Raises:
            Unavailable: JOURNAL_UNAVAILABLE, and nothing happened.
        """
        self._begin(0, "", 0)
        builder = self._builder
        builder.opens_session = created.session_id
        builder.add_record(created)
        builder.add_fact(SessionStateChanged(SessionState.STARTING, None))
        self.ledger.commit_or_refuse()
        self.host.start(resume=created.resumes)

    def take_up(self) -> None:
        """Begin with the run whose turn it is, as soon as the agent is ready."""
        run = self.run
        if run is None or run.view.prompt_id:
            return
        self._prompted = False
        self._gate_shut = False
        self._assembly.reset()
        self.on_run_edge()
        if not self.host.up:
            self.host.start(resume=self._has_conversation())
        view = self.view
        self._begin_run()
        self._drive(TurnCame(view.capabilities, view.steps_before, view.usage_before, view.cost_before))
        count = self._deciders.get(run.view.run_id, 0)
        if count:
            self._drive(DecidersChanged(count))
        self._try_prompt()
        self._settle()

    def tell(self, run_id: str, event: RunEvent) -> None:
        """Hand a run something that happened outside its agent. One that has ended by now hears nothing.

        Raises:
            StepRailError: the run refuses it; nothing changed.
            Unavailable: JOURNAL_UNAVAILABLE; it may still take effect once the journal can be written again.
        """
        self.ledger.require()
        if self._held is not None and not self._is_answer(event):
            self.publish_held()
            self.ledger.require()
        run = self._find(run_id)
        if run is None:
            return
        self._begin_about(run)
        try:
            self._drive(event, run)
        except BaseException:
            if self._held is None:
                # What is held is committed, and a run that refuses has added nothing to it.
                self._builder.drop()
            raise
        if not self._settle():
            raise not_written("it was not recorded yet")

    def count_decider(self, run_id: str, more: int) -> None:
        """Count those who are registered to decide about a run."""
        count = self._deciders.get(run_id, 0) + more
        if count:
            self._deciders[run_id] = count
        else:
            self._deciders.pop(run_id, None)
        self._about(run_id, DecidersChanged(count))

    def change(self, change: SessionUpdated) -> None:
        """Change modes, model or labels: now, or at the live run's next boundary.

        Raises:
            WrongState: SESSION_BUSY, it cannot be changed while a run is live.
            Unavailable: JOURNAL_UNAVAILABLE, and nothing happened.
        """
        self.publish_held()
        self.ledger.require()
        if self.run is not None and self._changes.put_off(change):
            return
        self.note(change)
        commands, restarts = self._changes.apply(change, ready=self.host.ready)
        if restarts and self.host.up:
            self.end_idle("its settings were changed")
        elif commands:
            self.host.send(commands)

    def close(self) -> None:
        """Record that the session is closed, unless it is. No run may be live and the process must be gone.

        Raises:
            Unavailable: JOURNAL_UNAVAILABLE, and nothing happened.
        """
        if self.view.state is SessionState.CLOSED:
            return
        self.publish_held()
        self.ledger.require()
        if self.run is not None or self.queued or self.host.up:
            raise RuntimeError(f"session {self.view.session_id} is closed while something of it is live")
        self._watch_idleness(SessionState.CLOSED)
        self._builder.closes_session = True
        self.note(SessionStateChanged(SessionState.CLOSED, self.view.state))

    def recover(self, run: Run, event: RunEvent) -> None:
        """Tell a run that the journal shows as live what happened to it, which ends it, or leaves it QUEUED.

        Raises:
            Unavailable: JOURNAL_UNAVAILABLE.
        """
        run_id = run.view.run_id
        if run_id == self.view.active_run_id:
            self.run = run
        else:
            self.queued[run_id] = run
        self.tell(run_id, event)

    def publish_again(self, run_no: int, parts: list[tuple[int, list[Fact]]]) -> None:
        """Make the events of facts that were committed when the daemon died before it could, with the time of each.

        Raises:
            Unavailable: JOURNAL_UNAVAILABLE.
        """
        run_id = next((run_id for run_id, place in self.places.items() if place.run_no == run_no), "")
        steps = self.places[run_id].view.step_count if run_id else 0
        builder = self._builder
        for at, facts in parts:
            builder.begin(at, run_no, run_id, steps)
            for fact in facts:
                builder.add_event_of(fact)
            builder.hold()
        self.ledger.commit_or_refuse()

    # --- what the host calls ----------------------------------------------------------------------------------------

    def agent_said(self, events: list[AgentEvent]) -> None:
        """Interpret what one read brought. This is the hot path."""
        if self._held is not None:
            self.publish_held()
        if self.ledger.stalled:
            self.ledger.put_off(lambda: self.agent_said(events))
            return
        self._begin_run()
        if not self._gate_shut and _PLAIN_EVENTS.issuperset(map(type, events)):
            # Nearly every chunk: parts of messages and results of tools, which change no state.
            passive = cast("list[PassiveEvent]", events)
            self._builder.extend(passive)
            self._assembly.extend(passive)
        else:
            self._one_by_one(events)
        self._settle()

    def _one_by_one(self, events: list[AgentEvent]) -> None:
        for event in events:
            if type(event) in PASSIVE_EVENTS:
                if self._gate_shut and type(event) in _SIGNS_OF_A_REQUEST:
                    self._past_gate(event)
                self._builder.add(event)  # type: ignore[arg-type]
                self._assembly.feed(event)  # type: ignore[arg-type]
                if type(event) is RateLimited:
                    self.world.rate_limits.refused(self.view.agent, event)
                elif type(event) is UsageReported and self.run is None:
                    self._emit(UsageCounted(event.usage, event.cost))
            else:
                self._active(event)

    def agent_failed_to_start(self, failure: Failure) -> None:
        """See `HostListener`."""
        self._outside(lambda: self._not_started(failure))

    def agent_exited(self, event: AgentExited) -> None:
        """See `HostListener`."""
        self._outside(lambda: self._agent_gone(event))

    def _not_started(self, failure: Failure) -> None:
        if failure.reason == "RESUME_FAILED" and self.closing is None:
            if not self.view.resumes and not any(place.view.stored for place in self.places.values()):
                # The agent died before it had stored anything: there is nothing to take up, and nothing is lost.
                self.host.start(resume=False)
                return
            self._broken = failure.message
        self._without_agent(AgentStartFailed(failure), failure.message)

    def _agent_gone(self, event: AgentExited) -> None:
        if self._gave_up:
            self._gave_up = False
            failure = journal_unavailable(self.world.settings.journal_patience_ns)
            event = msgspec.structs.replace(event, failure=failure)
        if self.host.ending and self.run is not None and not self._prompted and self.closing is None:
            # The process that went was an earlier run's; this one has not been begun and gets its own.
            self._gate_shut = False
            self.host.start(resume=self._has_conversation())
        else:
            reason, self._end_reason = self._end_reason, ""
            self._without_agent(event, reason or f"the agent's process ended: {_how(event)}")

    def _without_agent(self, event: RunEvent, reason: str) -> None:
        self._gate_shut = False
        self._state_reason = reason
        self._ruling.clear()
        self._drive(event)
        self.next_turn_soon()

    # --- what comes by itself ---------------------------------------------------------------------------------------

    def _timer_fired(self, run_id: str, timer: Timer) -> None:
        self._about(run_id, TimerFired(timer))

    def _silent(self, silence_ns: int) -> None:
        self._outside(lambda: self._drive(AgentSilent(silence_ns)))

    def _rules_evaluated(self, run_id: str, event: RulesEvaluated) -> None:
        self._about(run_id, event)

    def _ruled(self, run_id: str, event: PermissionAsked) -> None:
        """Policy has ruled on a permission. It may no longer be wanted, or its run be over."""
        if event.permission_id in self._ruling:
            self._ruling.discard(event.permission_id)
            if self.run is not None and self.run.view.run_id == run_id:
                self._about(run_id, event)
            else:
                self._outside(lambda: self._active_outside_run(event))

    def _outside(self, happen: Callable[[], None]) -> None:
        self.publish_held()
        if self.ledger.stalled:
            self.ledger.put_off(lambda: self._outside(happen))
            return
        self._begin_run()
        happen()
        self._settle()

    def _about(self, run_id: str, event: RunEvent) -> None:
        """Let something happen to a run, unless it has ended by now."""
        self.publish_held()
        if self.ledger.stalled:
            self.ledger.put_off(lambda: self._about(run_id, event))
            return
        run = self._find(run_id)
        if run is not None:
            self._begin_about(run)
            self._drive(event, run)
            self._settle()

    # --- interpretation ---------------------------------------------------------------------------------------------

    def _find(self, run_id: str) -> Run | None:
        """Find a run that has not ended."""
        run = self.run
        return run if run is not None and run.view.run_id == run_id else self.queued.get(run_id)

    def _begin_about(self, run: Run) -> None:
        if run is self.run:
            self._begin_run()
        else:
            run_id = run.view.run_id
            self._begin(self.places[run_id].run_no, run_id, 0)

    def _begin_run(self) -> None:
        run = self.run
        if run is None:
            self._begin(0, "", 0)
            return
        view = run.view
        step = 0 if view.started_at is None else len(view.steps) + (0 if self._gate_shut else 1)
        # `_begin` written out, as this is on the way to every decision.
        self._subject = view.run_id
        self._at = at = self.world.clock.now()
        self._builder.begin(at, self.places[view.run_id].run_no, view.run_id, step)

    def _active(self, event: AgentEvent) -> None:
        kind = type(event)
        if kind is BoundaryReached:
            self._boundary(event)  # type: ignore[arg-type]
        elif kind is AgentReady:
            self._try_prompt()
        elif kind is ModelChanged:
            self._changes.model_changed(event)  # type: ignore[arg-type]
        elif self.run is None:
            self._active_outside_run(event)
        elif kind is PermissionAsked:
            self._permission(self.run.view.run_id, event)  # type: ignore[arg-type]
        else:
            if kind is PromptConfirmed:
                self._took_up(event)  # type: ignore[arg-type]
            elif kind is TurnEnded:
                self._gate_shut = False
            elif kind is PermissionWithdrawn:
                self._ruling.discard(event.permission_id)  # type: ignore[union-attr]
            self._drive(event)  # type: ignore[arg-type]

    def _permission(self, run_id: str, event: PermissionAsked) -> None:
        self._ruling.add(event.permission_id)
        ruled = self._permissions.rule(event, lambda ruled: self._ruled(run_id, ruled))
        if ruled is not None:
            self._ruling.discard(event.permission_id)
            self._drive(ruled)

    def _boundary(self, event: BoundaryReached) -> None:
        run = self.run
        if run is None:
            self._active_outside_run(event)
            return
        number = run.next_step_number
        step = self._assembly.complete(event, number, run.view.run_id, self._at)
        if len(step.tool_calls) > MAX_CALLS:
            problem = f"a message has {len(step.tool_calls)} tool calls; at most {MAX_CALLS} are taken"
            self._drive(ProtocolFailed(problem))
            return
        past_gate, self._gate_shut = self._gate_shut, event.held
        self._drive(StepCompleted(event.boundary_id, step, past_gate, event.held))
        self._asks = run.view.pending_decision is not None

    def _active_outside_run(self, event: AgentEvent) -> None:
        """The agent works although no run is live: it is answered so that it stops, and waits for nobody."""
        if isinstance(event, BoundaryReached):
            if event.held:
                self._commands.append(AnswerBoundary(event.boundary_id, DecisionAction.STOP))
        elif isinstance(event, PermissionAsked):
            self._commands.append(AnswerPermission(event.permission_id, False, DENIAL_MESSAGE))
        elif isinstance(event, QuestionAsked):
            self._commands.append(AnswerQuestion(event.question_id, None))
        elif isinstance(event, ProtocolFailed):
            self._state_reason = event.message
            self._commands.append(EndProcess(event.message))

    def _took_up(self, event: PromptConfirmed) -> None:
        run = self.run
        if run is None or run.view.started_at is not None:
            return
        session = event.agent_session_id or self.view.agent_session_id
        model = event.model or self.view.model
        self._assembly.begin(self._at)
        self._silence.begin(run.view)
        self._emit(AgentStarted(self.view.agent, self.host.version, model, session, self.host.resumed))

    def _past_gate(self, event: AgentEvent) -> None:
        if getattr(event, "subagent_id", "") or getattr(event, "parent_call_id", ""):
            return
        self._gate_shut = False
        self._drive(ActivityPastGate(type(event).__name__))

    def _try_prompt(self) -> None:
        run = self.run
        if run is None or self._prompted or not self.host.ready:
            return
        self._prompted = True
        prompt_id = self.world.ids.new_uuid()
        spec = run.view.spec
        self._commands.append(SendPrompt(prompt_id, spec.prompt, "cost" in needs(spec.stop_rules)))
        self._drive(PromptSent(prompt_id))

    def _drive(self, event: RunEvent, run: Run | None = None) -> None:
        run = run or self.run
        if run is None:
            return
        self._commands_of = run.view.run_id
        for command in run.handle(event, self._at):
            kind = type(command)
            if kind is Emit:
                fact: Fact = command.fact  # type: ignore[union-attr]
                if type(fact) in SESSION_FACTS:
                    self._emit(fact)
                else:
                    self._builder.add_fact(fact)
            elif kind is AnswerBoundary:
                self._answers = True
                if self._changes.waiting and command.action is _CONTINUE:  # type: ignore[union-attr]
                    self._change_at_boundary()
                self._commands.append(command)
            elif kind is FinishRun:
                self._finish_run(run)
            elif kind is LowerGate:
                self._lower_gate(command.reason)  # type: ignore[union-attr]
            else:
                self._commands.append(command)

    def _emit(self, fact: Fact) -> None:
        fold_session(self.view, fact, self._subject)
        if type(fact) is RunEnded:
            self._builder.ends_run = True
        self._builder.add_fact(fact)

    def _change_at_boundary(self) -> None:
        change = self._changes.take()
        self._emit(change)
        self._commands += self._changes.apply(change, ready=True)[0]

    def _finish_run(self, run: Run) -> None:
        view = run.view
        self.places[view.run_id].last_seq = self._builder.seq
        self.ledger.cut()
        if run is self.run:
            self.run = None
            self._assembly.reset()
            self._ruling.clear()
            if view.state is RunState.COMPLETED:
                self.world.rate_limits.served(self.view.agent)
        else:
            del self.queued[view.run_id]
        self._begin(0, "", 0)
        held = queue.after_run(self.view, view)
        if held is not None:
            self._emit(held)
        if self._changes.waiting and self.run is None:
            self._change_at_boundary()
        self._commands.append(FinishRun())

    def _lower_gate(self, reason: str) -> None:
        lowered = msgspec.structs.replace(self.view.capabilities, step_gate=StepGate.BEST_EFFORT)
        self._emit(CapabilitiesChanged(lowered, reason))

    # --- commit, then act, then publish -----------------------------------------------------------------------------

    def _settle(self) -> bool:
        """Commit, act, publish; whether the facts are committed, their events being only a matter of time."""
        recorded = False
        if self._asks:
            self._asks = False
            if self._ask_at_once():
                self._answers = False
                self._act()
                return True
        if self._answers:
            self._answers = False
            recorded = self.ledger.commit_facts()
            if recorded:
                self._act()
        self._release()
        if self.ledger.commit():
            recorded = True
            if self._commands:
                self._act()
            self._sync_state()
        return recorded

    def _ask_at_once(self) -> bool:
        """Ask by the facts, where somebody wants no events; whether that was possible.

        What is committed first is the step and the question. Their events are held until the agent has its answer, or
        anything else happens, and no longer than `HOLD_SECONDS`.
        """
        run, builder = self.run, self._builder
        pending = run.view.pending_decision if run is not None else None
        respondents = self.feed.respondents(builder.run_no) if pending is not None else None
        if pending is None or not respondents or not self.ledger.commit_facts():
            return False
        step = builder.step_of(pending.step_id)
        if step is not None:
            for respondent in respondents:
                respondent.ask(pending, step)
        builder.hold()
        self._held = self.world.loop.call_later(HOLD_SECONDS, self.world.guarded(self.publish_held))
        return True

    def publish_held(self) -> None:
        """Commit and publish the events that are held, if there are any."""
        if self._held is not None:
            self._release()
            self.ledger.commit()

    def _release(self) -> None:
        if self._held is not None:
            self._held.cancel()
            self._held = None

    def _is_answer(self, event: RunEvent) -> bool:
        pending = self.run.view.pending_decision if self.run is not None else None
        return type(event) is DecisionSubmitted and pending is not None and event.step_id == pending.step_id

    def _act(self) -> None:
        commands, self._commands = self._commands, []
        run_id = self._commands_of
        to_agent: list[AgentCommand] = []
        later: list[Command] = []
        for command in commands:
            kind = type(command)
            if kind in _AGENT_COMMANDS:
                to_agent.append(command)  # type: ignore[arg-type]
                if kind is AnswerBoundary and command.action is _CONTINUE:  # type: ignore[union-attr]
                    self._gate_shut = False
            elif kind is EndProcess:
                if to_agent:
                    self.host.send(to_agent)
                    to_agent = []
                self._perform(run_id, command)
            else:
                # Timers and the like are ours: the agent waits and comes first.
                later.append(command)
        if to_agent:
            self.host.send(to_agent)
        for command in later:
            self._perform(run_id, command)

    def _perform(self, run_id: str, command: Command) -> None:
        if isinstance(command, StartTimer):
            self._timers.start(run_id, command.timer, command.deadline_at)
        elif isinstance(command, CancelTimer):
            self._timers.cancel(run_id, command.timer)
        elif isinstance(command, EndProcess):
            self._state_reason = command.reason
            self.host.end()
        elif isinstance(command, EvaluateExpressions):
            self._expressions.evaluate(self.places[run_id].view, command)
        elif isinstance(command, FinishRun):
            self.on_run_edge()
            self.next_turn_soon()

    # --- a journal that refuses -------------------------------------------------------------------------------------

    def ledger_stalled(self) -> None:
        """See `LedgerOwner`."""
        self.host.pause()

    def ledger_waits_too_long(self) -> None:
        """See `LedgerOwner`: the agent waits at its gate or for its reader, and must not wait for ever."""
        self._gave_up = True
        self.host.end()

    def ledger_goes_on(self) -> None:
        """See `LedgerOwner`."""
        self._act()
        self.host.resume()
        self._sync_state()
        self.next_turn_soon()


def _how(event: AgentExited) -> str:
    if event.code is not None:
        return f"exit code {event.code}"
    return "it is not known how" if event.signal is None else f"signal {event.signal}"
