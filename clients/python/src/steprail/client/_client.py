"""The client itself: its connection, the daemon's own calls, and `run`."""

from __future__ import annotations

import copy
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType

import grpc.aio

from steprail.client import _messages as messages
from steprail.client._answers import AnswerCalls
from steprail.client._attend import Callables, Links
from steprail.client._backoff import PATIENCE_SECONDS, Lost, Retry
from steprail.client._channel import CALL_SECONDS, answer, default_address, open_channel
from steprail.client._connection import Stubs, key
from steprail.client._credentials import Tls, tls_of_environment, token_source
from steprail.client._decide import Answer, Decide, Permit
from steprail.client._live import LiveRun, OnExit
from steprail.client._runs import RunCalls
from steprail.client._sessions import SessionCalls
from steprail.client._streams import StreamCalls
from steprail.errors import Refused, StepRailError
from steprail.v1 import admin_pb2, agents_pb2, budgets_pb2, decisions_pb2, rules_pb2, runs_pb2, sessions_pb2

log = logging.getLogger("steprail.client")


class Client(RunCalls, AnswerCalls, StreamCalls, SessionCalls):
    """A connection to one daemon. Use it with `async with`. All times are in seconds.

    `address` is `unix:` with a path, or a host with a port. By a `token`, the first one of a `token_file` (read again
    when it changes), or else the file that $STEPRAIL_TOKEN_FILE names, the client proves who it is. `tls` says how TCP
    is encrypted, by default as $STEPRAIL_TLS_ROOTS, $STEPRAIL_TLS_CERTIFICATE and $STEPRAIL_TLS_KEY say.

    `timeout` bounds each call, and is no bound of a run. `wait_for_ready` is how long `async with` waits for a daemon
    that is still starting; with 0 it does not connect. `patience` is how long streams try to come back to a daemon that
    went away; `on_lost` is called each time that they try. With `retry`, calls that were refused for a while are made
    again, see `Retry`.

    Every method raises `steprail.errors.StepRailError`, `async with` too where credentials cannot be used or no daemon
    came up. Methods give the messages of `steprail.v1` as they are.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        token: str | None = None,
        token_file: str | Path | None = None,
        tls: Tls | None = None,
        timeout: float = CALL_SECONDS,
        wait_for_ready: float = 0.0,
        patience: float = PATIENCE_SECONDS,
        on_lost: Callable[[Lost], None] | None = None,
        retry: Retry | None = None,
    ) -> None:
        self.address = address or default_address()
        self.timeout = timeout
        self.patience = patience
        self.on_lost = on_lost
        self.retry = retry
        self._wait_for_ready = wait_for_ready
        self._token = token_source(token, token_file)
        self._tls = tls or tls_of_environment()
        self._channel: grpc.aio.Channel | None = None

    async def __aenter__(self) -> Client:
        """Open the channel; the first call connects."""
        self._channel = self._open()
        self._opened = Stubs(self._channel)
        if self._wait_for_ready:
            try:
                await self.wait_until_ready(self._wait_for_ready)
            except BaseException:
                await self.__aexit__(None, None, None)
                raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the channel."""
        if self._channel is not None:
            await self._channel.close()
            self._channel = self._opened = None

    def _open(self) -> grpc.aio.Channel:
        return open_channel(self.address, self._token, self._tls)

    def with_options(self, *, timeout: float | None = None, retry: Retry | None = None) -> Client:
        """Give a client on the same connection with other options; it lives as long as this one is open."""
        other = copy.copy(self)
        other._channel = None  # noqa: SLF001 - another of its own kind; who opened the channel closes it
        other.timeout = self.timeout if timeout is None else timeout
        other.retry = self.retry if retry is None else retry
        return other

    # --- the daemon and its agents ---

    async def wait_until_ready(self, timeout: float = CALL_SECONDS) -> agents_pb2.ServerInfo:
        """Wait until a daemon answers, for one that is still starting.

        Raises:
            CallTimeout: none did in `timeout` seconds.
        """
        call = self._stubs.agents.GetServerInfo(agents_pb2.GetServerInfoRequest(), timeout=timeout, wait_for_ready=True)
        return (await answer(call, self.address)).server_info

    async def get_server_info(self, *, timeout: float | None = None) -> agents_pb2.ServerInfo:
        """Give version, limits and agents."""
        reply = await self._ask(self._stubs.agents.GetServerInfo, agents_pb2.GetServerInfoRequest(), timeout)
        return reply.server_info

    async def list_agents(self) -> list[agents_pb2.Agent]:
        """Give the configured agents."""
        request = agents_pb2.ListAgentsRequest()
        return [item async for item in self._pages(self._stubs.agents.ListAgents, request, "agents")]

    async def drain(
        self, window: float | None = None, *, reason: str = "", request_id: str = ""
    ) -> admin_pb2.DrainStatus:
        """Begin to drain the daemon, which ends with its exit and cannot be taken back. For admins.

        `window` is the time for runs to reach a boundary; None is the configuration's.
        """
        request = admin_pb2.DrainRequest(window=messages.span(window), reason=reason, request_id=key(request_id))
        return (await self._ask(self._stubs.admin.Drain, request)).status

    async def get_drain_status(self) -> admin_pb2.DrainStatus:
        """Tell how far a drain is. For admins."""
        return (await self._ask(self._stubs.admin.GetDrainStatus, admin_pb2.GetDrainStatusRequest())).status

    async def list_budgets(self, run_id: str = "") -> list[budgets_pb2.Budget]:
        """Give the budgets by name, or those that count a run, with its figures."""
        request = budgets_pb2.ListBudgetsRequest(run_id=run_id)
        return [item async for item in self._pages(self._stubs.budgets.ListBudgets, request, "budgets")]

    async def get_budget(self, name: str, subject_id: str = "") -> budgets_pb2.Budget:
        """Give a budget; with windows RUN and SESSION, `subject_id` is the run or session whose figures are wanted."""
        request = budgets_pb2.GetBudgetRequest(name=name, subject_id=subject_id)
        return (await self._ask(self._stubs.budgets.GetBudget, request)).budget

    # --- a run from beginning to end ---

    def run(
        self,
        prompt: messages.Prompt,
        *,
        agent: str = "",
        cwd: str | Path = "",
        session: str | sessions_pb2.Session = "",
        stop_when: Iterable[rules_pb2.StopRule] = (),
        decide: Decide | None = None,
        permissions: Permit | None = None,
        questions: Answer | None = None,
        decider: decisions_pb2.Decider | None = None,
        max_steps: int | None = None,
        hard_timeout: float | None = None,
        permission_timeout: float | None = None,
        queue_timeout: float | None = None,
        labels: Mapping[str, str] | None = None,
        queue: bool = False,
        allow_inexact_stop: bool = False,
        on_exit: OnExit = "detach",
    ) -> LiveRun:
        """Give a run to wait for, or to use with `async with`; see `LiveRun`.

        It is on a `session`, or on a new one of an `agent` in a directory `cwd`, by default this process's. A session
        that it makes stays, so that the run can be continued; if the run is refused, it goes.

        `decide` is called with each completed `Step` where nothing else stops: True goes on, False stops, a text goes
        on with that guidance, and a `Decision` says all of it. `decider` has the settings beside: timeout, and what
        happens then. `permissions` is called with a `Permission`: True or "allow", "session", False or "deny", or an
        `Allow`, `Deny` or `Instead`. `questions` is called with a `Question`: a text, a mapping of item ids to texts or
        chosen options, or None to decline. Each may be a coroutine function, or a plain one, which runs on a thread and
        may block. One whose answer is not wanted any more is cancelled, or its answer dropped. One that raises is
        reported: the run ends FAILED, DECIDER_ERROR; a permission is denied, a question declined.

        `max_steps` to `queue_timeout` are ceilings, in steps and seconds. With `queue` the run may wait for its turn.

        Raises:
            ValueError: neither or both of `agent` and `session` are given.
        """
        if bool(agent) == bool(session):
            raise ValueError("run needs either agent, for a new session, or session")
        callables = Callables(decide, permissions, questions)
        limits = messages.limits(
            max_steps=max_steps,
            hard_timeout=hard_timeout,
            permission_timeout=permission_timeout,
            queue_timeout=queue_timeout,
        )
        request = self.start_request(
            session if isinstance(session, str) else session.session_id,
            prompt,
            stop_rules=stop_when,
            decider=callables.decider(decider),
            limits=limits,
            labels=labels,
            queue=queue,
            allow_inexact_stop=allow_inexact_stop,
        )

        directory = os.path.abspath(cwd or ".")  # noqa: PTH100 - pathlib would leave `..` in it

        async def begin() -> runs_pb2.Run:
            if agent:
                request.session_id = (await self.create_session(agent, directory)).session_id
            try:
                return await self._begin(request)
            except Refused:
                if agent:
                    await self._discard(request.session_id)
                raise

        return LiveRun(self, self._links, begin, callables, on_exit)

    async def _discard(self, session_id: str) -> None:
        """Remove a session on which no run began: its agent would stay, and nobody else knows of it."""
        try:
            await self.close_session(session_id)
            await self.delete_session(session_id)
        except StepRailError as error:
            log.warning("session %s, on which no run began, could not be removed: %s", session_id, error)

    def follow(
        self,
        run_id: str,
        *,
        decide: Decide | None = None,
        permissions: Permit | None = None,
        questions: Answer | None = None,
        on_exit: OnExit = "detach",
    ) -> LiveRun:
        """Give a run that exists, to wait for, iterate over and decide about as `run` does; it need not be live.

        It has to have been started with a client as its decider for `decide` to be asked.
        """

        async def begin() -> runs_pb2.Run:
            return await self.get_run(run_id)

        return LiveRun(self, self._links, begin, Callables(decide, permissions, questions), on_exit)

    def _links(self) -> Links:
        return Links(self._stubs, self._ask, self._comeback, self._begin)
