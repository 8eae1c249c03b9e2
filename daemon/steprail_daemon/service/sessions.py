"""SessionService: makes, shows, closes and watches sessions."""

from __future__ import annotations

from steprail.v1 import sessions_pb2
from steprail_daemon.core.model import SessionState
from steprail_daemon.core.views import SessionView
from steprail_daemon.engine.facade import Caller, Facade
from steprail_daemon.service import checks, decode_sessions, resources, watch_events
from steprail_daemon.service.calls import Call
from steprail_daemon.service.pages import Page
from steprail_daemon.service.request_ids import RequestIds
from steprail_daemon.service.streams import Watch, check_cursor, send_all


class SessionService:
    """Implements `steprail.v1.SessionService`, as far as its methods go."""

    def __init__(self, facade: Facade, request_ids: RequestIds) -> None:
        self._facade = facade
        self._request_ids = request_ids

    async def create_session(
        self, request: sessions_pb2.CreateSessionRequest, call: Call
    ) -> sessions_pb2.CreateSessionResponse:
        """Make a session."""
        wanted = decode_sessions.create_session(request)
        key = checks.request_id(request.request_id)

        async def act(caller: Caller) -> str:
            return (await self._facade.create_session(caller, wanted)).session_id

        session_id = await self._request_ids.once(call.caller, key, request, act)
        return sessions_pb2.CreateSessionResponse(session=self._session(call, session_id))

    async def get_session(self, request: sessions_pb2.GetSessionRequest, call: Call) -> sessions_pb2.GetSessionResponse:
        """Give a session."""
        return sessions_pb2.GetSessionResponse(session=self._session(call, request.session_id))

    async def list_sessions(
        self, request: sessions_pb2.ListSessionsRequest, call: Call
    ) -> sessions_pb2.ListSessionsResponse:
        """Give sessions, newest first."""
        page = Page(request, request.page_size, request.page_token)
        selects = Filter(request)
        seen = self._facade.list_sessions(call.caller)
        views = [view for view in seen if not page.after or view.session_id < page.after]
        found = (view for view in views if selects(view))
        sessions, token = page.fill(found, lambda view: view.session_id, lambda view: self._shown(call, view))
        return sessions_pb2.ListSessionsResponse(sessions=sessions, next_page_token=token)

    async def close_session(
        self, request: sessions_pb2.CloseSessionRequest, call: Call
    ) -> sessions_pb2.CloseSessionResponse:
        """End a session and its process tree."""
        force, reason = request.force, checks.reason(request.reason)

        async def act(caller: Caller) -> str:
            await self._facade.close_session(caller, request.session_id, force=force, reason=reason)
            return request.session_id

        session_id = await self._request_ids.once(call.caller, checks.request_id(request.request_id), request, act)
        return sessions_pb2.CloseSessionResponse(session=self._session(call, session_id))

    async def update_session(
        self, request: sessions_pb2.UpdateSessionRequest, call: Call
    ) -> sessions_pb2.UpdateSessionResponse:
        """Change a session's modes, model or labels."""
        session_id, change = decode_sessions.update_session(request)

        def act(caller: Caller) -> str:
            return self._facade.update_session(caller, session_id, change).session_id

        self._request_ids.once_now(call.caller, checks.request_id(request.request_id), request, act)
        return sessions_pb2.UpdateSessionResponse(session=self._session(call, session_id))

    async def delete_session(
        self, request: sessions_pb2.DeleteSessionRequest, call: Call
    ) -> sessions_pb2.DeleteSessionResponse:
        """Remove a session that is over, with its history."""
        session_id = checks.identifier("session_id", request.session_id)

        def act(caller: Caller) -> str:
            self._facade.delete_session(caller, session_id)
            return session_id

        self._request_ids.once_now(call.caller, checks.request_id(request.request_id), request, act)
        return sessions_pb2.DeleteSessionResponse()

    async def release_queue(
        self, request: sessions_pb2.ReleaseQueueRequest, call: Call
    ) -> sessions_pb2.ReleaseQueueResponse:
        """Let queued runs start again."""

        def act(caller: Caller) -> str:
            return self._facade.release_queue(caller, request.session_id).session_id

        session_id = self._request_ids.once_now(call.caller, checks.request_id(request.request_id), request, act)
        return sessions_pb2.ReleaseQueueResponse(session=self._session(call, session_id))

    async def watch_session(self, request: sessions_pb2.WatchSessionRequest, call: Call) -> None:
        """Send the events of a session."""
        check_cursor(request.after_seq, request.epoch)
        session = self._facade.get_session(call.caller, request.session_id)
        subscription = self._facade.watch_session(call.caller, request.session_id, request.after_seq, request.epoch)
        await send_all(Watch(self._facade, call.caller, session, subscription), call)

    async def watch_events(self, request: sessions_pb2.WatchEventsRequest, call: Call) -> None:
        """Send the events of all sessions that the caller sees."""
        cursors, wanted = watch_events.selection(request)
        subscription = self._facade.watch_events(call.caller, cursors, wanted)
        await watch_events.send_all(watch_events.EventsWatch(self._facade, subscription), call)

    def _session(self, call: Call, session_id: str) -> sessions_pb2.Session:
        return self._shown(call, self._facade.get_session(call.caller, session_id))

    def _shown(self, call: Call, view: SessionView) -> sessions_pb2.Session:
        active = view.active_run_id
        return resources.session(view, self._facade.get_run(call.caller, active) if active else None)


class Filter:
    """Which sessions a list request wants.

    Raises:
        Invalid: FIELD_INVALID, when it is made.
    """

    def __init__(self, request: sessions_pb2.ListSessionsRequest) -> None:
        self._states = {
            checks.choice(f"states[{index}]", state, SessionState, None) for index, state in enumerate(request.states)
        }
        self._agents = checks.agent_names(request.agents)
        self._labels = checks.labels("labels", request.labels)

    def __call__(self, view: SessionView) -> bool:
        """Whether it wants this one."""
        return (
            (not self._states or view.state in self._states)
            and (not self._agents or view.agent in self._agents)
            and self._labels.items() <= view.labels.items()
        )
