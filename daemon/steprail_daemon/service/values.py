"""Values of the core as the insides of their public messages.

The one place where such a value gets its public form: events are put together from these bytes, and answers are parsed
from them. A text that is too long for its field raises `IndexError`; see `bounds`. Functions that take `contents` may
leave wholes of large texts there.
"""

from __future__ import annotations

import struct
from typing import Final

from steprail_daemon.core.model import (
    Cost,
    Decision,
    Failure,
    Step,
    StopReason,
    StopRequest,
    ToolCall,
    ToolResult,
    Usage,
    Verdict,
)
from steprail_daemon.service.bounds import (
    ID_SIZES,
    MAX_STEP_BYTES,
    MAX_TEXT_BYTES,
    NAME_SIZES,
    REASON_SIZES,
    TITLE_SIZES,
)
from steprail_daemon.service.contents import Contents
from steprail_daemon.service.wire import SMALL, VARINTS, delimited, number, optional, sized, tag, timespan, varint

_BOUNDARY: Final = tag(16, 0)
_VERDICTS: Final = tag(17)
_double: Final = struct.Struct("<d").pack
_join: Final = b"".join

#: What a cut text costs beside the part that is kept: its size, the id of the whole, and their tags.
_CUT_OVERHEAD: Final = 96


def usage(value: Usage) -> bytes:
    """Encode a `Usage`."""
    return _join(
        (
            optional(b"\x08", value.input_tokens),
            optional(b"\x10", value.cached_input_tokens),
            optional(b"\x18", value.cache_write_tokens),
            optional(b"\x20", value.output_tokens),
            optional(b"\x28", value.reasoning_tokens),
            optional(b"\x30", value.total_tokens),
            b"\x38\x01" if value.complete else b"",
        )
    )


def cost(value: Cost) -> bytes:
    """Encode a `Cost`."""
    return optional(b"\x08", value.micro_usd) + number(b"\x10", value.basis) + number(b"\x18", value.complete)


def tool_call(value: ToolCall, contents: Contents) -> bytes:
    """Encode a `ToolCall`."""
    call_id, tool, title = value.call_id.encode(), value.tool.encode(), value.title.encode()
    arguments = value.arguments_json
    return _join(
        (
            b"\x0a", ID_SIZES[len(call_id)], call_id,
            b"\x12", NAME_SIZES[len(tool)], tool,
            b"\x18", VARINTS[value.tool_kind],
            b"\x22", TITLE_SIZES[len(title)], title,
            b"\x2a" + contents.json(arguments) if arguments else b"",
        )
    )  # fmt: skip


def tool_result(value: ToolResult, contents: Contents) -> bytes:
    """Encode a `ToolResult`."""
    call_id = value.call_id.encode()
    output, error = value.output, value.error
    return _join(
        (
            b"\x0a", ID_SIZES[len(call_id)], call_id,
            b"\x10", VARINTS[value.outcome],
            b"" if output is None else b"\x1a" + contents.text(output),
            b"" if error is None else b"\x22" + contents.text(error),
        )
    )  # fmt: skip


def verdict(value: Verdict) -> bytes:
    """Encode a `Verdict`."""
    rule_id, observed, limit = value.rule_id.encode(), value.observed.encode(), value.limit.encode()
    message, ratio = value.message.encode(), value.ratio
    return _join(
        (
            b"\x0a", ID_SIZES[len(rule_id)], rule_id,
            b"\x10", VARINTS[value.kind],
            b"\x18", VARINTS[value.outcome],
            b"\x22", NAME_SIZES[len(observed)], observed,
            b"\x2a", NAME_SIZES[len(limit)], limit,
            b"" if ratio is None else b"\x31" + _double(ratio),
            b"\x3a", TITLE_SIZES[len(message)], message,
        )
    )  # fmt: skip


def decision(value: Decision) -> bytes:
    """Encode a `Decision`."""
    rule_id, reason, identity = value.rule_id.encode(), value.reason.encode(), value.identity.encode()
    return _join(
        (
            b"\x08", VARINTS[value.action],
            _given(value) if value.guidance or value.model else b"",
            b"\x20", VARINTS[value.source],
            b"\x2a", ID_SIZES[len(rule_id)], rule_id,
            b"\x32", REASON_SIZES[len(reason)], reason,
            b"\x3a", NAME_SIZES[len(identity)], identity,
            b"\x42", timespan(value.waited_ns),
            b"\x48\x01" if value.delivered else b"",
            b"\x52", timespan(value.decided_at),
        )
    )  # fmt: skip


def _given(value: Decision) -> bytes:
    """Encode what goes to the agent with a decision."""
    guidance, model = value.guidance.encode(), value.model.encode()
    if len(guidance) > MAX_TEXT_BYTES:
        raise IndexError(len(guidance))
    return _join((b"\x12", sized(guidance), b"\x1a", NAME_SIZES[len(model)], model))


def step(value: Step, verdicts: tuple[Verdict, ...], run_id: bytes, contents: Contents) -> bytes:
    """Encode a `Step` without its decision, under 512 KiB: its longest texts are cut further until it fits.

    `run_id` is sized.
    """
    data = _step(value, verdicts, run_id, contents)
    if len(data) <= MAX_STEP_BYTES:
        return data
    further = Contents(_fitting_limit(value, len(data)))
    data = _step(value, verdicts, run_id, further)
    contents.adopt(further.take())
    return data


def _step(value: Step, verdicts: tuple[Verdict, ...], run_id: bytes, contents: Contents) -> bytes:
    step_id, raw, model = value.step_id.encode(), value.finish_reason_raw.encode(), value.model.encode()
    count = value.number
    parts = [
        b"\x08", VARINTS[count] if count < SMALL else varint(count),
        b"\x12", ID_SIZES[len(step_id)], step_id,
        b"\x1a", run_id,
        b"\x40", VARINTS[value.finish_reason],
        b"\x4a", NAME_SIZES[len(raw)], raw,
        b"\x62", NAME_SIZES[len(model)], model,
        b"\x6a", timespan(value.duration_ns),
        b"\x72", timespan(value.ended_at),
        _BOUNDARY, VARINTS[value.boundary],
    ]  # fmt: skip
    if value.text:
        parts += (b"\x22", contents.text(value.text))
    if value.thought:
        parts += (b"\x2a", contents.text(value.thought))
    for call in value.tool_calls:
        parts += (b"\x32", sized(tool_call(call, contents)))
    for result in value.tool_results:
        parts += (b"\x3a", sized(tool_result(result, contents)))
    if value.usage is not None:
        parts += (b"\x52", sized(usage(value.usage)))
    if value.cost is not None:
        parts += (b"\x5a", sized(cost(value.cost)))
    for item in verdicts:
        parts += (_VERDICTS, sized(verdict(item)))
    return _join(parts)


def _fitting_limit(value: Step, size: int) -> int:
    """Find the bound of a text, a power of two, with which a step that came out at `size` bytes fits."""
    plain = [value.text, value.thought]
    for result in value.tool_results:
        plain += [result.output or "", result.error or ""]
    sizes = [len(text.encode()) for text in plain]
    json_sizes = [len(call.arguments_json.encode()) for call in value.tool_calls]

    def kept(limit: int) -> int:
        cut = sum(1 for length in sizes + json_sizes if length > limit)
        whole = sum(min(length, limit) for length in sizes) + sum(length for length in json_sizes if length <= limit)
        return whole + cut * _CUT_OVERHEAD

    limit = MAX_TEXT_BYTES
    others = size - kept(limit)
    while limit and kept(limit) + others > MAX_STEP_BYTES:
        limit //= 2
    return limit


def stop_reason(value: StopReason) -> bytes:
    """Encode a `StopReason`."""
    rule_id, reason = value.rule_id.encode(), value.reason.encode()
    observed, limit = value.observed.encode(), value.limit.encode()
    return _join(
        (
            b"\x08", varint(value.kind),
            b"\x10", varint(value.source),
            b"\x1a", ID_SIZES[len(rule_id)], rule_id,
            b"\x22", REASON_SIZES[len(reason)], reason,
            b"\x2a", NAME_SIZES[len(observed)], observed,
            b"\x32", NAME_SIZES[len(limit)], limit,
            *(delimited(b"\x3a", verdict(item)) for item in value.also_matched),
            number(b"\x40", value.exact),
            number(b"\x48", value.overshoot_requests),
        )
    )  # fmt: skip


def stop_request(value: StopRequest) -> bytes:
    """Encode a `StopRequested`."""
    identity, reason = value.identity.encode(), value.reason.encode()
    return _join(
        (
            b"\x08", varint(value.source),
            b"\x12", NAME_SIZES[len(identity)], identity,
            b"\x1a", REASON_SIZES[len(reason)], reason,
            b"\x22", timespan(value.requested_at),
        )
    )  # fmt: skip


def failure(value: Failure) -> bytes:
    """Encode a `Failure`."""
    reason, message = value.reason.encode(), value.message.encode()
    return _join(
        (
            b"\x0a", ID_SIZES[len(reason)], reason,
            b"\x12", REASON_SIZES[len(message)], message,
            number(b"\x18", value.fault),
            number(b"\x20", value.retryable),
            b"" if value.retry_after_ns is None else b"\x2a" + timespan(value.retry_after_ns),
            _detail(value.detail_json) if value.detail_json else b"",
            optional(b"\x38", value.resumable_at_step),
        )
    )  # fmt: skip


def _detail(text: str) -> bytes:
    """Encode what a failure came with as its `Text`; too large a one is told by its size alone."""
    data = text.encode()
    size = varint(len(data))
    return b"\x32" + sized((delimited(b"\x0a", data) if len(data) <= MAX_TEXT_BYTES else b"") + b"\x10" + size)
