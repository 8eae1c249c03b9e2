"""The worker's end of the control socket against a parent made of a socket: what is asked, and what an answer does."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
import socket
from collections.abc import AsyncIterator, Mapping
from typing import Any

import anyio
import pytest

from steprail_daemon.core.shutdown import parse_ladder
from steprail_daemon.supervisor import AgentProcess, ExitStatus, ParentLink, SpawnFailed
from steprail_daemon.supervisor.status import LinkLost

BOUND = 10.0


class Handlers:
    """Notes what a process tells, in order."""

    def __init__(self) -> None:
        self.told: list[object] = []
        self.exited = asyncio.Event()

    def on_stdout(self, data: bytes) -> None:
        self.told.append(data)

    def on_stdout_eof(self) -> None:
        self.told.append("eof")

    def on_exit(self, status: ExitStatus) -> None:
        self.told.append(status)
        self.exited.set()


class FakeParent:
    """The other end, moved by hand."""

    def __init__(self) -> None:
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(BOUND)
        self.lost = asyncio.Event()
        self.observed: list[tuple[str, float, Mapping[str, str]]] = []
        self.link = ParentLink(
            theirs.detach(),
            asyncio.get_running_loop(),
            on_lost=self.lost.set,
            observe=lambda name, value, labels: self.observed.append((name, value, labels)),
        )
        self.handlers = Handlers()
        self.stdin = self.stdout = self.stderr = -1

    async def asked(self) -> dict[str, Any]:
        """Wait for the next request."""
        with anyio.fail_after(BOUND):
            await anyio.wait_readable(self.socket)
        request: dict[str, Any] = json.loads(self.socket.recv(1 << 21))
        return request

    def tell(self, descriptors: tuple[int, ...] = (), **message: object) -> None:
        socket.send_fds(self.socket, [json.dumps(message).encode()], list(descriptors))

    def spawned(self, request: Mapping[str, Any]) -> None:
        """Answer a spawn with the ends of three pipes, and keep the others."""
        self.stdin, worker_stdin = os.pipe()
        worker_stdout, self.stdout = os.pipe()
        worker_stderr, self.stderr = os.pipe()
        theirs = (worker_stdin, worker_stdout, worker_stderr)
        for descriptor in theirs:
            os.set_blocking(descriptor, False)
        self.tell(theirs, type="spawned", id=request["id"], pid=4711)
        for descriptor in theirs:
            os.close(descriptor)

    async def start(self) -> AgentProcess:
        """Spawn, and answer."""
        results: list[AgentProcess] = []

        async def spawn() -> None:
            results.append(await self.link.spawn(["cli"], {}, "/", self.handlers))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(spawn)
            self.spawned(await self.asked())
        return results[0]

    def exited(self, process_id: int, code: int | None, signum: int | None, leftovers: int = 0) -> None:
        self.tell(type="exited", id=process_id, code=code, signal=signum, leftovers_killed=leftovers, survivors=0)

    def close_pipes(self) -> None:
        os.close(self.stdout)
        os.close(self.stderr)
        self.stdout = self.stderr = -1

    def close(self) -> None:
        self.link.close()
        self.socket.close()
        for descriptor in (self.stdin, self.stdout, self.stderr):
            if descriptor >= 0:
                os.close(descriptor)


@pytest.fixture
async def parent() -> AsyncIterator[FakeParent]:
    fake = FakeParent()
    yield fake
    fake.close()


@pytest.mark.anyio
async def test_a_spawn_asks_and_gives_a_process_that_tells_in_order(parent: FakeParent) -> None:
    process = await parent.start()
    assert process.pid == 4711
    os.write(parent.stdout, b"one")
    os.write(parent.stderr, b"complaint")
    process.write(b"prompt")
    assert os.read(parent.stdin, 100) == b"prompt"
    parent.exited(1, 3, None)
    parent.close_pipes()
    with anyio.fail_after(BOUND):
        await parent.handlers.exited.wait()
    assert parent.handlers.told == [b"one", "eof", ExitStatus(3, None)]
    assert process.stderr_tail == b"complaint"
    assert await process.exited() == ExitStatus(3, None)
    assert parent.link.processes == 0


@pytest.mark.anyio
async def test_no_handler_is_called_before_the_caller_has_the_process(parent: FakeParent) -> None:
    async def answer() -> None:
        parent.spawned(await parent.asked())
        os.write(parent.stdout, b"early")
        parent.exited(1, 0, None)
        parent.close_pipes()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(answer)
        process = await parent.link.spawn(["cli"], {}, "/", parent.handlers)
        assert parent.handlers.told == []
    with anyio.fail_after(BOUND):
        await parent.handlers.exited.wait()
    assert parent.handlers.told == [b"early", "eof", ExitStatus(0, None)]
    assert process.exit_status == ExitStatus(0, None)


@pytest.mark.anyio
async def test_a_failed_start_is_raised_with_its_number_and_message(parent: FakeParent) -> None:
    async def answer() -> None:
        request = await parent.asked()
        assert request == {"type": "spawn", "id": 1, "argv": ["cli"], "env": {"A": "b"}, "cwd": "/work"}
        parent.tell(type="spawn_failed", id=1, errno=errno.ENOENT, message="program 'cli' was not found")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(answer)
        with pytest.raises(SpawnFailed) as caught:
            await parent.link.spawn(["cli"], {"A": "b"}, "/work", parent.handlers)
    assert (caught.value.errno, caught.value.message) == (errno.ENOENT, "program 'cli' was not found")
    assert caught.value.strerror == caught.value.message


@pytest.mark.anyio
async def test_a_start_that_is_answered_too_late_is_killed(parent: FakeParent) -> None:
    with pytest.raises(TimeoutError):
        await parent.link.spawn(["cli"], {}, "/", parent.handlers, timeout=0.0)
    parent.spawned(await parent.asked())
    assert await parent.asked() == {"type": "signal", "id": 1, "signal": 9, "scope": "tree"}
    parent.exited(1, None, 9)
    process = await parent.start()
    assert parent.handlers.told == []
    assert process.exit_status is None


@pytest.mark.anyio
async def test_a_start_cancelled_when_its_answer_is_already_there_is_killed(parent: FakeParent) -> None:
    async with asyncio.TaskGroup() as tasks:
        # As grpc.aio cancels a handler; anyio's scopes let an answer that is there win.
        spawning = tasks.create_task(parent.link.spawn(["cli"], {}, "/", parent.handlers))
        parent.spawned(await parent.asked())
        parent.link._readable()
        spawning.cancel()
    requests = [await parent.asked(), await parent.asked()]
    assert {"type": "signal", "id": 1, "signal": 9, "scope": "tree"} in requests
    assert parent.link.processes == 0
    assert os.read(parent.stdin, 1) == b""
    assert parent.handlers.told == []


@pytest.mark.anyio
async def test_an_answer_without_its_descriptors_is_an_error_and_a_kill(parent: FakeParent) -> None:
    async def answer() -> None:
        request = await parent.asked()
        parent.tell((parent.socket.fileno(),), type="spawned", id=request["id"], pid=4711)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(answer)
        with pytest.raises(SpawnFailed) as caught:
            await parent.link.spawn(["cli"], {}, "/", parent.handlers)
    assert caught.value.errno == errno.EMFILE
    assert (await parent.asked())["signal"] == signal.SIGKILL


@pytest.mark.anyio
async def test_a_request_that_is_too_large_is_an_error_at_once(parent: FakeParent) -> None:
    with pytest.raises(SpawnFailed) as caught:
        await parent.link.spawn(["cli", "x" * (2 << 20)], {}, "/", parent.handlers)
    assert caught.value.errno == errno.E2BIG


@pytest.mark.anyio
async def test_the_parent_s_death_fails_what_waits_and_is_told_once(parent: FakeParent) -> None:
    process = await parent.start()

    async def die() -> None:
        await parent.asked()
        parent.socket.close()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(die)
        with pytest.raises(SpawnFailed) as caught:
            await parent.link.spawn(["cli"], {}, "/", parent.handlers)
    assert caught.value.errno == errno.ECONNRESET
    assert parent.lost.is_set()
    with pytest.raises(LinkLost):
        await process.exited()
    assert process.exit_status is None
    await process.shut_down(parse_ladder(["end:1m", "kill"]))
    with pytest.raises(SpawnFailed):
        await parent.link.spawn(["cli"], {}, "/", parent.handlers)


@pytest.mark.anyio
@pytest.mark.parametrize(("life", "of_earlier_lives"), [(1, [5.0]), (2, [])], ids=["first worker", "later worker"])
async def test_what_the_parent_counts_is_observed_and_what_its_start_killed_once(
    parent: FakeParent, life: int, of_earlier_lives: list[float]
) -> None:
    parent.tell(type="welcome", instance="i", life=life, leftovers_killed=5)
    parent.tell(type="orphans", reaped=7, killed=1)
    process = await parent.start()
    parent.exited(1, 0, None, leftovers=3)
    await process.exited()
    assert (parent.link.life, parent.link.leftovers_killed) == (life, 5)
    assert parent.observed == [
        *[("processes_killed_total", killed, {"signal": "KILL"}) for killed in of_earlier_lives],
        ("orphans_reaped_total", 7, {}),
        ("processes_killed_total", 1, {"signal": "KILL"}),
        ("processes_killed_total", 3, {"signal": "KILL"}),
    ]


@pytest.mark.anyio
async def test_exits_are_waited_for_with_a_bound(parent: FakeParent) -> None:
    process = await parent.start()
    with pytest.raises(TimeoutError):
        await process.exited(timeout=0.0)


@pytest.mark.anyio
async def test_reading_is_bounded_by_read_size(parent: FakeParent) -> None:
    process = await parent.start()
    process.read_size = 2
    os.write(parent.stdout, b"abcde")
    parent.exited(1, 0, None)
    parent.close_pipes()
    with anyio.fail_after(BOUND):
        await parent.handlers.exited.wait()
    assert parent.handlers.told == [b"ab", b"cd", b"e", "eof", ExitStatus(0, None)]


@pytest.mark.anyio
async def test_an_exit_while_reading_is_paused_waits_for_the_reader(parent: FakeParent) -> None:
    process = await parent.start()
    process.pause_reading()
    os.write(parent.stdout, b"kept")
    parent.exited(1, 0, None)
    parent.close_pipes()
    assert await process.exited() == ExitStatus(0, None)
    assert parent.handlers.told == []
    process.resume_reading()
    with anyio.fail_after(BOUND):
        await parent.handlers.exited.wait()
    assert parent.handlers.told == [b"kept", "eof", ExitStatus(0, None)]


@pytest.mark.anyio
async def test_the_parent_s_duplicate_is_closed_with_stdin(parent: FakeParent) -> None:
    process = await parent.start()
    process.write(b"last")
    process.close_stdin()
    process.close_stdin()
    assert await parent.asked() == {"type": "close_stdin", "id": 1}
    assert os.read(parent.stdin, 10) == b"last"
    assert os.read(parent.stdin, 10) == b""


@pytest.mark.anyio
async def test_the_ladder_is_climbed_rung_by_rung(parent: FakeParent) -> None:
    process = await parent.start()
    ladder = parse_ladder(["end:0ms", "eof:0ms", "int:0ms", "term:0ms", "kill"])

    async def obey() -> None:
        asked = [await parent.asked() for _ in range(4)]
        assert [(request["type"], request.get("signal"), request.get("scope")) for request in asked] == [
            ("close_stdin", None, None),
            ("signal", signal.SIGINT, "group"),
            ("signal", signal.SIGTERM, "group"),
            ("signal", signal.SIGKILL, "tree"),
        ]
        parent.exited(1, None, 9)
        parent.close_pipes()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(obey)
        await process.shut_down(ladder, end=lambda: process.write(b"bye"))
    assert os.read(parent.stdin, 10) == b"bye"
    assert parent.handlers.told == ["eof", ExitStatus(None, 9)]
    assert [labels["signal"] for _, _, labels in parent.observed] == ["INT", "TERM", "KILL"]


@pytest.mark.anyio
async def test_a_goodbye_that_fails_stops_nothing_and_is_raised_at_the_end(parent: FakeParent) -> None:
    process = await parent.start()

    def fail() -> None:
        raise RuntimeError("no words")

    async def obey() -> None:
        assert (await parent.asked())["signal"] == signal.SIGKILL
        parent.exited(1, None, 9)
        parent.close_pipes()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(obey)
        with pytest.raises(RuntimeError, match="no words"):
            await process.shut_down(parse_ladder(["end:1m", "kill"]), end=fail)
    assert process.exit_status == ExitStatus(None, 9)


@pytest.mark.anyio
async def test_a_shutdown_is_finished_before_a_cancellation_is_heard(parent: FakeParent) -> None:
    process = await parent.start()

    async def cancel_and_obey(scope: anyio.CancelScope) -> None:
        await parent.asked()
        scope.cancel()
        assert (await parent.asked())["signal"] == signal.SIGKILL
        parent.exited(1, None, 9)
        parent.close_pipes()

    async with anyio.create_task_group() as tasks:
        with anyio.CancelScope() as scope:
            tasks.start_soon(cancel_and_obey, scope)
            await process.shut_down(parse_ladder(["term:50ms", "kill"]))
            assert process.exit_status == ExitStatus(None, 9)
    assert parent.handlers.told == ["eof", ExitStatus(None, 9)]


@pytest.mark.anyio
async def test_a_harsher_shutdown_overtakes_a_gentle_one(parent: FakeParent) -> None:
    process = await parent.start()

    async def obey() -> None:
        assert (await parent.asked())["signal"] == signal.SIGTERM
        tasks.start_soon(process.shut_down, parse_ladder(["kill"]))
        assert (await parent.asked())["signal"] == signal.SIGKILL
        parent.exited(1, None, 9)
        parent.close_pipes()

    with anyio.fail_after(BOUND):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(obey)
            await process.shut_down(parse_ladder(["term:1m", "kill"]))


def test_a_status_reads_well() -> None:
    assert [str(ExitStatus(3, None)), str(ExitStatus(None, 9)), str(ExitStatus(None, 50))] == [
        "exit code 3",
        "signal SIGKILL",
        "signal 50",
    ]
