"""Hand-written bytes are held against what protobuf's own library builds."""

import hashlib
from collections.abc import Mapping
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.service import expected

from steprail.v1 import events_pb2
from steprail_daemon.core import events, model, records
from steprail_daemon.engine.facade import Blob
from steprail_daemon.engine.ports import Encoders, EventEncoder
from steprail_daemon.service.seldom import BODIES
from steprail_daemon.service.translate import KINDS, SessionEncoder, WireEncoders

SESSION = "ses_01J00000000000000000000000"
RUN = "run_01J00000000000000000000000"
AT = 1_753_000_000_123_456_789

WIDE = st.characters(exclude_categories=["Cs"])


def utf8(limit: int) -> st.SearchStrategy[str]:
    return st.text(WIDE, max_size=40).filter(lambda text: len(text.encode()) <= limit)


IDS = utf8(64)
NAMES = utf8(256)
# Sizes on both sides of every place where a length takes another byte or the short way ends.
EDGES = st.sampled_from([1, 126, 127, 128, 1000, 1023, 1024, 1025, 4095, 4096, 4100, 16_383, 16_384, 65_536])
TEXTS = st.text(WIDE, max_size=60) | st.builds(lambda char, size: char * size, st.sampled_from("xé☃🙂"), EDGES)
COUNTS = st.integers(0, 2**63 - 1)
SPANS = st.integers(0, 10**18)
TIMES = st.integers(0, 4 * 10**18)
MAYBE = st.none() | COUNTS

USAGES = st.builds(
    model.Usage,
    *(st.none() | st.integers(0, 2**62 - 1) for _ in range(5)),
    complete=st.booleans(),
)
COSTS = st.builds(model.Cost, micro_usd=MAYBE, basis=st.sampled_from(model.CostBasis), complete=st.booleans())
CALLS = st.builds(model.ToolCall, IDS, NAMES, st.sampled_from(model.ToolKind), NAMES, TEXTS)
RESULTS = st.builds(
    model.ToolResult, IDS, st.sampled_from(model.ToolOutcome), output=st.none() | TEXTS, error=st.none() | TEXTS
)
VERDICTS = st.builds(
    model.Verdict,
    IDS,
    st.sampled_from(model.StopKind),
    st.sampled_from(model.VerdictOutcome),
    NAMES,
    NAMES,
    st.none() | st.floats(allow_nan=False),
    NAMES,
)
VERDICT_LISTS = st.lists(VERDICTS, max_size=3).map(tuple)
DECISIONS = st.builds(
    model.Decision,
    action=st.sampled_from(model.DecisionAction),
    source=st.sampled_from(model.DecisionSource),
    rule_id=IDS,
    reason=NAMES,
    identity=NAMES,
    waited_ns=SPANS,
    delivered=st.booleans(),
    decided_at=TIMES,
    guidance=TEXTS.filter(lambda text: len(text.encode()) <= 65_536),
    model=NAMES,
)
STEPS = st.builds(
    model.Step,
    number=st.integers(1, 2**40),
    step_id=IDS,
    text=TEXTS | st.just(""),
    thought=TEXTS | st.just(""),
    tool_calls=st.lists(CALLS, max_size=3).map(tuple),
    tool_results=st.lists(RESULTS, max_size=2).map(tuple),
    finish_reason=st.sampled_from(model.FinishReason),
    finish_reason_raw=NAMES,
    usage=st.none() | USAGES,
    cost=st.none() | COSTS,
    model=NAMES,
    duration_ns=SPANS,
    ended_at=TIMES,
    boundary=st.sampled_from(model.StepBoundary),
)
STOP_REASONS = st.builds(
    model.StopReason,
    kind=st.sampled_from(model.StopKind),
    source=st.sampled_from(model.DecisionSource),
    rule_id=IDS,
    reason=NAMES,
    observed=NAMES,
    limit=NAMES,
    also_matched=VERDICT_LISTS,
    exact=st.booleans(),
    overshoot_requests=COUNTS,
)
FAILURES = st.builds(
    model.Failure,
    reason=IDS,
    message=NAMES,
    fault=st.sampled_from(model.FailureFault),
    retryable=st.booleans(),
    retry_after_ns=st.none() | SPANS,
    resumable_at_step=MAYBE,
    detail_json=TEXTS.filter(lambda text: len(text.encode()) <= 65_536),
)
CAPABILITIES = st.builds(
    model.Capabilities,
    step_gate=st.sampled_from(model.StepGate),
    usage=st.sampled_from(model.UsageSupport),
    cost=st.sampled_from(model.CostSupport),
    steer=st.booleans(),
    abort_keeps_results=st.booleans(),
    max_decision_hold_ns=st.none() | SPANS,
    max_permission_hold_ns=st.none() | SPANS,
)
FROM_SUBAGENT = {"subagent_id": st.just("") | IDS, "parent_call_id": st.just("") | IDS}
ASKED = st.integers(0, 2 * 10**18)

OF_CLASS: dict[type, st.SearchStrategy[Any]] = {
    events.MessageStarted: st.builds(events.MessageStarted, IDS, st.sampled_from(model.MessageKind), **FROM_SUBAGENT),
    events.MessageDelta: st.builds(
        events.MessageDelta, IDS, TEXTS.filter(lambda text: len(text.encode()) <= 65_536), **FROM_SUBAGENT
    ),
    events.MessageEnded: st.builds(
        events.MessageEnded,
        IDS,
        st.sampled_from(model.MessageKind),
        TEXTS,
        st.sampled_from(model.FinishReason),
        NAMES,
        NAMES,
        **FROM_SUBAGENT,
    ),
    events.ToolStarted: st.builds(events.ToolStarted, CALLS, **FROM_SUBAGENT),
    events.ToolEnded: st.builds(events.ToolEnded, RESULTS, st.none() | SPANS, **FROM_SUBAGENT),
    events.UsageReported: st.builds(
        events.UsageReported,
        st.none() | USAGES,
        st.none() | COSTS,
        NAMES,
        **FROM_SUBAGENT,
        side_request=st.booleans(),
    ),
    events.AgentErrorReported: st.builds(events.AgentErrorReported, NAMES, NAMES, st.booleans()),
    events.RawReceived: st.builds(events.RawReceived, NAMES, TEXTS),
    records.SessionStateChanged: st.builds(
        records.SessionStateChanged,
        st.sampled_from(model.SessionState),
        st.none() | st.sampled_from(model.SessionState),
        NAMES,
    ),
    records.RunStateChanged: st.builds(
        records.RunStateChanged,
        st.sampled_from(model.RunState),
        st.none() | st.sampled_from(model.RunState),
        TIMES,
        st.none() | STOP_REASONS,
        st.none() | FAILURES,
    ),
    records.CapabilitiesChanged: st.builds(records.CapabilitiesChanged, CAPABILITIES, NAMES),
    records.AgentStarted: st.builds(records.AgentStarted, NAMES, NAMES, NAMES, NAMES, st.booleans()),
    records.TurnStarted: st.builds(records.TurnStarted, st.booleans()),
    records.TurnFinished: st.builds(records.TurnFinished, st.sampled_from(model.TurnEndReason), NAMES, TEXTS),
    records.StepEnded: st.builds(records.StepEnded, STEPS, VERDICT_LISTS),
    records.DecisionAsked: st.builds(
        lambda step_id, number, asked, span, default: records.DecisionAsked(
            step_id, number, asked, asked + span, default
        ),
        IDS,
        COUNTS,
        ASKED,
        SPANS,
        st.sampled_from(model.OnTimeout),
    ),
    records.DecisionRecorded: st.builds(records.DecisionRecorded, IDS, DECISIONS),
    records.RunEnded: st.builds(
        records.RunEnded,
        st.sampled_from(model.RunState),
        st.none() | STOP_REASONS,
        st.none() | FAILURES,
        COUNTS,
        st.none() | USAGES,
        st.none() | COSTS,
        VERDICT_LISTS,
    ),
}


def encoder_at(run_id: str = RUN, step_number: int = 3, at: int = AT) -> SessionEncoder:
    encoder = SessionEncoder(SESSION)
    encoder.begin(at, run_id, step_number)
    return encoder


def parsed(entry: bytes) -> events_pb2.Event:
    batch = events_pb2.EventBatch.FromString(entry)
    assert len(batch.events) == 1
    assert not batch.HasField("heartbeat")
    return batch.events[0]


def test_the_encoder_is_what_the_engine_asks_for() -> None:
    encoders: Encoders = WireEncoders()
    encoder: EventEncoder = encoders.for_session(SESSION)

    assert encoder.take_blobs() == ()


def test_every_passive_event_and_every_fact_is_public_or_known_to_be_private() -> None:
    private = {
        records.AbortAsked,
        records.PromptGiven,
        records.QueueHeld,
        records.RunCreated,
        records.RunTurnCame,
        records.SessionUpdated,
        records.StopAsked,
        records.ToolGranted,
        records.UsageBeside,
        records.UsageCounted,
    }
    classes = {*get_args(events.PassiveEvent), *get_args(records.Fact)}

    assert set(KINDS) == classes - private
    assert set(OF_CLASS) | set(BODIES) == set(KINDS)


def test_each_kind_is_the_number_of_a_field_of_the_public_body() -> None:
    body = events_pb2.Event.DESCRIPTOR.oneofs_by_name["body"]

    assert set(KINDS.values()) <= {field.number for field in body.fields}
    assert len(set(KINDS.values())) == len(KINDS)


@pytest.mark.parametrize("event_class", list(OF_CLASS), ids=lambda event_class: str(event_class.__name__))
def test_an_entry_reads_as_the_message_that_protobuf_builds(event_class: type) -> None:
    @settings(max_examples=120)
    @given(
        event=OF_CLASS[event_class],
        seq=st.integers(1, 2**63 - 1) | st.integers(1, 300),
        at=TIMES,
        run_id=st.just("") | IDS,
        step_number=st.just(0) | COUNTS,
    )
    def check(event: Any, seq: int, at: int, run_id: str, step_number: int) -> None:
        entry = encoder_at(run_id, step_number, at).encode(seq, event)

        message = parsed(entry)
        assert message == expected.event(
            event, seq=seq, at=at, session_id=SESSION, run_id=run_id, step_number=step_number
        )
        body = events_pb2.Event.DESCRIPTOR.oneofs_by_name["body"]
        chosen = message.WhichOneof("body")
        assert chosen is not None
        assert {field.name: field.number for field in body.fields}[chosen] == KINDS[event_class]

    check()


def test_one_encoder_numbers_on_over_every_carry_and_after_each_begin() -> None:
    encoder = encoder_at()
    seqs = [1, 2, 127, 128, 129, 255, 256, 16_383, 16_384, 2_097_151, 2_097_152, 5]
    delta = events.MessageDelta("m", "x")

    first = [parsed(encoder.encode(seq, delta)).seq for seq in seqs]
    encoder.begin(AT + 1, "", 0)
    second = [parsed(encoder.encode(seq, delta)) for seq in seqs]

    assert first == seqs
    assert [event.seq for event in second] == seqs
    assert {(event.run_id, event.step_number, event.time.ToNanoseconds()) for event in second} == {("", 0, AT + 1)}


def test_entries_joined_are_a_batch() -> None:
    encoder = encoder_at()
    wire = b"".join(encoder.encode(seq, events.MessageDelta("m", str(seq))) for seq in range(1, 400))

    batch = events_pb2.EventBatch.FromString(wire)

    assert [(event.seq, event.message_delta.text) for event in batch.events] == [(n, str(n)) for n in range(1, 400)]


@pytest.mark.parametrize("char", ["x", "é", "☃", "🙂"])
def test_a_text_over_64_kib_is_cut_between_characters_and_kept_whole_as_a_blob(char: str) -> None:
    encoder = encoder_at()
    whole = "a" + char * 70_000
    event = events.ToolEnded(model.ToolResult("call", model.ToolOutcome.SUCCEEDED, whole))

    message = parsed(encoder.encode(1, event))

    data = whole.encode()
    name = f"sha256-{hashlib.sha256(data).hexdigest()}"
    output = message.tool_end.result.output
    assert whole.startswith(output.value)
    assert 65_536 - 4 < len(output.value.encode()) <= 65_536
    assert (output.full_size, output.blob_id) == (len(data), name)
    assert encoder.take_blobs() == (Blob(name, "text/plain", data),)
    assert encoder.take_blobs() == ()


def test_a_text_of_exactly_64_kib_is_whole() -> None:
    encoder = encoder_at()
    event = events.ToolEnded(model.ToolResult("call", model.ToolOutcome.SUCCEEDED, "x" * 65_536))

    assert parsed(encoder.encode(1, event)).tool_end.result.output.blob_id == ""
    assert encoder.take_blobs() == ()


def test_json_over_64_kib_is_left_out_and_kept_whole_as_a_blob() -> None:
    encoder = encoder_at()
    arguments = '{"content":"' + "x" * 70_000 + '"}'
    event = events.ToolStarted(model.ToolCall("call", "write", model.ToolKind.EDIT, "write", arguments))

    text = parsed(encoder.encode(1, event)).tool_start.call.arguments_json

    assert text.value == ""
    assert text.full_size == len(arguments)
    assert encoder.take_blobs() == (Blob(text.blob_id, "application/json", arguments.encode()),)


def a_step(**fields: Any) -> model.Step:
    defaults: Mapping[str, Any] = {
        "number": 1,
        "step_id": "step_1",
        "text": "",
        "thought": "",
        "tool_calls": (),
        "tool_results": (),
        "finish_reason": model.FinishReason.TOOL_CALLS,
        "finish_reason_raw": "tool_use",
        "usage": None,
        "cost": None,
        "model": "m",
        "duration_ns": 1,
        "ended_at": AT,
        "boundary": model.StepBoundary.OBSERVED,
    }
    return model.Step(**{**defaults, **fields})


@pytest.mark.parametrize(("calls", "size"), [(8, 70_000), (40, 60_000), (12, 65_536), (400, 3_000), (9, 65_000)])
def test_a_step_stays_under_512_kib_and_every_text_that_is_cut_is_a_blob(calls: int, size: int) -> None:
    encoder = encoder_at()
    results = tuple(
        model.ToolResult(f"call-{n}", model.ToolOutcome.SUCCEEDED, f"{n:04}" + "é" * (size // 2)) for n in range(calls)
    )
    whole = tuple(
        model.ToolCall(f"call-{n}", "read", model.ToolKind.READ, "read", f'"{n}"' + " " * (size // 4))
        for n in range(calls)
    )

    message = parsed(encoder.encode(1, records.StepEnded(a_step(tool_calls=whole, tool_results=results), ())))

    step = message.step_end.step
    assert step.ByteSize() <= 512 * 1024
    blobs = {blob.blob_id: blob.data for blob in encoder.take_blobs()}
    assert [result.call_id for result in step.tool_results] == [result.call_id for result in results]
    for sent, result in zip(step.tool_results, results, strict=True):
        assert result.output is not None
        data = result.output.encode()
        assert sent.output.full_size == len(data)
        assert sent.output.value == result.output if not sent.output.blob_id else blobs[sent.output.blob_id] == data
        assert result.output.startswith(sent.output.value)
    for call, original in zip(step.tool_calls, whole, strict=True):
        text = call.arguments_json
        assert text.value == original.arguments_json or blobs[text.blob_id] == original.arguments_json.encode()


def test_a_step_that_fits_is_not_cut_further() -> None:
    encoder = encoder_at()
    results = tuple(model.ToolResult(f"{n}", model.ToolOutcome.SUCCEEDED, "x" * 65_536) for n in range(7))

    step = parsed(encoder.encode(1, records.StepEnded(a_step(tool_results=results), ()))).step_end.step

    assert {len(result.output.value) for result in step.tool_results} == {65_536}


SURROGATES = st.text(st.characters(), max_size=20).map(lambda text: text + "\udfff" + text + "\ud800")


@given(text=SURROGATES)
def test_half_a_surrogate_pair_is_replaced_in_every_text_of_an_event(text: str) -> None:
    encoder = encoder_at()
    result = model.ToolResult("call", model.ToolOutcome.SUCCEEDED, text, error=text)
    call = model.ToolCall("call", "t", model.ToolKind.READ, text, "")

    ended = parsed(encoder.encode(1, events.ToolEnded(result))).tool_end.result
    step = parsed(encoder.encode(2, records.StepEnded(a_step(text=text, tool_calls=(call,)), ()))).step_end.step

    for sent in (ended.output.value, ended.error.value, step.text.value):
        assert "\ufffd" in sent
        assert sent.encode()
    assert step.tool_calls[0].tool == "t"


def test_a_whole_surrogate_pair_becomes_its_character() -> None:
    entry = encoder_at().encode(1, events.MessageDelta("m", "\ud83d\ude42"))

    assert parsed(entry).message_delta.text == "🙂"


def test_bounded_texts_are_shortened_and_long_ids_stay_apart() -> None:
    encoder = encoder_at()
    long_id = "call-" * 20

    def call_of(call_id: str) -> Any:
        call = model.ToolCall(call_id, "é" * 200, model.ToolKind.READ, "t" * 5_000, "{}")
        return parsed(encoder.encode(1, events.ToolStarted(call))).tool_start.call

    one, other, again = call_of(long_id + "1"), call_of(long_id + "2"), call_of(long_id + "1")

    assert (one.tool, one.title) == ("é" * 128, "t" * 1024)
    assert len(one.call_id) <= 64
    assert one.call_id == again.call_id != other.call_id


def test_a_delta_over_64_kib_is_the_beginning_of_its_text() -> None:
    entry = encoder_at().encode(1, events.MessageDelta("m", "é" * 40_000))

    assert parsed(entry).message_delta.text == "é" * 32_768


def test_a_fact_that_is_no_public_event_is_refused() -> None:
    with pytest.raises(KeyError):
        encoder_at().encode(1, records.UsageCounted(None, None))
