"""The verbs of sessions of a facade in memory; for `fake_facade`."""

from __future__ import annotations

import msgspec

from steprail_daemon.core import queue, records
from steprail_daemon.core.errors import Invalid, WrongState
from steprail_daemon.core.model import (
    SECOND,
    Capabilities,
    CostSupport,
    PermissionMode,
    SessionState,
    StepGate,
    UsageSupport,
)
from steprail_daemon.core.replay import fold_session
from steprail_daemon.core.views import SessionView
from steprail_daemon.engine.admission import admit_labels
from steprail_daemon.engine.facade import (
    Caller,
    CreateSession,
    Cursor,
    EventFilter,
    EventsSubscription,
    LimitsView,
    SessionChange,
)
from steprail_daemon.testing.fake_book import LIMITS, FakeBook
from steprail_daemon.testing.fake_feed import EPOCH, FanIn, Log, Subscription

CAPABILITIES = Capabilities(
    step_gate=StepGate.EXACT,
    usage=UsageSupport.PER_STEP,
    cost=CostSupport.UNSUPPORTED,
    guidance=True,
    model_switch=True,
    max_decision_hold_ns=3600 * SECOND,
)
_GONE = frozenset({SessionState.CLOSED, SessionState.BROKEN})


class FakeSessions(FakeBook):
    """Makes, changes, ends and follows sessions."""

    def __init__(self, limits: LimitsView = LIMITS) -> None:
        super().__init__(limits)
        #: What sessions were asked for with, by session.
        self.asked_for: dict[str, CreateSession] = {}

    async def create_session(self, caller: Caller, request: CreateSession) -> SessionView:
        """See `Facade`."""
        if request.agent != "claude":
            raise Invalid("AGENT_UNKNOWN", f"there is no agent {request.agent!r}; accepted is claude", field="agent")
        at = self.now()
        view = SessionView(
            session_id=self._new_id("ses"),
            agent=request.agent,
            cwd=request.cwd,
            agent_session_id=request.resume,
            permission_mode=request.permission_mode or PermissionMode.ASK,
            model=request.model,
            labels=admit_labels(request.labels, caller.labels),
            tenant=caller.tenant,
            owner=caller.name,
            capabilities=CAPABILITIES,
            created_at=at,
            last_active_at=at,
            epoch=EPOCH,
        )
        self._sessions[view.session_id] = view
        self.asked_for[view.session_id] = request
        self._logs[view.session_id] = Log(view.session_id, self._bell)
        self._record(view, "", 0, records.SessionStateChanged(SessionState.IDLE, None))
        view.state = SessionState.IDLE
        return view

    async def close_session(self, caller: Caller, session_id: str, *, force: bool, reason: str = "") -> SessionView:
        """See `Facade`."""
        view = self.get_session(caller, session_id)
        if view.active_run_id and not force:
            raise WrongState("SESSION_BUSY", f"session {session_id} has a live run", active_run_id=view.active_run_id)
        view.state, view.state_reason = SessionState.CLOSED, reason
        self._record(view, "", 0, records.SessionStateChanged(SessionState.CLOSED, SessionState.IDLE, reason))
        return view

    def update_session(self, caller: Caller, session_id: str, change: SessionChange) -> SessionView:
        """See `Facade`. It takes effect at once."""
        view = self._open_session(caller, session_id)
        labels = None if change.labels is None else admit_labels(change.labels, caller.labels)
        fold_session(view, records.SessionUpdated(**{**msgspec.structs.asdict(change), "labels": labels}), "")
        return view

    def delete_session(self, caller: Caller, session_id: str) -> None:
        """See `Facade`."""
        view = self.get_session(caller, session_id)
        if view.state not in _GONE:
            raise WrongState("SESSION_BUSY", "only a closed session is deleted", active_run_id=view.active_run_id)
        for run_id in view.run_ids:
            del self._runs[run_id]
        del self._sessions[session_id], self._logs[session_id]

    def release_queue(self, caller: Caller, session_id: str) -> SessionView:
        """See `Facade`."""
        view = self._open_session(caller, session_id)
        fact = queue.release(view)
        if fact is not None:
            fold_session(view, fact, "")
            self._next_turn(view)
        return view

    def watch_session(self, caller: Caller, session_id: str, after_seq: int, epoch: str) -> Subscription:
        """See `Facade`."""
        view = self.get_session(caller, session_id)
        log = self._logs[session_id]
        self._check_cursor(log, after_seq, epoch)
        return Subscription(log, after_seq, "", lambda: view.state is SessionState.CLOSED)

    def watch_events(self, caller: Caller, cursors: list[Cursor], wanted: EventFilter) -> EventsSubscription:
        """See `Facade`."""
        for cursor in cursors:
            self.get_session(caller, cursor.session_id)
            self._check_cursor(self._logs[cursor.session_id], cursor.after_seq, cursor.epoch)
        return FanIn(lambda: self._wanted(caller, wanted), cursors, wanted, self._bell)

    def _wanted(self, caller: Caller, wanted: EventFilter) -> dict[str, Log]:
        return {
            view.session_id: self._logs[view.session_id]
            for view in self.list_sessions(caller)
            if (not wanted.agents or view.agent in wanted.agents) and wanted.labels.items() <= view.labels.items()
        }

    def _open_session(self, caller: Caller, session_id: str) -> SessionView:
        view = self.get_session(caller, session_id)
        if view.state is SessionState.CLOSED:
            raise WrongState("SESSION_CLOSED", f"session {session_id} was closed", session_id=session_id)
        return view
