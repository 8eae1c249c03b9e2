"""What the protocol has and this version of the daemon cannot do yet: one table, so that nothing is dropped silently.

A field stands here until it is honoured; until then it is refused when it is set.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
from google.protobuf.message import Message

from steprail.v1 import runs_pb2, sessions_pb2
from steprail_daemon.core.errors import WrongState


class Unsupported(msgspec.Struct, frozen=True):
    """Why a field is refused. `advice` says what is accepted instead."""

    capability: str
    advice: str


_LEAVE_OUT: Final = "leave it out"

UNSUPPORTED: Final[Mapping[type[Message], Mapping[str, Unsupported]]] = {
    sessions_pb2.CreateSessionRequest: {
        "mcp_servers": Unsupported("mcp_servers", _LEAVE_OUT),
        "loop_strategy": Unsupported("loop_strategy", _LEAVE_OUT),
        "max_iterations": Unsupported("max_iterations", _LEAVE_OUT),
        "agent_options": Unsupported("agent_options", _LEAVE_OUT),
        "inline_mcp_servers": Unsupported("mcp_servers", _LEAVE_OUT),
    },
    runs_pb2.Prompt: {
        "allow_agent_command": Unsupported("agent_commands", "send a prompt that does not begin with `/`"),
    },
    runs_pb2.PromptPart: {
        "image": Unsupported("images", "accepted is text"),
        "file": Unsupported("files", "accepted is text; put the contents or the path into it"),
    },
}


def refuse_unsupported(message: Message, path: str = "") -> None:
    """Refuse a message that asks for what cannot be done yet. `path` is where it stands in the request.

    Raises:
        WrongState: CAPABILITY_MISSING.
    """
    table = UNSUPPORTED[type(message)]
    for field, _ in message.ListFields():
        entry = table.get(field.name)
        if entry is not None:
            where = f"{path}.{field.name}" if path else field.name
            raise WrongState(
                "CAPABILITY_MISSING",
                f"{where} cannot be honoured by this version: {entry.advice}",
                field=where,
                capability=entry.capability,
            )
