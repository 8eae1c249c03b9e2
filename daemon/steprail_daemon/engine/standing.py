"""How a session stands: whether its agent's process is there, idle or at work, and what is recorded of that."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from steprail_daemon.core.model import SessionState
from steprail_daemon.core.records import Fact, RunEnded, SessionStateChanged
from steprail_daemon.core.replay import fold_session
from steprail_daemon.core.run import Run
from steprail_daemon.core.views import SessionView
from steprail_daemon.engine.batch import BatchBuilder
from steprail_daemon.engine.host import AgentHost
from steprail_daemon.engine.ledger import Ledger
from steprail_daemon.engine.world import World
from steprail_daemon.journal.store import RequestRow


class Standing:
    """The part of a session's runner that records facts and the session's own state."""

    world: World
    view: SessionView
    host: AgentHost
    ledger: Ledger
    _builder: BatchBuilder

    def __init__(self) -> None:
        self.run: Run | None = None
        #: Set once the session is to be closed, until it is: no run is begun any more.
        self.closing: asyncio.Future[None] | None = None
        #: Whether its record in the journal is damaged: nothing more is written to it.
        self.damaged = False
        self._idle_timer: asyncio.TimerHandle | None = None
        self._at = 0
        #: The run that what happens now is about; empty: none.
        self._subject = ""
        self._broken = ""
        self._state_reason = ""
        #: Why the process is being ended although nothing is wrong.
        self._end_reason = ""
        #: Called when a run begins or ends; whoever owns all sessions listens.
        self.on_run_edge: Callable[[], None] = lambda: None

    # --- facts ------------------------------------------------------------------------------------------------------

    def _begin(self, run_no: int, run_id: str, step_number: int) -> None:
        self._at = at = self.world.clock.now()
        self._subject = run_id
        self._builder.begin(at, run_no, run_id, step_number)

    def _emit(self, fact: Fact) -> None:
        fold_session(self.view, fact, self._subject)
        if type(fact) is RunEnded:
            self._builder.ends_run = True
        self._builder.add_fact(fact)

    def note(self, fact: Fact, request: RequestRow | None = None) -> None:
        """Record a fact about the session itself, and with it the request that asks for it.

        Raises:
            Unavailable: JOURNAL_UNAVAILABLE, and nothing happened.
        """
        self.publish_held()
        self.ledger.require()
        self._begin(0, "", 0)
        self._builder.add_fact(fact)
        self._builder.request = request
        self.ledger.commit_or_refuse()
        fold_session(self.view, fact, "")

    def publish_held(self) -> None:
        """Publish what is committed and was not published yet."""
        raise NotImplementedError

    # --- the session's state ----------------------------------------------------------------------------------------

    def settle_state(self, reason: str) -> None:
        """Record the session's state if it is not what the journal shows."""
        self._state_reason = reason
        self._sync_state()

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
