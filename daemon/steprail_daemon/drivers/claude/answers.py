"""Answers to what the CLI waits at, as lines. Around the id nearly everything is constant, so that each is one step."""

from __future__ import annotations

from typing import Any, Final

import msgspec

#: The gate's hook; also the name of its callback.
GATE: Final = "PostToolBatch"
#: The hook before a tool, asked for where the tool is a sub-agent; also the name of its callback.
DELEGATION: Final = "PreToolUse"

#: The model reads this at its next turn, so it says what to do and nothing about rules or budgets.
STOP_TEXT: Final = "The host paused the work here. The next message says how to go on."

to_json: Final = msgspec.json.encode

_BEGIN: Final = b'{"type":"control_response","response":{"subtype":"success","request_id":'
_MIDDLE: Final = b',"response":'
_END: Final = b"}}\n"

#: Any hook: nothing to say.
NOTHING: Final = b"{}"
#: The gate: end the turn, or that of a sub-agent.
STOP: Final = to_json({"continue": False, "stopReason": STOP_TEXT})

_NOTHING_END: Final = _MIDDLE + NOTHING + _END
_STOP_END: Final = _MIDDLE + STOP + _END


def answer(request_id: str, body: bytes) -> bytes:
    """Answer with `body`, which is JSON."""
    return _BEGIN + to_json(request_id) + _MIDDLE + body + _END


def stop(boundary_id: str) -> bytes:
    """End the turn at a boundary."""
    return _BEGIN + to_json(boundary_id) + _STOP_END


def go_on(boundary_id: str, guidance: tuple[str, ...]) -> bytes:
    """Let it go on; its model gets the texts as a note behind the step's results."""
    if not guidance:
        return _BEGIN + to_json(boundary_id) + _NOTHING_END
    note = {"hookEventName": GATE, "additionalContext": "\n\n".join(guidance)}
    return answer(boundary_id, to_json({"hookSpecificOutput": note}))


def refusal(request_id: str, error: str) -> bytes:
    """Answer that this host cannot answer; unanswered, the CLI would wait for ever."""
    response: dict[str, Any] = {"subtype": "error", "request_id": request_id, "error": error}
    return to_json({"type": "control_response", "response": response}) + b"\n"
