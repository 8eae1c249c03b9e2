"""Changes of a session's modes and model: what of them an agent takes while it runs, and what waits for a boundary."""

from __future__ import annotations

import logging

from msgspec.structs import asdict, replace

from steprail_daemon.core.commands import AgentCommand, SetModel, SetPermissionMode
from steprail_daemon.core.errors import WrongState
from steprail_daemon.core.events import ModelChanged
from steprail_daemon.core.records import SessionUpdated
from steprail_daemon.core.views import SessionView
from steprail_daemon.engine.world import World

log = logging.getLogger("steprail.engine")

#: What an agent can be told while it runs, in the words of `Driver.live_changes`.
MODEL = "model"
MODES = "modes"


class Changes:
    """The changes of one session."""

    __slots__ = ("_view", "_world", "waiting")

    def __init__(self, world: World, view: SessionView) -> None:
        self._world = world
        self._view = view
        #: What waits for the live run's next boundary, or for its end.
        self.waiting: SessionUpdated | None = None

    def put_off(self, change: SessionUpdated) -> bool:
        """Keep a change for the next boundary; false if it needs no agent, and can be made at once.

        Raises:
            WrongState: SESSION_BUSY, the agent takes it only when it is started.
        """
        wanted = _wanted(change)
        if not wanted:
            return False
        lacking = wanted - self._live_changes()
        if lacking:
            raise WrongState(
                "SESSION_BUSY",
                f"this agent takes another {' or '.join(sorted(lacking))} only when it is started; wait for the run",
                active_run_id=self._view.active_run_id,
            )
        before = {} if self.waiting is None else asdict(self.waiting)
        self.waiting = replace(change, **{name: before[name] for name in before if getattr(change, name) is None})
        return True

    def take(self) -> SessionUpdated:
        """Give and forget the change that waits."""
        change, self.waiting = self.waiting, None
        assert change is not None
        return change

    def apply(self, change: SessionUpdated, *, ready: bool) -> tuple[list[AgentCommand], bool]:
        """Give what the agent is told of a change that is recorded, and whether it must be started anew instead."""
        wanted = _wanted(change)
        if not wanted or not ready:
            return [], bool(wanted)
        if wanted - self._live_changes():
            return [], True
        commands: list[AgentCommand] = []
        if MODEL in wanted:
            commands.append(SetModel(self._view.model))
        if MODES in wanted:
            commands.append(SetPermissionMode(self._view.permission_mode, self._view.plan_mode))
        return commands, False

    def model_changed(self, event: ModelChanged) -> None:
        """Take the agent's word on a model; one that it refuses stays what it was told, and is its own affair."""
        if event.error:
            log.warning("the agent of %s did not take model %r: %s", self._view.session_id, event.model, event.error)

    def _live_changes(self) -> frozenset[str]:
        agent = self._world.agent(self._view.agent)
        return frozenset() if agent is None else self._world.drivers[agent.driver].live_changes


def _wanted(change: SessionUpdated) -> frozenset[str]:
    modes = change.permission_mode is not None or change.plan_mode is not None
    return frozenset([*([MODEL] if change.model is not None else []), *([MODES] if modes else [])])
