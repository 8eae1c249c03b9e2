"""The side port over a real socket: what it answers, and that nobody can hold it up."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
from tests.framework.metrics import get

from steprail_daemon.observability.pulse import LIVE_SECONDS, Health
from steprail_daemon.observability.registry import Registry
from steprail_daemon.observability.side_port import MOST_REQUESTS, REQUEST_SECONDS, SidePort
from steprail_daemon.observability.watch import Observatory

WAIT = 10.0


class Stand:
    """A port on loopback before a health whose time is set by hand."""

    def __init__(self, request_seconds: float = REQUEST_SECONDS) -> None:
        self.seconds = 0.0
        self.refusal = ""
        self.health = Health(lambda: self.seconds, lambda _: self.refusal)
        self.health.started = True
        self.registry = Registry(agents=["claude"], tools=[], complain=lambda _: None)
        self.port = SidePort("127.0.0.1:0", self.health, self.registry.prometheus, request_seconds=request_seconds)
        self.number = int(self.port.url.rpartition(":")[2])

    def get(self, path: str) -> tuple[int, str]:
        return get(self.port.url + path)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.number), WAIT)


@pytest.fixture
def stand() -> Iterator[Stand]:
    made = Stand()
    yield made
    made.port.close()


def test_a_scrape_sees_what_was_observed_a_moment_ago_and_the_process(stand: Stand) -> None:
    stand.registry.observe("steps_total", 3, {"agent": "claude"})
    status, text = stand.get("/metrics")
    assert status == 200
    assert 'steprail_steps_total{agent="claude"} 3.0' in text
    assert "process_resident_memory_bytes" in text


def test_probes_answer_200_while_all_is_well(stand: Stand) -> None:
    assert stand.get("/livez")[0] == 200
    status, body = stand.get("/readyz")
    assert (status, json.loads(body)) == (200, {"ready": True, "reasons": []})


def test_a_daemon_that_drains_is_alive_and_says_why_it_is_not_ready(stand: Stand) -> None:
    stand.health.draining = True
    assert stand.get("/livez")[0] == 200
    status, body = stand.get("/readyz")
    assert (status, [reason["reason"] for reason in json.loads(body)["reasons"]]) == (503, ["DRAINING"])


def test_a_loop_that_does_not_turn_is_not_alive(stand: Stand) -> None:
    stand.seconds = LIVE_SECONDS + 5
    status, body = stand.get("/livez")
    assert (status, json.loads(body)) == (503, {"live": False, "silent_seconds": LIVE_SECONDS + 5})
    assert stand.get("/readyz")[0] == 503


def test_a_probe_is_answered_while_the_main_thread_computes_without_a_pause(stand: Stand) -> None:
    with ThreadPoolExecutor(1) as pool:
        probe = pool.submit(stand.get, "/livez")
        deadline = time.monotonic() + WAIT
        while not probe.done():
            assert time.monotonic() < deadline
        assert probe.result()[0] == 200


def test_another_path_is_not_found_and_other_methods_are_not_served(stand: Stand) -> None:
    assert stand.get("/")[0] == 404
    with stand.connect() as client:
        client.sendall(b"POST /metrics HTTP/1.0\r\n\r\n")
        assert client.makefile("rb").readline().split()[1] == b"501"
    with stand.connect() as client:
        client.sendall(b"HEAD /livez HTTP/1.0\r\n\r\n")
        assert client.makefile("rb").read().split(b"\r\n\r\n")[1] == b""


def test_more_requests_than_it_has_threads_for_are_refused_at_once(stand: Stand) -> None:
    with ExitStack() as stack:
        idle = [stack.enter_context(stand.connect()) for _ in range(MOST_REQUESTS)]
        for client in idle:
            client.sendall(b"GET /livez")
        late = stack.enter_context(stand.connect())
        assert late.makefile("rb").readline().split()[1] == b"503"


def test_those_who_only_stay_connected_do_not_keep_a_probe_out(stand: Stand) -> None:
    with ExitStack() as stack:
        idle = [stack.enter_context(stand.connect()) for _ in range(MOST_REQUESTS)]
        for client in idle:
            client.sendall(b"GET /livez")
        deadline = time.monotonic() + WAIT
        while stand.get("/livez")[0] != 200:
            assert time.monotonic() < deadline
        assert idle[0].recv(1) == b""


def test_a_request_that_takes_too_long_is_cut_off() -> None:
    stand = Stand(request_seconds=0.1)
    try:
        with stand.connect() as client:
            client.sendall(b"GET /livez")
            assert client.recv(1) == b""
        assert stand.get("/livez")[0] == 200
    finally:
        stand.port.close()


def test_a_port_that_is_taken_is_told_with_its_address(stand: Stand) -> None:
    with pytest.raises(OSError, match=rf"^cannot listen on 127\.0\.0\.1:{stand.number}: Address already in use$"):
        SidePort(f"127.0.0.1:{stand.number}", stand.health, stand.registry.prometheus)


@pytest.mark.parametrize("required", [True, False])
def test_a_taken_port_is_an_error_where_it_was_asked_for_and_else_a_warning(
    stand: Stand, caplog: pytest.LogCaptureFixture, required: bool
) -> None:
    observatory = Observatory(version="1", agents=[], tools=[], label_keys=[], content=False, kinds={}, numbers={})
    address = f"127.0.0.1:{stand.number}"
    if required:
        with pytest.raises(OSError, match="Address already in use"):
            observatory.listen(address, required=True)
    else:
        observatory.listen(address, required=False)
        assert f"no metrics and probes over HTTP: cannot listen on {address}" in caplog.text
    observatory.close()


def test_it_can_listen_on_an_address_of_ipv6(stand: Stand) -> None:
    other = SidePort("[::1]:0", stand.health, stand.registry.prometheus)
    try:
        assert get(other.url + "/livez")[0] == 200
    finally:
        other.close()


def test_after_its_end_nobody_listens(stand: Stand) -> None:
    other = SidePort("127.0.0.1:0", stand.health, stand.registry.prometheus)
    other.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", int(other.url.rpartition(":")[2])), WAIT)
