"""The primitives of the wire format, against protobuf's own."""

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.wrappers_pb2 import Int64Value
from hypothesis import example, given
from hypothesis import strategies as st

from steprail.v1 import steps_pb2
from steprail_daemon.service import wire


@given(st.integers(-(2**63), 2**63 - 1))
@example(wire.SMALL - 1)
@example(wire.SMALL)
def test_an_integer_is_written_as_protobuf_writes_it(value: int) -> None:
    assert wire.number(b"\x08", value) == Int64Value(value=value).SerializeToString()


@given(st.none() | st.integers(-(2**63), 2**63 - 1))
def test_an_unknown_integer_is_absent_and_zero_is_there(value: int | None) -> None:
    usage = steps_pb2.Usage(input_tokens=value)

    assert wire.optional(wire.tag(1, wire.VARINT), value) == usage.SerializeToString()


@given(st.integers(0, 2**63 - 1))
@example(0)
@example(999_999_999)
@example(1_000_000_000)
def test_a_span_is_written_as_protobuf_writes_it(nanoseconds: int) -> None:
    inside = wire.timespan(nanoseconds)

    duration = Duration(seconds=nanoseconds // 10**9, nanos=nanoseconds % 10**9)
    assert inside == wire.sized(duration.SerializeToString())


@pytest.mark.parametrize("size", [0, 1, 127, 128, wire.SMALL - 1, wire.SMALL, 100_000])
def test_a_message_has_its_length_before_it(size: int) -> None:
    call = steps_pb2.ToolCall(title="x" * size)

    written = wire.delimited(wire.tag(4), b"x" * size)

    assert steps_pb2.ToolCall.FromString(written) == call
    assert written[1:] == wire.sized(b"x" * size)
