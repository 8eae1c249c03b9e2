"""Lines as Claude Code writes them, a codec to read them, and what the codec sends."""

from __future__ import annotations

import json
from typing import Any

from tests.unit.drivers.recordings import settings

from steprail_daemon.core.commands import SendPrompt
from steprail_daemon.core.events import AgentEvent
from steprail_daemon.drivers.base import Channel
from steprail_daemon.drivers.claude.codec import ClaudeCodec

PROMPT = "1de91dad-870b-43f6-a699-8a0ba631b053"
SESSION = "f9cdfd84-2a60-4bc6-b407-feb7014e5dfd"


def feed(codec: ClaudeCodec, *lines: dict[str, Any] | bytes) -> list[AgentEvent]:
    data = b"".join((line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n" for line in lines)
    return codec.receive(Channel.STDOUT, data)


def sent(codec: ClaudeCodec) -> list[dict[str, Any]]:
    return [json.loads(line) for line in codec.data_to_send().splitlines()]


def answers(codec: ClaudeCodec) -> list[tuple[str, dict[str, Any]]]:
    """Request ids and answers that the codec sends."""
    responses = [line["response"] for line in sent(codec) if line["type"] == "control_response"]
    return [(response["request_id"], response["response"]) for response in responses]


def handshake(**answer: Any) -> dict[str, Any]:
    body = {"claude_code_version": "2.1.332", "hooks_applied": True, "hook_on_failure_supported": True} | answer
    return {"type": "control_response", "response": {"subtype": "success", "request_id": "req_1", "response": body}}


def lifecycle(state: str, uuid: str = PROMPT) -> dict[str, Any]:
    return {"type": "command_lifecycle", "command_uuid": uuid, "state": state, "session_id": SESSION}


def batch(request_id: str = "b1", *calls: str, agent_id: str = "") -> dict[str, Any]:
    given: dict[str, Any] = {
        "hook_event_name": "PostToolBatch",
        "tool_calls": [{"tool_use_id": call} for call in calls],
    }
    if agent_id:
        given["agent_id"] = agent_id
    request = {"subtype": "hook_callback", "callback_id": "PostToolBatch", "input": given}
    return {"type": "control_request", "request_id": request_id, "request": request}


def leave(request_id: str = "p1") -> dict[str, Any]:
    request = {
        "subtype": "can_use_tool",
        "tool_name": "Bash",
        "input": {"command": "touch a", "deep": [1, {"x": None}]},
        "tool_use_id": "t1",
    }
    return {"type": "control_request", "request_id": request_id, "request": request}


def result(**fields: Any) -> dict[str, Any]:
    """A result; its `type` comes last, as the CLI writes it."""
    return {"is_error": False, "terminal_reason": "completed", "subtype": "success", "result": "ok", **fields} | {
        "type": "result"
    }


def tool_result(content: Any = "out", **fields: Any) -> dict[str, Any]:
    block = {"tool_use_id": "t1", "type": "tool_result", "content": content, "is_error": fields.pop("is_error", False)}
    message = {"role": "user", "content": [block]}
    return {"type": "user", "message": message, "parent_tool_use_id": None, **fields}


def assistant(*blocks: dict[str, Any], message_id: str = "m1", **fields: Any) -> dict[str, Any]:
    message = {"id": message_id, "model": "claude-x", "role": "assistant", "content": list(blocks), "stop_reason": None}
    return {"type": "assistant", "message": message, "parent_tool_use_id": None, "uuid": "u1", **fields}


def stream(kind: str, **event: Any) -> dict[str, Any]:
    return {"type": "stream_event", "event": {"type": kind, **event}, "parent_tool_use_id": None}


def stream_message(text: str, stop_reason: str = "tool_use", **usage: int) -> list[dict[str, Any]]:
    begun = {"input_tokens": 10, "cache_read_input_tokens": 500, "cache_creation_input_tokens": 40, "output_tokens": 1}
    return [
        stream("message_start", message={"id": "m1", "model": "claude-x", "content": [], "usage": begun}),
        stream("content_block_start", index=0, content_block={"type": "text", "text": ""}),
        stream("content_block_delta", index=0, delta={"type": "text_delta", "text": text}),
        stream("content_block_stop", index=0),
        stream("message_delta", delta={"stop_reason": stop_reason}, usage={"output_tokens": 33, **usage}),
        stream("message_stop"),
    ]


def ready_codec(**fields: Any) -> ClaudeCodec:
    """A codec whose process is ready and idle."""
    codec = ClaudeCodec(settings(**fields))
    codec.start()
    codec.data_to_send()
    feed(codec, handshake())
    return codec


def working_codec(*, wants_cost: bool = False, **fields: Any) -> ClaudeCodec:
    """A codec whose process works on a prompt. What it sent with the prompt is still to be taken."""
    codec = ready_codec(**fields)
    codec.send(SendPrompt(PROMPT, "go", wants_cost))
    feed(codec, lifecycle("queued"), lifecycle("started"))
    return codec
