"""`initialize`: asks for the gate's hook, and says whether the CLI took it."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from steprail_daemon.core.events import AgentReady, ProtocolFailed
from steprail_daemon.drivers.claude import wire
from steprail_daemon.drivers.claude.answers import DELEGATION, GATE
from steprail_daemon.drivers.claude.controls import SUCCESS

#: Seconds that the CLI waits for the answer at a boundary. The default is 600, and it dies when they are over.
HOOK_TIMEOUT_S: Final = 86_400


#: The tools that start a sub-agent; `Task` is the older name.
_SUBAGENT_TOOLS: Final = "Agent|Task"


def request() -> dict[str, Any]:
    """Ask for a gate that waits for a day and fails closed, and to be told before a sub-agent starts."""
    gate = {"matcher": None, "hookCallbackIds": [GATE], "timeout": HOOK_TIMEOUT_S, "onFailure": "block"}
    before = {"matcher": _SUBAGENT_TOOLS, "hookCallbackIds": [DELEGATION], "timeout": HOOK_TIMEOUT_S}
    return {"subtype": "initialize", "hooks": {GATE: [gate], DELEGATION: [before]}}


def answered(response: wire.ControlResponse, agent_session_id: str) -> AgentReady | ProtocolFailed:
    """Read the answer. Only both of its words on hooks together mean a gate that is in force and fails closed."""
    if response.subtype != SUCCESS:
        return ProtocolFailed(f"the agent refused the handshake: {response.error}")
    try:
        answer = wire.decode_initialize(response.response)
    except msgspec.DecodeError as error:
        return ProtocolFailed(f"the agent's answer to the handshake has an unknown shape: {error}")
    held = answer.hooks_applied and answer.hook_on_failure_supported
    return AgentReady(answer.claude_code_version, agent_session_id, "", held)
