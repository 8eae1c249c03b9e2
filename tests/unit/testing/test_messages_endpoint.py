from __future__ import annotations

import http.client
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from steprail_daemon.testing.messages_endpoint import SCRIPTS, MessagesEndpoint, Script, Step, Tool

TOOLS = [{"name": "Bash"}]
PATIENCE = 20.0


def post(port: int, body: dict[str, Any], path: str = "/v1/messages?beta=true") -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        connection.request("POST", path, json.dumps(body))
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def get(port: int, path: str) -> Any:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        connection.request("GET", path)
        return json.loads(connection.getresponse().read())
    finally:
        connection.close()


def ask(port: int, **fields: Any) -> list[dict[str, Any]]:
    """Make a request of the main loop and give the events of its stream."""
    status, text = post(port, {"model": "m", "stream": True, "tools": TOOLS, "messages": [], **fields})
    assert status == 200
    return [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line.startswith("data: ")]


@pytest.fixture
def endpoint() -> Iterator[MessagesEndpoint]:
    call = Tool("Bash", {"command": "ls"}, call_id="toolu_1")
    steps = [Step(thinking="Hm, so.", text="I look.", tools=(call,), usage={"input_tokens": 7}, output_tokens=9)]
    with MessagesEndpoint(Script(steps, then=Step(text="Over."))) as endpoint:
        yield endpoint


def test_a_step_is_streamed_as_the_messages_api_does(endpoint: MessagesEndpoint) -> None:
    events = ask(endpoint.port)
    assert [event["type"] for event in (events[0], events[-2], events[-1])] == [
        "message_start",
        "message_delta",
        "message_stop",
    ]
    assert events[0]["message"]["usage"]["input_tokens"] == 7
    assert events[-2]["delta"]["stop_reason"] == "tool_use"
    assert events[-2]["usage"] == {"output_tokens": 9}
    blocks = [event["content_block"] for event in events if event["type"] == "content_block_start"]
    assert [block["type"] for block in blocks] == ["thinking", "text", "tool_use"]
    assert blocks[2]["id"] == "toolu_1"
    deltas = [event["delta"] for event in events if event["type"] == "content_block_delta"]
    assert "".join(delta.get("thinking", "") for delta in deltas) == "Hm, so."
    assert "".join(delta.get("text", "") for delta in deltas) == "I look."
    assert json.loads("".join(delta.get("partial_json", "") for delta in deltas)) == {"command": "ls"}


def test_a_step_can_be_made_from_the_request_and_some_requests_are_answered_aside() -> None:
    def aside(body: dict[str, Any]) -> Step | None:
        return Step(text="aside") if body["model"] == "other" else None

    script = Script([lambda body: Step(text=f"for {body['model']}"), Step(text="second")], aside=aside)
    with MessagesEndpoint(script) as endpoint:
        texts = []
        for model in ("m", "other", "m"):
            events = ask(endpoint.port, model=model)
            deltas = [event["delta"]["text"] for event in events if event["type"] == "content_block_delta"]
            texts.append("".join(deltas))
        assert texts == ["for m", "aside", "second"]
        assert [request.kind for request in endpoint.requests] == ["main", "aside", "main"]
        assert len(endpoint.main_requests()) == 2


def test_after_the_last_step_the_script_goes_on_as_it_says(endpoint: MessagesEndpoint) -> None:
    ask(endpoint.port)
    events = ask(endpoint.port)
    assert events[-2]["delta"]["stop_reason"] == "end_turn"
    assert "Over." in json.dumps(events)


def test_other_requests_take_no_step_and_are_recorded(endpoint: MessagesEndpoint) -> None:
    assert post(endpoint.port, {"model": "m", "messages": []})[0] == 200
    assert post(endpoint.port, {"messages": []}, "/v1/messages/count_tokens")[0] == 200
    ask(endpoint.port, messages=[{"role": "user", "content": [{"type": "tool_result", "content": "x"}]}])
    assert [request.kind for request in endpoint.requests] == ["side", "other", "main"]
    (main,) = endpoint.main_requests()
    assert main.blocks("tool_result") == [{"type": "tool_result", "content": "x"}]
    endpoint.wait_ended(main, PATIENCE)
    assert main.ended_at is not None
    assert main.ended_at >= main.at
    assert not main.cut


def test_a_refusal_has_its_status_its_headers_and_its_body() -> None:
    refusal = Step(status=429, headers={"retry-after": "3"}, error={"type": "error"})
    with MessagesEndpoint(Script([refusal])) as endpoint:
        connection = http.client.HTTPConnection("127.0.0.1", endpoint.port, timeout=PATIENCE)
        connection.request("POST", "/v1/messages", json.dumps({"stream": True, "tools": TOOLS}))
        response = connection.getresponse()
        assert (response.status, response.headers["retry-after"]) == (429, "3")
        assert json.loads(response.read()) == {"type": "error"}
        connection.close()


def test_a_cut_stream_breaks_off_after_its_events() -> None:
    with MessagesEndpoint(Script([Step(text="a b c", cut_after=3)])) as endpoint:
        with pytest.raises(http.client.IncompleteRead) as broken:
            post(endpoint.port, {"stream": True, "tools": TOOLS})
        assert broken.value.partial.count(b"event: ") == 3


def test_a_wait_for_requests_ends_with_the_one_waited_for_or_says_how_many_came(endpoint: MessagesEndpoint) -> None:
    thread = threading.Thread(target=ask, args=(endpoint.port,))
    thread.start()
    assert endpoint.wait_main(1, PATIENCE).number == 1
    thread.join(PATIENCE)
    with pytest.raises(TimeoutError, match="1 main requests came"):
        endpoint.wait_main(2, 0.05)


def test_closing_does_not_wait_for_a_step_that_takes_its_time() -> None:
    with MessagesEndpoint(Script([Step(start_delay=600.0)])) as endpoint:
        thread = threading.Thread(target=ask, args=(endpoint.port,))
        thread.start()
        endpoint.wait_main(1, PATIENCE)
    thread.join(PATIENCE)
    assert not thread.is_alive()


def test_the_demo_works_with_files_and_ends_in_words() -> None:
    demo = SCRIPTS["demo"]
    steps = [demo.step(number, {}) for number in range(len(demo.steps))]
    assert [bool(step.tools) for step in steps] == [True, True, True, False]


def test_as_a_program_it_tells_its_port_and_its_requests(tmp_path: Path) -> None:
    port_file = tmp_path / "port"
    argv = [sys.executable, "-m", "steprail_daemon.testing.messages_endpoint", "--script=demo"]
    process = subprocess.Popen([*argv, f"--port-file={port_file}"], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        port = json.loads(process.stdout.readline())["port"]
        assert json.loads(port_file.read_text()) == {"port": port}
        assert get(port, "/_steprail/requests") == []
        ask(port, messages=[{"role": "user", "content": "hi"}])
        (shown,) = get(port, "/_steprail/requests")
        assert (shown["kind"], shown["model"], shown["message_count"]) == ("main", "m", 1)
        (whole,) = get(port, "/_steprail/requests?bodies=1")
        assert whole["body"]["messages"] == [{"role": "user", "content": "hi"}]
    finally:
        process.terminate()
        process.wait(PATIENCE)
        assert process.stdout is not None
        process.stdout.close()
