"""Claude Code's bytes to core events and back: one JSON object a line, and a control protocol in both directions.

The gate is the hook `PostToolBatch`, which the CLI runs once after a model message's tools and before its next request
to the model. As a callback it is a `control_request` that the CLI waits at. `{}` lets it go on, `continue: false` ends
the turn with every result kept. What opens the gate and is avoided here: the callback's timeout (a day instead of ten
minutes), an answer that is an error (`onFailure: block`), and an EOF while the callback is pending (`eof_is_safe`).
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, Final

import msgspec

from steprail_daemon.core.commands import AgentCommand, AnswerBoundary, AnswerPermission, SendPrompt
from steprail_daemon.core.events import (
    AgentErrorReported,
    AgentEvent,
    AgentReady,
    BoundaryCancelled,
    BoundaryReached,
    MessageEnded,
    MessageStarted,
    PermissionAsked,
    PromptConfirmed,
    ProtocolFailed,
    RawReceived,
)
from steprail_daemon.core.model import DecisionAction, MessageKind
from steprail_daemon.drivers.base import Channel, CodecSettings
from steprail_daemon.drivers.claude import wire
from steprail_daemon.drivers.claude.messages import MainMessages
from steprail_daemon.drivers.claude.tools import add_tool_results, tool_kind, tool_started
from steprail_daemon.drivers.claude.turns import TurnReader
from steprail_daemon.drivers.framing import LineFramer, OverlongLine, text_of

#: Seconds that the CLI waits for the answer at a boundary. The default is 600, and it dies when they are over.
HOOK_TIMEOUT_S: Final = 86_400

#: The model reads this at its next turn, so it says what to do and nothing about rules or budgets.
STOP_TEXT: Final = "The host paused the work here. The next message says how to go on."

_GATE: Final = "PostToolBatch"
_INTERRUPTED: Final = "[Request interrupted by user"
_SYNTHETIC_MODEL: Final = "<synthetic>"
_GO_ON: Final = b"{}"
_STOP: Final = msgspec.json.encode({"continue": False, "stopReason": STOP_TEXT})

# A gate's answer is what the agent waits for, so that it is made in one step: around the id, everything is constant.
_ANSWER: Final = b'{"type":"control_response","response":{"subtype":"success","request_id":'
_ANSWER_MIDDLE: Final = b',"response":'
_ANSWER_END: Final = b"}}\n"
_GO_ON_END: Final = _ANSWER_MIDDLE + _GO_ON + _ANSWER_END
_STOP_END: Final = _ANSWER_MIDDLE + _STOP + _ANSWER_END

#: Looked up once: a member of an enumeration costs a function call.
_STOP_ACTION: Final = DecisionAction.STOP

_INTERRUPT_END: Final = b'"request":{"subtype":"interrupt"}}\n'

_call_id: Final = attrgetter("tool_use_id")
_to_json: Final = msgspec.json.encode
_decode_line: Final = wire.decode_line

#: Subtypes of `system` lines that say nothing beyond what other lines say.
_CONSUMED_SYSTEM: Final = frozenset({"status", "session_state_changed"})

_KNOWN_BLOCKS: Final = frozenset({"text", "thinking", "redacted_thinking", "tool_use"})

_BEGINS_JSON: Final = 0x7B


class ClaudeCodec:
    """The protocol of one Claude Code process."""

    def __init__(self, settings: CodecSettings) -> None:
        self._settings = settings
        self._line_bytes = settings.line_bytes
        self._framer = LineFramer(settings.line_bytes)
        self._out: list[bytes] = []
        self._noise = 0
        self._requests = 0
        self._initialize_id = ""
        self._ready = False
        self._prompt_id = ""
        self._confirmed = False
        self._has_lifecycle = False
        self._turn_runs = False
        self._stopped = False
        self._boundaries: set[str] = set()
        self._permissions: dict[str, wire.CanUseTool] = {}
        self._denied: set[str] = set()
        self._last_error = ""
        self._messages = MainMessages()
        self._turns = TurnReader(resumed=settings.resume)
        self._handlers: dict[type, Callable[[Any, bytes, list[AgentEvent]], None]] = {
            wire.UserLine: self._on_user,
            wire.StreamEventLine: self._on_stream_event,
            wire.AssistantLine: self._on_assistant,
            wire.SystemLine: self._on_system,
            wire.ControlRequestLine: self._on_control_request,
            wire.OddRequestLine: self._on_odd_request,
            wire.ControlResponseLine: self._on_control_response,
            wire.ControlCancelLine: self._on_control_cancel,
            wire.CommandLifecycleLine: self._on_command_lifecycle,
            wire.KeepAliveLine: self._on_keep_alive,
            wire.ResultLine: self._on_result,
            wire.UnknownLine: self._on_unknown,
            wire.UnreadableLine: self._on_unreadable,
        }

    @property
    def noise_lines(self) -> int:
        """Lines that were no JSON objects and were skipped."""
        return self._noise

    def start(self) -> None:
        """Queue `initialize` with the gate's hook; `AgentReady` says whether the CLI took it."""
        gate = {"matcher": None, "hookCallbackIds": [_GATE], "timeout": HOOK_TIMEOUT_S, "onFailure": "block"}
        self._initialize_id = self._ask({"subtype": "initialize", "hooks": {"PostToolBatch": [gate]}})

    def receive(self, channel: Channel, data: bytes) -> list[AgentEvent]:
        """Take bytes of stdout, cut anywhere, and give what they complete."""
        del channel
        framer = self._framer
        # The CLI writes line by line and is mostly read so. Such a chunk is decoded as it is.
        if framer.at_line_start and data.find(b"\n") == len(data) - 1 and len(data) <= self._line_bytes:
            try:
                line = _decode_line(data)
            except (msgspec.DecodeError, RecursionError):
                pass
            else:
                events: list[AgentEvent] = []
                self._handlers[type(line)](line, data, events)
                return events
        return self._read(framer.feed(data))

    def receive_eof(self, channel: Channel) -> list[AgentEvent]:
        """Take the end of stdout and give what a last line without a line end completes."""
        del channel
        return self._read(self._framer.finish())

    def data_to_send(self) -> bytes:
        """Give and forget what must be written to the CLI's stdin."""
        out = self._out
        if not out:
            return b""
        data = out[0] if len(out) == 1 else b"".join(out)
        out.clear()
        return data

    def eof_is_safe(self) -> bool:
        """False while a turn runs or an answer is owed: the CLI would then work on alone until its turn is over."""
        return not (self._turn_runs or self._boundaries or self._permissions)

    def send(self, command: AgentCommand) -> None:
        """Turn a command into a line.

        An answer to what the CLI no longer asks sends nothing, nor does an interrupt while no turn runs.
        """
        if isinstance(command, AnswerBoundary):
            self._answer_boundary(command)
        elif isinstance(command, SendPrompt):
            self._send_prompt(command)
        elif isinstance(command, AnswerPermission):
            self._answer_permission(command)
        elif self._turn_runs:
            self._requests += 1
            self._out.append(b'{"type":"control_request","request_id":"req_%d",' % self._requests + _INTERRUPT_END)

    # --- out -----------------------------------------------------------------------------------------------------

    def _send_prompt(self, command: SendPrompt) -> None:
        if self._prompt_id:
            raise RuntimeError(f"prompt {self._prompt_id} is still worked on, so {command.prompt_id} cannot be sent")
        self._prompt_id = command.prompt_id
        self._confirmed = False
        self._turn_runs = True
        self._stopped = False
        self._messages.forget()
        self._write(
            {
                "type": "user",
                "message": {"role": "user", "content": command.text},
                "parent_tool_use_id": None,
                "session_id": "",
                "uuid": command.prompt_id,
            }
        )

    def _answer_boundary(self, command: AnswerBoundary) -> None:
        boundary_id = command.boundary_id
        if boundary_id not in self._boundaries:
            return
        self._boundaries.discard(boundary_id)
        if command.action is _STOP_ACTION:
            self._stopped = True
        self._out.append(_ANSWER + _to_json(boundary_id) + (_STOP_END if self._stopped else _GO_ON_END))

    def _answer_permission(self, command: AnswerPermission) -> None:
        asked = self._permissions.pop(command.permission_id, None)
        if asked is None:
            return
        if command.allow:
            self._answer(command.permission_id, _to_json({"behavior": "allow", "updatedInput": asked.input}))
        else:
            self._denied.add(asked.tool_use_id)
            self._answer(command.permission_id, _to_json({"behavior": "deny", "message": command.message}))

    def _ask(self, request: dict[str, Any]) -> str:
        self._requests += 1
        request_id = f"req_{self._requests}"
        self._write({"type": "control_request", "request_id": request_id, "request": request})
        return request_id

    def _answer(self, request_id: str, answer: bytes) -> None:
        """Answer a question; `answer` is JSON."""
        self._out.append(_ANSWER + _to_json(request_id) + _ANSWER_MIDDLE + answer + _ANSWER_END)

    def _write(self, line: dict[str, Any]) -> None:
        self._out.append(_to_json(line) + b"\n")

    # --- in ------------------------------------------------------------------------------------------------------

    def _read(self, lines: list[bytes | OverlongLine]) -> list[AgentEvent]:
        events: list[AgentEvent] = []
        handlers = self._handlers
        read_line = wire.read_line
        for line in lines:
            if type(line) is not bytes:
                limit = self._line_bytes
                events.append(ProtocolFailed(f"the agent wrote a line of more than {limit} bytes, which is the limit"))
            elif line and line[0] == _BEGINS_JSON:
                parsed = read_line(line)
                handlers[type(parsed)](parsed, line, events)
            elif stripped := line.strip():
                self._read_odd_start(stripped, events)
        return events

    def _read_odd_start(self, line: bytes, events: list[AgentEvent]) -> None:
        if line[0] == _BEGINS_JSON:
            parsed = wire.read_line(line)
            self._handlers[type(parsed)](parsed, line, events)
        else:
            self._noise += 1

    def _on_user(self, line: wire.UserLine, raw: bytes, events: list[AgentEvent]) -> None:
        if not add_tool_results(line, self._denied, events) and not _tells_interruption(line):
            self._pass_on("user", raw, events)

    def _on_stream_event(self, line: wire.StreamEventLine, raw: bytes, events: list[AgentEvent]) -> None:
        # Sub-agents of 2.1.332 are not streamed; if they were, theirs must not be taken for the main loop's.
        if line.parent_tool_use_id is not None or not self._messages.streamed(line.event, events):
            self._pass_on(f"stream_event/{line.event.type}", raw, events)

    def _on_assistant(self, line: wire.AssistantLine, raw: bytes, events: list[AgentEvent]) -> None:
        if line.error is not None:
            self._last_error = line.error
            text = "".join(block.text for block in line.message.content)
            events.append(AgentErrorReported(line.error, text, will_retry=False))
            return
        if line.message.model == _SYNTHETIC_MODEL:
            self._pass_on("assistant", raw, events)
            return
        if line.parent_tool_use_id is None:
            self._messages.told(line, events)
        else:
            _add_subagent_text(line, events)
        events.extend(
            tool_started(block, line.agent_id, line.parent_tool_use_id)
            for block in line.message.content
            if block.type == "tool_use"
        )
        if any(block.type not in _KNOWN_BLOCKS for block in line.message.content):
            self._pass_on("assistant", raw, events)

    def _on_system(self, line: wire.SystemLine, raw: bytes, events: list[AgentEvent]) -> None:
        if line.subtype == "init":
            self._on_turn_began(line, events)
        elif line.subtype == "api_retry":
            events.append(AgentErrorReported(line.error or "api_error", _retry_message(line), will_retry=True))
        elif line.subtype not in _CONSUMED_SYSTEM:
            self._pass_on(f"system/{line.subtype}", raw, events)

    def _on_turn_began(self, line: wire.SystemLine, events: list[AgentEvent]) -> None:
        self._turn_runs = True
        # Where there are lifecycle lines, a turn that begins may be one that the CLI started by itself.
        if not self._has_lifecycle:
            self._confirm(line.session_id, line.model, events)

    def _on_command_lifecycle(self, line: wire.CommandLifecycleLine, raw: bytes, events: list[AgentEvent]) -> None:
        del raw
        self._has_lifecycle = True
        if line.state == "started" and line.command_uuid == self._prompt_id:
            self._confirm(line.session_id, "", events)

    def _confirm(self, agent_session_id: str, model: str, events: list[AgentEvent]) -> None:
        if self._prompt_id and not self._confirmed:
            self._confirmed = True
            events.append(PromptConfirmed(self._prompt_id, agent_session_id, model))

    def _on_control_request(self, line: wire.ControlRequestLine, raw: bytes, events: list[AgentEvent]) -> None:
        request, request_id = line.request, line.request_id
        if isinstance(request, wire.CanUseTool):
            self._permissions[request_id] = request
            events.append(_permission_asked(request_id, request))
            return
        batch = request.input
        if request.callback_id == _GATE and self._confirmed and not batch.agent_id:
            usage = self._messages.finish(events)
            self._boundaries.add(request_id)
            events.append(BoundaryReached(request_id, tuple(map(_call_id, batch.tool_calls)), usage))
        elif request.callback_id != _GATE:
            self._on_other_hook(request_id, raw, events)
        elif batch.agent_id:
            self._answer(request_id, _STOP if self._stopped else _GO_ON)
        else:
            # A turn that no prompt asked for: nobody would decide about its steps.
            self._answer(request_id, _STOP)
            self._pass_on("control_request/hook_callback", raw, events)

    def _on_other_hook(self, request_id: str, raw: bytes, events: list[AgentEvent]) -> None:
        self._answer(request_id, _GO_ON)
        self._pass_on("control_request/hook_callback", raw, events)

    def _on_odd_request(self, line: wire.OddRequestLine, raw: bytes, events: list[AgentEvent]) -> None:
        subtype = line.request.subtype
        if subtype != "hook_callback":
            # Unanswered, the CLI would wait for ever.
            error = {"subtype": "error", "request_id": line.request_id, "error": f"this host does not know {subtype!r}"}
            self._write({"type": "control_response", "response": error})
            self._pass_on(f"control_request/{subtype}", raw, events)
        elif line.request.callback_id == _GATE:
            events.append(ProtocolFailed(f"a step boundary of an unknown shape: {line.problem}"))
        else:
            self._on_other_hook(line.request_id, raw, events)

    def _on_control_response(self, line: wire.ControlResponseLine, raw: bytes, events: list[AgentEvent]) -> None:
        response = line.response
        if response.request_id == self._initialize_id:
            self._on_initialized(response, events)
        elif response.subtype != "success":
            self._pass_on("control_response", raw, events)

    def _on_initialized(self, response: wire.ControlResponse, events: list[AgentEvent]) -> None:
        if response.subtype != "success":
            events.append(ProtocolFailed(f"the agent refused the handshake: {response.error}"))
            return
        try:
            answer = wire.decode_initialize(response.response)
        except msgspec.DecodeError as error:
            events.append(ProtocolFailed(f"the agent's answer to the handshake has an unknown shape: {error}"))
            return
        self._ready = True
        events.append(
            AgentReady(
                version=answer.claude_code_version,
                agent_session_id=self._settings.agent_session_id,
                model="",
                gate_held=answer.hooks_applied and answer.hook_on_failure_supported,
            )
        )

    def _on_control_cancel(self, line: wire.ControlCancelLine, raw: bytes, events: list[AgentEvent]) -> None:
        del raw
        self._permissions.pop(line.request_id, None)
        if line.request_id in self._boundaries:
            self._boundaries.discard(line.request_id)
            events.append(BoundaryCancelled(line.request_id))

    def _on_result(self, line: wire.ResultLine, raw: bytes, events: list[AgentEvent]) -> None:
        self._messages.close(events)
        ended = self._turns.read(
            line, ready=self._ready, error_code=self._last_error, last_text=self._messages.last_text
        )
        self._last_error = ""
        if self._ready and not self._is_of_prompt(line):
            self._turn_runs = bool(self._prompt_id)
            self._pass_on("result", raw, events)
            return
        self._prompt_id = ""
        self._confirmed = self._turn_runs = False
        self._boundaries.clear()
        self._permissions.clear()
        self._denied.clear()
        events.append(ended)

    def _is_of_prompt(self, line: wire.ResultLine) -> bool:
        return bool(self._prompt_id) and (self._confirmed or line.origin is None)

    def _on_keep_alive(self, line: wire.KeepAliveLine, raw: bytes, events: list[AgentEvent]) -> None:
        pass

    def _on_unknown(self, line: wire.UnknownLine, raw: bytes, events: list[AgentEvent]) -> None:
        self._pass_on(line.vendor_type, raw, events)

    def _on_unreadable(self, line: wire.UnreadableLine, raw: bytes, events: list[AgentEvent]) -> None:
        del raw
        events.append(ProtocolFailed(f"the agent wrote {line.problem}"))

    def _pass_on(self, vendor_type: str, raw: bytes, events: list[AgentEvent]) -> None:
        events.append(RawReceived(vendor_type, text_of(raw.strip())))


def _permission_asked(request_id: str, request: wire.CanUseTool) -> PermissionAsked:
    return PermissionAsked(
        request_id,
        request.tool_use_id,
        request.tool_name,
        bytes(request.input).decode("utf-8", "replace"),
        request.agent_id or "",
        tool_kind(request.tool_name),
    )


def _tells_interruption(line: wire.UserLine) -> bool:
    content = line.message.content
    return not isinstance(content, str) and all(block.text.startswith(_INTERRUPTED) for block in content)


def _retry_message(line: wire.SystemLine) -> str:
    status = "no connection" if line.error_status is None else f"HTTP {line.error_status}"
    return f"{status}; attempt {line.attempt} of {line.max_retries}, the next in {line.retry_delay_ms} ms"


def _add_subagent_text(line: wire.AssistantLine, events: list[AgentEvent]) -> None:
    origin = (line.agent_id or "", line.parent_tool_use_id or "")
    for kind, text in (
        (MessageKind.THOUGHT, "".join(block.thinking for block in line.message.content)),
        (MessageKind.TEXT, "".join(block.text for block in line.message.content)),
    ):
        if text:
            events.append(MessageStarted(line.uuid, kind, *origin))
            events.append(
                MessageEnded(
                    line.uuid, kind, text, model=line.message.model, subagent_id=origin[0], parent_call_id=origin[1]
                )
            )
