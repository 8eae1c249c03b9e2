import json

import pytest

from steprail_daemon.drivers.framing import mended, text_of


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (rb'{"a":"cut \ud83d"}', "cut \ufffd"),
        (rb'{"a":"\udc00 and more"}', "\ufffd and more"),
        (b'{"a":"\xff"}', "\ufffd"),
        (rb'{"a":"\ud83d\ude00"}', "\U0001f600"),
    ],
)
def test_what_strict_decoders_refuse_is_read_with_replacements(line: bytes, text: str) -> None:
    whole = mended(line)
    assert whole is not None
    assert json.loads(whole) == {"a": text}
    assert json.loads(text_of(line)) == {"a": text}


@pytest.mark.parametrize("line", [b"", b"{", b"[" * 100_000, b"Failed in 0m"])
def test_what_is_no_json_is_not_made_to_be_some(line: bytes) -> None:
    assert mended(line) is None
    assert text_of(line) == "null"


def test_a_sound_line_stays_as_it_came() -> None:
    assert text_of(b'{"b": 1,  "a": "\xc3\xa9"}') == '{"b": 1,  "a": "é"}'
