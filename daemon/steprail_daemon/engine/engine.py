"""The engine: sessions by id, and every verb of `engine.facade` on them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import anyio

from steprail_daemon.core.errors import (
    Exhausted,
    Invalid,
    NotFound,
    OutOfRange,
    StepRailError,
    Unavailable,
    WrongState,
)
from steprail_daemon.core.events import AbortRequested, DecisionSubmitted, StopRequested
from steprail_daemon.core.model import (
    Decision,
    DecisionAction,
    DecisionSource,
    RunSpec,
    RunState,
    SessionState,
)
from steprail_daemon.core.records import SessionCreated
from steprail_daemon.core.replay import open_session
from steprail_daemon.core.views import RunView, SessionView
from steprail_daemon.drivers.base import Driver
from steprail_daemon.engine import admission
from steprail_daemon.engine.agents import Agents
from steprail_daemon.engine.broker import FeedSubscription
from steprail_daemon.engine.facade import (
    AgentView,
    ContinueRun,
    CreateSession,
    DeciderRequest,
    LimitsRequest,
    LimitsView,
    StartRun,
    StoredStep,
    Subscription,
)
from steprail_daemon.engine.recovery import committed
from steprail_daemon.engine.refusals import journal_reads
from steprail_daemon.engine.runner import SessionRunner
from steprail_daemon.engine.steps import read_steps
from steprail_daemon.engine.world import World

_BLOB_PART = 256 * 1024
_TENANT = "default"
#: How long a list of agents waits for programs that have not told their version yet.
_PROBE_SECONDS = 2.0
#: Read sizes: alone a session may take much at once; among others it must let them have their turn.
_READ_ALONE = 128 * 1024
_READ_SHARED = 16 * 1024


class Engine:
    """Implements `engine.facade.Facade`."""

    def __init__(self, world: World, agents: Agents) -> None:
        self._world = world
        self._agents = agents
        self._sessions: dict[str, SessionRunner] = {}
        self._session_of_run: dict[str, SessionRunner] = {}
        self._last_session_no = 0
        self._pending_sessions = 0
        self._draining = False

    # --- set-up -----------------------------------------------------------------------------------------------------

    def add(self, runner: SessionRunner) -> None:
        """Take up a session that the journal had, or a new one."""
        self._sessions[runner.view.session_id] = runner
        self._last_session_no = max(self._last_session_no, runner.session_no)
        for run_id in runner.places:
            self._session_of_run[run_id] = runner
        runner.on_run_edge = self._share_reading
        runner.view.epoch = self._world.store.epoch

    def runners(self) -> list[SessionRunner]:
        """Give all sessions' runners."""
        return list(self._sessions.values())

    @property
    def busy(self) -> bool:
        """Whether any run is live."""
        return any(runner.run is not None for runner in self._sessions.values())

    def begin_drain(self) -> None:
        """Refuse new sessions and runs from now on."""
        self._draining = True

    def _share_reading(self) -> None:
        live = [runner for runner in self._sessions.values() if runner.run is not None]
        size = _READ_ALONE if len(live) <= 1 else _READ_SHARED
        for runner in live:
            runner.host.set_read_size(size)

    # --- agents -----------------------------------------------------------------------------------------------------

    async def agents(self) -> list[AgentView]:
        """See `Facade`."""
        with anyio.move_on_after(_PROBE_SECONDS):
            await self._agents.probe_all()
        return self._agents.views()

    def limits(self) -> LimitsView:
        """See `Facade`."""
        settings = self._world.settings
        return LimitsView(
            max_prompt_bytes=settings.prompt_bytes,
            max_sessions=settings.max_sessions,
            max_processes=settings.max_processes,
            max_steps=settings.max_steps,
            max_rules=settings.max_rules,
            hard_timeout_ns=settings.hard_timeout_ns,
            decision_timeout_ns=settings.decision_timeout_ns,
            stop_timeout_ns=settings.stop_timeout_ns,
            abort_timeout_ns=settings.abort_timeout_ns,
            heartbeat_ns=settings.heartbeat_ns,
            stalled_reader_ns=settings.stalled_reader_ns,
        )

    def now(self) -> int:
        """See `Facade`."""
        return self._world.clock.now()

    # --- sessions ---------------------------------------------------------------------------------------------------

    async def create_session(self, request: CreateSession) -> SessionView:
        """See `Facade`."""
        self._refuse_while_draining()
        settings = self._world.settings
        cwd = admission.admit_cwd(request.cwd, settings.workspace_roots)
        self._require_room()
        self._pending_sessions += 1
        try:
            agent, capabilities = await self._agents.require(request.agent)
            self._require_room(beside=1)
        finally:
            self._pending_sessions -= 1
        self._refuse_while_draining()
        world = self._world
        at = world.clock.now()
        created = SessionCreated(
            session_id=world.ids.new_id("ses"),
            agent=agent.name,
            cwd=cwd,
            agent_session_id=world.ids.new_uuid(),
            permission_mode=request.permission_mode or agent.permission_mode,
            model=request.model or agent.model,
            labels=dict(request.labels),
            tenant=_TENANT,
            owner=request.identity,
            capabilities=capabilities,
            created_at=at,
        )
        runner = SessionRunner(world, open_session(created), self._last_session_no + 1, {})
        runner.open(created)
        self.add(runner)
        return runner.view

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

    def _require_process(self, beside: int = 0) -> None:
        """See that there is room for one process more; the one that was idle for longest gives way to it."""
        # One that is being ended is on its way out, within the bounds of the ladder.
        up = [runner for runner in self._sessions.values() if runner.host.up and not runner.host.ending]
        most = self._world.settings.max_processes
        if len(up) + self._pending_sessions - beside < most:
            return
        idle = [runner for runner in up if runner.run is None and runner.host.ready and runner.view.capabilities.resume]
        if not idle:
            raise Exhausted(
                "TOO_MANY_SESSIONS",
                f"{len(up)} agents are at work, server.max_processes is {most}; wait for one to end",
            )
        min(idle, key=lambda runner: runner.view.last_active_at).end_idle("its process gave way to another session's")

    def get_session(self, session_id: str) -> SessionView:
        """See `Facade`."""
        return committed(self._world, self._runner(session_id))[0]

    def list_sessions(self) -> list[SessionView]:
        """See `Facade`."""
        runners = sorted(self._sessions.values(), key=lambda one: -one.session_no)
        return [committed(self._world, runner)[0] for runner in runners]

    async def close_session(self, session_id: str, *, force: bool) -> SessionView:
        """See `Facade`. Once begun it goes on, also if the caller goes away; further callers wait for the same."""
        runner = self._runner(session_id)
        if runner.closing is None and runner.view.state is not SessionState.CLOSED:
            if runner.run is not None and not force:
                raise self._busy(runner)
            runner.ledger.require()
            closing = runner.closing = self._world.loop.create_future()
            self._world.start_task(lambda: self._close(runner, closing), f"close {session_id}")
        if runner.closing is not None:
            await asyncio.shield(runner.closing)
        return runner.view

    async def _close(self, runner: SessionRunner, closing: asyncio.Future[None]) -> None:
        try:
            if runner.run is not None:
                runner.tell(AbortRequested("", "the session is closed"))
            runner.host.end()
            await runner.host.gone()
            runner.close()
        except StepRailError as error:
            # It is open as before and can be closed again.
            runner.closing = None
            closing.set_exception(error)
            # Nobody may be waiting any more, which is no reason to complain.
            closing.exception()
        else:
            closing.set_result(None)

    def _runner(self, session_id: str) -> SessionRunner:
        runner = self._sessions.get(session_id)
        if runner is None:
            raise NotFound("SESSION_NOT_FOUND", f"there is no session {session_id!r}", session_id=session_id)
        return runner

    def _busy(self, runner: SessionRunner) -> WrongState:
        run_id = runner.view.active_run_id
        return WrongState("SESSION_BUSY", f"run {run_id} of this session is live", active_run_id=run_id)

    # --- runs: start and continue -----------------------------------------------------------------------------------

    def start_run(self, request: StartRun) -> RunView:
        """See `Facade`."""
        runner = self._ready_for_run(request.session_id)
        driver = self._driver(runner)
        view, settings = runner.view, self._world.settings
        spec = RunSpec(
            prompt=admission.admit_prompt(request.prompt, driver, settings),
            stop_rules=admission.admit_rules(request.stop_rules, view.capabilities, settings, view.steps_before),
            decider=admission.admit_decider(request.decider, view.capabilities, settings),
            limits=admission.admit_limits(request.limits, settings),
            labels={**view.labels, **request.labels},
            request_id=request.request_id,
            permission_mode=view.permission_mode,
        )
        return self._start(runner, spec)

    def continue_run(self, request: ContinueRun) -> RunView:
        """See `Facade`."""
        before = self.get_run(request.run_id)
        runner = self._session_of_run[request.run_id]
        if runner.view.active_run_id == request.run_id:
            raise self._busy(runner)
        self._require_latest(runner, before)
        self._ready_for_run(runner.view.session_id)
        driver = self._driver(runner)
        view, settings, old = runner.view, self._world.settings, before.spec
        prompt, synthesized = self._continue_prompt(request, before, driver)
        rules = old.stop_rules if request.stop_rules is None else request.stop_rules
        # The ceilings may have been lowered since; what is inherited must not be refused for it.
        limits = LimitsRequest(
            min(old.limits.max_steps, settings.max_steps), min(old.limits.hard_timeout_ns, settings.hard_timeout_ns)
        )
        spec = RunSpec(
            prompt=prompt,
            stop_rules=admission.admit_rules(rules, view.capabilities, settings, view.steps_before),
            decider=admission.admit_decider(_decider_of(request, old), view.capabilities, settings),
            limits=admission.admit_limits(limits if request.limits is None else request.limits, settings),
            labels={**old.labels, **request.labels},
            prompt_synthesized=synthesized,
            continued_from=before.run_id,
            request_id=request.request_id,
            permission_mode=view.permission_mode,
        )
        return self._start(runner, spec)

    def _continue_prompt(self, request: ContinueRun, before: RunView, driver: Driver) -> tuple[str, bool]:
        if request.prompt is not None:
            return admission.admit_prompt(request.prompt, driver, self._world.settings), False
        if before.started_at is None:
            # The agent never saw the first prompt: to go on is to begin.
            return before.spec.prompt, before.spec.prompt_synthesized
        if before.state is RunState.COMPLETED:
            raise Invalid(
                "PROMPT_INVALID", f"run {before.run_id} is COMPLETED: to go on it needs a prompt", field="prompt"
            )
        return self._world.settings.continue_text, True

    def _require_latest(self, runner: SessionRunner, before: RunView) -> None:
        run_ids = runner.view.run_ids
        later = run_ids[run_ids.index(before.run_id) + 1 :]
        started = [run_id for run_id in later if runner.places[run_id].view.started_at is not None]
        if started:
            raise WrongState(
                "NOT_LATEST_RUN",
                f"run {started[-1]} of the session started after {before.run_id}; continue that one",
                latest_run_id=started[-1],
            )

    def _ready_for_run(self, session_id: str) -> SessionRunner:
        self._refuse_while_draining()
        runner = self._runner(session_id)
        if runner.closing is not None or runner.view.state is SessionState.CLOSED:
            raise WrongState("SESSION_CLOSED", f"session {session_id} was closed")
        if runner.view.state is SessionState.BROKEN:
            reason = runner.view.state_reason
            raise WrongState("SESSION_BROKEN", f"session {session_id} cannot go on: {reason}", broken_reason=reason)
        if runner.run is not None:
            raise self._busy(runner)
        if not runner.host.up:
            self._require_process()
        return runner

    def _driver(self, runner: SessionRunner) -> Driver:
        agent = self._world.agent(runner.view.agent)
        if agent is None:
            raise WrongState("AGENT_UNAVAILABLE", f"agent {runner.view.agent!r} is not in the configuration any more")
        return self._world.drivers[agent.driver]

    def _start(self, runner: SessionRunner, spec: RunSpec) -> RunView:
        run_id = self._world.ids.new_id("run")
        view = runner.start_run(run_id, spec)
        self._session_of_run[run_id] = runner
        return view

    def _refuse_while_draining(self) -> None:
        if self._draining:
            raise Unavailable("DRAINING", "the daemon goes down", retry_after_ns=5_000_000_000)

    # --- runs: verbs ------------------------------------------------------------------------------------------------

    def stop_run(self, run_id: str, *, identity: str, reason: str) -> RunView:
        """See `Facade`."""
        view = self.get_run(run_id)
        if not view.ended:
            self._session_of_run[run_id].tell(StopRequested(DecisionSource.OPERATOR, identity, reason))
        return view

    def abort_run(self, run_id: str, *, identity: str, reason: str) -> RunView:
        """See `Facade`."""
        view = self.get_run(run_id)
        if not view.ended:
            self._session_of_run[run_id].tell(AbortRequested(identity, reason))
        return view

    def submit_decision(
        self, run_id: str, step_id: str, action: DecisionAction | None, *, identity: str, reason: str, error: str
    ) -> Decision:
        """See `Facade`."""
        view = self.get_run(run_id)
        if view.ended:
            raise WrongState("DECISION_NOT_PENDING", f"run {run_id} has ended", run_id=run_id, step_id=step_id)
        self._session_of_run[run_id].tell(DecisionSubmitted(step_id, action, identity, reason, error))
        return view.decisions[step_id]

    def get_run(self, run_id: str) -> RunView:
        """See `Facade`."""
        runner = self._runner_of_run(run_id)
        return committed(self._world, runner)[1][run_id] if runner.ledger.stalled else runner.places[run_id].view

    def _runner_of_run(self, run_id: str) -> SessionRunner:
        runner = self._session_of_run.get(run_id)
        if runner is None:
            raise NotFound("RUN_NOT_FOUND", f"there is no run {run_id!r}", run_id=run_id)
        return runner

    def list_runs(self, session_id: str) -> list[RunView]:
        """See `Facade`."""
        runners = [self._runner(session_id)] if session_id else self.runners()
        views = [view for runner in runners for view in committed(self._world, runner)[1].values()]
        return sorted(views, key=lambda view: view.run_id, reverse=True)

    def steps(self, run_id: str, after_number: int, limit: int) -> list[StoredStep]:
        """See `Facade`."""
        runner = self._runner_of_run(run_id)
        runner.publish_held()
        view = self.get_run(run_id)
        place = runner.places[run_id]
        with journal_reads():
            return read_steps(self._world, runner.session_no, place, view, after_number=after_number, limit=limit)

    async def wait_run(self, run_id: str, *, attention: bool, timeout_ns: int) -> RunView:
        """See `Facade`."""
        runner = self._runner_of_run(run_id)
        view = runner.places[run_id].view
        deadline = self._world.clock.now() + timeout_ns
        while runner.ledger.stalled or not (view.ended or (attention and view.needs_attention)):
            left = deadline - self._world.clock.now()
            if left <= 0:
                break
            await runner.feed.wait(left)
        return self.get_run(run_id)

    # --- streams ----------------------------------------------------------------------------------------------------

    def watch_run(self, run_id: str, after_seq: int, epoch: str) -> Subscription:
        """See `Facade`."""
        runner = self._runner_of_run(run_id)
        place = runner.places[run_id]
        self._check_cursor(runner, after_seq, epoch)
        start = max(after_seq, place.first_seq - 1)
        return FeedSubscription(runner.feed, start, place.run_no, lambda: place.last_seq)

    def watch_session(self, session_id: str, after_seq: int, epoch: str) -> Subscription:
        """See `Facade`."""
        runner = self._runner(session_id)
        self._check_cursor(runner, after_seq, epoch)
        feed = runner.feed
        return FeedSubscription(feed, after_seq, None, lambda: feed.last_seq if feed.closed else None)

    def _check_cursor(self, runner: SessionRunner, after_seq: int, epoch: str) -> None:
        store, view = self._world.store, runner.view
        if after_seq == 0 and epoch in ("", store.epoch):
            return
        with journal_reads():
            earliest = store.earliest_seq(runner.session_no)
        if epoch == store.epoch and earliest - 1 <= after_seq <= view.last_seq:
            return
        raise OutOfRange(
            "CURSOR_INVALID",
            f"after_seq {after_seq} of epoch {epoch!r} is no place in this session: epoch {store.epoch!r},"
            f" events {earliest} to {view.last_seq}",
            earliest_seq=str(earliest),
            last_seq=str(view.last_seq),
            epoch=store.epoch,
        )

    async def read_blob(self, blob_id: str, offset: int) -> AsyncIterator[tuple[bytes, int, int, str]]:
        """See `Facade`."""
        while True:
            with journal_reads():
                part = self._world.store.read_blob(blob_id, offset, _BLOB_PART)
            if part is None:
                raise NotFound("BLOB_NOT_FOUND", f"there is no blob {blob_id!r}", blob_id=blob_id)
            data, size, mime_type = part
            if not 0 <= offset <= size:
                raise Invalid("FIELD_INVALID", f"offset must be between 0 and {size}, not {offset}", field="offset")
            yield data, offset, size, mime_type
            offset += len(data)
            if offset >= size or not data:
                return
            await asyncio.sleep(0)


def _decider_of(request: ContinueRun, old: RunSpec) -> DeciderRequest | None:
    if not request.inherit_decider:
        return request.decider
    if old.decider is None:
        return None
    return DeciderRequest(old.decider.timeout_ns, old.decider.on_timeout)
