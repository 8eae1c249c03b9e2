"""Calls as they stand in the protocol, where the client has no method of its own or a test wants every field."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

import grpc.aio
import pytest

from steprail import errors
from steprail.v1 import admin_pb2_grpc, runs_pb2_grpc, sessions_pb2_grpc


class Stubs:
    """The services over one channel."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.sessions = sessions_pb2_grpc.SessionServiceStub(channel)
        self.runs = runs_pb2_grpc.RunServiceStub(channel)
        self.admin = admin_pb2_grpc.AdminServiceStub(channel)


async def refused(call: Awaitable[Any]) -> errors.Refused:
    """Give the error of a call that is refused."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    error = errors.from_rpc(caught.value, "the daemon")
    assert isinstance(error, errors.Refused)
    return error
