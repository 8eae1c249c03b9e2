"""Rules on what agents ask leave for: gathers what policy wants to know and has it judged (`core.policy`)."""

from __future__ import annotations

import os
from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from steprail_daemon.core import policy
from steprail_daemon.core.errors import Denied
from steprail_daemon.core.events import PermissionAsked
from steprail_daemon.core.model import Permission, PermissionAction, PermissionAlternative
from steprail_daemon.core.policy import Policy, ToolAsk
from steprail_daemon.core.stops.expression_view import PermissionView
from steprail_daemon.core.stops.expressions import Evaluation, ExpressionOutcome, ExpressionResult
from steprail_daemon.core.views import SessionView
from steprail_daemon.engine.host import AgentHost
from steprail_daemon.engine.world import World

#: Paths of one call that are looked at, and the longest that Linux takes, in bytes (PATH_MAX with its end).
_MAX_PATHS = 1024
_MAX_PATH = 4095
#: Stands for a path that no file can have; it lies under no session's directory.
_NO_PATH = "/dev/null/none"


class PermissionDesk:
    """Rules on the asks of one session. An ask whose rules have expressions is ruled on once those are evaluated."""

    __slots__ = ("_host", "_view", "_world")

    def __init__(self, world: World, view: SessionView, host: AgentHost) -> None:
        self._world = world
        self._view = view
        self._host = host

    def rule(self, event: PermissionAsked, later: Callable[[PermissionAsked], None]) -> PermissionAsked | None:
        """Give the ask with its ruling; None if that takes a while, then `later` is called with it, in any case."""
        how = self._policy()
        ask = self._ask(event, event.arguments_json)
        sources = policy.expressions_of(how)
        if not sources:
            return replace(event, ruling=policy.judge(how, ask))

        async def evaluate() -> None:
            results = await self._world.rules.evaluate(Evaluation(_seen(ask, self._view.labels), sources))
            ruling = policy.judge(how, ask, dict(zip(sources, map(_held, results), strict=True)))
            self._world.guarded(lambda: later(replace(event, ruling=ruling)))()

        self._world.start_task(evaluate, f"rule on a permission of {self._view.session_id}")
        return None

    def require_allowed(self, permission: Permission, alternative: PermissionAlternative) -> None:
        """See that what a person gives in place of a call is not what policy denies.

        An expression is not evaluated for that: a rule that denies by one holds.

        Raises:
            Denied: FORBIDDEN.
        """
        arguments = alternative.arguments_json
        if arguments is None:
            arguments = msgspec.json.encode({"command": alternative.command or ""}).decode()
        ruling = policy.judge(self._policy(), self._ask(permission, arguments))
        if ruling.action is PermissionAction.DENY:
            raise Denied("FORBIDDEN", f"alternative is denied: {ruling.reason}")

    def _policy(self) -> Policy:
        view = self._view
        return Policy(
            mode=view.permission_mode,
            operator=self._world.settings.permission_rules,
            caller=view.permission_rules,
            grants=frozenset([(grant.tool, policy.canonical(grant.arguments_json)) for grant in view.grants]),
            allowed_tools=view.allowed_tools,
            disallowed_tools=view.disallowed_tools,
        )

    def _ask(self, asked: PermissionAsked | Permission, arguments_json: str) -> ToolAsk:
        subject = policy.subject(arguments_json)
        cwd, home = self._view.cwd, self._host.home
        return ToolAsk(
            tool=asked.tool,
            tool_kind=asked.tool_kind,
            arguments_json=arguments_json,
            cwd=cwd,
            command=subject.command,
            paths=tuple([_resolved(path, cwd, home) for path in subject.paths[:_MAX_PATHS]]),
            told=subject.told and len(subject.paths) <= _MAX_PATHS,
        )


def _seen(ask: ToolAsk, labels: dict[str, str]) -> PermissionView:
    return PermissionView(
        tool=ask.tool,
        tool_kind=ask.tool_kind.name.lower() if ask.tool_kind else None,
        command=ask.command or "",
        paths=ask.paths,
        labels=labels,
    )


def _held(result: ExpressionResult) -> bool | None:
    """Tell whether a condition held; None where it has no result."""
    if result.outcome is ExpressionOutcome.MATCHED:
        return True
    return False if result.outcome is ExpressionOutcome.NOT_MATCHED else None


def _resolved(path: str, cwd: str, home: str) -> str:
    """Give a path as the agent's tool would find it, symlinks resolved; what does not exist yet by its directory."""
    if len(path) > _MAX_PATH:
        return _NO_PATH
    if home and (path == "~" or path.startswith("~/")):
        # The agent's home need not be the daemon's.
        path = home + path[1:]
    try:
        return os.path.realpath(os.path.join(cwd, os.path.expanduser(path)))  # noqa: PTH111, PTH118  names from agents
    except (OSError, ValueError):
        # A name that no file can have is no name of a file under the session's directory either.
        return _NO_PATH
