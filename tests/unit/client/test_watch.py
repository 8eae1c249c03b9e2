"""A watch over connections that break."""

import asyncio
from collections.abc import Sequence
from itertools import chain, repeat

import grpc
import grpc.aio
import pytest
from tests.unit.client.statuses import rpc_error

from steprail.client import _watch
from steprail.client._watch import Watch
from steprail.errors import ConnectionFailed, NotFound, StepRailError
from steprail.v1 import events_pb2, runs_pb2

pytestmark = pytest.mark.anyio

Script = Sequence[object]


def batch(*seqs: int) -> runs_pb2.WatchRunResponse:
    return runs_pb2.WatchRunResponse(events=[events_pb2.Event(seq=seq) for seq in seqs])


def heartbeat(epoch: str) -> runs_pb2.WatchRunResponse:
    return runs_pb2.WatchRunResponse(heartbeat=events_pb2.Heartbeat(epoch=epoch))


class FakeStream:
    """Gives what it was told to; an exception is raised, the end of the script is the end of the stream."""

    def __init__(self, script: Script) -> None:
        self._script = iter(script)
        self.cancelled = False

    async def read(self) -> object:
        answer = next(self._script, grpc.aio.EOF)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def cancel(self) -> bool:
        self.cancelled = True
        return True


class FakeDaemon:
    """Answers one call after the other, each by its own script."""

    def __init__(self, *scripts: Script, then: Script | None = None) -> None:
        self._scripts = chain(scripts, repeat(then) if then is not None else ())
        self.asked: list[tuple[int, str]] = []
        self.streams: list[FakeStream] = []

    def open_stream(self, after_seq: int, epoch: str) -> FakeStream:
        self.asked.append((after_seq, epoch))
        self.streams.append(FakeStream(next(self._scripts)))
        return self.streams[-1]


UNAVAILABLE = rpc_error(grpc.StatusCode.UNAVAILABLE, "Socket closed")
DRAINING = rpc_error(grpc.StatusCode.UNAVAILABLE, "goes down", reason="DRAINING")
STALLED = rpc_error(grpc.StatusCode.RESOURCE_EXHAUSTED, "slow", reason="READER_STALLED")
FULL = rpc_error(grpc.StatusCode.RESOURCE_EXHAUSTED, "full", reason="QUEUE_FULL")


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_watch, "_FIRST_PAUSE", 0.0)


async def seqs(daemon: FakeDaemon, *, patience: float = 60.0) -> list[int]:
    watch = Watch(daemon.open_stream, "unix:/x", patience=patience)
    return [event.seq async for event in watch.events()]


@pytest.mark.parametrize("lost", [UNAVAILABLE, DRAINING, STALLED])
async def test_it_goes_on_where_a_lost_stream_ended(lost: Exception) -> None:
    daemon = FakeDaemon([heartbeat("e1"), batch(1, 2), batch(3), lost], [heartbeat("e1"), lost], [batch(4)])

    assert await seqs(daemon) == [1, 2, 3, 4]
    assert daemon.asked == [(0, ""), (3, "e1"), (3, "e1")]
    assert all(stream.cancelled for stream in daemon.streams)


@pytest.mark.parametrize("refused", [FULL, rpc_error(grpc.StatusCode.NOT_FOUND, "no run", reason="RUN_NOT_FOUND")])
async def test_what_is_refused_is_not_tried_again(refused: Exception) -> None:
    daemon = FakeDaemon([batch(1), refused])

    with pytest.raises(StepRailError, match=r"QUEUE_FULL|RUN_NOT_FOUND"):
        await seqs(daemon)

    assert len(daemon.asked) == 1
    assert daemon.streams[0].cancelled


async def test_it_gives_up_on_a_daemon_that_does_not_come_back() -> None:
    daemon = FakeDaemon(then=[UNAVAILABLE])

    with pytest.raises(ConnectionFailed, match="unix:/x"):
        await seqs(daemon, patience=0.02)


async def test_a_stream_that_is_silent_for_too_long_is_left_for_another() -> None:
    class Silent(FakeStream):
        async def read(self) -> object:
            await asyncio.Event().wait()
            return None

    daemon = FakeDaemon([], [batch(1)])
    silent = Silent([])

    def open_stream(after_seq: int, epoch: str) -> FakeStream:
        opened = daemon.open_stream(after_seq, epoch)
        return silent if len(daemon.asked) == 1 else opened

    watch = Watch(open_stream, "unix:/x", silence=0.02)

    assert [event.seq async for event in watch.events()] == [1]
    assert silent.cancelled


async def test_a_refusal_keeps_its_class() -> None:
    with pytest.raises(NotFound):
        await seqs(FakeDaemon([rpc_error(grpc.StatusCode.NOT_FOUND, "no run", reason="RUN_NOT_FOUND")]))
