"""Lines in, answers out."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steprail_scripted.rpc import Dispatcher, Effect, Handled, LineReader, RpcError, encode


@given(
    st.lists(st.binary(max_size=20).map(lambda data: data.replace(b"\n", b"") + b"x"), max_size=8),
    st.lists(st.integers(1, 9), min_size=1),
)
def test_lines_come_out_whole_however_the_stream_is_cut(lines: list[bytes], sizes: list[int]) -> None:
    stream = b"".join(line + b"\n" for line in lines)
    reader, got, at, turn = LineReader(), list[bytes](), 0, 0
    while at < len(stream):
        size = sizes[turn % len(sizes)]
        got += reader.feed(stream[at : at + size])
        at, turn = at + size, turn + 1
    assert got == lines


def test_blank_lines_are_nothing_and_an_unfinished_one_waits() -> None:
    reader = LineReader()
    assert list(reader.feed(b"\n  \r\n{}\r\n{")) == [b"{}\r"]
    assert list(reader.feed(b"}\n")) == [b"{}"]


def test_text_is_written_as_it_is_and_a_lone_surrogate_as_an_escape() -> None:
    assert encode({"a": "é😀"}) == '{"a":"é😀"}\n'.encode()
    assert encode({"a": "\ud83d"}) == b'{"a":"\\ud83d"}\n'


ran: list[Any] = []


def dispatcher() -> Dispatcher:
    ran.clear()

    def fail(_: dict[str, Any]) -> Handled:
        raise RpcError(-32602, "no", {"more": 1})

    def echo(params: dict[str, Any]) -> Handled:
        ran.append(params)
        return Handled({"echo": params}, Effect(lambda: None))

    def throw(params: dict[str, Any]) -> Handled:
        return Handled({"length": len(params["list"])})

    return Dispatcher({"echo": echo, "fail": fail, "throw": throw})


def call(text: str) -> Any:
    return dispatcher().handle(text.encode())[0]


def test_a_request_is_answered_with_its_id_and_an_effect_follows() -> None:
    answer, effects = dispatcher().handle(b'{"jsonrpc":"2.0","id":"x","method":"echo","params":{"a":1}}')
    assert answer == {"jsonrpc": "2.0", "result": {"echo": {"a": 1}}, "id": "x"}
    assert len(effects) == 1


def test_a_notification_is_executed_and_not_answered() -> None:
    assert call('{"jsonrpc":"2.0","method":"echo","params":{"a":1}}') is None
    assert ran == [{"a": 1}]
    assert call('{"jsonrpc":"2.0","method":"fail"}') is None


def test_a_batch_is_answered_as_one_list_without_its_invalid_members() -> None:
    batch = [{"jsonrpc": "2.0", "id": 1, "method": "echo"}, 3, {"jsonrpc": "2.0", "id": 2, "method": "fail"}]
    answers = call(json.dumps(batch))
    assert [answer["id"] for answer in answers] == [1, 2]
    assert answers[1]["error"] == {"code": -32602, "message": "no", "data": {"more": 1}}
    assert call('[{"jsonrpc":"2.0","method":"echo"}]') is None


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("{", -32700),
        ("\xff", -32700),
        ("[]", -32600),
        ("3", -32600),
        ('{"id":1,"method":"echo"}', -32600),
        ('{"jsonrpc":"2.0","id":1}', -32600),
    ],
)
def test_what_is_no_request_is_answered_without_an_id(text: str, code: int) -> None:
    answer = dispatcher().handle(text.encode("latin-1"))[0]
    assert isinstance(answer, dict)
    assert (answer["error"]["code"], answer["id"]) == (code, None)


def test_an_unknown_method_is_named() -> None:
    error = call('{"jsonrpc":"2.0","id":1,"method":"nope","params":[1]}')["error"]
    assert error == {"code": -32601, "message": "Method not found: nope"}


def test_what_a_method_throws_is_its_answer() -> None:
    for params, message in (({"list": 3}, "object of type 'int' has no len()"), ({}, "'list'")):
        request = {"jsonrpc": "2.0", "id": 1, "method": "throw", "params": params}
        assert call(json.dumps(request))["error"] == {"code": -32603, "message": message}
