"""The one interpreter: what happens to a session goes through here, one event at a time, synchronously.

One call from the read callback decodes (in the host), runs the core (`interpreting`), commits, writes the answer and
publishes (`settling`), in this order and without a task in between. The runner is put together from parts, each on top
of the one before: `standing` (the session's own state), `lineup` (its runs), `settling`, `interpreting`, and here the
verbs and what the agent's host calls.
"""

from __future__ import annotations

from typing import cast

import msgspec

from steprail_daemon.core.coalescing import coalesced
from steprail_daemon.core.events import (
    PASSIVE_EVENTS,
    AgentEvent,
    AgentExited,
    AgentStartFailed,
    BoundaryReached,
    DecidersChanged,
    MessageDelta,
    PassiveEvent,
    RateLimited,
    RunEvent,
    TurnCame,
    UsageReported,
)
from steprail_daemon.core.failures import journal_unavailable
from steprail_daemon.core.model import Failure, PermissionAlternative, SessionState
from steprail_daemon.core.records import (
    Fact,
    SessionCreated,
    SessionStateChanged,
    SessionUpdated,
)
from steprail_daemon.core.run import Run
from steprail_daemon.core.views import RunView, SessionView
from steprail_daemon.engine.batch import BatchBuilder
from steprail_daemon.engine.broker import Feed
from steprail_daemon.engine.changes import Changes
from steprail_daemon.engine.expressions import ExpressionDesk
from steprail_daemon.engine.host import AgentHost, how_ended
from steprail_daemon.engine.interpreting import Interpreting
from steprail_daemon.engine.ledger import Ledger
from steprail_daemon.engine.lineup import RunPlace
from steprail_daemon.engine.permissions import PermissionDesk
from steprail_daemon.engine.refusals import not_written
from steprail_daemon.engine.silence import SilenceWatch
from steprail_daemon.engine.timers import Timers
from steprail_daemon.engine.world import World
from steprail_daemon.journal.store import RequestRow

__all__ = ["RunPlace", "SessionRunner"]

#: Passive events that nobody but their readers cares about.
_PLAIN_EVENTS = PASSIVE_EVENTS - {RateLimited, UsageReported}


class SessionRunner(Interpreting):
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
        self._timers = Timers(world, self._timer_fired)
        self._permissions = PermissionDesk(world, view, self.host)
        self._expressions = ExpressionDesk(world, view, self._rules_evaluated)
        self._silence = SilenceWatch(world, self.host, self._silent)
        self._changes = Changes(world, view)
        self._deciders: dict[str, int] = {}
        self._broken = view.state_reason if view.state is SessionState.BROKEN else ""

    # --- verbs ------------------------------------------------------------------------------------------------------

    def open(self, created: SessionCreated, request: RequestRow | None = None) -> None:
        """Record a new session and begin to start its agent.

        Raises:
            Unavailable: JOURNAL_UNAVAILABLE, and nothing happened.
        """
        self._begin(0, "", 0)
        builder = self._builder
        builder.opens_session = created.session_id
        builder.request = request
        builder.add_record(created)
        builder.add_fact(SessionStateChanged(SessionState.STARTING, None))
        self.ledger.commit_or_refuse()
        self.host.start(resume=created.resumes)

    def require_alternative(self, permission_id: str, run: RunView, alternative: PermissionAlternative) -> None:
        """See that policy lets a person give this in place of a call that waits for leave; others are nobody's affair.

        Raises:
            Denied: FORBIDDEN.
        """
        for permission in run.pending_permissions:
            if permission.permission_id == permission_id:
                self._permissions.require_allowed(permission, alternative)

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

    def tell(self, run_id: str, event: RunEvent, request: RequestRow | None = None) -> None:
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
        self._builder.request = request
        try:
            self._drive(event, run)
        except BaseException:
            self._builder.request = None
            if self._held is None:
                # What is held is committed, and a run that refuses has added nothing to it.
                self._builder.drop()
            raise
        recorded = self._settle()
        # It may have changed nothing that is recorded.
        self._builder.request = None
        if not recorded:
            raise not_written("it was not recorded yet")

    def count_decider(self, run_id: str, more: int) -> None:
        """Count those who are registered to decide about a run."""
        count = self._deciders.get(run_id, 0) + more
        if count:
            self._deciders[run_id] = count
        else:
            self._deciders.pop(run_id, None)
        self._about(run_id, DecidersChanged(count))

    def change(self, change: SessionUpdated, request: RequestRow | None = None) -> None:
        """Change modes, model or labels: now, or at the live run's next boundary.

        Raises:
            WrongState: SESSION_BUSY, it cannot be changed while a run is live.
            Unavailable: JOURNAL_UNAVAILABLE, and nothing happened.
        """
        self.publish_held()
        self.ledger.require()
        if self.run is not None and self._changes.put_off(change):
            return
        self.note(change, request)
        commands, restarts = self._changes.apply(change, ready=self.host.ready)
        if restarts and self.host.up:
            self.end_idle("its settings were changed")
        elif commands:
            self.host.send(commands)

    def close(self, reason: str, request: RequestRow | None = None) -> None:
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
        self.note(SessionStateChanged(SessionState.CLOSED, self.view.state, reason), request)

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
        if len(events) == 1 and type(events[0]) is BoundaryReached:
            # An agent that waits is mostly read alone, and should not wait for what is done with crowds.
            self._boundary(events[0])
            self._settle()
            return
        kinds = set(map(type, events))
        if not self._gate_shut and _PLAIN_EVENTS.issuperset(kinds):
            # Nearly every chunk: parts of messages and results of tools, which change no state.
            passive = cast("list[PassiveEvent]", events)
            if MessageDelta in kinds and len(events) > 1:
                passive = coalesced(passive)
            self._builder.extend(passive)
            self._assembly.extend(passive)
        else:
            self._one_by_one(events)
        self._settle()

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
            if not self.draining:
                self.host.start(resume=self._has_conversation())
        else:
            reason, self._end_reason = self._end_reason, ""
            self._without_agent(event, reason or f"the agent's process ended: {how_ended(event.code, event.signal)}")

    def _without_agent(self, event: RunEvent, reason: str) -> None:
        self._gate_shut = False
        self._state_reason = reason
        self._ruling.clear()
        self._drive(event)
        self.next_turn_soon()
