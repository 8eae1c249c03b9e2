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

from steprail_daemon.core.assembly import StepAssembly
from steprail_daemon.core.commands import (
    AgentCommand,
    AnswerBoundary,
    AnswerPermission,
    CancelTimer,
    Command,
    Emit,
    EndProcess,
    FinishRun,
    Interrupt,
    LowerGate,
    SendPrompt,
    StartTimer,
)
from steprail_daemon.core.events import (
    PASSIVE_EVENTS,
    ActivityPastGate,
    AgentEvent,
    AgentExited,
    AgentReady,
    AgentStartFailed,
    BoundaryReached,
    DecisionSubmitted,
    MessageEnded,
    MessageStarted,
    PassiveEvent,
    PermissionAsked,
    PromptConfirmed,
    PromptSent,
    ProtocolFailed,
    RunEvent,
    StepCompleted,
    Timer,
    TimerFired,
    ToolStarted,
    TurnEnded,
)
from steprail_daemon.core.failures import journal_unavailable
from steprail_daemon.core.model import DecisionAction, Failure, RunSpec, SessionState, StepGate
from steprail_daemon.core.records import (
    AgentStarted,
    CapabilitiesChanged,
    Fact,
    RunEnded,
    SessionCreated,
    SessionStateChanged,
)
from steprail_daemon.core.replay import SESSION_FACTS, fold_session
from steprail_daemon.core.run import Run
from steprail_daemon.core.views import RunView, SessionView
from steprail_daemon.engine.batch import BatchBuilder
from steprail_daemon.engine.broker import Feed
from steprail_daemon.engine.host import AgentHost
from steprail_daemon.engine.ledger import Ledger, not_written
from steprail_daemon.engine.world import World

#: How long the events of a step that a client was asked about ahead of them may be held.
HOLD_SECONDS = 0.002
#: Calls of one message: a step is given as one message of the API, which has a bound.
MAX_CALLS = 256

_AGENT_COMMANDS = frozenset({SendPrompt, AnswerBoundary, AnswerPermission, Interrupt})
# A member of an enumeration costs a function call to look up.
_CONTINUE = DecisionAction.CONTINUE
_SIGNS_OF_A_REQUEST = frozenset({MessageStarted, MessageEnded, ToolStarted})


class RunPlace:
    """Where a run is in its session: its number and the sequence numbers of its first and last event."""

    __slots__ = ("first_seq", "last_seq", "run_no", "view")

    def __init__(self, run_no: int, first_seq: int, last_seq: int | None, view: RunView) -> None:
        self.run_no = run_no
        self.first_seq = first_seq
        self.last_seq = last_seq
        self.view = view


class SessionRunner:
    """Interprets one session; see the module docstring. All methods are called on the loop's thread."""

    def __init__(self, world: World, view: SessionView, session_no: int, places: dict[str, RunPlace]) -> None:
        self.world = world
        self.view = view
        self.session_no = session_no
        self.places = places
        self.run: Run | None = None
        #: Set once the session is to be closed, until it is: no run is begun any more.
        self.closing: asyncio.Future[None] | None = None
        self.feed = Feed(session_no, view.last_seq, world.store, closed=view.state is SessionState.CLOSED)
        self.host = AgentHost(world, view, self)
        encoder = world.encoders.for_session(view.session_id)
        self._builder = BatchBuilder(session_no, view.last_seq, encoder, world.records)
        self.ledger = Ledger(world, view, self.feed, self._builder, self)
        self._assembly = StepAssembly()
        self._timers: dict[Timer, asyncio.TimerHandle] = {}
        self._idle_timer: asyncio.TimerHandle | None = None
        #: Runs while events are held whose facts are committed; see `_ask_at_once`.
        self._held: asyncio.TimerHandle | None = None
        self._commands: list[Command] = []
        self._answers = False
        self._asks = False
        self._gate_shut = False
        self._prompted = False
        self._gave_up = False
        self._broken = view.state_reason if view.state is SessionState.BROKEN else ""
        self._at = 0
        self._state_reason = ""
        #: Why the process is being ended although nothing is wrong.
        self._end_reason = ""
        self.on_run_edge: Callable[[], None] = lambda: None

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
        self.host.start(resume=False)

    def start_run(self, run_id: str, spec: RunSpec) -> RunView:
        """Record a new run and let it begin as soon as the agent is ready. No run may be live.

        Raises:
            Unavailable: JOURNAL_UNAVAILABLE, and nothing happened.
        """
        self.ledger.require()
        run_no = len(self.places) + 1
        at = self.world.clock.now()
        run, commands = Run.create(run_id, self.view.session_id, spec, at, steps_before=self.view.steps_before)
        facts = [command.fact for command in commands if isinstance(command, Emit)]
        self._begin(run_no, run_id, 0)
        self._builder.opens_run = run_id
        self._builder.keep(spec.prompt)
        first_seq = self._builder.seq + 1
        for fact in facts:
            self._builder.add_fact(fact)
        self.ledger.commit_or_refuse()
        for fact in facts:
            fold_session(self.view, fact)
        self._commands.extend(command for command in commands if not isinstance(command, Emit))
        self.run = run
        self._prompted = False
        self._gate_shut = False
        self.places[run_id] = RunPlace(run_no, first_seq, None, run.view)
        self._assembly.reset()
        self.on_run_edge()
        if not self.host.up:
            self.host.start(resume=self._has_conversation())
        self._begin_run()
        self._try_prompt()
        self._settle()
        return run.view

    def tell(self, event: RunEvent) -> None:
        """Hand the live run something that happened outside its agent.

        Raises:
            StepRailError: the run refuses it; nothing changed.
            Unavailable: JOURNAL_UNAVAILABLE; it may still take effect once the journal can be written again.
        """
        self.ledger.require()
        if self._held is not None and not self._is_answer(event):
            self.publish_held()
            self.ledger.require()
        self._begin_run()
        try:
            self._drive(event)
        except BaseException:
            self._builder.drop()
            raise
        if not self._settle():
            raise not_written("it was not recorded yet")

    def close(self) -> None:
        """Record that the session is closed, unless it is. No run may be live and the process must be gone.

        Raises:
            Unavailable: JOURNAL_UNAVAILABLE, and nothing happened.
        """
        if self.view.state is SessionState.CLOSED:
            return
        self.publish_held()
        self.ledger.require()
        if self.run is not None or self.host.up:
            raise RuntimeError(f"session {self.view.session_id} is closed while something of it is live")
        self._watch_idleness(SessionState.CLOSED)
        fact = SessionStateChanged(SessionState.CLOSED, self.view.state)
        self._begin(0, "", 0)
        self._builder.closes_session = True
        self._builder.add_fact(fact)
        self.ledger.commit_or_refuse()
        fold_session(self.view, fact)

    def recover(self, run: Run, event: RunEvent) -> None:
        """End a run that the journal shows as live, by what happened to it.

        Raises:
            Unavailable: JOURNAL_UNAVAILABLE.
        """
        self.run = run
        self.tell(event)

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

    def settle_state(self, reason: str) -> None:
        """Record the session's state if it is not what the journal shows."""
        self._state_reason = reason
        self._sync_state()

    # --- what the host calls ----------------------------------------------------------------------------------------

    def agent_said(self, events: list[AgentEvent]) -> None:
        """Interpret what one read brought. This is the hot path."""
        if self._held is not None:
            self.publish_held()
        if self.ledger.stalled:
            self.ledger.put_off(lambda: self.agent_said(events))
            return
        self._begin_run()
        if not self._gate_shut and PASSIVE_EVENTS.issuperset(map(type, events)):
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
            if not any(place.view.stored for place in self.places.values()):
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
        self._drive(event)

    def _timer_fired(self, timer: Timer) -> None:
        self._timers.pop(timer, None)
        self._outside(lambda: self._drive(TimerFired(timer)))

    def _outside(self, happen: Callable[[], None]) -> None:
        self.publish_held()
        if self.ledger.stalled:
            self.ledger.put_off(lambda: self._outside(happen))
            return
        self._begin_run()
        happen()
        self._settle()

    # --- interpretation ---------------------------------------------------------------------------------------------

    def _begin(self, run_no: int, run_id: str, step_number: int) -> None:
        self._at = at = self.world.clock.now()
        self._builder.begin(at, run_no, run_id, step_number)

    def _begin_run(self) -> None:
        run = self.run
        if run is None:
            self._begin(0, "", 0)
            return
        view = run.view
        step = 0 if view.started_at is None else len(view.steps) + (0 if self._gate_shut else 1)
        # `_begin` written out, as this is on the way to every decision.
        self._at = at = self.world.clock.now()
        self._builder.begin(at, self.places[view.run_id].run_no, view.run_id, step)

    def _active(self, event: AgentEvent) -> None:
        kind = type(event)
        if kind is BoundaryReached:
            self._boundary(event)  # type: ignore[arg-type]
        elif kind is AgentReady:
            self._try_prompt()
        elif self.run is None:
            self._active_outside_run(event)
        else:
            if kind is PromptConfirmed:
                self._took_up(event)  # type: ignore[arg-type]
            elif kind is TurnEnded:
                self._gate_shut = False
            self._drive(event)  # type: ignore[arg-type]

    def _boundary(self, event: BoundaryReached) -> None:
        run = self.run
        if run is None:
            self._active_outside_run(event)
            return
        number = len(run.view.steps) + 1
        step = self._assembly.complete(event, number, run.view.run_id, self._at)
        if len(step.tool_calls) > MAX_CALLS:
            problem = f"a message has {len(step.tool_calls)} tool calls; at most {MAX_CALLS} are taken"
            self._drive(ProtocolFailed(problem))
            return
        past_gate, self._gate_shut = self._gate_shut, True
        self._drive(StepCompleted(event.boundary_id, step, self.view.steps_before + number, past_gate))
        self._asks = run.view.pending_decision is not None

    def _active_outside_run(self, event: AgentEvent) -> None:
        """The agent works although no run is live: it is answered so that it stops, and waits for nobody."""
        if isinstance(event, BoundaryReached):
            self._commands.append(AnswerBoundary(event.boundary_id, DecisionAction.STOP))
        elif isinstance(event, PermissionAsked):
            self._commands.append(AnswerPermission(event.permission_id, False, "No run is active."))
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
        self._commands.append(SendPrompt(prompt_id, run.view.spec.prompt))
        self._drive(PromptSent(prompt_id))

    def _drive(self, event: RunEvent) -> None:
        run = self.run
        if run is None:
            return
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
                self._commands.append(command)
            elif kind is FinishRun:
                self._finish_run(run)
            elif kind is LowerGate:
                self._lower_gate(command.reason)  # type: ignore[union-attr]
            else:
                self._commands.append(command)

    def _emit(self, fact: Fact) -> None:
        fold_session(self.view, fact)
        if type(fact) is RunEnded:
            self._builder.ends_run = True
        self._builder.add_fact(fact)

    def _finish_run(self, run: Run) -> None:
        self.places[run.view.run_id].last_seq = self._builder.seq
        self.ledger.cut()
        self.run = None
        self._assembly.reset()
        self._begin(0, "", 0)
        self._commands.append(FinishRun())

    def _lower_gate(self, reason: str) -> None:
        lowered = msgspec.structs.replace(self.view.capabilities, step_gate=StepGate.BEST_EFFORT)
        self._emit(CapabilitiesChanged(lowered, reason))

    def _has_conversation(self) -> bool:
        return any(place.view.started_at is not None for place in self.places.values())

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
                self._perform(command)
            else:
                # Timers and the like are ours: the agent waits and comes first.
                later.append(command)
        if to_agent:
            self.host.send(to_agent)
        for command in later:
            self._perform(command)

    def _perform(self, command: Command) -> None:
        if isinstance(command, StartTimer):
            self._start_timer(command)
        elif isinstance(command, CancelTimer):
            self._cancel_timer(command.timer)
        elif isinstance(command, EndProcess):
            self._state_reason = command.reason
            self.host.end()
        elif isinstance(command, FinishRun):
            self.on_run_edge()

    def _start_timer(self, command: StartTimer) -> None:
        self._cancel_timer(command.timer)
        delay = max(0, command.deadline_at - self.world.clock.now()) / 1e9
        fire = self.world.guarded(lambda: self._timer_fired(command.timer))
        self._timers[command.timer] = self.world.loop.call_later(delay, fire)

    def _cancel_timer(self, timer: Timer) -> None:
        handle = self._timers.pop(timer, None)
        if handle is not None:
            handle.cancel()

    # --- the session's state ----------------------------------------------------------------------------------------

    def _state(self) -> SessionState:
        host = self.host
        if self.run is not None:
            return SessionState.RUNNING
        if host.ready:
            return SessionState.IDLE
        if self._broken:
            return SessionState.BROKEN
        if host.up and host.ending:
            # It is what it was until the process is gone.
            return self.view.state if self.view.state is not SessionState.RUNNING else SessionState.IDLE
        return SessionState.STARTING if host.up else SessionState.SUSPENDED

    def _sync_state(self) -> None:
        view = self.view
        state = self._state()
        if state is view.state or view.state is SessionState.CLOSED:
            return
        self._watch_idleness(state)
        reason, self._state_reason = self._state_reason, ""
        self._begin(0, "", 0)
        self._emit(SessionStateChanged(state, view.state, reason))
        self.ledger.commit()

    def _watch_idleness(self, state: SessionState) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None
        if state is SessionState.IDLE and self.view.capabilities.resume:
            seconds = self.world.settings.idle_timeout_ns / 1e9
            self._idle_timer = self.world.loop.call_later(seconds, self.world.guarded(self._idle_too_long))

    def _idle_too_long(self) -> None:
        self.end_idle("it was idle for processes.idle_timeout")

    def end_idle(self, reason: str) -> None:
        """End the process of a session without a run; the next run resumes."""
        if self.run is None:
            self._end_reason = reason
            self.host.end()

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


def _how(event: AgentExited) -> str:
    if event.code is not None:
        return f"exit code {event.code}"
    return "it is not known how" if event.signal is None else f"signal {event.signal}"
