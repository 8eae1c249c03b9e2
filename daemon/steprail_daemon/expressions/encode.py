"""Core's views as the protobuf messages that CEL reads."""

from __future__ import annotations

import weakref
from collections.abc import Iterable

from google.protobuf.timestamp_pb2 import Timestamp

from steprail_daemon.core.model import Usage
from steprail_daemon.core.stops.expression_view import (
    CallValue,
    ExpressionView,
    PermissionView,
    ResultValue,
    StepValue,
    TextValue,
    Totals,
)
from steprail_daemon.expressions.messages import view_pb2

_USAGE_FIELDS = (
    "input_tokens",
    "cached_input_tokens",
    "cache_write_tokens",
    "output_tokens",
    "reasoning_tokens",
    "total_tokens",
)
_SECOND = 1_000_000_000


class StepEncoder:
    """Encodes each step once, however often the window that holds it is asked for, and forgets it with the step."""

    def __init__(self) -> None:
        self._encoded: dict[int, tuple[weakref.ref[StepValue], bytes]] = {}

    def __len__(self) -> int:
        return len(self._encoded)

    def encode(self, step: StepValue) -> bytes:
        """Give the `Step` message."""
        key = id(step)
        known = self._encoded.get(key)
        if known is not None:
            return known[1]
        data = step_message(step).SerializeToString()
        forget = self._encoded.pop
        self._encoded[key] = (weakref.ref(step, lambda _: forget(key, None)), data)
        return data


def encode_view(view: ExpressionView, steps: StepEncoder, *, with_window: bool) -> bytes:
    """Give the `StopView` message. `with_window` false leaves `steps` out, for expressions that do not read it."""
    message = view_pb2.StopView(
        version=view.version,
        totals=_totals(view.totals),
        usage=_usage(view.usage),
        elapsed=view.elapsed,
        session=view_pb2.Session(
            session_id=view.session.session_id,
            agent=view.session.agent,
            cwd=view.session.cwd,
            permission_mode=view.session.permission_mode,
            steps=view.session.steps,
        ),
        labels=view.labels,
    )
    if view.cost_usd is not None:
        message.cost_usd.value = view.cost_usd
    if view.session.model is not None:
        message.session.model.value = view.session.model
    parts = [message.SerializeToString()]
    # A field that is added behind an encoded message belongs to it (Protocol Buffers, encoding).
    if view.step is not None:
        parts += _field(view_pb2.StopView.STEP_FIELD_NUMBER, steps.encode(view.step))
    if with_window:
        for step in view.steps:
            parts += _field(view_pb2.StopView.STEPS_FIELD_NUMBER, steps.encode(step))
    return b"".join(parts)


def encode_permission_view(view: PermissionView) -> bytes:
    """Give the `PermissionView` message."""
    message = view_pb2.PermissionView(
        version=view.version, tool=view.tool, command=view.command, paths=view.paths, labels=view.labels
    )
    if view.tool_kind is not None:
        message.tool_kind.value = view.tool_kind
    return message.SerializeToString()


def step_message(step: StepValue) -> view_pb2.Step:
    """Give a step as its message."""
    message = view_pb2.Step(
        number=step.number,
        step_id=step.step_id,
        text=_text(step.text),
        thought=_text(step.thought),
        tool_calls=[_call(call) for call in step.tool_calls],
        tool_results=[_result(result) for result in step.tool_results],
        usage=_usage(step.usage),
        duration=step.duration,
        end_time=Timestamp(seconds=step.end_time // _SECOND, nanos=step.end_time % _SECOND),
        boundary=step.boundary,
    )
    for field in ("finish_reason", "finish_reason_raw", "cost_usd", "model"):
        value = getattr(step, field)
        if value is not None:
            getattr(message, field).value = value
    return message


def _call(call: CallValue) -> view_pb2.ToolCall:
    message = view_pb2.ToolCall(
        call_id=call.call_id, tool=call.tool, title=call.title, arguments_json=_text(call.arguments_json)
    )
    if call.tool_kind is not None:
        message.tool_kind.value = call.tool_kind
    return message


def _result(result: ResultValue) -> view_pb2.ToolResult:
    message = view_pb2.ToolResult(
        call_id=result.call_id,
        tool=result.tool,
        outcome=result.outcome,
        output=_text(result.output),
        error=_text(result.error),
    )
    if result.tool_kind is not None:
        message.tool_kind.value = result.tool_kind
    return message


def _text(text: TextValue) -> view_pb2.Text | None:
    return view_pb2.Text(value=text.value, size=text.size, truncated=text.truncated) if text.size else None


def _usage(usage: Usage | None) -> view_pb2.Usage | None:
    if usage is None:
        return None
    message = view_pb2.Usage(complete=usage.complete)
    for field in _USAGE_FIELDS:
        value = getattr(usage, field)
        if value is not None:
            getattr(message, field).value = value
    return message


def _totals(totals: Totals) -> view_pb2.Totals:
    tools = (
        view_pb2.ToolTotals(
            tool=tool.tool,
            calls=tool.calls,
            succeeded=tool.succeeded,
            failed=tool.failed,
            denied=tool.denied,
            cancelled=tool.cancelled,
        )
        for tool in totals.tools
    )
    return view_pb2.Totals(
        steps=totals.steps,
        tool_calls=totals.tool_calls,
        succeeded=totals.succeeded,
        failed=totals.failed,
        denied=totals.denied,
        cancelled=totals.cancelled,
        consecutive_failures=totals.consecutive_failures,
        tools=tools,
    )


def _field(number: int, data: bytes) -> Iterable[bytes]:
    """Give a field of bytes: its tag, which is one byte for the first 15 numbers, its length and itself."""
    size = len(data)
    head = bytearray((number << 3 | 2,))
    while size > 0x7F:
        head.append(size & 0x7F | 0x80)
        size >>= 7
    head.append(size)
    return bytes(head), data
