"""AgentService: the agents, and the server itself."""

from __future__ import annotations

from steprail.v1 import agents_pb2
from steprail_daemon.core.stops.expression_view import VERSION as VIEW_VERSION
from steprail_daemon.engine.facade import DrainPhase, Facade
from steprail_daemon.service import resources
from steprail_daemon.service.calls import Call, Calls
from steprail_daemon.service.fields import timestamp
from steprail_daemon.service.pages import Page


class AgentService:
    """Implements `steprail.v1.AgentService`."""

    def __init__(self, facade: Facade, calls: Calls) -> None:
        self._facade = facade
        self._calls = calls
        self._start_time = timestamp(facade.now())

    async def list_agents(self, request: agents_pb2.ListAgentsRequest, _: Call) -> agents_pb2.ListAgentsResponse:
        """Give the configured agents, by name."""
        page = Page(request, request.page_size, request.page_token)
        views = [view for view in await self._facade.agents() if view.name > page.after]
        agents, token = page.fill(views, lambda view: view.name, resources.agent)
        return agents_pb2.ListAgentsResponse(agents=agents, next_page_token=token)

    async def get_server_info(
        self, _request: agents_pb2.GetServerInfoRequest, _: Call
    ) -> agents_pb2.GetServerInfoResponse:
        """Give the version, the limits in force and the agents."""
        views = await self._facade.agents()
        info = agents_pb2.ServerInfo(
            version=resources.VERSION,
            limits=resources.server_limits(self._facade.limits()),
            agents=[resources.agent(view) for view in views],
            cel_view_version=VIEW_VERSION,
            draining=self._calls.draining or self._facade.drain_status().phase is not DrainPhase.NOT_DRAINING,
            start_time=self._start_time,
            time=timestamp(self._facade.now()),
        )
        return agents_pb2.GetServerInfoResponse(server_info=info)
