"""What an agent is allowed when it asks and nobody else is asked: the permission mode against the tool's kind."""

from __future__ import annotations

import msgspec

from steprail_daemon.core.model import PermissionMode, ToolKind


class Ruling(msgspec.Struct, frozen=True):
    """An answer to a permission. `reason` is for people."""

    allow: bool
    reason: str


#: What the agent's model is told on a denial: neutral and the same for every cause.
DENIAL_MESSAGE = "This tool is not allowed here. Go on without it."

_READING = frozenset({ToolKind.READ, ToolKind.SEARCH})

_ALLOW_BYPASS = Ruling(True, "permission mode BYPASS allows every tool")
_ALLOW_EDIT = Ruling(True, "permission mode ACCEPT_EDITS allows tools that edit")
_DENY_EDIT = Ruling(False, "permission mode ACCEPT_EDITS allows only tools that edit, and nobody can be asked")
_ALLOW_READ = Ruling(True, "permission mode READ_ONLY allows tools that read or search")
_DENY_READ = Ruling(False, "permission mode READ_ONLY allows only tools that read or search")
_DENY_ASK = Ruling(False, "permission mode ASK leaves it to people, and nobody can be asked")

#: Denials whatever the mode is.
DENY_ABORTING = Ruling(False, "the run is being aborted")
DENY_STOPPING = Ruling(False, "the run is being stopped")
DENY_PAST_GATE = Ruling(False, "the agent had to wait at a step boundary")


def judge(mode: PermissionMode, tool_kind: ToolKind) -> Ruling:
    """Answer a question of the agent. A tool of unknown kind is allowed by BYPASS only."""
    if mode is PermissionMode.BYPASS:
        return _ALLOW_BYPASS
    if mode is PermissionMode.ACCEPT_EDITS:
        return _ALLOW_EDIT if tool_kind is ToolKind.EDIT else _DENY_EDIT
    if mode is PermissionMode.READ_ONLY:
        return _ALLOW_READ if tool_kind in _READING else _DENY_READ
    return _DENY_ASK
