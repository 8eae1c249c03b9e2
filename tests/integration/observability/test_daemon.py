"""The built daemon shows what it does: metrics, probes and log lines."""

from __future__ import annotations

import json
import re
import shlex
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.framework.daemon import FAKE_CLAUDE, STEPRAIL, Daemon, short_directory
from tests.framework.metrics import BY_DAEMON, get, moved, samples
from tests.framework.waiting import until

from steprail.client import Client
from steprail_daemon.config.schema import Server

WAIT = 20.0
SECRET = "the secret text"


class Observed(Daemon):
    """A daemon whose side port is on any free port, or where it is told."""

    def __init__(self, root: Path, *, http: str | None = "127.0.0.1:0", **more: str) -> None:
        program = root / "agent"
        super().__init__(root, [str(program)])
        # It leaves a process behind at each start, which the parent process kills and takes the exit of.
        program.write_text(f'#!/bin/sh\n(sleep 600 &)\nexec {shlex.join(FAKE_CLAUDE)} "$@"\n')
        program.chmod(0o700)
        self._more = {"STEPRAIL_SERVER__HTTP": http, **more} if http is not None else more

    @property
    def environment(self) -> dict[str, str]:
        return {**super().environment, **self._more}

    @property
    def url(self) -> str:
        found = re.search(r"metrics and probes on (http://[0-9.]+:\d+)", self.log.read_text())
        assert found, self.log.read_text()
        return found[1]

    def lines(self, event: str) -> list[dict[str, Any]]:
        """Give the lines of the log with a message, as objects."""
        objects = [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]
        return [found for found in objects if found.get("event") == event]

    def metrics(self) -> str:
        status, text = get(f"{self.url}/metrics")
        assert status == 200
        return text

    def value(self, name: str, labels: Mapping[str, str]) -> float | None:
        families = text_string_to_metric_families(self.metrics())
        return samples(families).get((name, frozenset(labels.items())))

    def ready(self) -> tuple[int, list[str]]:
        status, body = get(f"{self.url}/readyz")
        return status, [reason["reason"] for reason in json.loads(body)["reasons"]]


@contextmanager
def observed(http: str | None = "127.0.0.1:0", **more: str) -> Iterator[Observed]:
    """A daemon of one test, not started yet."""
    with short_directory() as directory:
        daemon = Observed(directory, http=http, **more)
        try:
            yield daemon
        finally:
            if daemon.log.exists():
                daemon.stop()


async def one_run(daemon: Observed, **behaviour: object) -> str:
    """Make a session with a run and wait for its end; gives the run's id."""
    async with Client(daemon.address) as client:
        session = await client.create_session("claude", str(daemon.workspace))
        run = await client.start_run(session.session_id, json.dumps({"steps": 2, "text": SECRET, **behaviour}))
        await client.wait_run(run.run_id)
        await client.close_session(session.session_id)
        return run.run_id


@pytest.mark.anyio
async def test_a_run_moves_every_metric_that_only_a_daemon_as_it_is_built_can_move() -> None:
    with observed() as daemon:
        await daemon.start()
        await one_run(daemon)
        await until(lambda: not BY_DAEMON - moved(daemon.metrics()))
        assert daemon.value("steprail_runs_total", {"agent": "claude", "outcome": "completed", "reason": ""}) == 1
        assert daemon.value("steprail_steps_total", {"agent": "claude"}) == 2
        labels = {"agent": "claude", "tool": "Bash", "outcome": "succeeded"}
        assert daemon.value("steprail_tool_calls_total", labels) == 2
        assert daemon.value("steprail_agent_exits_total", {"agent": "claude", "cause": "ended"}) == 1
        started = {"grpc_service": "steprail.v1.RunService", "grpc_method": "StartRun", "grpc_code": "OK"}
        assert daemon.value("grpc_server_handled_total", started) == 1
        assert "fits no declaration" not in daemon.log.read_text()
        assert "could not be counted" not in daemon.log.read_text()


@pytest.mark.anyio
async def test_the_log_has_one_line_for_each_call_and_each_end_of_a_run_and_no_content() -> None:
    with observed() as daemon:
        await daemon.start()
        run_id = await one_run(daemon)
        daemon.stop()
        (ended,) = daemon.lines("run ended")
        assert (ended["run_id"], ended["agent"], ended["outcome"], ended["steps"]) == (run_id, "claude", "completed", 2)
        assert ended["seconds"] >= ended["queued_seconds"] >= 0
        assert ended["output_tokens"] > 0
        (call,) = [line for line in daemon.lines("call") if line["method"].endswith(".StartRun")]
        assert (call["code"], call["identity"]) == ("OK", "local")
        assert (call["session_id"], call["run_id"]) == (ended["session_id"], run_id)
        assert SECRET not in daemon.log.read_text()


@pytest.mark.anyio
async def test_contents_are_in_the_log_if_the_configuration_wants_them() -> None:
    with observed(STEPRAIL_LOGGING__CONTENT="true") as daemon:
        await daemon.start()
        await one_run(daemon)
        daemon.stop()
        (ended,) = daemon.lines("run ended")
        assert ended["text"] == SECRET
        assert SECRET in ended["prompt"]


@pytest.mark.anyio
async def test_a_daemon_that_drains_is_alive_until_its_end_but_takes_no_runs() -> None:
    with observed() as daemon:
        await daemon.start()
        await until(lambda: daemon.ready() == (200, []))
        async with Client(daemon.address) as client:
            session = await client.create_session("claude", str(daemon.workspace))
            await client.start_run(session.session_id, json.dumps({"steps": 1, "tool_ms": 600_000}))
            turn = {"kind": "turn_start"}
            await until(lambda: daemon.value("steprail_events_total", turn) == 1)
            assert daemon._process is not None
            daemon._process.send_signal(signal.SIGTERM)
            await until(lambda: daemon.ready() == (503, ["DRAINING"]))
            assert get(f"{daemon.url}/livez")[0] == 200
            # The second one ends the window.
            daemon._process.send_signal(signal.SIGTERM)
        assert daemon.stop() == 0


@pytest.mark.anyio
async def test_sessions_of_an_earlier_life_are_counted() -> None:
    with observed() as daemon:
        await daemon.start()
        async with Client(daemon.address) as client:
            await client.create_session("claude", str(daemon.workspace))
            idle = {"agent": "claude", "state": "idle"}
            await until(lambda: daemon.value("steprail_sessions", idle) == 1)
        daemon.stop()
        daemon.log.unlink()
        await daemon.start()
        assert daemon.value("steprail_sessions", {"agent": "claude", "state": "suspended"}) == 1


@pytest.mark.anyio
async def test_without_an_address_there_is_no_side_port() -> None:
    with observed(http="") as daemon:
        await daemon.start()
        assert "metrics and probes" not in daemon.log.read_text()


@pytest.mark.anyio
async def test_a_daemon_goes_on_without_when_the_default_port_is_taken() -> None:
    host, port = Server().http.split(":")
    with socket.socket() as taken:
        try:
            taken.bind((host, int(port)))
        except OSError:
            held = False  # another daemon on this machine has it, and may leave it at any moment
        else:
            taken.listen()
            held = True
        with observed(http=None) as daemon:
            await daemon.start()
            log = daemon.log.read_text()
            warned = "no metrics and probes over HTTP: cannot listen on 127.0.0.1:9464: Address already in use" in log
            assert warned or not held
            assert warned != ("metrics and probes on http://127.0.0.1:9464" in log)


def test_a_daemon_whose_configured_port_is_taken_does_not_start_and_says_why() -> None:
    with socket.socket() as taken, short_directory() as directory:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        daemon = Observed(directory, http=address)
        done = subprocess.run(
            [STEPRAIL, "serve"], env=daemon.environment, capture_output=True, text=True, timeout=WAIT, check=False
        )
        assert done.returncode == 78
        assert f"steprail: cannot listen on {address}: Address already in use" in done.stderr
