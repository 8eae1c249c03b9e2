"""The example of a web service: runs as server-sent events, and what becomes of a run whose reader leaves."""

from __future__ import annotations

import json
import re
import signal
import socket
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.framework.daemon import Daemon
from tests.framework.examples import LIMIT, Examples, StreamServer, script
from tests.framework.gates import Gate, gate
from tests.framework.waiting import until

from steprail.client import Client
from steprail.v1 import events_pb2, runs_pb2

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("one_loop")]

LOOKS = {"list_tree": {"path": "."}}
TWO_STEPS = script({"text": "a", "calls": [LOOKS]}, {"text": "b", "calls": [LOOKS]}, {"text": "done"})
#: The second reply never comes.
HANGS = script({"text": "a", "calls": [LOOKS]}, {"text": "b", "hang": True})


def held(gate: Gate) -> str:
    """Give a prompt whose second step waits at a gate."""
    waits = {"run_command": {"command": gate.command}}
    return script({"text": "a", "calls": [LOOKS]}, {"text": "b", "calls": [waits]}, {"text": "done"})


def is_free(server: StreamServer) -> bool:
    """Whether a place for a stream is free: who is given one hears that no run begins with so little."""
    answer = server.post({"prompt": ""})
    answer.leave()
    return answer.status == 400


async def ended(daemon: Daemon, run_id: str) -> runs_pb2.Run:
    """Wait for the end of a run."""
    with anyio.fail_after(LIMIT):
        async with Client(daemon.address) as client:
            return await client.follow(run_id)


async def test_a_run_is_streamed_event_by_event_to_its_end(examples: Examples) -> None:
    with examples.serving("--agent", "scripted") as server:
        answer = server.post({"prompt": TWO_STEPS})
        events = list(answer.events())
    assert (answer.status, answer.headers["content-type"]) == (200, "text/event-stream")
    names = [name for name, _ in events]
    assert names.count("step_end") == 2
    assert names[-1] == "agent_end"
    assert events[-1][1]["agent_end"]["state"] == "RUN_STATE_COMPLETED"
    numbers = [int(data["seq"]) for _, data in events]
    assert numbers == sorted(set(numbers))


async def test_events_come_while_the_run_goes_on(daemon: Daemon, examples: Examples) -> None:
    with examples.serving("--agent", "scripted", "--on-disconnect", "abort") as server:
        answer = server.post({"prompt": HANGS})
        event = answer.until("step_end")
        async with Client(daemon.address) as client:
            assert (await client.get_run(event["run_id"])).state == events_pb2.RUN_STATE_RUNNING
        answer.leave()
        assert (await ended(daemon, event["run_id"])).state == events_pb2.RUN_STATE_ABORTED


LEAVING = {
    (): (events_pb2.RUN_STATE_STOPPED, 2),
    ("--on-disconnect", "stop"): (events_pb2.RUN_STATE_STOPPED, 2),
    ("--on-disconnect", "abort"): (events_pb2.RUN_STATE_ABORTED, 1),
    ("--on-disconnect", "detach"): (events_pb2.RUN_STATE_COMPLETED, 2),
}


@pytest.mark.parametrize("options", LEAVING)
async def test_a_run_whose_reader_leaves_ends_as_was_said(
    options: tuple[str, ...], daemon: Daemon, examples: Examples
) -> None:
    with (
        gate(examples.cwd / "gate") as second_step,
        examples.serving("--agent", "scripted", "--streams", "1", *options) as server,
    ):
        answer = server.post({"prompt": held(second_step)})
        run_id = answer.until("step_end")["run_id"]
        answer.leave()
        # The place of a reader who left is free once the daemon was told what becomes of the run.
        await until(lambda: is_free(server))
        second_step.let()
        run = await ended(daemon, run_id)
    assert (run.state, run.step_count) == LEAVING[options]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_service_that_is_ended_stops_what_it_streams(
    number: signal.Signals, daemon: Daemon, examples: Examples
) -> None:
    with gate(examples.cwd / "gate") as second_step, examples.serving("--agent", "scripted") as server:
        run_id = server.post({"prompt": held(second_step)}).until("step_end")["run_id"]
        server.process.send_signal(number)
        assert server.process.communicate(timeout=LIMIT) == ("", "")
        assert server.process.returncode == 0
        second_step.let()
        assert (await ended(daemon, run_id)).state == events_pb2.RUN_STATE_STOPPED


async def test_no_more_streams_than_were_said_are_open_and_a_place_that_is_left_is_free(examples: Examples) -> None:
    with examples.serving("--agent", "scripted", "--streams", "1", "--on-disconnect", "abort") as server:
        first = server.post({"prompt": HANGS})
        first.until("step_end")
        refused = server.post({"prompt": TWO_STEPS})
        assert (refused.status, refused.body()) == (503, {"error": "no more streams are served at one time"})
        first.leave()
        await until(lambda: server.post({"prompt": TWO_STEPS}).status == 200)


NOT_OURS = "accepted is POST /runs, to localhost or 127.0.0.1, of type application/json"
REFUSED: dict[str, tuple[object, dict[str, Any], str]] = {
    "another path": ({"prompt": "x"}, {"first": "POST /other HTTP/1.1"}, NOT_OURS),
    "another method": (b"", {"first": "GET /runs HTTP/1.1"}, NOT_OURS),
    "no HTTP": (b"", {"first": "hello"}, NOT_OURS),
    "a page of another site, which cannot name the type": ({"prompt": "x"}, {"kind": "text/plain"}, NOT_OURS),
    "a page of a site whose name was turned to this machine": ({"prompt": "x"}, {"host": "evil.example"}, NOT_OURS),
    "no JSON": (b"{", {}, "Expecting property name"),
    "deeply nested JSON": (b"[" * 60_000, {}, "recursion"),
    "no prompt": ({"promt": "x"}, {}, 'the body has to be {"prompt": "..."}'),
    "a prompt that is no text": ({"prompt": 1}, {}, 'the body has to be {"prompt": "..."}'),
    "too much": ({"prompt": "x" * 70_000}, {}, "a body may have 65536 bytes"),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_a_request_that_is_not_served_is_told_why_and_the_next_one_is_served(
    name: str, examples: Examples
) -> None:
    body, how, said = REFUSED[name]
    with examples.serving("--agent", "scripted") as server:
        answer = server.post(body, **how)
        assert answer.status == 400
        assert said in answer.body()["error"]
        assert server.post({"prompt": script({"text": "42"})}).until("agent_end")


async def test_a_run_that_the_daemon_refuses_is_told_before_anything_is_streamed(examples: Examples) -> None:
    with examples.serving("--agent", "scripted") as server:
        answer = server.post({"prompt": ""})
        assert answer.status == 400
        assert "PROMPT_INVALID" in answer.body()["error"]


async def test_a_port_that_is_taken_is_one_sentence(examples: Examples) -> None:
    with examples.serving("--agent", "scripted") as server:
        done = examples.run("stream_server", "--agent", "scripted", "--port", str(server.port))
    assert (done.returncode, done.stdout) == (1, "")
    assert "address already in use" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.fixture
def hurried(examples: Examples, tmp_path: Path) -> Examples:
    """The same example with other bounds: seconds to read a request, to write an event, and between signs of life."""
    text = (examples.source / "stream_server.py").read_text()
    for name, seconds in (("READ_SECONDS", "0.5"), ("WRITE_SECONDS", "1"), ("PING_SECONDS", "0.2")):
        text, found = re.subn(rf"^{name} = \d+", f"{name} = {seconds}", text, flags=re.MULTILINE)
        assert found == 1
    (tmp_path / "stream_server.py").write_text(text)
    return Examples(examples.python, examples.environment, examples.cwd, tmp_path)


async def test_a_reader_that_takes_nothing_is_one_that_left(daemon: Daemon, hurried: Examples) -> None:
    # More than the buffers between the two hold, so that it is noticed while the run goes on.
    much = {"run_command": {"command": "head -c 50000 /dev/zero | tr '\\0' x"}}
    replies = [{"text": "more", "calls": [much] * 4} for _ in range(200)]
    (hurried.cwd / "much.yaml").write_text(json.dumps({"turns": [{"replies": replies}]}))
    with hurried.serving("--agent", "scripted", "--on-disconnect", "abort") as server:
        answer = server.post({"prompt": "#!scripted much.yaml"})
        run_id = answer.until("run_state_changed")["run_id"]
        run = await ended(daemon, run_id)
    assert run.state == events_pb2.RUN_STATE_ABORTED


async def test_who_sends_no_request_is_not_waited_for(hurried: Examples) -> None:
    with hurried.serving("--agent", "scripted") as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=LIMIT) as silent:
            silent.sendall(b"POST /runs HTTP/1.1\r\n")
            assert silent.recv(1000) == b""
        assert server.post({"prompt": script({"text": "42"})}).until("agent_end")


async def test_a_stream_of_which_nothing_is_heard_shows_signs_of_life(hurried: Examples) -> None:
    with hurried.serving("--agent", "scripted", "--on-disconnect", "abort") as server:
        answer = server.post({"prompt": HANGS})
        answer.until("step_end")
        assert ": still here" in (answer.line() for _ in range(100))
