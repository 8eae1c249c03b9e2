"""Packets: what is understood, and how the rest is refused."""

from __future__ import annotations

import contextlib
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steprail_daemon.parent import wire

SPAWN: dict[str, object] = {"type": "spawn", "id": 1, "argv": ["a"], "env": {"A": "b"}, "cwd": "/"}


def test_the_three_requests_are_read() -> None:
    spawn = wire.read_request(wire.encode(SPAWN))
    assert isinstance(spawn, wire.SpawnRequest)
    assert (spawn.id, spawn.argv, spawn.env, spawn.cwd) == (1, ["a"], {"A": "b"}, "/")
    close = wire.read_request(b'{"type":"close_stdin","id":0}')
    assert isinstance(close, wire.CloseRequest)
    sent = wire.read_request(b'{"type":"signal","id":2,"signal":15,"scope":"group"}')
    assert isinstance(sent, wire.SignalRequest)
    assert (sent.id, sent.signal, sent.scope) == (2, 15, "group")


def test_bytes_that_are_not_utf_8_survive() -> None:
    odd = os.fsdecode(b"\xff\xfe/ok")
    spawn = wire.read_request(wire.encode({**SPAWN, "argv": [odd]}))
    assert isinstance(spawn, wire.SpawnRequest)
    assert os.fsencode(spawn.argv[0]) == b"\xff\xfe/ok"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"argv": []}, "argv is wrong"),
        ({"argv": "a"}, "argv is wrong"),
        ({"argv": [""]}, "argv is wrong"),
        ({"argv": ["a\0"]}, "argv is wrong"),
        ({"argv": ["\ud800"]}, "argv is wrong"),
        ({"env": None}, "env is wrong"),
        ({"env": {"A": 1}}, "env is wrong"),
        ({"env": {"": "x"}}, "env has the name ''"),
        ({"env": {"A=": "x"}}, "env has the name 'A='"),
        ({"cwd": "here"}, "cwd is 'here', expected an absolute path"),
        ({"cwd": None}, "cwd is None"),
    ],
)
def test_a_wrong_field_of_a_spawn_is_named_and_can_be_answered(change: dict[str, object], message: str) -> None:
    with pytest.raises(wire.Malformed, match=f"^{message}") as caught:
        wire.read_request(wire.encode({**SPAWN, **change}))
    assert caught.value.request_id == 1


@pytest.mark.parametrize(
    ("packet", "message"),
    [
        (b"", "packet is not JSON"),
        (b"\xff", "packet is not JSON"),
        (b"1", "packet is a JSON int, expected an object"),
        (b"{}", "id is None, expected an integer"),
        (b'{"id":true,"type":"spawn"}', "id is True, expected an integer"),
        (b'{"id":1}', "type is None, expected"),
        (b'{"id":1,"type":"signal","signal":65,"scope":"tree"}', "signal is 65, expected a number from 1 to 64"),
        (b'{"id":1,"type":"signal","signal":9,"scope":[]}', r"scope is \[\], expected one of process, group, tree"),
    ],
)
def test_a_packet_that_is_no_request_is_refused(packet: bytes, message: str) -> None:
    with pytest.raises(wire.Malformed, match=f"^{message}") as caught:
        wire.read_request(packet)
    assert caught.value.request_id is None


def test_a_packet_over_the_limit_is_not_made() -> None:
    with pytest.raises(wire.PacketTooLarge) as caught:
        wire.encode({"x": "y" * wire.MAX_PACKET})
    assert caught.value.limit == wire.MAX_PACKET
    assert caught.value.size > wire.MAX_PACKET


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)


TYPES = st.sampled_from(["spawn", "signal", "close_stdin"])
REQUESTS = st.fixed_dictionaries(
    {"type": TYPES | JSON, "id": st.just(1) | JSON},
    optional={"argv": JSON, "env": JSON, "cwd": JSON, "signal": JSON, "scope": JSON},
)


@given(REQUESTS)
def test_whatever_comes_is_a_request_or_malformed(message: dict[str, object]) -> None:
    packet = wire.encode(message)
    if message["type"] == "close_stdin" and message["id"] == 1 and message["id"] is not True:
        assert isinstance(wire.read_request(packet), wire.CloseRequest)
        return
    with contextlib.suppress(wire.Malformed):
        assert wire.read_request(packet).id == message["id"]


@given(st.binary(max_size=50))
def test_whatever_bytes_come_are_a_request_or_malformed(packet: bytes) -> None:
    with pytest.raises(wire.Malformed):
        wire.read_request(packet)
