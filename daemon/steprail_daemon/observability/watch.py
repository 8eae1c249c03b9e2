"""Everything that observes one daemon, put together: the registry, the sink, the pulse, the side port."""

from __future__ import annotations

import logging
import platform
import time
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final

from steprail_daemon.core.views import RunView, SessionView
from steprail_daemon.observability.pulse import Health, beat_for_ever
from steprail_daemon.observability.registry import LONGEST_QUEUE, Registry
from steprail_daemon.observability.rows import NO_LABELS
from steprail_daemon.observability.side_port import SidePort
from steprail_daemon.observability.sink import Sink

_PORTION: Final = 250

log: Final = logging.getLogger("steprail.metrics")


class Observatory:
    """What the other rooms are handed parts of: `observe` to each, `sink` to the engine.

    `kinds` names the kinds of public events by number, `numbers` gives the number of each class that is one.
    """

    def __init__(
        self,
        *,
        version: str,
        agents: Iterable[str],
        tools: Iterable[str],
        label_keys: Iterable[str],
        content: bool,
        kinds: Mapping[int, str],
        numbers: Mapping[type, int],
    ) -> None:
        self.registry = Registry(agents=agents, tools=tools, label_keys=label_keys, complain=_complain)
        self.observe = self.registry.observe
        self.sink = Sink(
            self.observe,
            kinds=kinds,
            numbers=numbers,
            label_keys=self.registry.label_keys,
            content=content,
            monotonic=time.monotonic,
        )
        self.health = Health(time.monotonic, self.sink.refusal)
        #: Nanoseconds of commits that are not counted yet. The journal appends to it within the wait of an agent, which
        #: costs less than `observe` does; if nobody counts, the oldest go.
        self.commits: deque[int] = deque(maxlen=LONGEST_QUEUE)
        self._side_port: SidePort | None = None
        python = platform.python_version()
        self.observe("build_info", 1, {"version": version, "python": python})

    def listen(self, address: str, *, required: bool) -> None:
        """Serve the side port, nowhere if `address` is empty.

        Raises:
            OSError: `required`, and it cannot be listened on. Otherwise that is a warning.
        """
        if not address:
            return
        try:
            self._side_port = SidePort(address, self.health, self.registry.prometheus)
        except OSError as error:
            if required:
                raise
            log.warning("no metrics and probes over HTTP: %s (server.http names another address, or none)", error)
            return
        log.info("metrics and probes on %s", self._side_port.url)

    def begin(self, sessions: Iterable[tuple[SessionView, Mapping[int, RunView]]]) -> None:
        """Count the sessions and runs that the journal had, and say from now on that the daemon serves."""
        for session, runs in sessions:
            self.sink.take_stock(session, runs)
        self.health.beat()
        self.health.started = True

    async def run(self) -> None:
        """Keep the pulse, for ever."""
        await beat_for_ever(self.health, self.observe, self.settle_some)

    def settle_some(self) -> bool:
        """Count some of what waits for it; whether more is left."""
        facts_left = self.sink.drain_some()
        commits = self.commits
        for _ in range(min(_PORTION, len(commits))):
            self.observe("journal_commit_seconds", commits.popleft() / 1e9, NO_LABELS)
        left = self.registry.settle_some()
        return facts_left or left or bool(commits)

    def close(self) -> None:
        """Stop to serve, and count and log what is left."""
        while self.settle_some():
            pass
        if self._side_port is not None:
            self._side_port.close()
            self._side_port = None


def _complain(error: Exception) -> None:
    log.error("an observation fits no declaration: %r", error)
