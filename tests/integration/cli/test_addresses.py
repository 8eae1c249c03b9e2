"""What is said where no daemon answers, or another one than was meant."""

import json
import os
import socket
import subprocess
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import grpc
import grpc.aio
import pytest
from tests.framework.daemon import FAKE_CLAUDE, Daemon, short_directory
from tests.framework.waiting import until
from tests.integration.cli.conftest import LIMIT, Steprail, lines_until

from steprail.v1 import agents_pb2, agents_pb2_grpc

ADVICE = "start one with `steprail serve`, or name another address with --address or $STEPRAIL_ADDRESS"


@pytest.fixture
def short() -> Iterator[Path]:
    with short_directory() as directory:
        yield directory


def commands(address: str, directory: Path) -> Steprail:
    return Steprail({**os.environ, "STEPRAIL_ADDRESS": address, "STEPRAIL_STATE_DIR": str(directory / "s")}, directory)


def nothing(directory: Path) -> None:
    """Leave the place empty."""


def file(directory: Path) -> None:
    (directory / "x").touch()


def left_over(directory: Path) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(directory / "x"))


def below_a_file(directory: Path) -> None:
    (directory / "x").touch()
    (directory / "x").rename(directory / "y")
    (directory / "x").symlink_to(directory / "y" / "z")


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (nothing, "there is no such socket"),
        (file, "this is a file of another kind, not a socket"),
        (left_over, "the socket is left over from one that ended"),
        (below_a_file, "a part of the path is no directory"),
    ],
)
def test_why_nothing_listens_on_a_path_is_said(make: Callable[[Path], None], why: str, short: Path) -> None:
    make(short)
    address = f"unix:{short}/x"
    done = commands(address, short).run("runs")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"steprail: no daemon listens on {address} ({why}); {ADVICE}\n"


def test_why_nothing_listens_on_a_port_is_said(short: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
        done = commands(address, short).run("runs")
    said = f"steprail: no daemon listens on {address} (the connection is refused); {ADVICE}\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", said)


def test_a_path_that_is_too_long_for_a_socket_is_told_its_bound(short: Path) -> None:
    done = commands(f"unix:{short}/{'x' * 100}", short).run("agents")
    assert done.returncode == 1
    assert "(a socket's path has at most 107 bytes)" in done.stderr


def test_where_none_can_be_started_none_is(daemon: Daemon, alone: Steprail) -> None:
    path = Path(daemon.address.removeprefix("unix:"))
    path.parent.mkdir()
    path.touch()
    done = alone.run("run", "{}")
    why = "this is a file of another kind, not a socket"
    said = f"steprail: no daemon listens on {daemon.address}, and none can be started there: {why}\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", said)
    assert not daemon.state.exists()


def test_a_state_directory_that_cannot_be_used_is_one_sentence(daemon: Daemon, alone: Steprail) -> None:
    daemon.state.touch()
    done = alone.run("runs")
    assert (done.returncode, done.stdout) == (78, "")
    assert done.stderr.startswith(f"steprail: the state directory {daemon.state} cannot be used: ")
    assert len(done.stderr.splitlines()) == 1


@contextmanager
def serving(path: Path, answer: Callable[[socket.socket], None]) -> Iterator[None]:
    """Let something else than a daemon serve on a socket."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()

        def serve() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                # Who asked may have gone.
                with connection, suppress(OSError):
                    answer(connection)

        server = threading.Thread(target=serve)
        server.start()
        try:
            yield
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            server.join(LIMIT)


def http(connection: socket.socket) -> None:
    connection.recv(1000)
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")


def hang_up(connection: socket.socket) -> None:
    """Say nothing at all."""


@pytest.mark.parametrize(("answer", "why"), [(http, "does not speak gRPC"), (hang_up, "")])
def test_what_is_no_daemon_is_one_sentence(answer: Callable[[socket.socket], None], why: str, short: Path) -> None:
    with serving(short / "x", answer):
        done = commands(f"unix:{short}/x", short).run("runs")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"steprail: no daemon answers at unix:{short}/x (")
    assert why in done.stderr
    assert len(done.stderr.splitlines()) == 1


class Older(agents_pb2_grpc.AgentServiceServicer):
    """A daemon that knows nothing but its version."""

    async def GetServerInfo(  # noqa: N802 - the name is the API's
        self, request: agents_pb2.GetServerInfoRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> agents_pb2.GetServerInfoResponse:
        return agents_pb2.GetServerInfoResponse(server_info=agents_pb2.ServerInfo(version="0.0.7"))

    async def ListAgents(  # noqa: N802 - the name is the API's
        self, request: agents_pb2.ListAgentsRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> agents_pb2.ListAgentsResponse:
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")
        raise AssertionError


@asynccontextmanager
async def older(address: str) -> AsyncIterator[None]:
    server = grpc.aio.server()
    agents_pb2_grpc.add_AgentServiceServicer_to_server(Older(), server)
    server.add_insecure_port(address)
    await server.start()
    try:
        yield
    finally:
        await server.stop(0)


@pytest.mark.anyio
@pytest.mark.parametrize("command", ["runs", "agents"])
async def test_a_call_that_the_daemon_does_not_know_is_told_with_both_versions(command: str, short: Path) -> None:
    address = f"unix:{short}/x"
    async with older(address):
        done = await anyio.to_thread.run_sync(commands(address, short).run, command)
    assert (done.returncode, done.stdout) == (1, "")
    ours = version("steprail-daemon")
    said = f"steprail: the daemon is of version 0.0.7, this program of {ours}: it does not serve this: "
    assert done.stderr.startswith(said)
    assert len(done.stderr.splitlines()) == 1


def test_a_daemon_that_goes_down_says_so_and_still_shows_what_there_is(daemon: Daemon, steprail: Steprail) -> None:
    running = steprail.start("run", json.dumps({"steps": 1, "tool_ms": 600_000}))
    lines_until(running, "  > Bash")
    os.kill(daemon.pid, 15)
    anyio.run(until, lambda: "draining" in daemon.log.read_text(), LIMIT)
    refused = steprail.run("run", "{}")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith("steprail: the daemon goes down; it takes no new runs, and is there again once ")
    assert refused.stderr.rstrip().endswith("(DRAINING)")
    assert "RUNNING" in steprail.run("runs").stdout
    os.kill(daemon.pid, 15)
    stdout, _ = running.communicate(timeout=LIMIT)
    assert running.returncode == 11, stdout


def closed(steprail: Steprail, command: str) -> subprocess.CompletedProcess[str]:
    """Run a command with a shell that closes descriptors."""
    environment = {**steprail.environment, "PATH": f"{Path(FAKE_CLAUDE[0]).parent}:{os.environ['PATH']}"}
    return subprocess.run(
        ["/bin/sh", "-c", command],
        env=environment,
        cwd=steprail.cwd,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )


@pytest.mark.parametrize(
    ("command", "status", "said"),
    [
        ("steprail runs <&- >&- 2>&-", 0, ""),
        ("steprail run '{}' <&- >&-", 0, ""),
        ("steprail show run_nothing 2>&-", 1, ""),
        ("steprail run --ask '{\"steps\": 1}' <&- >/dev/null", 10, "there is no more input"),
        ("steprail run - <&-", 2, "it is to be read from standard input, which is closed"),
        ("printf 'a\\377' | steprail run -", 2, "byte 2 of standard input, 0xff, is no UTF-8 there"),
        ("steprail --help | head -1 >/dev/null", 0, ""),
        ("PYTHONIOENCODING=ascii steprail runs", 0, ""),
        ("PYTHONIOENCODING=ascii steprail runs --json | python3 -c 'import json; json.loads(input())'", 0, ""),
    ],
)
def test_closed_and_odd_standard_streams_end_with_a_status_and_no_traceback(
    command: str, status: int, said: str, shared: Steprail
) -> None:
    shared.run("run", "caf\u00e9 \u2192")
    done = closed(shared, command)
    assert done.returncode == status, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr
