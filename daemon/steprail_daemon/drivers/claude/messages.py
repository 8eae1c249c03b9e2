"""The main loop's messages, put together from the stream's parts and from the `assistant` lines.

With partial messages on, Claude Code 2.1.332 tells a text twice: as stream events and as one `assistant` line per
content block, which comes before its block's end in the stream. The stream is followed where there is one; the lines
alone are followed where the CLI fell back to a request without streaming.

One model message is at most two messages here: the text, under the model's own id, and the thought. The text message
always exists, for its end carries why the model stopped; it is empty where the model only called tools.
"""

from __future__ import annotations

import msgspec

from steprail_daemon.core.events import AgentEvent, MessageEnded, MessageStarted
from steprail_daemon.core.model import FinishReason, MessageKind, Usage
from steprail_daemon.drivers.base import add_deltas
from steprail_daemon.drivers.claude.usage import merged, usage_of
from steprail_daemon.drivers.claude.wire import AssistantLine, AssistantMessage, MessageUsage, StreamEvent

_FINISH = {
    "end_turn": FinishReason.STOP,
    "stop_sequence": FinishReason.STOP,
    "tool_use": FinishReason.TOOL_CALLS,
    "max_tokens": FinishReason.LENGTH,
    "model_context_window_exceeded": FinishReason.LENGTH,
    "refusal": FinishReason.CONTENT_FILTER,
}


def finish_reason(word: str | None) -> FinishReason:
    """Translate the Messages API's stop reason."""
    if word is None:
        return FinishReason.UNKNOWN
    return _FINISH.get(word, FinishReason.OTHER)


class _Message(msgspec.Struct):
    message_id: str
    model: str
    streamed: bool
    usage: MessageUsage | None
    texts: list[str] = []
    thoughts: list[str] = []
    stop_reason: str | None = None

    @property
    def thought_id(self) -> str:
        return f"{self.message_id}/thought"


class MainMessages:
    """Follows the main loop's messages, one at a time."""

    def __init__(self) -> None:
        self._open: _Message | None = None
        self._last: _Message | None = None
        self._usage: Usage | None = None

    @property
    def last_text(self) -> str:
        """Text of the last message since `forget`."""
        return "" if self._last is None else "".join(self._last.texts)

    @property
    def last_stop_reason(self) -> str:
        """Why the last message since `forget` ended, in the API's word; empty if it is not known."""
        return (self._last is not None and self._last.stop_reason) or ""

    @property
    def streaming(self) -> bool:
        """Whether a message is being streamed."""
        return self._open is not None and self._open.streamed

    def forget(self) -> None:
        """Start a new turn."""
        self._open = self._last = self._usage = None

    def finish(self, events: list[AgentEvent]) -> Usage | None:
        """End the message that is open, if one is, and give the usage of the last one, unless it was given before."""
        if self._open is not None:
            self.close(events)
        usage, self._usage = self._usage, None
        return usage

    def streamed(self, event: StreamEvent, events: list[AgentEvent]) -> bool:
        """Follow one event of the stream; false if it is of an unknown kind."""
        message = self._open
        if event.type == "content_block_delta":
            if message is not None and event.delta is not None:
                _add(message, event.delta.text, event.delta.thinking, events)
        elif event.type == "message_start":
            if event.message is not None:
                self._begin(event.message, events, streamed=True)
        elif event.type == "message_delta":
            if message is not None:
                message.usage = merged(message.usage, event.usage)
                message.stop_reason = (event.delta and event.delta.stop_reason) or message.stop_reason
        elif event.type == "message_stop":
            self.close(events)
        else:
            return event.type in ("content_block_start", "content_block_stop", "ping")
        return True

    def told(self, line: AssistantLine, events: list[AgentEvent]) -> None:
        """Follow an `assistant` line: its texts count if the message is not streamed."""
        message = self._find(line.message, events)
        if message.streamed:
            return
        message.usage = merged(message.usage, line.message.usage)
        message.stop_reason = line.message.stop_reason or message.stop_reason
        for block in line.message.content:
            _add(message, block.text, block.thinking, events)

    def close(self, events: list[AgentEvent]) -> None:
        """End the message that is open, if one is: it was whole, or it was cut off."""
        message = self._open
        if message is None:
            return
        self._open, self._last = None, message
        # Without a stop reason the figures are those of the message's beginning.
        self._usage = usage_of(message.usage if message.stop_reason is not None else _begun(message.usage))
        if message.thoughts:
            events.append(MessageEnded(message.thought_id, MessageKind.THOUGHT, "".join(message.thoughts)))
        events.append(
            MessageEnded(
                message.message_id,
                MessageKind.TEXT,
                "".join(message.texts),
                finish_reason(message.stop_reason),
                message.stop_reason or "",
                message.model,
            )
        )

    def _find(self, message: AssistantMessage, events: list[AgentEvent]) -> _Message:
        for known in (self._open, self._last):
            if known is not None and known.message_id == message.id:
                return known
        return self._begin(message, events, streamed=False)

    def _begin(self, message: AssistantMessage, events: list[AgentEvent], *, streamed: bool) -> _Message:
        self.close(events)
        self._open = _Message(message.id, message.model, streamed, message.usage)
        events.append(MessageStarted(message.id, MessageKind.TEXT))
        return self._open


def _add(message: _Message, text: str, thinking: str, events: list[AgentEvent]) -> None:
    if text:
        message.texts.append(text)
        add_deltas(message.message_id, text, events)
    if thinking:
        if not message.thoughts:
            events.append(MessageStarted(message.thought_id, MessageKind.THOUGHT))
        message.thoughts.append(thinking)
        add_deltas(message.thought_id, thinking, events)


def _begun(report: MessageUsage | None) -> MessageUsage | None:
    return report and MessageUsage(
        report.input_tokens, report.cache_read_input_tokens, report.cache_creation_input_tokens
    )


def add_subagent_text(line: AssistantLine, events: list[AgentEvent]) -> None:
    """Add the texts of a sub-agent's line as messages of their own: each line holds one block, whole."""
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
