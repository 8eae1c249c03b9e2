"""What the protocol has and this version of the daemon cannot do yet: one table, so that nothing is dropped silently.

A field stands here until it is honoured. It is refused when it is set, or, with `accepted`, when it is set to another
value than those.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
from google.protobuf.message import Message

from steprail.v1 import decisions_pb2, rules_pb2, runs_pb2, sessions_pb2
from steprail_daemon.core.errors import WrongState


class Unsupported(msgspec.Struct, frozen=True):
    """Why a field is refused. `advice` says what is accepted instead."""

    capability: str
    advice: str
    accepted: tuple[int, ...] = ()


_LEAVE_OUT: Final = "leave it out"

UNSUPPORTED: Final[Mapping[type[Message], Mapping[str, Unsupported]]] = {
    sessions_pb2.CreateSessionRequest: {
        "permission_rules": Unsupported("permission_rules", _LEAVE_OUT),
        "allowed_tools": Unsupported("allowed_tools", _LEAVE_OUT),
        "disallowed_tools": Unsupported("disallowed_tools", _LEAVE_OUT),
        "instructions": Unsupported("instructions", _LEAVE_OUT),
        "environment": Unsupported("environment", "set it in the configuration of the agent"),
        "mcp_servers": Unsupported("mcp_servers", _LEAVE_OUT),
        "loop_strategy": Unsupported("loop_strategy", _LEAVE_OUT),
        "max_iterations": Unsupported("max_iterations", _LEAVE_OUT),
        "agent_options": Unsupported("agent_options", _LEAVE_OUT),
        "resume": Unsupported("resume", "leave it out to begin a new conversation"),
        "inline_mcp_servers": Unsupported("mcp_servers", _LEAVE_OUT),
    },
    runs_pb2.StartRunRequest: {
        "queue": Unsupported("queue", "accepted is QUEUE_MODE_REJECT", (runs_pb2.QUEUE_MODE_REJECT,)),
        "allow_inexact_stop": Unsupported("allow_inexact_stop", "use an agent whose step_gate is EXACT"),
    },
    runs_pb2.ContinueRunRequest: {
        "queue": Unsupported("queue", "accepted is QUEUE_MODE_REJECT", (runs_pb2.QUEUE_MODE_REJECT,)),
        "allow_inexact_stop": Unsupported("allow_inexact_stop", "use an agent whose step_gate is EXACT", (False,)),
    },
    runs_pb2.Prompt: {
        "allow_agent_command": Unsupported("agent_commands", "send a prompt that does not begin with `/`"),
    },
    runs_pb2.PromptPart: {
        "image": Unsupported("images", "accepted is text"),
        "file": Unsupported("files", "accepted is text; put the contents or the path into it"),
    },
    decisions_pb2.Decider: {
        "on_disconnect": Unsupported(
            "on_disconnect", "accepted is ON_DISCONNECT_WAIT", (decisions_pb2.ON_DISCONNECT_WAIT,)
        ),
        "disconnect_grace": Unsupported("on_disconnect", _LEAVE_OUT),
    },
    rules_pb2.RunLimits: {
        "permission_timeout": Unsupported("permissions", _LEAVE_OUT),
        "queue_timeout": Unsupported("queue", _LEAVE_OUT),
    },
    runs_pb2.SubmitDecisionRequest: {
        "guidance": Unsupported("guidance", _LEAVE_OUT),
        "model": Unsupported("model_switch", _LEAVE_OUT),
    },
    runs_pb2.ControlRunRequest: {
        "permission_answer": Unsupported("permissions", "no permission is ever asked of a client"),
        "question_answer": Unsupported("questions", "no question is ever asked of a client"),
        "steer": Unsupported("steer", "stop the run and continue it with a prompt"),
    },
}


def refuse_unsupported(message: Message, path: str = "") -> None:
    """Refuse a message that asks for what cannot be done yet. `path` is where it stands in the request.

    Raises:
        WrongState: CAPABILITY_MISSING.
    """
    table = UNSUPPORTED[type(message)]
    for field, value in message.ListFields():
        entry = table.get(field.name)
        if entry is not None and not (entry.accepted and value in entry.accepted):
            where = f"{path}.{field.name}" if path else field.name
            raise WrongState(
                "CAPABILITY_MISSING",
                f"{where} cannot be honoured by this version: {entry.advice}",
                field=where,
                capability=entry.capability,
            )
