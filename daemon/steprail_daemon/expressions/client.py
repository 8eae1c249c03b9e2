"""One worker process, as the daemon sees it: requests go in, replies come out, and it may die at any moment."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

import anyio
from google.protobuf.message import DecodeError

from steprail_daemon.core.shutdown import Ladder, parse_ladder
from steprail_daemon.expressions.frames import BadFrame, ReplyReader, frame
from steprail_daemon.expressions.messages import worker_pb2
from steprail_daemon.expressions.ports import ExitStatus, WorkerLauncher, WorkerProcess

#: It keeps nothing, so there is nothing to wait for.
_KILL = parse_ladder(["kill"])
_END = parse_ladder(["eof:1s", "kill"])
#: How long the end may take. It is not cut short by the caller's own end, for nobody else would see to it.
_END_SECONDS = 15.0


class WorkerGone(Exception):
    """The worker died, or says what no worker says. The text words how."""


class Worker:
    """One worker. Made by `start`; one caller at a time.

    A reply that belongs to an earlier request, whose caller left, is passed over.
    """

    def __init__(self) -> None:
        self._process: WorkerProcess | None = None
        self._reader = ReplyReader()
        self._replies: deque[worker_pb2.Reply] = deque()
        self._news = anyio.Event()
        self._gone = ""
        self._request_id = 0

    @classmethod
    async def start(
        cls, launcher: WorkerLauncher, argv: Sequence[str], environment: Mapping[str, str], timeout: float
    ) -> Worker:
        """Start a worker and wait until it can take requests, for `timeout` seconds.

        Raises:
            OSError: it could not be started.
            TimeoutError: it was not ready in time, and was killed.
            WorkerGone: it ended at once.
        """
        worker = cls()
        try:
            with anyio.fail_after(timeout):
                worker._process = await launcher.spawn(argv, environment, "/", worker)
                await worker._next(0)
        except BaseException:
            await worker.kill()
            raise
        return worker

    @property
    def alive(self) -> bool:
        """Whether it can be asked."""
        return not self._gone

    def ask(self, request: worker_pb2.Request) -> None:
        """Send a request, whose id is set here. Replies to earlier ones will be passed over."""
        assert self._process is not None
        self._request_id += 1
        request.id = self._request_id
        self._process.write(frame(request.SerializeToString()))

    async def reply(self, timeout: float) -> worker_pb2.Reply:
        """Wait for the next reply to the latest request, for `timeout` seconds.

        Raises:
            TimeoutError: there was none.
            WorkerGone: there will be none.
        """
        with anyio.fail_after(timeout):
            return await self._next(self._request_id)

    async def kill(self) -> None:
        """End it at once."""
        await self._shut_down(_KILL)

    async def end(self) -> None:
        """End it in order."""
        await self._shut_down(_END)

    async def _shut_down(self, ladder: Ladder) -> None:
        self._lost("it was ended")
        if self._process is not None:
            with anyio.move_on_after(_END_SECONDS, shield=True):
                await self._process.shut_down(ladder)

    async def _next(self, request_id: int) -> worker_pb2.Reply:
        while True:
            while self._replies:
                reply = self._replies.popleft()
                if reply.id == request_id:
                    return reply
            if self._gone:
                raise WorkerGone(self._gone)
            self._news = anyio.Event()
            await self._news.wait()

    # What the process calls

    def on_stdout(self, data: bytes) -> None:
        """Take replies."""
        try:
            self._replies.extend(worker_pb2.Reply.FromString(message) for message in self._reader.feed(data))
        except (BadFrame, DecodeError) as error:
            self._lost(f"it does not speak as it should: {error}")
        self._news.set()

    def on_stdout_eof(self) -> None:
        """Nothing more will come; how it ended is told soon."""

    def on_exit(self, status: ExitStatus) -> None:
        """Take the end."""
        how = f"signal {status.signal}" if status.signal is not None else f"exit code {status.code}"
        self._lost(f"it ended with {how}")

    def _lost(self, how: str) -> None:
        self._gone = self._gone or how
        self._news.set()
