"""The back-offs that all sessions of an agent share: they use the same account with the same provider."""

from __future__ import annotations

from collections.abc import Callable

from steprail_daemon.core.backoff import Backoff, accepted, refused
from steprail_daemon.core.events import RateLimited
from steprail_daemon.engine.ports import DEAF, Clock, Observe
from steprail_daemon.engine.settings import EngineSettings

_NONE = Backoff()


class RateLimits:
    """Back-offs by agent. `on_change` is called with the agent's name when its back-off begins or grows."""

    def __init__(
        self, settings: EngineSettings, clock: Clock, chance: Callable[[], float], observe: Observe = DEAF.observe
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._chance = chance
        self._observe = observe
        self._backoffs: dict[str, Backoff] = {}
        self.on_change: Callable[[str], None] = lambda _agent: None

    def refused(self, agent: str, event: RateLimited) -> None:
        """Note that the provider refused a request of a session of this agent."""
        before = self._backoffs.get(agent, _NONE)
        now, settings = self._clock.now(), self._settings.backoff
        after = refused(before, event.kind, event.retry_after_ns, now, settings=settings, chance=self._chance())
        if after is not before:
            self._backoffs[agent] = after
            seconds = after.remaining_ns(now) / 1e9
            self._observe("rate_limit_backoff_seconds", seconds, {"provider": event.provider or "unknown"})
            self.on_change(agent)

    def served(self, agent: str) -> None:
        """Note that the provider served a request of a session of this agent."""
        before = self._backoffs.get(agent)
        if before is not None and accepted(before, self._clock.now()) is not before:
            del self._backoffs[agent]

    def remaining_ns(self, agent: str) -> int:
        """Give how long no run of this agent is to be started; zero if none waits."""
        backoff = self._backoffs.get(agent)
        return 0 if backoff is None else backoff.remaining_ns(self._clock.now())
