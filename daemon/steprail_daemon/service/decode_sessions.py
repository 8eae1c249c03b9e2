"""Requests about sessions as what the facade takes; see `decode`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import msgspec

from steprail.v1 import decisions_pb2, sessions_pb2
from steprail_daemon.core.errors import Invalid
from steprail_daemon.core.model import PermissionAction, PermissionMode, PermissionRule
from steprail_daemon.core.stops.expressions import MAX_SOURCE_BYTES
from steprail_daemon.engine.facade import CreateSession, SessionChange
from steprail_daemon.service import checks
from steprail_daemon.service.bounds import ID, MAX_TEXT_BYTES, NAME, REASON
from steprail_daemon.service.unsupported import refuse_unsupported

MAX_PERMISSION_RULES: Final = 256
MAX_TOOLS: Final = 256
MAX_VARIABLES: Final = 64


def create_session(request: sessions_pb2.CreateSessionRequest) -> CreateSession:
    """Read a request for a session.

    Raises:
        Invalid: FIELD_INVALID, CWD_INVALID.
        WrongState: CAPABILITY_MISSING.
    """
    refuse_unsupported(request)
    if not request.agent:
        raise checks.invalid("agent", "is required")
    if not request.cwd:
        raise Invalid("CWD_INVALID", "cwd is required: an absolute path", field="cwd")
    mode = request.permission_mode
    return CreateSession(
        agent=checks.text("agent", request.agent, NAME),
        cwd=checks.text("cwd", request.cwd, REASON),
        labels=checks.labels("labels", request.labels),
        permission_mode=checks.choice("permission_mode", mode, PermissionMode, None) if mode else None,
        model=checks.printable("model", request.model, NAME),
        permission_rules=permission_rules("permission_rules", request.permission_rules),
        allowed_tools=_tools("allowed_tools", request.allowed_tools),
        disallowed_tools=_tools("disallowed_tools", request.disallowed_tools),
        instructions=_argument("instructions", request.instructions, MAX_TEXT_BYTES),
        environment=_environment(request.environment),
        resume=checks.printable("resume", request.resume, NAME),
    )


def permission_rules(path: str, rules: Sequence[decisions_pb2.PermissionRule]) -> tuple[PermissionRule, ...]:
    """Read rules about permissions; what their conditions mean is judged where they are used.

    Raises:
        Invalid: FIELD_INVALID.
    """
    _count(path, len(rules), MAX_PERMISSION_RULES)
    return tuple(_permission_rule(f"{path}[{index}]", rule) for index, rule in enumerate(rules))


def _permission_rule(path: str, rule: decisions_pb2.PermissionRule) -> PermissionRule:
    if not (rule.tool or rule.command_prefix or rule.path or rule.cel):
        raise checks.invalid(path, "has no condition; accepted are tool, command_prefix, path and cel")
    return PermissionRule(
        action=checks.choice(f"{path}.action", rule.action, PermissionAction, None),
        tool=checks.text(f"{path}.tool", rule.tool, NAME),
        command_prefix=checks.text(f"{path}.command_prefix", rule.command_prefix, REASON),
        path=checks.text(f"{path}.path", rule.path, REASON),
        cel=checks.text(f"{path}.cel", rule.cel, MAX_SOURCE_BYTES),
        reason=checks.text(f"{path}.reason", rule.reason, REASON),
    )


def _tools(path: str, names: Sequence[str]) -> tuple[str, ...]:
    _count(path, len(names), MAX_TOOLS)
    for index, name in enumerate(names):
        if not name:
            raise checks.invalid(f"{path}[{index}]", "is empty; names have 1 to 256 bytes")
        checks.printable(f"{path}[{index}]", name, NAME)
    return tuple(names)


def _environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Read variables. Their values are in no refusal: they can be secrets."""
    _count("environment", len(variables), MAX_VARIABLES)
    for name, value in variables.items():
        if not name or "=" in name:
            raise checks.invalid("environment", f"has the name {name[:ID]!r}; names are not empty and have no `=`")
        checks.printable(f"environment[{name[:ID]!r}]", name, NAME)
        _argument(f"environment[{name!r}]", value, REASON)
    return dict(variables)


def _argument(field: str, value: str, limit: int) -> str:
    """Give a text that the kernel takes as an argument or a variable of a program: it ends at a zero byte."""
    if "\0" in value:
        raise checks.invalid(field, "has a zero byte; none is accepted")
    return checks.text(field, value, limit)


def _count(field: str, found: int, limit: int) -> None:
    if found > limit:
        raise checks.invalid(field, f"has {found} entries; at most {limit} are accepted")


def _plan_mode(session: sessions_pb2.Session) -> bool:
    return session.plan_mode


def _model(session: sessions_pb2.Session) -> str:
    return checks.printable("session.model", session.model, NAME)


def _permission_mode(session: sessions_pb2.Session) -> PermissionMode:
    return checks.choice("session.permission_mode", session.permission_mode, PermissionMode, None)


def _labels(session: sessions_pb2.Session) -> dict[str, str]:
    return checks.labels("session.labels", session.labels)


#: What can be changed in a session, by path of a field mask.
_CHANGES: Final[Mapping[str, Callable[[sessions_pb2.Session], Any]]] = MappingProxyType(
    {"permission_mode": _permission_mode, "plan_mode": _plan_mode, "model": _model, "labels": _labels}
)


def update_session(request: sessions_pb2.UpdateSessionRequest) -> tuple[str, SessionChange]:
    """Read which session is to be changed, and what is to be different.

    Raises:
        Invalid: FIELD_INVALID.
    """
    session_id = checks.identifier("session.session_id", request.session.session_id)
    accepted = ", ".join(_CHANGES)
    paths = request.update_mask.paths
    if not paths:
        raise checks.invalid("update_mask", f"is required; accepted are {accepted}")
    unknown = [path for path in paths if path not in _CHANGES]
    if unknown:
        raise checks.invalid("update_mask", f"has the path {unknown[0][:NAME]!r}; accepted are {accepted}")
    change = {path: _CHANGES[path](request.session) for path in paths}
    return session_id, msgspec.structs.replace(SessionChange(), **change)
