"""Events of the core in their public wire form: what the journal stores and every watch sends.

An entry is what a message with `repeated Event events = 1` holds of one event: tag, length, `Event`. Entries joined are
such a message, so that a batch is encoded once and stored, replayed and sent as it is.

Within an entry the sequence number comes first, then what `begin` set, then the body. Building such messages with
protobuf's own library costs several microseconds each; here a `tool_end` of common size costs about one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from steprail_daemon.core import events, records
from steprail_daemon.core.model import ToolOutcome
from steprail_daemon.engine.facade import Blob
from steprail_daemon.service import seldom, values
from steprail_daemon.service.bounds import ID, ID_SIZES, MAX_TEXT_BYTES, NAME_SIZES, REASON_SIZES, fitted, mended
from steprail_daemon.service.capabilities import capabilities_message
from steprail_daemon.service.contents import FRAMED, TEXT_FRAMES, Contents
from steprail_daemon.service.wire import SMALL, VARINTS, delimited, number, sized, tag, timespan, varint

#: Kind of each class that is a public event: the number of its field in `Event.body`.
KINDS: Final[Mapping[type, int]] = MappingProxyType(
    {
        events.MessageDelta: 10,
        events.OutputProduced: 11,
        events.ToolUpdated: 12,
        events.UsageReported: 13,
        events.ToolStarted: 14,
        events.ToolEnded: 15,
        records.SessionStateChanged: 20,
        records.RunStateChanged: 21,
        records.CapabilitiesChanged: 22,
        records.AgentStarted: 23,
        records.RunEnded: 24,
        records.TurnStarted: 25,
        records.TurnFinished: 26,
        events.MessageStarted: 27,
        events.MessageEnded: 28,
        records.StepEnded: 29,
        records.DecisionAsked: 30,
        records.DecisionRecorded: 31,
        records.PermissionRequested: 32,
        records.PermissionResolved: 33,
        records.QuestionRequested: 34,
        records.QuestionResolved: 35,
        events.PlanProposed: 36,
        records.SteerAccepted: 37,
        records.SteerDelivered: 38,
        records.SteerDropped: 39,
        events.FileModified: 40,
        events.RateLimited: 42,
        events.ContextWindowChanged: 43,
        events.AgentErrorReported: 44,
        events.RawReceived: 45,
    }
)

_join: Final = b"".join

#: Tag of `seq` with its lowest seven bits, where more bits follow and where none do.
_LOW_MORE: Final = tuple(b"\x08" + bytes((low | 0x80,)) for low in range(128))
_LOW_LAST: Final = tuple(b"\x08" + bytes((low,)) for low in range(128))


class SessionEncoder:
    """Encodes the events of one session; see `engine.ports.EventEncoder`."""

    __slots__ = (
        "_at",
        "_high",
        "_low",
        "_prefix",
        "_run",
        "_run_id",
        "_session",
        "_session_id",
        "_shared",
        "_shown",
        "_shown_of",
        "_step_number",
        "_tail",
        "contents",
        "run_id",
    )

    kinds: Mapping[type, int] = KINDS

    def __init__(self, session_id: str) -> None:
        self.contents = Contents()
        #: Id of the run in sized form.
        self.run_id = b"\x00"
        self._session_id = session_id
        self._session = b"\x1a" + sized(session_id.encode())
        self._run_id = ""
        self._run = self._session
        self._at = self._step_number = 0
        self._prefix = b""
        self._high = -1
        self._low = _LOW_LAST
        self._tail = b""
        self._shared = 0
        self._shown_of: records.StepEnded | None = None
        self._shown = b""

    @property
    def names(self) -> tuple[str, str]:
        """Ids of the session and of the run, empty for none."""
        return self._session_id, self._run_id

    def begin(self, at: int, run_id: str, step_number: int) -> None:
        """Set time, run (empty: none) and step (0: none) of the events that follow."""
        if run_id != self._run_id:
            self._run_id = run_id
            self.run_id = sized(run_id.encode())
            self._run = self._session + b"\x22" + self.run_id if run_id else self._session
        # What they share is put together for the first of them: what begins may end without any.
        self._at = at
        self._step_number = step_number
        self._prefix = b""
        self._high = -1

    def encode(self, seq: int, event: events.PassiveEvent | records.Fact) -> bytes:
        """Give one entry of a batch: the event with its tag and length.

        Raises:
            KeyError: the class is not in `kinds`.
        """
        try:
            body = _BODIES[type(event)](event, self)
        except (IndexError, UnicodeEncodeError):
            body = _BODIES[type(event)](fitted(event), self)
        if seq >> 7 != self._high:
            self._set_high(seq >> 7)
        size = self._shared + len(body)
        spelled = VARINTS[size] if size < SMALL else varint(size)
        return _join((b"\x0a", spelled, self._low[seq & 127], self._tail, body))

    def step(self, fact: records.StepEnded) -> bytes | None:
        """See `engine.ports.EventEncoder`."""
        try:
            shown = values.step(fact.step, fact.verdicts, self.run_id, self.contents)
        except (IndexError, UnicodeEncodeError):
            # Its event gets what fits.
            return None
        if self.contents.cut:
            return None
        self._shown_of, self._shown = fact, shown
        return shown

    def take_step(self, fact: records.StepEnded) -> bytes:
        """Give the public `Step` of a fact for its event."""
        if fact is not self._shown_of:
            return values.step(fact.step, fact.verdicts, self.run_id, self.contents)
        self._shown_of, shown, self._shown = None, self._shown, b""
        return shown

    def keep(self, text: str) -> None:
        """See `engine.ports.EventEncoder`."""
        self.contents.text(mended(text))

    def take_blobs(self) -> tuple[Blob, ...]:
        """Give and forget the contents that were too large for the events encoded since the last call."""
        return self.contents.take()

    def _set_high(self, high: int) -> None:
        """Set what 128 sequence numbers in a row share: all but their lowest seven bits, and what `begin` set."""
        if not self._prefix:
            step_number = self._step_number
            step = b"\x28" + varint(step_number) if step_number else b""
            self._prefix = _join((b"\x12", timespan(self._at), self._run, step))
        self._high = high
        self._low = _LOW_MORE if high else _LOW_LAST
        self._tail = varint(high) + self._prefix if high else self._prefix
        self._shared = len(self._tail) + 2


class WireEncoders:
    """Makes encoders; see `engine.ports.Encoders`."""

    kinds: Mapping[type, int] = KINDS

    def event_of(self, entry: bytes) -> bytes:
        """Take the tag and the length off an entry: a byte, then a varint, whose last byte is below 128."""
        at = 1
        while entry[at] & 0x80:
            at += 1
        return entry[at + 1 :]

    def for_session(self, session_id: str) -> SessionEncoder:
        """Make the encoder of one session."""
        return SessionEncoder(session_id)


# --- what the agent said ------------------------------------------------------------------------------------------

_OUTCOMES: Final = tuple(b"\x10" + VARINTS[outcome] + b"\x1a" for outcome in range(max(ToolOutcome) + 1))
_ID_HEADS: Final = tuple(b"\x0a" + size for size in ID_SIZES)
#: What stands before the inside of the `ToolResult` in a `tool_end` without duration, by the size of that inside.
_TOOL_END_HEADS: Final = tuple(
    b"\x7a" + varint(size + 1 + len(varint(size))) + b"\x0a" + varint(size) for size in range(FRAMED + ID + 16)
)


def _tool_ended(event: events.ToolEnded, encoder: SessionEncoder) -> bytes:
    result = event.result
    output = result.output
    if output is None or event.duration_ns is not None or result.error is not None or event.subagent_id:
        return _tool_ended_in_full(event, encoder)
    call_id, data = result.call_id.encode(), output.encode()
    size = len(data)
    if size >= FRAMED or event.parent_call_id:
        return _tool_ended_in_full(event, encoder)
    id_size = len(call_id)
    id_head = _ID_HEADS[id_size]
    head, end, text_size = TEXT_FRAMES[size]
    outcome = _OUTCOMES[result.outcome]
    return _join((_TOOL_END_HEADS[id_size + text_size + 5], id_head, call_id, outcome, head, data, end))


def _tool_ended_in_full(event: events.ToolEnded, encoder: SessionEncoder) -> bytes:
    duration = event.duration_ns
    body = b"\x0a" + sized(values.tool_result(event.result, encoder.contents))
    if duration is not None:
        body += b"\x12" + timespan(duration)
    return _subagent(event) + delimited(b"\x7a", body)


def _message_delta(event: events.MessageDelta, _: SessionEncoder) -> bytes:
    message_id, text = event.message_id.encode(), event.text.encode()
    size = len(text)
    if size > MAX_TEXT_BYTES:
        raise IndexError(size)
    spelled = VARINTS[size] if size < SMALL else varint(size)
    body = _join((b"\x0a", ID_SIZES[len(message_id)], message_id, b"\x12", spelled, text))
    if event.subagent_id or event.parent_call_id:
        return _subagent(event) + delimited(b"\x52", body)
    return delimited(b"\x52", body)


def _tool_started(event: events.ToolStarted, encoder: SessionEncoder) -> bytes:
    call = sized(values.tool_call(event.call, encoder.contents))
    return _subagent(event) + delimited(b"\x72", b"\x0a" + call)


def _usage_reported(event: events.UsageReported, _: SessionEncoder) -> bytes:
    model = event.model.encode()
    body = _join(
        (
            b"" if event.usage is None else delimited(b"\x0a", values.usage(event.usage)),
            b"" if event.cost is None else delimited(b"\x12", values.cost(event.cost)),
            b"\x1a", NAME_SIZES[len(model)], model,
            number(b"\x20", event.side_request),
        )
    )  # fmt: skip
    return _subagent(event) + delimited(b"\x6a", body)


_FromSubagent: TypeAlias = (
    events.MessageStarted
    | events.MessageDelta
    | events.MessageEnded
    | events.ToolStarted
    | events.ToolEnded
    | events.UsageReported
    | events.ToolUpdated
    | events.OutputProduced
    | events.FileModified
)


def _subagent(event: _FromSubagent) -> bytes:
    if not (event.subagent_id or event.parent_call_id):
        return b""
    subagent_id, call_id = event.subagent_id.encode(), event.parent_call_id.encode()
    return _join((b"\x32", ID_SIZES[len(subagent_id)], subagent_id, b"\x3a", ID_SIZES[len(call_id)], call_id))


def _message_started(event: events.MessageStarted, _: SessionEncoder) -> bytes:
    message_id = event.message_id.encode()
    body = _join((b"\x0a", ID_SIZES[len(message_id)], message_id, b"\x10", VARINTS[event.kind]))
    return _subagent(event) + delimited(_MESSAGE_START, body)


def _message_ended(event: events.MessageEnded, encoder: SessionEncoder) -> bytes:
    message_id, raw, model = event.message_id.encode(), event.finish_reason_raw.encode(), event.model.encode()
    body = _join(
        (
            b"\x0a", ID_SIZES[len(message_id)], message_id,
            b"\x10", VARINTS[event.kind],
            b"\x1a", encoder.contents.text(event.text) if event.text else b"\x00",
            b"\x20", VARINTS[event.finish_reason],
            b"\x2a", NAME_SIZES[len(raw)], raw,
            b"\x32", NAME_SIZES[len(model)], model,
        )
    )  # fmt: skip
    return _subagent(event) + delimited(_MESSAGE_END, body)


def _agent_error(event: events.AgentErrorReported, _: SessionEncoder) -> bytes:
    code, message = event.code.encode(), event.message.encode()
    body = _join(
        (
            b"\x0a", NAME_SIZES[len(code)], code,
            b"\x12", REASON_SIZES[len(message)], message,
            number(b"\x18", event.will_retry),
        )
    )  # fmt: skip
    return delimited(_tag(events.AgentErrorReported), body)


def _raw(event: events.RawReceived, encoder: SessionEncoder) -> bytes:
    vendor_type = event.vendor_type.encode()
    payload = encoder.contents.json(event.payload_json)
    body = _join((b"\x0a", NAME_SIZES[len(vendor_type)], vendor_type, b"\x12", payload))
    return delimited(_tag(events.RawReceived), body)


# --- facts --------------------------------------------------------------------------------------------------------


def _session_state(fact: records.SessionStateChanged, _: SessionEncoder) -> bytes:
    reason = fact.reason.encode()
    body = _join(
        (
            b"\x08", varint(fact.state),
            number(b"\x10", fact.previous or 0),
            b"\x1a", REASON_SIZES[len(reason)], reason,
        )
    )  # fmt: skip
    return delimited(_tag(records.SessionStateChanged), body)


def _run_state(fact: records.RunStateChanged, _: SessionEncoder) -> bytes:
    body = b"\x08" + varint(fact.state) + number(b"\x10", fact.previous or 0)
    if fact.stop_reason is not None:
        body += delimited(b"\x1a", values.stop_reason(fact.stop_reason))
    if fact.failure is not None:
        body += delimited(b"\x22", values.failure(fact.failure))
    return delimited(_tag(records.RunStateChanged), body)


def _capabilities(fact: records.CapabilitiesChanged, _: SessionEncoder) -> bytes:
    reason = fact.reason.encode()
    capabilities = sized(capabilities_message(fact.capabilities).SerializeToString())
    body = _join((b"\x0a", capabilities, b"\x12", REASON_SIZES[len(reason)], reason))
    return delimited(_tag(records.CapabilitiesChanged), body)


def _agent_started(fact: records.AgentStarted, _: SessionEncoder) -> bytes:
    agent, version = fact.agent.encode(), fact.version.encode()
    model, agent_session_id = fact.model.encode(), fact.agent_session_id.encode()
    body = _join(
        (
            b"\x0a", NAME_SIZES[len(agent)], agent,
            b"\x12", NAME_SIZES[len(version)], version,
            b"\x1a", NAME_SIZES[len(model)], model,
            b"\x22", NAME_SIZES[len(agent_session_id)], agent_session_id,
            number(b"\x28", fact.resumed),
        )
    )  # fmt: skip
    return delimited(_tag(records.AgentStarted), body)


def _run_ended(fact: records.RunEnded, _: SessionEncoder) -> bytes:
    body = _join(
        (
            b"\x08", varint(fact.state),
            b"" if fact.stop_reason is None else delimited(b"\x12", values.stop_reason(fact.stop_reason)),
            b"" if fact.failure is None else delimited(b"\x1a", values.failure(fact.failure)),
            number(b"\x20", fact.step_count),
            b"" if fact.usage is None else delimited(b"\x2a", values.usage(fact.usage)),
            b"" if fact.cost is None else delimited(b"\x32", values.cost(fact.cost)),
            *(delimited(b"\x3a", values.verdict(item)) for item in fact.final_verdicts),
        )
    )  # fmt: skip
    return delimited(_tag(records.RunEnded), body)


def _turn_started(fact: records.TurnStarted, _: SessionEncoder) -> bytes:
    return delimited(_tag(records.TurnStarted), number(b"\x08", fact.prompt_synthesized))


def _turn_finished(fact: records.TurnFinished, _: SessionEncoder) -> bytes:
    raw = fact.reason_raw.encode()
    body = _join((b"\x08", varint(fact.reason), b"\x12", NAME_SIZES[len(raw)], raw))
    return delimited(_tag(records.TurnFinished), body)


def _step_ended(fact: records.StepEnded, encoder: SessionEncoder) -> bytes:
    return delimited(_STEP_END, b"\x0a" + sized(encoder.take_step(fact)))


def _decision_asked(fact: records.DecisionAsked, _: SessionEncoder) -> bytes:
    step_id = fact.step_id.encode()
    body = _join(
        (
            b"\x0a", ID_SIZES[len(step_id)], step_id,
            b"\x12", timespan(fact.deadline_at),
            b"\x1a", timespan(max(0, fact.deadline_at - fact.asked_at)),
            b"\x20", VARINTS[fact.default],
        )
    )  # fmt: skip
    return delimited(_DECISION_REQUESTED, body)


def _decision_recorded(fact: records.DecisionRecorded, _: SessionEncoder) -> bytes:
    step_id = fact.step_id.encode()
    decision = sized(values.decision(fact.decision))
    body = _join((b"\x0a", ID_SIZES[len(step_id)], step_id, b"\x12", decision))
    return delimited(_DECISION_RECORDED, body)


def _seldom(kind: type) -> Callable[[Any, SessionEncoder], bytes]:
    body, field = seldom.BODIES[kind], _tag(kind)
    of_subagents = "parent_call_id" in kind.__struct_fields__  # type: ignore[attr-defined]

    def encode(event: Any, encoder: SessionEncoder) -> bytes:
        data = delimited(field, body(event, encoder).SerializeToString())
        return _subagent(event) + data if of_subagents else data

    return encode


def _tag(event: type) -> bytes:
    return tag(KINDS[event])


_MESSAGE_START: Final = _tag(events.MessageStarted)
_MESSAGE_END: Final = _tag(events.MessageEnded)
_STEP_END: Final = _tag(records.StepEnded)
_DECISION_REQUESTED: Final = _tag(records.DecisionAsked)
_DECISION_RECORDED: Final = _tag(records.DecisionRecorded)

# Each function takes the class it stands beside, which a mapping cannot tell the type checker.
_BODIES: Final[Mapping[type, Callable[[Any, SessionEncoder], bytes]]] = {
    events.MessageDelta: _message_delta,
    events.UsageReported: _usage_reported,
    events.ToolStarted: _tool_started,
    events.ToolEnded: _tool_ended,
    records.SessionStateChanged: _session_state,
    records.RunStateChanged: _run_state,
    records.CapabilitiesChanged: _capabilities,
    records.AgentStarted: _agent_started,
    records.RunEnded: _run_ended,
    records.TurnStarted: _turn_started,
    records.TurnFinished: _turn_finished,
    events.MessageStarted: _message_started,
    events.MessageEnded: _message_ended,
    records.StepEnded: _step_ended,
    records.DecisionAsked: _decision_asked,
    records.DecisionRecorded: _decision_recorded,
    events.AgentErrorReported: _agent_error,
    events.RawReceived: _raw,
    **{kind: _seldom(kind) for kind in seldom.BODIES},
}
