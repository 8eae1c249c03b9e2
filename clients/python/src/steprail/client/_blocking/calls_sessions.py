"""Generated from `steprail.client._sessions` by scripts/blocking.py; never edited by hand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from steprail.client._blocking.portal import Blocking
from steprail.client._client import Client
from steprail.v1 import decisions_pb2, events_pb2, sessions_pb2


class SyncSessionCalls(Blocking[Client]):
    """Makes, shows, changes and ends sessions.

    Calls that change something take a `request_id`, the key by which the daemon knows a repeated request; one is made
    up where none is given.
    """

    def create_session(
        self,
        agent: str,
        cwd: str,
        *,
        labels: Mapping[str, str] | None = None,
        permission_mode: sessions_pb2.PermissionMode.ValueType = sessions_pb2.PERMISSION_MODE_UNSPECIFIED,
        permission_rules: Iterable[decisions_pb2.PermissionRule] = (),
        allowed_tools: Iterable[str] = (),
        disallowed_tools: Iterable[str] = (),
        model: str = "",
        instructions: str = "",
        environment: Mapping[str, str] | None = None,
        mcp_servers: Iterable[str] = (),
        inline_mcp_servers: Iterable[sessions_pb2.McpServer] = (),
        loop_strategy: str = "",
        max_iterations: int | None = None,
        agent_options: Mapping[str, str] | None = None,
        resume: str = "",
        request_id: str = "",
    ) -> sessions_pb2.Session:
        """Make a session in a directory; its agent may still be starting.

        `permission_rules` only narrow what operator policy allows; `resume` is the agent's own id of a conversation to
        take up; the other fields mean what `steprail.v1.CreateSessionRequest` says.

        Raises:
            FailedPrecondition: CAPABILITY_MISSING for what the agent cannot do, AGENT_UNAVAILABLE.
            InvalidArgument: AGENT_UNKNOWN, CWD_INVALID.
        """
        return self._portal.wait(
            self._calls.create_session(
                agent,
                cwd,
                labels=labels,
                permission_mode=permission_mode,
                permission_rules=permission_rules,
                allowed_tools=allowed_tools,
                disallowed_tools=disallowed_tools,
                model=model,
                instructions=instructions,
                environment=environment,
                mcp_servers=mcp_servers,
                inline_mcp_servers=inline_mcp_servers,
                loop_strategy=loop_strategy,
                max_iterations=max_iterations,
                agent_options=agent_options,
                resume=resume,
                request_id=request_id,
            )
        )

    def get_session(self, session_id: str) -> sessions_pb2.Session:
        """Give a session."""
        return self._portal.wait(self._calls.get_session(session_id))

    def list_sessions(
        self,
        *,
        states: Iterable[events_pb2.SessionState.ValueType] = (),
        agents: Iterable[str] = (),
        labels: Mapping[str, str] | None = None,
    ) -> list[sessions_pb2.Session]:
        """Give sessions, newest first: all, or those in one of `states`, of one of `agents`, with all `labels`."""
        return self._portal.wait(self._calls.list_sessions(states=states, agents=agents, labels=labels))

    def update_session(
        self,
        session_id: str,
        *,
        permission_mode: sessions_pb2.PermissionMode.ValueType | None = None,
        plan_mode: bool | None = None,
        model: str | None = None,
        labels: Mapping[str, str] | None = None,
        request_id: str = "",
    ) -> sessions_pb2.Session:
        """Change what is not None; `labels` replaces all of them but pinned ones.

        While a run is live it takes effect at the next boundary.

        Raises:
            FailedPrecondition: SESSION_BUSY where it cannot wait for a boundary, CAPABILITY_MISSING.
        """
        return self._portal.wait(
            self._calls.update_session(
                session_id,
                permission_mode=permission_mode,
                plan_mode=plan_mode,
                model=model,
                labels=labels,
                request_id=request_id,
            )
        )

    def close_session(
        self, session_id: str, *, force: bool = False, reason: str = "", request_id: str = ""
    ) -> sessions_pb2.Session:
        """End a session and its processes; with `force` also a live run. The history stays.

        Raises:
            FailedPrecondition: SESSION_BUSY with a live run, unless `force`.
        """
        return self._portal.wait(
            self._calls.close_session(session_id, force=force, reason=reason, request_id=request_id)
        )

    def delete_session(self, session_id: str, *, request_id: str = "") -> None:
        """Remove a closed or broken session with its history. For admins.

        Raises:
            FailedPrecondition: SESSION_BUSY for one that is neither.
        """
        self._portal.wait(self._calls.delete_session(session_id, request_id=request_id))

    def fork_session(
        self, session_id: str, *, labels: Mapping[str, str] | None = None, request_id: str = ""
    ) -> sessions_pb2.Session:
        """Branch the conversation into a new session, where the agent can.

        Raises:
            FailedPrecondition: CAPABILITY_MISSING, SESSION_BUSY.
            Unimplemented: this daemon forks none.
        """
        return self._portal.wait(self._calls.fork_session(session_id, labels=labels, request_id=request_id))

    def release_queue(self, session_id: str, *, request_id: str = "") -> sessions_pb2.Session:
        """Let queued runs start again after a run that was stopped or failed. For admins."""
        return self._portal.wait(self._calls.release_queue(session_id, request_id=request_id))
