"""The client itself: one method for each call."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import grpc
import grpc.aio
from google.protobuf import duration_pb2

from steprail.client._channel import CALL_SECONDS, answer, default_address, new_request_id, open_channel
from steprail.client._control import Control
from steprail.client._credentials import Tls, tls_of_environment, token_source
from steprail.client._watch import Watch
from steprail.errors import from_rpc
from steprail.v1 import (
    agents_pb2,
    agents_pb2_grpc,
    decisions_pb2,
    events_pb2,
    rules_pb2,
    runs_pb2,
    runs_pb2_grpc,
    sessions_pb2,
    sessions_pb2_grpc,
    steps_pb2,
)

Req = TypeVar("Req")
Rep = TypeVar("Rep")


class Client:
    """A connection to one daemon. Use it with `async with`. All times are in seconds.

    `address` is `unix:` with a path, or a host with a port. By a `token`, the first one of a `token_file` (read again
    when it changes), or else the file that $STEPRAIL_TOKEN_FILE names, the client proves who it is. `tls` says how TCP
    is encrypted, by default as $STEPRAIL_TLS_ROOTS, $STEPRAIL_TLS_CERTIFICATE and $STEPRAIL_TLS_KEY say.

    Every method raises `steprail.errors.StepRailError`, `async with` too where credentials cannot be used.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        token: str | None = None,
        token_file: str | Path | None = None,
        tls: Tls | None = None,
        timeout: float = CALL_SECONDS,
    ) -> None:
        self.address = address or default_address()
        self.timeout = timeout
        self._token = token_source(token, token_file)
        self._tls = tls or tls_of_environment()
        self._channel: grpc.aio.Channel | None = None

    async def __aenter__(self) -> Client:
        """Open the channel; the first call connects."""
        channel = self._channel = open_channel(self.address, self._token, self._tls)
        self._agents = agents_pb2_grpc.AgentServiceStub(channel)
        self._sessions = sessions_pb2_grpc.SessionServiceStub(channel)
        self._runs = runs_pb2_grpc.RunServiceStub(channel)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the channel."""
        if self._channel is not None:
            await self._channel.close()
            self._channel = None

    async def _ask(
        self, method: grpc.aio.UnaryUnaryMultiCallable[Req, Rep], request: Req, timeout: float | None = None
    ) -> Rep:
        return await answer(method(request, timeout=self.timeout if timeout is None else timeout), self.address)

    # --- the daemon and its agents ---

    async def get_server_info(self, *, timeout: float | None = None) -> agents_pb2.ServerInfo:
        """Give version, limits and agents."""
        reply = await self._ask(self._agents.GetServerInfo, agents_pb2.GetServerInfoRequest(), timeout)
        return reply.server_info

    async def list_agents(self) -> list[agents_pb2.Agent]:
        """Give the configured agents."""
        request = agents_pb2.ListAgentsRequest()
        return [item async for item in self._pages(self._agents.ListAgents, request, "agents")]

    # --- sessions ---

    async def create_session(
        self,
        agent: str,
        cwd: str,
        *,
        labels: Mapping[str, str] | None = None,
        permission_mode: sessions_pb2.PermissionMode.ValueType = sessions_pb2.PERMISSION_MODE_UNSPECIFIED,
        model: str = "",
    ) -> sessions_pb2.Session:
        """Make a session; its agent may still be starting."""
        request = sessions_pb2.CreateSessionRequest(
            agent=agent,
            cwd=cwd,
            labels=dict(labels or {}),
            permission_mode=permission_mode,
            model=model,
            request_id=new_request_id(),
        )
        return (await self._ask(self._sessions.CreateSession, request)).session

    async def get_session(self, session_id: str) -> sessions_pb2.Session:
        """Give a session."""
        request = sessions_pb2.GetSessionRequest(session_id=session_id)
        return (await self._ask(self._sessions.GetSession, request)).session

    async def list_sessions(self) -> list[sessions_pb2.Session]:
        """Give all sessions, newest first."""
        request = sessions_pb2.ListSessionsRequest()
        return [item async for item in self._pages(self._sessions.ListSessions, request, "sessions")]

    async def close_session(self, session_id: str, *, force: bool = False) -> sessions_pb2.Session:
        """End a session and its processes; with `force` also a live run."""
        request = sessions_pb2.CloseSessionRequest(session_id=session_id, force=force, request_id=new_request_id())
        return (await self._ask(self._sessions.CloseSession, request)).session

    # --- runs ---

    async def start_run(
        self,
        session_id: str,
        prompt: str,
        *,
        stop_rules: Iterable[rules_pb2.StopRule] = (),
        decider: decisions_pb2.Decider | None = None,
        limits: rules_pb2.RunLimits | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> runs_pb2.Run:
        """Start a run; it returns once it is recorded."""
        request = self.start_request(
            session_id, prompt, stop_rules=stop_rules, decider=decider, limits=limits, labels=labels
        )
        return (await self._ask(self._runs.StartRun, request)).run

    def start_request(
        self,
        session_id: str,
        prompt: str,
        *,
        stop_rules: Iterable[rules_pb2.StopRule] = (),
        decider: decisions_pb2.Decider | None = None,
        limits: rules_pb2.RunLimits | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> runs_pb2.StartRunRequest:
        """Give the request of `start_run`, for `control`."""
        return runs_pb2.StartRunRequest(
            session_id=session_id,
            prompt=runs_pb2.Prompt(parts=[runs_pb2.PromptPart(text=prompt)]),
            stop_rules=list(stop_rules),
            decider=decider,
            limits=limits,
            labels=dict(labels or {}),
            request_id=new_request_id(),
        )

    async def continue_run(
        self,
        run_id: str,
        prompt: str | None = None,
        *,
        stop_rules: Iterable[rules_pb2.StopRule] | None = None,
        decider: decisions_pb2.Decider | None = None,
        limits: rules_pb2.RunLimits | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> runs_pb2.Run:
        """Go on after a run that ended. What is None is inherited; an empty list of rules means none."""
        request = self.continue_request(
            run_id, prompt, stop_rules=stop_rules, decider=decider, limits=limits, labels=labels
        )
        return (await self._ask(self._runs.ContinueRun, request)).run

    def continue_request(
        self,
        run_id: str,
        prompt: str | None = None,
        *,
        stop_rules: Iterable[rules_pb2.StopRule] | None = None,
        decider: decisions_pb2.Decider | None = None,
        limits: rules_pb2.RunLimits | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> runs_pb2.ContinueRunRequest:
        """Give the request of `continue_run`, for `control`."""
        parts = None if prompt is None else runs_pb2.Prompt(parts=[runs_pb2.PromptPart(text=prompt)])
        return runs_pb2.ContinueRunRequest(
            run_id=run_id,
            prompt=parts,
            stop_rules=None if stop_rules is None else rules_pb2.StopRuleSet(rules=list(stop_rules)),
            decider=decider,
            limits=limits,
            labels=dict(labels or {}),
            request_id=new_request_id(),
        )

    async def stop_run(self, run_id: str, reason: str = "") -> runs_pb2.Run:
        """Ask for a stop at the next boundary."""
        request = runs_pb2.StopRunRequest(run_id=run_id, reason=reason, request_id=new_request_id())
        return (await self._ask(self._runs.StopRun, request)).run

    async def abort_run(self, run_id: str, reason: str = "") -> runs_pb2.Run:
        """Cut a run off."""
        request = runs_pb2.AbortRunRequest(run_id=run_id, reason=reason, request_id=new_request_id())
        return (await self._ask(self._runs.AbortRun, request)).run

    async def submit_decision(
        self,
        run_id: str,
        step_id: str,
        action: decisions_pb2.DecisionAction.ValueType = decisions_pb2.DECISION_ACTION_UNSPECIFIED,
        *,
        reason: str = "",
        error: str = "",
    ) -> decisions_pb2.Decision:
        """Decide about the step that waits, or with `error` alone say that no decision could be made."""
        request = runs_pb2.SubmitDecisionRequest(
            run_id=run_id, step_id=step_id, action=action, reason=reason, error=error, request_id=new_request_id()
        )
        return (await self._ask(self._runs.SubmitDecision, request)).decision

    async def get_run(self, run_id: str) -> runs_pb2.Run:
        """Give a run."""
        return (await self._ask(self._runs.GetRun, runs_pb2.GetRunRequest(run_id=run_id))).run

    async def list_runs(self, session_id: str = "") -> list[runs_pb2.Run]:
        """Give the runs of a session, or of all, newest first."""
        request = runs_pb2.ListRunsRequest(session_id=session_id)
        return [item async for item in self._pages(self._runs.ListRuns, request, "runs")]

    async def list_steps(self, run_id: str) -> list[steps_pb2.Step]:
        """Give the completed steps of a run, by number."""
        request = runs_pb2.ListStepsRequest(run_id=run_id)
        return [item async for item in self._pages(self._runs.ListSteps, request, "steps")]

    async def get_step(self, run_id: str, step: int | str) -> steps_pb2.Step:
        """Give one step, by its number or its id."""
        request = (
            runs_pb2.GetStepRequest(run_id=run_id, number=step)
            if isinstance(step, int)
            else runs_pb2.GetStepRequest(run_id=run_id, step_id=step)
        )
        return (await self._ask(self._runs.GetStep, request)).step

    async def wait_run(
        self,
        run_id: str,
        *,
        until: runs_pb2.WaitUntil.ValueType = runs_pb2.WAIT_UNTIL_ENDED,
        timeout: float = 60.0,
    ) -> runs_pb2.Run:
        """Wait until a run ended (or needs attention), at most `timeout`; gives it as it is then."""
        spans = duration_pb2.Duration(nanos=int(timeout % 1 * 1e9), seconds=int(timeout))
        request = runs_pb2.WaitRunRequest(run_id=run_id, until=until, timeout=spans)
        return (await self._ask(self._runs.WaitRun, request, timeout + self.timeout)).run

    async def read_blob(self, blob_id: str) -> bytes:
        """Give the whole of a content that was cut or left out."""
        call = self._runs.ReadBlob(runs_pb2.ReadBlobRequest(blob_id=blob_id))
        try:
            return b"".join([part.data async for part in call])
        except grpc.aio.AioRpcError as error:
            raise from_rpc(error, self.address) from None
        finally:
            call.cancel()

    # --- streams ---

    async def watch_run(self, run_id: str, *, after_seq: int = 0, epoch: str = "") -> AsyncIterator[events_pb2.Event]:
        """Give every event of a run, recorded ones first, until its end; it comes back to a daemon that restarts.

        `after_seq` and `epoch` are where to go on: the last event seen, and the epoch of the session.
        """

        def open_stream(seq: int, of: str) -> Any:
            return self._runs.WatchRun(runs_pb2.WatchRunRequest(run_id=run_id, after_seq=seq, epoch=of))

        async for event in Watch(open_stream, self.address, after_seq=after_seq, epoch=epoch).events():
            yield event

    async def watch_session(
        self, session_id: str, *, after_seq: int = 0, epoch: str = ""
    ) -> AsyncIterator[events_pb2.Event]:
        """Give every event of a session until it is closed; it comes back to a daemon that restarts."""

        def open_stream(seq: int, of: str) -> Any:
            request = sessions_pb2.WatchSessionRequest(session_id=session_id, after_seq=seq, epoch=of)
            return self._sessions.WatchSession(request)

        async for event in Watch(open_stream, self.address, after_seq=after_seq, epoch=epoch).events():
            yield event

    def control(
        self,
        *,
        start: runs_pb2.StartRunRequest | None = None,
        continue_run: runs_pb2.ContinueRunRequest | None = None,
        attach: str = "",
        after_seq: int = 0,
        epoch: str = "",
        decide: bool = False,
        events: runs_pb2.ControlEvents.ValueType = runs_pb2.CONTROL_EVENTS_ALL,
    ) -> Control:
        """Give a conversation about a run that it starts, continues or attaches to; `decide` registers as a decider.

        `after_seq` and `epoch` are where to go on, with `attach` alone.
        """
        first = runs_pb2.ControlRunRequest(decide=decide, events=events)
        if start is not None:
            first.start.CopyFrom(start)
            first.request_id = start.request_id
        elif continue_run is not None:
            first.continue_run.CopyFrom(continue_run)
            first.request_id = continue_run.request_id
        else:
            first.attach.CopyFrom(runs_pb2.AttachRun(run_id=attach, after_seq=after_seq, epoch=epoch))
        return Control(self._runs.ControlRun(), first, self.address, self.timeout)

    async def _pages(self, method: Any, request: Any, field: str) -> AsyncIterator[Any]:
        while True:
            reply = await self._ask(method, request)
            for item in getattr(reply, field):
                yield item
            if not reply.next_page_token:
                return
            request.page_token = reply.next_page_token
