"""The one interpreter: what happens to a session goes through here, one event at a time, synchronously.

One call from the read callback decodes (in the host), runs the core, commits, writes the answer and publishes, in
this order and without a task in between. The order is the promise: **everything that a call recorded is committed
before any effect of it leaves the daemon, and before anybody sees it.** When the journal refuses a commit the session
stands still: nothing is answered, the agent is not read, and the commit is tried again until it holds or patience ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

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
from steprail_daemon.core.errors import Unavailable
from steprail_daemon.core.events import (
    PASSIVE_EVENTS,
    ActivityPastGate,
    AgentEvent,
    AgentExited,
    AgentReady,
    AgentStartFailed,
    BoundaryReached,
    MessageEnded,
    MessageStarted,
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
from steprail_daemon.core.model import DecisionAction, Failure, RunSpec, SessionState, StepGate
from steprail_daemon.core.records import (
    AgentStarted,
    CapabilitiesChanged,
    Fact,
    RunEnded,
    SessionCreated,
    SessionStateChanged,
)
from steprail_daemon.core.replay import fold_session
from steprail_daemon.core.run import Run
from steprail_daemon.core.views import RunView, SessionView
from steprail_daemon.engine.batch import BatchBuilder
from steprail_daemon.engine.broker import Feed
from steprail_daemon.engine.host import AgentHost
from steprail_daemon.engine.refusals import journal_unavailable
from steprail_daemon.engine.world import World
from steprail_daemon.journal.store import Batch, JournalError

_AGENT_COMMANDS = (SendPrompt, AnswerBoundary, AnswerPermission, Interrupt)
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
        self.feed = Feed(session_no, view.last_seq, world.store, closed=view.state is SessionState.CLOSED)
        self.host = AgentHost(world, view, self)
        self._builder = BatchBuilder(
            session_no, view.last_seq, world.encoders.for_session(view.session_id), world.records
        )
        self._assembly = StepAssembly()
        self._timers: dict[Timer, asyncio.TimerHandle] = {}
        self._commands: list[Command] = []
        self._uncommitted: list[Batch] = []
        self._deferred: list[Callable[[], None]] = []
        self._stalled_since: int | None = None
        self._gate_shut = False
        self._prompted = False
        self._idle_timer: asyncio.TimerHandle | None = None
        self._at = 0
        self._state_reason = ""
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
        self._commit_or_refuse()
        self.host.start(resume=False)

    def start_run(self, run_id: str, spec: RunSpec) -> RunView:
        """Record a new run and let it begin as soon as the agent is ready. No run may be live.

        Raises:
            Unavailable: JOURNAL_UNAVAILABLE, and nothing happened.
        """
        self._refuse_while_stalled()
        run_no = len(self.places) + 1
        at = self.world.clock.now()
        run, commands = Run.create(run_id, self.view.session_id, spec, at, steps_before=self.view.steps_before)
        self._begin(run_no, run_id, 0)
        self._builder.opens_run = run_id
        self._builder.keep(spec.prompt)
        first_seq = self._builder.seq + 1
        for command in commands:
            if isinstance(command, Emit):
                self._builder.add_fact(command.fact)
        self._commit_or_refuse()
        self._commands.extend(command for command in commands if not isinstance(command, Emit))
        self.run = run
        self._prompted = False
        self.places[run_id] = RunPlace(run_no, first_seq, None, run.view)
        for command in commands:
            if isinstance(command, Emit):
                fold_session(self.view, command.fact)
        self._assembly.reset()
        self.on_run_edge()
        if not self.host.up:
            self.host.start(resume=self._has_conversation())
        self._begin(run_no, run_id, 0)
        self._try_prompt()
        self._settle()
        return run.view

    def tell(self, event: RunEvent) -> None:
        """Hand the live run something that happened outside its agent.

        Raises:
            StepRailError: the run refuses it; nothing changed.
            Unavailable: JOURNAL_UNAVAILABLE; it may still take effect once the journal can be written again.
        """
        self._refuse_while_stalled()
        self._begin_run()
        try:
            self._drive(event)
        except BaseException:
            self._builder.drop()
            raise
        self._settle()
        if self._stalled_since is not None:
            raise _not_written("it was not recorded yet")

    def close(self) -> None:
        """Record that the session is closed, unless it is. No run may be live and the process must be gone."""
        if self.view.state is SessionState.CLOSED:
            return
        self._begin(0, "", 0)
        self._builder.closes_session = True
        self._emit(SessionStateChanged(SessionState.CLOSED, self.view.state))
        self._settle()

    def recover(self, run: Run, event: RunEvent) -> None:
        """End a run that the journal shows as live, by what happened to it."""
        self.run = run
        self.tell(event)

    def settle_state(self, reason: str) -> None:
        """Record the session's state if it is not what the journal shows."""
        self._state_reason = reason
        self._sync_state()

    # --- what the host calls ----------------------------------------------------------------------------------------

    def agent_said(self, events: list[AgentEvent]) -> None:
        """Interpret what one read brought. This is the hot path."""
        if self._stalled_since is not None:
            self._deferred.append(lambda: self.agent_said(events))
            return
        self._begin_run()
        add, feed = self._builder.add, self._assembly.feed
        for event in events:
            if type(event) in PASSIVE_EVENTS:
                if self._gate_shut and type(event) in _SIGNS_OF_A_REQUEST:
                    self._past_gate(event)
                add(event)  # type: ignore[arg-type]
                feed(event)  # type: ignore[arg-type]
            else:
                self._active(event)
        self._settle()

    def agent_failed_to_start(self, failure: Failure) -> None:
        """See `HostListener`."""
        self._outside(lambda: self._without_agent(AgentStartFailed(failure), failure.message))

    def agent_exited(self, event: AgentExited) -> None:
        """See `HostListener`."""
        how = f"exit code {event.code}" if event.code is not None else f"signal {event.signal}"
        if self.host.ending and self.run is not None and not self._prompted:
            # The process that went was an earlier run's; this one has not been begun and gets its own.
            self.host.start(resume=self._has_conversation())
        else:
            self._outside(lambda: self._without_agent(event, f"the agent's process ended: {how}"))

    def _without_agent(self, event: RunEvent, reason: str) -> None:
        self._gate_shut = False
        self._state_reason = reason
        if self.run is not None:
            self._drive(event)

    def _timer_fired(self, timer: Timer) -> None:
        self._timers.pop(timer, None)
        self._outside(lambda: self._drive(TimerFired(timer)))

    def _outside(self, happen: Callable[[], None]) -> None:
        if self._stalled_since is not None:
            self._deferred.append(lambda: self._outside(happen))
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
        step = 0 if view.started_at is None else view.step_count + (0 if self._gate_shut else 1)
        self._begin(self.places[view.run_id].run_no, view.run_id, step)

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
        number = run.view.step_count + 1
        step = self._assembly.complete(event, number, run.view.run_id, self._at)
        self._gate_shut = True
        self._drive(StepCompleted(event.boundary_id, step, self.view.steps_before + number))

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
        session = event.agent_session_id or self.view.agent_session_id
        model = event.model or self.view.model
        self._assembly.begin(self._at)
        self._emit(AgentStarted(self.view.agent, self.host.version, model, session, self.host.resumed))

    def _past_gate(self, event: AgentEvent) -> None:
        if getattr(event, "subagent_id", "") or getattr(event, "parent_call_id", ""):
            return
        self._gate_shut = False
        if self.run is not None and self.run.gated:
            self._drive(ActivityPastGate(type(event).__name__))

    def _try_prompt(self) -> None:
        run = self.run
        if run is None or not self.host.ready:
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
                self._emit(command.fact)  # type: ignore[union-attr]
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
        place = self.places[run.view.run_id]
        place.last_seq = self._builder.seq
        self._cut()
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

    def _cut(self) -> None:
        batch = self._builder.take()
        if batch is not None:
            self._uncommitted.append(batch)

    def _settle(self) -> None:
        self._cut()
        committed: list[Batch] = []
        try:
            self._commit(committed)
        except JournalError as error:
            self._publish(committed)
            self._stall(error)
            return
        if self._commands:
            self._act()
        self._publish(committed)
        self._sync_state()

    def _commit(self, committed: list[Batch]) -> None:
        waiting = self._uncommitted
        append = self.world.store.append
        while waiting:
            append(waiting[0])
            committed.append(waiting.pop(0))

    def _publish(self, committed: list[Batch]) -> None:
        for batch in committed:
            self.view.last_seq = batch.last_seq
            self.feed.publish(batch)

    def _act(self) -> None:
        commands, self._commands = self._commands, []
        to_agent: list[AgentCommand] = []
        for command in commands:
            if isinstance(command, _AGENT_COMMANDS):
                to_agent.append(command)
                if type(command) is AnswerBoundary and command.action is DecisionAction.CONTINUE:
                    self._gate_shut = False
                continue
            if to_agent and isinstance(command, EndProcess):
                self.host.send(to_agent)
                to_agent = []
            self._perform(command)
        if to_agent:
            self.host.send(to_agent)

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
        self._timers[command.timer] = self.world.loop.call_later(delay, self._timer_fired, command.timer)

    def _cancel_timer(self, timer: Timer) -> None:
        handle = self._timers.pop(timer, None)
        if handle is not None:
            handle.cancel()

    def _sync_state(self) -> None:
        view = self.view
        if self.run is not None:
            state = SessionState.RUNNING
        elif view.state is SessionState.CLOSED:
            return
        elif self.host.ready:
            state = SessionState.IDLE
        elif self.host.up:
            state = SessionState.STARTING
        else:
            state = SessionState.SUSPENDED
        if state is view.state:
            return
        self._watch_idleness(state)
        reason, self._state_reason = self._state_reason, ""
        self._begin(0, "", 0)
        self._emit(SessionStateChanged(state, view.state, reason))
        self._settle()

    def _watch_idleness(self, state: SessionState) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None
        if state is SessionState.IDLE and self.view.capabilities.resume:
            seconds = self.world.settings.idle_timeout_ns / 1e9
            self._idle_timer = self.world.loop.call_later(seconds, self._idle_too_long)

    def _idle_too_long(self) -> None:
        self._idle_timer = None
        if self.run is None:
            self.host.end()

    # --- a journal that refuses -------------------------------------------------------------------------------------

    def _refuse_while_stalled(self) -> None:
        if self._stalled_since is not None:
            raise _not_written("nothing is accepted until it can be written again")

    def _commit_or_refuse(self) -> None:
        batch = self._builder.take()
        assert batch is not None
        try:
            self.world.store.append(batch)
        except JournalError as error:
            self._builder.rewind(batch.first_seq - 1)
            raise _not_written(error.message) from error
        self._publish([batch])

    def _stall(self, error: JournalError) -> None:
        self._stalled_since = self.world.clock.now()
        self._state_reason = f"the journal could not be written: {error.message}"
        self.host.pause()
        self._retry_later()

    def _retry_later(self) -> None:
        self.world.loop.call_later(self.world.settings.journal_retry_ns / 1e9, self._retry)

    def _retry(self) -> None:
        since = self._stalled_since
        if since is None:
            return
        committed: list[Batch] = []
        try:
            self._commit(committed)
        except JournalError:
            self._publish(committed)
            if self.world.clock.now() - since > self.world.settings.journal_patience_ns:
                # The agent waits at its gate or for its reader; it must not wait for ever.
                self.host.end()
            self._retry_later()
            return
        self._stalled_since = None
        self.host.resume()
        self._act()
        self._publish(committed)
        deferred, self._deferred = self._deferred, []
        for happen in deferred:
            happen()
        self._sync_state()


def _not_written(message: str) -> Unavailable:
    return journal_unavailable(f"the journal cannot be written: {message}")
