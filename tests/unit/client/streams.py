"""Streams that do what a test tells them, in the form that the client reads."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from itertools import chain, repeat

import grpc
import grpc.aio

Script = Iterable[object]


class FakeStream:
    """Gives what it was told to; an exception is raised, the end of the script is the end of the stream."""

    def __init__(self, script: Script) -> None:
        self._script = iter(script)
        self.cancelled_by_client = False
        self.written: list[object] = []

    async def read(self) -> object:
        answer = next(self._script, grpc.aio.EOF)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    async def write(self, message: object) -> None:
        self.written.append(message)

    def cancel(self) -> bool:
        self.cancelled_by_client = True
        return True

    def cancelled(self) -> bool:
        return self.cancelled_by_client


class Silent(FakeStream):
    """Gives nothing, ever."""

    async def read(self) -> object:
        await asyncio.Event().wait()
        return None


class FakeDaemon:
    """Answers one call after the other, each by its own script."""

    def __init__(self, *scripts: Script, then: Script | None = None) -> None:
        self._scripts = chain(scripts, repeat(then) if then is not None else ())
        self.asked: list[object] = []
        self.streams: list[FakeStream] = []

    def open(self, *asked: object) -> FakeStream:
        self.asked.append(asked[0] if len(asked) == 1 else asked)
        self.streams.append(FakeStream(next(self._scripts)))
        return self.streams[-1]
