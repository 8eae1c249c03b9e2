"""A control stream that is asked from the engine's own stack, while its own side sends too."""

from __future__ import annotations

from typing import Any, cast

import anyio
import anyio.lowlevel
import grpc.aio
import pytest
from tests.unit.service.test_calls import Transport

from steprail.v1 import runs_pb2
from steprail_daemon.core.model import OnTimeout, PendingDecision
from steprail_daemon.engine.facade import LOCAL
from steprail_daemon.service.calls import Call
from steprail_daemon.service.control import Conversation
from steprail_daemon.service.request_ids import RequestIds
from steprail_daemon.service.verbs import Verbs
from steprail_daemon.testing.fake_facade import FakeFacade

pytestmark = pytest.mark.anyio
PENDING = PendingDecision("step_1", 1, 0, 2_000_000_000_000_000_000, OnTimeout.STOP)


async def nothing() -> runs_pb2.ControlRunRequest | None:
    return None


async def test_one_message_is_under_way_at_a_time_and_one_question_is_open() -> None:
    facade, transport = FakeFacade(), Transport()
    call = Call(LOCAL, cast("grpc.aio.ServicerContext[Any, Any]", transport), 60_000_000_000)
    stream = Conversation(facade, Verbs(facade, RequestIds(facade)), call, nothing)
    assert stream.can_be_asked()

    stream.ask(PENDING, b"")
    assert not stream.can_be_asked()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stream._send, b"later")
        await anyio.lowlevel.checkpoint()
        (question,) = transport.begun
        asked = runs_pb2.ControlRunResponse.FromString(question).decision_requested
        assert asked.deadline.seconds == 2_000_000_000
        transport.room.set_result(None)
    assert transport.taken == [question, b"later"]
    # Nobody has decided yet.
    assert not stream.can_be_asked()

    stream._asked = ""
    stream._sending = True
    assert not stream.can_be_asked()
