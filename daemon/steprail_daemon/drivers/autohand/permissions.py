"""What the CLI asks leave for, and how it is answered.

A question that is not acknowledged is denied by the CLI after 30 s; acknowledged, after an hour. Its answers are words;
a directory outside of the workspace is asked for by another method, as if it were the tool that asks for it.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from steprail_daemon.core.commands import AnswerPermission
from steprail_daemon.core.events import AgentEvent, PermissionAsked, PermissionWithdrawn
from steprail_daemon.core.model import PermissionAlternative, ToolKind
from steprail_daemon.drivers.autohand import wire
from steprail_daemon.drivers.autohand.tools import DIRECTORY_TOOL, Calls, json_of, tool_kind
from steprail_daemon.drivers.base import one_line

#: How long the CLI waits for the answer to an acknowledged question, in seconds; read in its source.
HOLD_S: Final = 3_600

Request = tuple[str, dict[str, Any]]


class _Command(msgspec.Struct, gc=False):
    command: str = ""


_decode_command = msgspec.json.Decoder(_Command).decode


class Permissions:
    """The questions that are open. `Request` is a method with its parameters, to be sent."""

    def __init__(self) -> None:
        self._open: dict[str, bool] = {}
        self._void = False
        self._hook: wire.PermissionHookParams | None = None

    def announce(self, hook: wire.PermissionHookParams) -> None:
        """Keep the arguments that the next question is about."""
        self._hook = hook

    def ask(self, asked: wire.PermissionParams, calls: Calls, events: list[AgentEvent]) -> Request:
        """Take a question; gives its acknowledgement, which is owed at once."""
        hook, self._hook = self._hook, None
        args = hook.args if hook is not None and hook.tool == asked.tool else asked.context
        call_id, args = calls.ask(asked.tool, args)
        self._open[asked.request_id] = False
        events.append(
            PermissionAsked(
                permission_id=asked.request_id,
                call_id=call_id,
                tool=asked.tool,
                arguments_json=json_of(args),
                tool_kind=tool_kind(asked.tool),
                title=one_line(asked.description),
            )
        )
        return "permissionAcknowledged", {"requestId": asked.request_id}

    def ask_directory(self, asked: wire.DirectoryParams, calls: Calls, events: list[AgentEvent]) -> Request:
        """Take the question for a directory; gives its acknowledgement."""
        self._open[asked.request_id] = True
        events.append(
            PermissionAsked(
                permission_id=asked.request_id,
                call_id=calls.running_call(DIRECTORY_TOOL),
                tool=DIRECTORY_TOOL,
                arguments_json=msgspec.json.encode({"path": asked.path, "reason": asked.reason}).decode(),
                tool_kind=ToolKind.OTHER,
                title=one_line(f"Use files in {asked.path}?" + (f" {asked.reason}" if asked.reason else "")),
            )
        )
        return "directoryAccessAcknowledged", {"requestId": asked.request_id}

    def answer(self, command: AnswerPermission) -> Request | None:
        """Word an answer; None if the CLI no longer asks."""
        if self._void or command.permission_id not in self._open:
            return None
        request: dict[str, Any] = {"requestId": command.permission_id}
        if self._open.pop(command.permission_id):
            return "directoryAccessResponse", {**request, "granted": command.allow and command.alternative is None}
        if not command.allow:
            return "permissionResponse", {**request, "decision": "deny_once"}
        if command.alternative is None:
            return "permissionResponse", {**request, "decision": "allow_once"}
        text = _command_of(command.alternative)
        if not text:
            return "permissionResponse", {**request, "decision": "deny_once"}
        return "permissionResponse", {**request, "decision": "alternative", "alternative": text}

    def void(self) -> None:
        """Note that an abort was sent: the CLI takes its questions back."""
        self._void = True

    def withdraw(self, events: list[AgentEvent]) -> None:
        """Tell that the questions that are open got no answer; the CLI is past them."""
        events.extend([PermissionWithdrawn(permission_id) for permission_id in self._open])
        self._open.clear()
        self._void = False
        self._hook = None


def _command_of(alternative: PermissionAlternative) -> str:
    """Give the command to run instead: the only alternative that the CLI takes."""
    if alternative.command is not None:
        return alternative.command
    try:
        return _decode_command(alternative.arguments_json or "{}").command
    except msgspec.DecodeError:
        return ""
