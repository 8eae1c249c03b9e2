"""The public form of the core's values as protobuf's own library builds it, to hold hand-written bytes against."""

import hashlib
from typing import Any

import msgspec
from google.protobuf import message as protobuf

from steprail.v1 import agents_pb2, decisions_pb2, errors_pb2, events_pb2, rules_pb2, steps_pb2
from steprail_daemon.core import events, model, records

TEXT_LIMIT = 64 * 1024


def put(message: protobuf.Message, /, **fields: Any) -> None:
    """Set the fields that are not None."""
    for name, value in fields.items():
        if value is None:
            continue
        if isinstance(value, protobuf.Message):
            getattr(message, name).CopyFrom(value)
        elif isinstance(value, list):
            getattr(message, name).extend(value)
        else:
            setattr(message, name, value)


def text(value: str, *, json: bool = False) -> errors_pb2.Text:
    data = value.encode()
    if len(data) <= TEXT_LIMIT:
        return errors_pb2.Text(value=value, full_size=len(data))
    kept = "" if json else data[:TEXT_LIMIT].decode(errors="ignore")
    return errors_pb2.Text(value=kept, full_size=len(data), blob_id=f"sha256-{hashlib.sha256(data).hexdigest()}")


def usage(value: model.Usage | None) -> steps_pb2.Usage | None:
    if value is None:
        return None
    message = steps_pb2.Usage(complete=value.complete)
    put(
        message,
        input_tokens=value.input_tokens,
        cached_input_tokens=value.cached_input_tokens,
        cache_write_tokens=value.cache_write_tokens,
        output_tokens=value.output_tokens,
        reasoning_tokens=value.reasoning_tokens,
        total_tokens=value.total_tokens,
    )
    return message


def cost(value: model.Cost | None) -> steps_pb2.Cost | None:
    if value is None:
        return None
    message = steps_pb2.Cost(complete=value.complete)
    put(message, micro_usd=value.micro_usd, basis=value.basis)
    return message


def tool_call(value: model.ToolCall) -> steps_pb2.ToolCall:
    message = steps_pb2.ToolCall()
    put(message, call_id=value.call_id, tool=value.tool, tool_kind=value.tool_kind, title=value.title)
    if value.arguments_json:
        message.arguments_json.CopyFrom(text(value.arguments_json, json=True))
    return message


def tool_result(value: model.ToolResult) -> steps_pb2.ToolResult:
    message = steps_pb2.ToolResult()
    put(message, call_id=value.call_id, outcome=value.outcome)
    if value.output is not None:
        message.output.CopyFrom(text(value.output))
    if value.error is not None:
        message.error.CopyFrom(text(value.error))
    return message


def verdict(value: model.Verdict) -> rules_pb2.Verdict:
    message = rules_pb2.Verdict()
    public = (name for name in value.__struct_fields__ if name != "missing")
    put(message, **{name: getattr(value, name) for name in public})
    return message


def decision(value: model.Decision) -> decisions_pb2.Decision:
    message = decisions_pb2.Decision()
    put(
        message,
        action=value.action,
        source=value.source,
        rule_id=value.rule_id,
        reason=value.reason,
        identity=value.identity,
        delivered=value.delivered,
        guidance=value.guidance,
        model=value.model,
    )
    message.waited.FromNanoseconds(value.waited_ns)
    message.time.FromNanoseconds(value.decided_at)
    return message


def step(
    value: model.Step, verdicts: tuple[model.Verdict, ...], run_id: str, limit: int = TEXT_LIMIT
) -> steps_pb2.Step:
    message = steps_pb2.Step()
    put(
        message,
        number=value.number,
        step_id=value.step_id,
        run_id=run_id,
        text=text(value.text) if value.text else None,
        thought=text(value.thought) if value.thought else None,
        tool_calls=[tool_call(call) for call in value.tool_calls],
        tool_results=[tool_result(result) for result in value.tool_results],
        finish_reason=value.finish_reason,
        finish_reason_raw=value.finish_reason_raw,
        usage=usage(value.usage),
        cost=cost(value.cost),
        model=value.model,
        boundary=value.boundary,
        verdicts=[verdict(item) for item in verdicts],
    )
    message.duration.FromNanoseconds(value.duration_ns)
    message.end_time.FromNanoseconds(value.ended_at)
    return message


def stop_reason(value: model.StopReason | None) -> decisions_pb2.StopReason | None:
    if value is None:
        return None
    message = decisions_pb2.StopReason()
    fields = {name: getattr(value, name) for name in value.__struct_fields__ if name != "also_matched"}
    put(message, also_matched=[verdict(item) for item in value.also_matched], **fields)
    return message


def failure(value: model.Failure | None) -> errors_pb2.Failure | None:
    if value is None:
        return None
    message = errors_pb2.Failure()
    put(
        message,
        reason=value.reason,
        message=value.message,
        fault=value.fault,
        retryable=value.retryable,
        resumable_at_step=value.resumable_at_step,
        detail_json=text(value.detail_json) if value.detail_json else None,
    )
    if value.retry_after_ns is not None:
        message.retry_after.FromNanoseconds(value.retry_after_ns)
    return message


def capabilities(value: model.Capabilities) -> agents_pb2.Capabilities:
    message = agents_pb2.Capabilities()
    fields = msgspec.structs.asdict(value)
    for name in ("max_decision_hold", "max_permission_hold"):
        nanoseconds = fields.pop(f"{name}_ns")
        if nanoseconds is not None:
            getattr(message, name).FromNanoseconds(nanoseconds)
    put(message, **fields)
    return message


def event(  # noqa: C901, PLR0912, PLR0915  one branch per kind
    value: events.PassiveEvent | records.Fact, *, seq: int, at: int, session_id: str, run_id: str, step_number: int
) -> events_pb2.Event:
    message = events_pb2.Event(seq=seq, session_id=session_id, run_id=run_id, step_number=step_number)
    message.time.FromNanoseconds(at)
    for name in ("subagent_id", "parent_call_id"):
        if hasattr(value, name):
            setattr(message, name, getattr(value, name))
    body: protobuf.Message
    match value:
        case events.MessageDelta():
            body = message.message_delta
            put(body, message_id=value.message_id, text=value.text)
        case events.UsageReported():
            body = message.usage
            put(
                body,
                usage=usage(value.usage),
                cost=cost(value.cost),
                model=value.model,
                side_request=value.side_request,
            )
        case events.ToolStarted():
            body = message.tool_start
            put(body, call=tool_call(value.call))
        case events.ToolEnded():
            body = message.tool_end
            put(body, result=tool_result(value.result))
            if value.duration_ns is not None:
                message.tool_end.duration.FromNanoseconds(value.duration_ns)
        case events.MessageStarted():
            body = message.message_start
            put(body, message_id=value.message_id, kind=value.kind)
        case events.MessageEnded():
            body = message.message_end
            put(
                body,
                message_id=value.message_id,
                kind=value.kind,
                content=text(value.text),
                finish_reason=value.finish_reason,
                finish_reason_raw=value.finish_reason_raw,
                model=value.model,
            )
        case events.AgentErrorReported():
            body = message.agent_error
            put(body, code=value.code, message=value.message, will_retry=value.will_retry)
        case events.RawReceived():
            body = message.raw
            put(body, vendor_type=value.vendor_type, payload_json=text(value.payload_json, json=True))
        case records.SessionStateChanged():
            body = message.session_state_changed
            put(body, state=value.state, previous_state=value.previous, reason=value.reason)
        case records.RunStateChanged():
            body = message.run_state_changed
            put(
                body,
                state=value.state,
                previous_state=value.previous,
                stop_reason=stop_reason(value.stop_reason),
                failure=failure(value.failure),
            )
        case records.CapabilitiesChanged():
            body = message.capabilities_changed
            put(body, capabilities=capabilities(value.capabilities), reason=value.reason)
        case records.AgentStarted():
            body = message.agent_start
            put(body, **msgspec.structs.asdict(value))
        case records.RunEnded():
            body = message.agent_end
            put(
                body,
                state=value.state,
                stop_reason=stop_reason(value.stop_reason),
                failure=failure(value.failure),
                step_count=value.step_count,
                usage=usage(value.usage),
                cost=cost(value.cost),
                final_verdicts=[verdict(item) for item in value.final_verdicts],
            )
        case records.TurnStarted():
            body = message.turn_start
            put(body, prompt_synthesized=value.prompt_synthesized)
        case records.TurnFinished():
            body = message.turn_end
            put(body, reason=value.reason, reason_raw=value.reason_raw)
        case records.StepEnded():
            body = message.step_end
            put(body, step=step(value.step, value.verdicts, run_id))
        case records.DecisionAsked():
            body = message.decision_requested
            put(body, step_id=value.step_id, default=value.default)
            message.decision_requested.deadline.FromNanoseconds(value.deadline_at)
            message.decision_requested.timeout.FromNanoseconds(value.deadline_at - value.asked_at)
        case records.DecisionRecorded():
            body = message.decision_recorded
            put(body, step_id=value.step_id, decision=decision(value.decision))
        case _:
            raise AssertionError(f"{type(value).__name__} is no public event")
    body.SetInParent()
    return message
