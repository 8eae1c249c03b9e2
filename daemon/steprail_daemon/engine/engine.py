"""The engine: every verb of `engine.facade`, of sessions, of runs and of streams."""

from __future__ import annotations

import anyio

from steprail_daemon.core.errors import Invalid
from steprail_daemon.engine.drain import Drain
from steprail_daemon.engine.facade import AgentView, Caller, DrainView, LimitsView
from steprail_daemon.engine.run_verbs import RunVerbs
from steprail_daemon.engine.session_verbs import SessionVerbs
from steprail_daemon.engine.watching import Watching

#: How long a list of agents waits for programs that have not told their version yet.
_PROBE_SECONDS = 2.0


class Engine(SessionVerbs, RunVerbs, Watching):
    """Implements `engine.facade.Facade`."""

    #: Set by whoever owns the daemon's end.
    drainer: Drain

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
            max_queued_runs=settings.queue_length,
            max_rule_depth=settings.max_rule_depth,
            permission_timeout_ns=settings.permission_timeout_ns,
            queue_timeout_ns=settings.queue_timeout_ns,
            disconnect_grace_ns=settings.disconnect_grace_ns,
            silence_ns=settings.silence_ns,
        )

    def now(self) -> int:
        """See `Facade`."""
        return self._world.clock.now()

    def drain(self, caller: Caller, window_ns: int | None, reason: str) -> DrainView:
        """See `Facade`."""
        longest = self.drainer.longest_window_ns
        if window_ns is not None and not 0 <= window_ns <= longest:
            raise Invalid(
                "FIELD_INVALID",
                f"window must be at most {longest / 1e9:g} s, which drain.grace leaves, not {window_ns / 1e9:g} s",
                field="window",
            )
        return self.drainer.begin(identity=caller.name, reason=reason, window_ns=window_ns)

    def drain_status(self) -> DrainView:
        """See `Facade`."""
        return self.drainer.status()
