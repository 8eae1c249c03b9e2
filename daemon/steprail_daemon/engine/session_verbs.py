"""The verbs of sessions."""

from __future__ import annotations

import asyncio

import anyio

from steprail_daemon.core import queue
from steprail_daemon.core.errors import Denied, Invalid, NotFound, StepRailError, WrongState
from steprail_daemon.core.events import AbortRequested
from steprail_daemon.core.model import SECOND, SessionState
from steprail_daemon.core.policy import problem
from steprail_daemon.core.records import SessionCreated, SessionUpdated
from steprail_daemon.core.replay import open_session
from steprail_daemon.core.views import SessionView
from steprail_daemon.engine import admission
from steprail_daemon.engine.facade import Caller, CreateSession, SessionChange
from steprail_daemon.engine.recovery import committed
from steprail_daemon.engine.refusals import journal_writes
from steprail_daemon.engine.registry import Registry
from steprail_daemon.engine.runner import SessionRunner
from steprail_daemon.journal.store import RequestRow

#: A session's change of state is published, so this only bounds a wait that the event ends.
_LOOK_AGAIN_NS = 5 * SECOND
_GONE = frozenset({SessionState.CLOSED, SessionState.BROKEN})


class SessionVerbs(Registry):
    """Makes, changes, shows and ends sessions; see `engine.facade.Facade`."""

    async def create_session(self, caller: Caller, request: CreateSession) -> SessionView:
        """See `Facade`."""
        self._refuse_while_draining()
        settings, world = self._world.settings, self._world
        labels = admission.admit_labels(request.labels, caller.labels)
        cwd = admission.admit_cwd(request.cwd, settings.workspace_roots)
        self._require_mode(caller, request.permission_mode)
        environment = admission.admit_environment(request.environment, settings)
        await self._check_permission_rules(request)
        self._require_room()
        self._pending_sessions += 1
        try:
            agent, capabilities = await self._agents.require(request.agent)
            self._require_room(beside=1)
        finally:
            self._pending_sessions -= 1
        self._refuse_while_draining()
        admission.admit_options(request, capabilities, world.drivers[agent.driver])
        self._require_free_conversation(request)
        created = SessionCreated(
            session_id=world.ids.new_id("ses"),
            agent=agent.name,
            cwd=cwd,
            agent_session_id=request.resume or world.ids.new_uuid(),
            permission_mode=request.permission_mode or agent.permission_mode,
            model=request.model or agent.model,
            labels=labels,
            tenant=caller.tenant,
            owner=caller.name,
            capabilities=capabilities,
            created_at=world.clock.now(),
            permission_rules=request.permission_rules,
            allowed_tools=request.allowed_tools,
            disallowed_tools=request.disallowed_tools,
            instructions=request.instructions,
            resumes=bool(request.resume),
        )
        runner = SessionRunner(world, open_session(created), self._next_session_no(), {})
        runner.host.environment = environment
        self._make_room()
        # What may be refused yet is not remembered yet.
        runner.open(created, None if request.resume else self._request(caller, created.session_id))
        self.add(runner)
        if request.resume:
            await self._require_conversation(caller, runner)
        return runner.view

    async def _require_conversation(self, caller: Caller, runner: SessionRunner) -> None:
        """Wait until the agent took its conversation up; if it does not know it, the session is gone again."""
        with anyio.move_on_after(self._world.settings.start_timeout_ns / 1e9):
            while runner.view.state is SessionState.STARTING:
                await runner.feed.wait(_LOOK_AGAIN_NS)
        view = runner.view
        if view.state is SessionState.BROKEN:
            self._remove(caller, runner, None)
            raise NotFound(
                "RESUME_UNKNOWN",
                f"the agent cannot take the conversation {view.agent_session_id!r} up: {view.state_reason}",
                agent_session_id=view.agent_session_id,
            )

    async def _check_permission_rules(self, request: CreateSession) -> None:
        for index, rule in enumerate(request.permission_rules):
            wrong = problem(rule)
            if not wrong and rule.cel:
                wrong = await admission.permission_expression_problem(rule.cel, self._world.rules)
            if wrong:
                field = f"permission_rules[{index}]"
                raise Invalid("FIELD_INVALID", f"{field}: {wrong}", field=field)

    def _require_free_conversation(self, request: CreateSession) -> None:
        """See that no other session holds the conversation that is to be taken up."""
        if not request.resume:
            return
        for runner in self._sessions.values():
            view = runner.view
            if view.agent_session_id == request.resume and view.agent == request.agent and view.state not in _GONE:
                raise WrongState(
                    "AGENT_SESSION_IN_USE", f"another session holds the conversation {request.resume!r}; close it first"
                )

    def get_session(self, caller: Caller, session_id: str) -> SessionView:
        """See `Facade`."""
        return committed(self._world, self._runner(caller, session_id))[0]

    def list_sessions(self, caller: Caller) -> list[SessionView]:
        """See `Facade`."""
        runners = sorted(self._visible(caller), key=lambda one: -one.session_no)
        return [committed(self._world, runner)[0] for runner in runners]

    def update_session(self, caller: Caller, session_id: str, change: SessionChange) -> SessionView:
        """See `Facade`."""
        runner = self._runner(caller, session_id)
        self._require_open(runner)
        self._require_mode(caller, change.permission_mode)
        capabilities = runner.view.capabilities
        if change.plan_mode and not capabilities.plan_mode:
            raise _missing("plan_mode")
        if change.model is not None and not (capabilities.model_switch or capabilities.resume):
            raise _missing("model_switch")
        labels = None if change.labels is None else admission.admit_labels(change.labels, caller.labels)
        runner.change(
            SessionUpdated(
                permission_mode=change.permission_mode,
                plan_mode=change.plan_mode,
                model=change.model,
                labels=labels,
            ),
            self._request(caller, session_id),
        )
        return runner.view

    def release_queue(self, caller: Caller, session_id: str) -> SessionView:
        """See `Facade`."""
        runner = self._runner(caller, session_id)
        self._require_open(runner)
        fact = queue.release(runner.view)
        if fact is not None:
            runner.note(fact, self._request(caller, session_id))
            runner.next_turn()
        return runner.view

    async def close_session(self, caller: Caller, session_id: str, *, force: bool, reason: str = "") -> SessionView:
        """See `Facade`. Once begun it goes on, also if the caller goes away; further callers wait for the same."""
        runner = self._runner(caller, session_id)
        if runner.damaged:
            self._require_open(runner)
        if runner.closing is None and runner.view.state is not SessionState.CLOSED:
            if (runner.run is not None or runner.queued) and not force:
                raise self._busy(runner)
            runner.ledger.require()
            closing = runner.closing = self._world.loop.create_future()
            self._world.start_task(lambda: self._close(caller, runner, closing, reason), f"close {session_id}")
        if runner.closing is not None:
            await asyncio.shield(runner.closing)
        return runner.view

    async def _close(self, caller: Caller, runner: SessionRunner, closing: asyncio.Future[None], reason: str) -> None:
        try:
            for run_id in (*runner.queued, *([runner.view.active_run_id] if runner.run is not None else ())):
                runner.tell(run_id, AbortRequested(caller.name, reason or "the session is closed"))
            runner.host.end()
            await runner.host.gone()
            runner.close(reason, self._request(caller, runner.view.session_id))
        except StepRailError as error:
            # It is open as before and can be closed again.
            runner.closing = None
            closing.set_exception(error)
            # Nobody may be waiting any more, which is no reason to complain.
            closing.exception()
        else:
            closing.set_result(None)

    def delete_session(self, caller: Caller, session_id: str) -> None:
        """See `Facade`."""
        runner = self._runner(caller, session_id)
        if not caller.is_admin:
            raise Denied("FORBIDDEN", "only an admin deletes sessions")
        closing = runner.closing is not None and not runner.closing.done()
        if runner.view.state not in _GONE or runner.host.up or closing:
            raise WrongState(
                "SESSION_BUSY",
                f"session {session_id} is {runner.view.state.name}; only a closed or broken one is deleted",
                active_run_id=runner.view.active_run_id,
            )
        self._remove(caller, runner, self._request(caller, session_id))

    def _remove(self, caller: Caller, runner: SessionRunner, request: RequestRow | None) -> None:
        session_id = runner.view.session_id
        runner.ledger.require()
        # Runs that wait behind one that broke the session have timers, which must find nothing to write any more.
        for run_id in tuple(runner.queued):
            runner.tell(run_id, AbortRequested(caller.name, "the session is deleted"))
        with journal_writes():
            self._world.store.delete_session(runner.session_no, request)
        if request is not None:
            self._world.requests.add(request)
        runner.feed.delete(session_id)
        del self._sessions[session_id]
        for run_id in runner.places:
            del self._session_of_run[run_id]
        self._world.listener.deleted(runner.view)


def _missing(capability: str) -> WrongState:
    return WrongState("CAPABILITY_MISSING", f"this agent has no {capability}", capability=capability)
