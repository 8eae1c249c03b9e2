"""The sessions by id, and what bounds how many there are; the base of the engine's verbs."""

from __future__ import annotations

import asyncio

from steprail_daemon.core.errors import Denied, Exhausted, NotFound, Unavailable, WrongState
from steprail_daemon.core.model import PermissionMode, SessionState
from steprail_daemon.core.views import RunView
from steprail_daemon.drivers.base import Driver
from steprail_daemon.engine.agents import Agents
from steprail_daemon.engine.facade import Caller
from steprail_daemon.engine.recovery import committed
from steprail_daemon.engine.refusals import journal_reads, journal_writes
from steprail_daemon.engine.requests import row_of
from steprail_daemon.engine.runner import SessionRunner
from steprail_daemon.engine.world import World
from steprail_daemon.journal.store import RequestRow

#: Read sizes: alone a session may take much at once; among others it must let them have their turn.
_READ_ALONE = 128 * 1024
_READ_SHARED = 16 * 1024


class Registry:
    """Finds runners for those who may see them. What others have looks like what does not exist."""

    def __init__(self, world: World, agents: Agents) -> None:
        self._world = world
        self._agents = agents
        self._sessions: dict[str, SessionRunner] = {}
        self._session_of_run: dict[str, SessionRunner] = {}
        self._last_session_no = 0
        self._pending_sessions = 0
        self._draining = False
        #: By agent: when its back-off is over and the queues of its sessions are looked at.
        self._backoff_ends: dict[str, asyncio.TimerHandle] = {}
        world.rate_limits.on_change = self._rate_limited

    # --- set-up -----------------------------------------------------------------------------------------------------

    def add(self, runner: SessionRunner) -> None:
        """Take up a session that the journal had, or a new one."""
        self._sessions[runner.view.session_id] = runner
        self._last_session_no = max(self._last_session_no, runner.session_no)
        for run_id in runner.places:
            self._session_of_run[run_id] = runner
        runner.on_run_edge = self._run_edge
        runner.make_room = self._make_room
        runner.view.epoch = self._world.store.epoch
        self._world.arrivals.bump()

    def _next_session_no(self) -> int:
        """Give a number that no session has or, where it was deleted, had."""
        with journal_reads():
            return max(self._last_session_no, self._world.store.last_session_no()) + 1

    # --- requests ---------------------------------------------------------------------------------------------------

    def _request(self, caller: Caller, result: str) -> RequestRow | None:
        return row_of(caller, result, self._world.clock.now())

    def remembered(self, caller: Caller, request_id: str) -> RequestRow | None:
        """See `Facade`."""
        return self._world.requests.find(caller, request_id, self._world.clock.now())

    def remember(self, caller: Caller, result: str) -> None:
        """See `Facade`."""
        request = self._request(caller, result)
        if request is not None and self.remembered(caller, request.request_id) is None:
            with journal_writes():
                self._world.store.remember(request)
            self._world.requests.add(request)

    def runners(self) -> list[SessionRunner]:
        """Give all sessions' runners."""
        return list(self._sessions.values())

    @property
    def busy(self) -> bool:
        """Whether any run is live."""
        return any(runner.run is not None for runner in self._sessions.values())

    def begin_drain(self) -> None:
        """Refuse new sessions and runs from now on, and give no run that is queued its turn."""
        self._draining = True
        for runner in self._sessions.values():
            runner.draining = True

    def _run_edge(self) -> None:
        self._share_reading()
        for runner in self._sessions.values():
            # One of them may have waited for room.
            runner.next_turn_soon()

    def _share_reading(self) -> None:
        live = [runner for runner in self._sessions.values() if runner.run is not None]
        size = _READ_ALONE if len(live) <= 1 else _READ_SHARED
        for runner in live:
            runner.host.set_read_size(size)

    def _rate_limited(self, agent: str) -> None:
        """Have the queues of an agent's sessions looked at once its back-off is over."""
        before = self._backoff_ends.pop(agent, None)
        if before is not None:
            before.cancel()
        seconds = self._world.rate_limits.remaining_ns(agent) / 1e9
        end = self._world.guarded(lambda: self._backoff_over(agent))
        self._backoff_ends[agent] = self._world.loop.call_later(seconds, end)

    def _backoff_over(self, agent: str) -> None:
        del self._backoff_ends[agent]
        if self._world.rate_limits.remaining_ns(agent):
            # The loop's clock is not the one of the back-off: the timer may be early, and nobody else would look again.
            self._rate_limited(agent)
            return
        for runner in self._sessions.values():
            if runner.view.agent == agent:
                runner.next_turn_soon()

    # --- finding ----------------------------------------------------------------------------------------------------

    def _runner(self, caller: Caller, session_id: str) -> SessionRunner:
        runner = self._sessions.get(session_id)
        if runner is None or not caller.sees(runner.view.tenant):
            raise NotFound("SESSION_NOT_FOUND", f"there is no session {session_id!r}", session_id=session_id)
        return runner

    def _runner_of_run(self, caller: Caller, run_id: str) -> SessionRunner:
        runner = self._session_of_run.get(run_id)
        if runner is None or not caller.sees(runner.view.tenant):
            raise NotFound("RUN_NOT_FOUND", f"there is no run {run_id!r}", run_id=run_id)
        return runner

    def _visible(self, caller: Caller) -> list[SessionRunner]:
        return [runner for runner in self._sessions.values() if caller.sees(runner.view.tenant)]

    def _committed_run(self, runner: SessionRunner, run_id: str) -> RunView:
        return committed(self._world, runner)[1][run_id] if runner.ledger.stalled else runner.places[run_id].view

    def _driver(self, runner: SessionRunner) -> Driver:
        agent = self._world.agent(runner.view.agent)
        if agent is None:
            name = runner.view.agent
            raise WrongState("AGENT_UNAVAILABLE", f"agent {name!r} is not in the configuration any more", agent=name)
        return self._world.drivers[agent.driver]

    # --- refusals ---------------------------------------------------------------------------------------------------

    def _refuse_while_draining(self) -> None:
        if self._draining:
            raise Unavailable("DRAINING", "the daemon goes down", retry_after_ns=5_000_000_000)

    def _require_open(self, runner: SessionRunner) -> None:
        """See that a session can have runs."""
        session_id, view = runner.view.session_id, runner.view
        if runner.closing is not None or view.state is SessionState.CLOSED:
            raise WrongState("SESSION_CLOSED", f"session {session_id} was closed")
        if view.state is SessionState.BROKEN:
            reason = view.state_reason
            raise WrongState("SESSION_BROKEN", f"session {session_id} cannot go on: {reason}", broken_reason=reason)

    def _require_mode(self, caller: Caller, mode: PermissionMode | None) -> None:
        """See that a role may choose a permission mode."""
        allowed = self._world.settings.permission_modes.get(caller.role, frozenset())
        if mode is not None and mode not in allowed:
            names = ", ".join(sorted(one.name for one in allowed)) or "none"
            raise Denied(
                "FORBIDDEN",
                f"permission mode {mode.name} is not for the role {caller.role.name.lower()}; accepted are {names}",
                field="permission_mode",
            )

    def _busy(self, runner: SessionRunner) -> WrongState:
        run_id = runner.view.active_run_id
        return WrongState("SESSION_BUSY", f"run {run_id} of this session is live", active_run_id=run_id)

    def _require_room(self, beside: int = 0) -> None:
        """See that there is room for one session more; `beside` are pending ones that are counted already."""
        settings = self._world.settings
        # A suspended session holds nothing but its history.
        resting = (SessionState.CLOSED, SessionState.SUSPENDED, SessionState.BROKEN)
        sessions = sum(runner.view.state not in resting for runner in self._sessions.values())
        if sessions + self._pending_sessions - beside >= settings.max_sessions:
            raise Exhausted(
                "TOO_MANY_SESSIONS",
                f"{sessions} sessions are active, server.max_sessions is {settings.max_sessions}; close one first",
            )
        self._require_process(beside)

    # --- processes --------------------------------------------------------------------------------------------------

    def _require_process(self, beside: int = 0) -> None:
        """See that there is room for one process more, or that one can give way. None does before it must."""
        up, idle = self._processes()
        most = self._world.settings.max_processes
        if len(up) + self._pending_sessions - beside >= most and not idle:
            raise Exhausted(
                "TOO_MANY_SESSIONS",
                f"{len(up)} agents are at work, server.max_processes is {most}; wait for one to end",
            )

    def _make_room(self) -> bool:
        """Make room for one process more, for which the one that was idle for longest gives way; whether there is."""
        up, idle = self._processes()
        if len(up) + self._pending_sessions < self._world.settings.max_processes:
            return True
        if not idle:
            return False
        min(idle, key=lambda runner: runner.view.last_active_at).end_idle("its process gave way to another session's")
        return True

    def _processes(self) -> tuple[list[SessionRunner], list[SessionRunner]]:
        """Give the sessions whose process counts, and those among them whose process can give way."""
        # One that is being ended is on its way out, within the bounds of the ladder.
        up = [runner for runner in self._sessions.values() if runner.host.up and not runner.host.ending]
        idle = [runner for runner in up if runner.run is None and runner.host.ready and runner.view.capabilities.resume]
        return up, idle
