"""What a facade in memory knows: sessions, runs and their events; for `fake_facade`."""

from __future__ import annotations

from itertools import count

from steprail_daemon.core import events, queue, records
from steprail_daemon.core.errors import NotFound, OutOfRange, WrongState
from steprail_daemon.core.model import SECOND, RunState
from steprail_daemon.core.views import RunView, SessionView
from steprail_daemon.engine.facade import LOCAL, Blob, Caller, LimitsView
from steprail_daemon.service.translate import KINDS
from steprail_daemon.testing.fake_feed import EPOCH, Bell, Log

LIMITS = LimitsView(
    max_prompt_bytes=16 * 1024 * 1024,
    max_sessions=64,
    max_processes=64,
    max_steps=200,
    max_rules=8,
    hard_timeout_ns=3600 * SECOND,
    decision_timeout_ns=600 * SECOND,
    stop_timeout_ns=30 * SECOND,
    abort_timeout_ns=30 * SECOND,
    heartbeat_ns=10 * SECOND,
    stalled_reader_ns=60 * SECOND,
)


class FakeBook:
    """Sessions, runs and what was recorded of them. Times go up by a millisecond with each look at the clock."""

    def __init__(self, limits: LimitsView = LIMITS) -> None:
        self._limits = limits
        self._clock = count(1_753_000_000_000_000_000, 1_000_000)
        self._numbers = count(1)
        self._bell = Bell()
        self._sessions: dict[str, SessionView] = {}
        self._runs: dict[str, RunView] = {}
        self._logs: dict[str, Log] = {}
        self._blobs: dict[str, Blob] = {}
        self._blob_tenants: dict[str, set[str]] = {}
        self._step_events: dict[str, list[bytes]] = {}

    def now(self) -> int:
        """See `Facade`."""
        return next(self._clock)

    def limits(self) -> LimitsView:
        """See `Facade`."""
        return self._limits

    def get_session(self, caller: Caller, session_id: str) -> SessionView:
        """See `Facade`."""
        view = self._sessions.get(session_id)
        if view is None or not caller.sees(view.tenant):
            raise NotFound("SESSION_NOT_FOUND", f"there is no session {session_id!r}", session_id=session_id)
        return view

    def list_sessions(self, caller: Caller) -> list[SessionView]:
        """See `Facade`."""
        return [view for view in reversed(self._sessions.values()) if caller.sees(view.tenant)]

    def get_run(self, caller: Caller, run_id: str) -> RunView:
        """See `Facade`."""
        run = self._runs.get(run_id)
        if run is None or not caller.sees(self._sessions[run.session_id].tenant):
            raise NotFound("RUN_NOT_FOUND", f"there is no run {run_id!r}", run_id=run_id)
        return run

    def followers(self, session_id: str) -> int:
        """Count the streams that follow a session."""
        return self._logs[session_id].followers

    def emit(self, run_id: str, event: events.PassiveEvent | records.Fact) -> None:
        """Record an event of a run."""
        run = self.get_run(LOCAL, run_id)
        self._record(self.get_session(LOCAL, run.session_id), run_id, run.step_count + 1, event)

    def emit_quietly(self, run_id: str, event: events.PassiveEvent | records.Fact) -> None:
        """Record an event that will be seen together with the next one."""
        run = self.get_run(LOCAL, run_id)
        self._record(self.get_session(LOCAL, run.session_id), run_id, run.step_count, event, wake=False)

    def _new_id(self, prefix: str) -> str:
        return f"{prefix}_{next(self._numbers):026}"

    def _enter(self, run: RunView, state: RunState) -> None:
        """Let a run be in another state."""
        previous, run.state, run.state_since = run.state, state, self.now()
        self.emit(run.run_id, records.RunStateChanged(state, previous, run.state_since))

    def _next_turn(self, session: SessionView) -> None:
        """Let the next run of the queue begin, if it is its turn."""
        run_id = queue.next_run(session)
        if run_id:
            run, at = self._runs[run_id], self.now()
            session.queued_run_ids.remove(run_id)
            session.active_run_id = run_id
            run.turn_came, run.state, run.started_at, run.state_since = True, RunState.RUNNING, at, at
            self.emit(run_id, records.RunStateChanged(RunState.RUNNING, None, at))

    def _require_live(self, caller: Caller, run_id: str, reason: str) -> RunView:
        run = self.get_run(caller, run_id)
        if run.ended:
            raise WrongState(reason, f"run {run_id} has ended", run_id=run_id)
        return run

    def _record(
        self,
        session: SessionView,
        run_id: str,
        step_number: int,
        event: events.PassiveEvent | records.Fact,
        *,
        wake: bool = True,
    ) -> bytes:
        log = self._logs[session.session_id]
        log.encoder.begin(self.now(), run_id, step_number)
        entry = log.encoder.encode(len(log.entries) + 1, event)
        for blob in log.encoder.take_blobs():
            self._blobs[blob.blob_id] = blob
            self._blob_tenants.setdefault(blob.blob_id, set()).add(session.tenant)
        log.entries.append((KINDS[type(event)], entry, run_id))
        session.last_seq = len(log.entries)
        if wake:
            log.wake()
        return entry

    def _check_cursor(self, log: Log, after_seq: int, epoch: str) -> None:
        if after_seq and (epoch != EPOCH or after_seq > len(log.entries)):
            raise OutOfRange(
                "CURSOR_INVALID",
                f"after_seq {after_seq} of epoch {epoch!r} is no place in this session",
                earliest_seq="1",
                last_seq=str(len(log.entries)),
                epoch=EPOCH,
            )
