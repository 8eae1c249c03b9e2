"""Lines out of the CLI's bytes, each handed to whoever takes its kind; and what is done with those of no known kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from steprail_daemon.core.events import AgentEvent, ProtocolFailed, RawReceived
from steprail_daemon.drivers.base import Channel
from steprail_daemon.drivers.claude import wire
from steprail_daemon.drivers.framing import LineFramer, OverlongLine, text_of

_decode_line: Final = wire.decode_line

_BEGINS_JSON: Final = 0x7B

#: Takes a line, its bytes, and the list to which it adds what the line says.
Handler = Callable[[Any, bytes, list[AgentEvent]], None]


class LineReader:
    """Reads lines of at most `line_bytes` bytes."""

    def __init__(self, line_bytes: int) -> None:
        self._line_bytes = line_bytes
        self._framer = LineFramer(line_bytes)
        self._noise = 0
        self._handlers: dict[type, Handler] = {
            wire.KeepAliveLine: self._on_keep_alive,
            wire.UnknownLine: self._on_unknown,
            wire.UnreadableLine: self._on_unreadable,
        }

    @property
    def noise_lines(self) -> int:
        """Lines that were no JSON objects and were skipped."""
        return self._noise

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

    def _on_keep_alive(self, line: wire.KeepAliveLine, raw: bytes, events: list[AgentEvent]) -> None:
        pass

    def _on_unknown(self, line: wire.UnknownLine, raw: bytes, events: list[AgentEvent]) -> None:
        self._pass_on(line.vendor_type, raw, events)

    def _on_unreadable(self, line: wire.UnreadableLine, raw: bytes, events: list[AgentEvent]) -> None:
        del raw
        events.append(ProtocolFailed(f"the agent wrote {line.problem}"))

    def _pass_on(self, vendor_type: str, raw: bytes, events: list[AgentEvent]) -> None:
        events.append(RawReceived(vendor_type, text_of(raw.strip())))
