"""What every group of calls stands on: a channel, its stubs, and how an answer is waited for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

import grpc
import grpc.aio

from steprail.client._backoff import Comeback, Lost, Retry
from steprail.client._channel import answer, new_request_id
from steprail.errors import StepRailError
from steprail.v1 import admin_pb2_grpc, agents_pb2_grpc, budgets_pb2_grpc, runs_pb2_grpc, sessions_pb2_grpc

Req = TypeVar("Req")
Rep = TypeVar("Rep")

log = logging.getLogger("steprail.client")

NOT_OPEN = "the client is not open; use it with `async with` (SyncClient: `with`)"


class Stubs:
    """The services over one channel."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.agents = agents_pb2_grpc.AgentServiceStub(channel)
        self.sessions = sessions_pb2_grpc.SessionServiceStub(channel)
        self.runs = runs_pb2_grpc.RunServiceStub(channel)
        self.budgets = budgets_pb2_grpc.BudgetServiceStub(channel)
        self.admin = admin_pb2_grpc.AdminServiceStub(channel)


class Connection:
    """The base of the groups of calls. `address` is the daemon's, times are in seconds."""

    address: str
    timeout: float
    patience: float
    retry: Retry | None
    on_lost: Callable[[Lost], None] | None
    _opened: Stubs | None = None

    @property
    def _stubs(self) -> Stubs:
        if self._opened is None:
            raise RuntimeError(NOT_OPEN)
        return self._opened

    async def _ask(
        self,
        method: grpc.aio.UnaryUnaryMultiCallable[Req, Rep],
        request: Req,
        timeout: float | None = None,
        *,
        creates: bool = False,
    ) -> Rep:
        """Make a call, again with the same request where `retry` says so. `creates`: see `Retry.pause`."""
        attempt = 0
        while True:
            try:
                call = method(request, timeout=self.timeout if timeout is None else timeout)
                return await answer(call, self.address)
            except StepRailError as error:
                attempt += 1
                pause = None if self.retry is None else self.retry.pause(attempt, error, creates=creates)
                if pause is None:
                    raise
                log.info("%s is tried again in %.2f s: %s", type(request).__name__, pause, error)
            await asyncio.sleep(pause)

    async def _pages(self, method: Any, request: Any, field: str) -> AsyncIterator[Any]:
        while True:
            reply = await self._ask(method, request)
            for item in getattr(reply, field):
                yield item
            if not reply.next_page_token:
                return
            request.page_token = reply.next_page_token

    def _comeback(self, stream: str, subject: str = "") -> Comeback:
        return Comeback(stream, subject, self.patience, self.on_lost)


def key(given: str) -> str:
    """Give the request id of a call: the caller's own, or a new one."""
    return given or new_request_id()
