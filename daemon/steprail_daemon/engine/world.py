"""What every session's runner is given: the ports, the settings, and a place for tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Protocol

import msgspec

from steprail_daemon.core.model import Capabilities
from steprail_daemon.core.stops.expressions import RuleEngine
from steprail_daemon.drivers.base import Driver
from steprail_daemon.engine.arrivals import Arrivals
from steprail_daemon.engine.ports import (
    DEAF,
    Clock,
    Encoders,
    IdSource,
    Launcher,
    Listener,
    Observe,
    RecordCodec,
)
from steprail_daemon.engine.rate_limits import RateLimits
from steprail_daemon.engine.requests import Requests
from steprail_daemon.engine.settings import AgentSettings, EngineSettings
from steprail_daemon.journal.store import Store


class StartTask(Protocol):
    """Runs a coroutine in the engine's task group; what it raises ends the daemon, for it is a bug."""

    def __call__(self, function: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        """Start `function` under `name`."""


class RequireAgent(Protocol):
    """Finds an agent that can be used now."""

    async def __call__(self, name: str) -> tuple[AgentSettings, Capabilities]:
        """Give the agent.

        Raises:
            StepRailError: AGENT_UNKNOWN, AGENT_UNAVAILABLE.
        """


class World(msgspec.Struct, frozen=True, kw_only=True):
    """The ports and settings, the same for all sessions."""

    settings: EngineSettings
    store: Store
    records: RecordCodec
    encoders: Encoders
    clock: Clock
    ids: IdSource
    launcher: Launcher
    drivers: Mapping[str, Driver]
    loop: asyncio.AbstractEventLoop
    start_task: StartTask
    require_agent: RequireAgent
    #: Gives the version that an agent's program told last; empty if it has not.
    version_of: Callable[[str], str]
    rules: RuleEngine
    rate_limits: RateLimits
    arrivals: Arrivals
    requests: Requests = msgspec.field(default_factory=Requests)
    #: Ends the daemon after a bug of ours, so that the next life closes what this one can no longer answer for.
    crash: Callable[[Exception], None]
    listener: Listener = DEAF
    observe: Observe = DEAF.observe

    def guarded(self, function: Callable[[], None]) -> Callable[[], None]:
        """Wrap what the loop calls: an exception there is a bug, and nobody else would hear of it."""

        def call() -> None:
            try:
                function()
            except Exception as error:  # noqa: BLE001 - whatever it is, it ends the daemon
                self.crash(error)

        return call

    def agent(self, name: str) -> AgentSettings | None:
        """Find a configured agent."""
        for agent in self.settings.agents:
            if agent.name == name:
                return agent
        return None
