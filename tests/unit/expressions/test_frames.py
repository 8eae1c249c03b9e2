import pytest
from hypothesis import given
from hypothesis import strategies as st

from steprail_daemon.expressions.frames import MAX_REPLY_BYTES, BadFrame, ReplyReader, frame


@given(st.lists(st.binary(max_size=50), max_size=10), st.data())
def test_messages_come_out_as_they_went_in_however_they_are_cut(messages: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(frame(message) for message in messages)
    reader, found = ReplyReader(), []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        found += list(reader.feed(stream[:size]))
        stream = stream[size:]
    assert found == messages


def test_the_largest_reply_passes_and_a_larger_one_is_refused_by_its_length() -> None:
    largest = b"x" * (MAX_REPLY_BYTES - 4)
    assert list(ReplyReader().feed(frame(largest))) == [largest]
    with pytest.raises(BadFrame, match="4097 bytes"):
        list(ReplyReader().feed(frame(largest + b"x")[:4]))
