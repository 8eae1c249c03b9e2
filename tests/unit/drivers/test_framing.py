import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steprail_daemon.drivers.framing import LineFramer, OverlongLine

LIMIT = 20
#: Line ends, the bytes around a CR, and both halves of a character of two bytes.
TEXTS = st.lists(st.sampled_from([b"a", b"\n", b"\r\n", b"\r", b"\xc3\xa9", b"x" * 19, b"x" * 20, b"x" * 21])).map(
    b"".join
)


def run(framer: LineFramer, *chunks: bytes) -> list[bytes | OverlongLine]:
    return [line for chunk in chunks for line in framer.feed(chunk)] + framer.finish()


def expected(data: bytes, limit: int) -> list[bytes | OverlongLine]:
    """The same, written to be obvious."""
    *lines, last = data.split(b"\n")
    lines += [last] if last else []
    bare = [line[:-1] if line.endswith(b"\r") else line for line in lines]
    return [line if len(line) <= limit else OverlongLine(limit) for line in bare]


@given(data=TEXTS, cuts=st.lists(st.integers(0, 200)))
def test_lines_are_those_of_the_whole_however_the_bytes_are_cut(data: bytes, cuts: list[int]) -> None:
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    chunks = [data[start:end] for start, end in itertools.pairwise(places)]
    assert run(LineFramer(LIMIT), *chunks) == expected(data, LIMIT)


@given(data=TEXTS)
def test_lines_are_those_of_the_whole_byte_by_byte(data: bytes) -> None:
    assert run(LineFramer(LIMIT), *(bytes([byte]) for byte in data)) == expected(data, LIMIT)


@pytest.mark.parametrize("size", [(1 << 16) + 1, (1 << 20) + 1, 1 << 24])
def test_a_long_line_within_the_limit_passes_whole(size: int) -> None:
    line = b"x" * size
    data = line + b"\nnext\n"
    chunks = [data[start : start + 65_536] for start in range(0, len(data), 65_536)]
    assert run(LineFramer(size), *chunks) == [line, b"next"]


@pytest.mark.parametrize("size", [(1 << 16) + 1, (1 << 20) + 1, 1 << 24])
def test_a_line_one_byte_over_the_limit_is_told_once_and_the_next_is_whole(size: int) -> None:
    data = b"x" * size + b"\nnext\n"
    chunks = [data[start : start + 65_536] for start in range(0, len(data), 65_536)]
    assert run(LineFramer(size - 1), *chunks) == [OverlongLine(size - 1), b"next"]


def test_an_overlong_line_is_told_before_it_ends() -> None:
    framer = LineFramer(4)
    assert framer.feed(b"12345") == []
    assert framer.feed(b"6") == [OverlongLine(4)]
    assert framer.feed(b"7" * 100) == []
    assert framer.feed(b"8\nok\n") == [b"ok"]


def test_an_overlong_line_that_the_stream_ends_in_is_told_once() -> None:
    assert run(LineFramer(4), b"123456789") == [OverlongLine(4)]


def test_a_line_of_the_limit_may_end_with_crlf_in_another_chunk() -> None:
    assert run(LineFramer(4), b"1234\r", b"\n5") == [b"1234", b"5"]


def test_what_is_held_of_an_overlong_line_is_let_go() -> None:
    framer = LineFramer(1_000)
    framer.feed(b"x" * 2_000)
    framer.feed(b"y" * 2_000)
    assert framer._chunks == []


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_below_one_byte_is_refused(limit: int) -> None:
    with pytest.raises(ValueError, match="at least 1 byte"):
        LineFramer(limit)
