"""A daemon that breaks every stream after each event, one that is of a newer version, and one that is no daemon."""

from __future__ import annotations

import asyncio
import socket
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import grpc
import grpc.aio
import pytest
from google.protobuf import any_pb2, message_factory
from google.protobuf.descriptor import ServiceDescriptor
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from steprail.client import Client, SyncClient, _backoff
from steprail.errors import CallbackFailed, CallTimeout, ConnectionFailed, StepRailError, Unauthenticated
from steprail.v1 import agents_pb2, decisions_pb2, events_pb2, runs_pb2, steps_pb2

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("one_loop"), pytest.mark.timeout(60)]

LAST = 12
WAIT = 10.0
EPOCH = "e1"
RUNS = runs_pb2.DESCRIPTOR.services_by_name["RunService"]
AGENTS = agents_pb2.DESCRIPTOR.services_by_name["AgentService"]
Context = grpc.aio.ServicerContext[Any, Any]


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_backoff, "_FIRST_PAUSE", 0.001)


class Cutting:
    """Has one run with twelve events, of which each stream gives `at` and then breaks in one of several ways."""

    def __init__(self, at: int = 1) -> None:
        self.at = at
        self.streams = 0
        self.decided: list[tuple[str, int]] = []
        self.asked: list[str] = []
        self.asked_again: defaultdict[int, asyncio.Event] = defaultdict(asyncio.Event)
        self.answers: list[Any] = []

    async def _cut(self, context: Context) -> None:
        self.streams += 1
        kind = self.streams % 3
        if kind == 0:
            await context.abort_with_status(status("DRAINING", grpc.StatusCode.UNAVAILABLE))
        if kind == 1:
            await context.abort_with_status(status("READER_STALLED", grpc.StatusCode.RESOURCE_EXHAUSTED))
        await context.abort(grpc.StatusCode.UNAVAILABLE, "Socket closed")

    def _from(self, after_seq: int, epoch: str) -> list[int]:
        assert epoch == (EPOCH if after_seq else "")
        return list(range(after_seq + 1, LAST + 1))

    async def WatchRun(  # noqa: N802 - gRPC's name
        self, request: runs_pb2.WatchRunRequest, context: Context
    ) -> AsyncIterator[runs_pb2.WatchRunResponse]:
        yield runs_pb2.WatchRunResponse(heartbeat=events_pb2.Heartbeat(epoch=EPOCH))
        left = self._from(request.after_seq, request.epoch)
        for seq in left[: self.at]:
            yield runs_pb2.WatchRunResponse(events=[events_pb2.Event(seq=seq)])
        if len(left) > self.at:
            await self._cut(context)

    async def ControlRun(  # noqa: N802 - gRPC's name
        self, requests: AsyncIterator[runs_pb2.ControlRunRequest], context: Context
    ) -> AsyncIterator[runs_pb2.ControlRunResponse]:
        first = await anext(aiter(requests))
        run = runs_pb2.Run(run_id="run_1", session_id="s")
        yield runs_pb2.ControlRunResponse(opened=runs_pb2.ControlOpened(run=run, epoch=EPOCH))
        if first.events == runs_pb2.CONTROL_EVENTS_NO_EVENTS:
            async for message in self._ask(context):
                yield message
            return
        left = self._from(first.attach.after_seq, first.attach.epoch)
        for seq in left[: self.at]:
            yield runs_pb2.ControlRunResponse(events=events_pb2.EventBatch(events=[events_pb2.Event(seq=seq)]))
        if len(left) > self.at:
            await self._cut(context)
        yield runs_pb2.ControlRunResponse(finished=runs_pb2.ControlFinished(run=run))

    async def _ask(self, context: Context) -> AsyncIterator[runs_pb2.ControlRunResponse]:
        """Ask about the step that waits, and break; the end comes when three were decided."""
        number = len(self.decided) + 1
        if number > 3:
            run = runs_pb2.Run(run_id="run_1", state=events_pb2.RUN_STATE_COMPLETED)
            yield runs_pb2.ControlRunResponse(finished=runs_pb2.ControlFinished(run=run))
            return
        step = steps_pb2.Step(number=number, step_id=f"step_{number}", run_id="run_1")
        if step.step_id in self.asked:
            self.asked_again[number].set()
        self.asked.append(step.step_id)
        yield runs_pb2.ControlRunResponse(decision_requested=runs_pb2.DecisionRequest(step=step))
        await self._cut(context)

    async def StartRun(self, request: runs_pb2.StartRunRequest, _: Context) -> runs_pb2.StartRunResponse:  # noqa: N802
        return runs_pb2.StartRunResponse(run=runs_pb2.Run(run_id="run_1", session_id=request.session_id))

    async def SubmitDecision(  # noqa: N802 - gRPC's name
        self, request: runs_pb2.SubmitDecisionRequest, _: Context
    ) -> runs_pb2.SubmitDecisionResponse:
        self.decided.append((request.step_id, request.action))
        return runs_pb2.SubmitDecisionResponse()


def status(reason: str, code: grpc.StatusCode) -> Any:
    packed = any_pb2.Any()
    packed.Pack(error_details_pb2.ErrorInfo(reason=reason, domain="steprail"))
    return rpc_status.to_status(status_pb2.Status(code=code.value[0], message="cut", details=[packed]))


def implemented(descriptor: ServiceDescriptor, implementation: object) -> grpc.GenericRpcHandler:
    """Serve those methods of a service that an object has."""
    handlers = {}
    for method in descriptor.methods:
        function = getattr(implementation, method.name, None)
        if function is not None:
            kind = f"{_form(method.client_streaming)}_{_form(method.server_streaming)}_rpc_method_handler"
            read = message_factory.GetMessageClass(method.input_type).FromString
            handlers[method.name] = getattr(grpc, kind)(function, read, lambda reply: reply.SerializeToString())
    return grpc.method_handlers_generic_handler(descriptor.full_name, handlers)


def _form(streaming: bool) -> str:
    return "stream" if streaming else "unary"


@asynccontextmanager
async def serving(handler: grpc.GenericRpcHandler) -> AsyncIterator[str]:
    server = grpc.aio.server(handlers=[handler])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(0.2)


@asynccontextmanager
async def runs(implementation: object) -> AsyncIterator[str]:
    async with serving(implemented(RUNS, implementation)) as address:
        yield address


@pytest.mark.parametrize("at", [1, 2, 5, 11, 12])
async def test_streams_that_break_after_each_event_are_one_stream(at: int) -> None:
    for kind in ("watch", "control"):
        servicer = Cutting(at)
        async with runs(servicer) as address, Client(address) as client:
            if kind == "watch":
                seqs = [event.seq async for event in client.watch_run("run_1")]
            else:
                async with client.control(attach="run_1") as stream:
                    seqs = [event.seq async for message in stream for event in message.events.events]
        assert seqs == list(range(1, LAST + 1))
        assert servicer.streams == (LAST - 1) // at


async def test_the_blocking_form_does_so_too() -> None:
    servicer = Cutting(1)
    async with runs(servicer) as address:

        def watch() -> list[int]:
            with SyncClient(address) as client:
                return [event.seq for event in client.watch_run("run_1")]

        assert await anyio.to_thread.run_sync(watch) == list(range(1, LAST + 1))
    assert servicer.streams == LAST - 1


async def test_a_callable_is_asked_once_about_each_step_however_often_the_stream_breaks() -> None:
    servicer = Cutting()
    asked: list[int] = []

    async def decide(step: steps_pb2.Step) -> bool:
        asked.append(step.number)
        # The stream breaks and is taken up while this one thinks.
        with anyio.fail_after(WAIT):
            await servicer.asked_again[step.number].wait()
        return True

    async with runs(servicer) as address, Client(address) as client:
        run = await client.run("go", session="s", decide=decide)

    assert run.state == events_pb2.RUN_STATE_COMPLETED
    assert asked == [1, 2, 3]
    assert servicer.decided == [(f"step_{number}", decisions_pb2.DECISION_ACTION_CONTINUE) for number in (1, 2, 3)]
    assert all(servicer.asked.count(f"step_{number}") > 1 for number in (1, 2, 3))


async def test_a_callable_within_which_something_was_cancelled_is_told_as_failed() -> None:
    servicer = Cutting()

    async def decide(_: steps_pb2.Step) -> bool:
        gone: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        gone.cancel()
        return await gone

    async with runs(servicer) as address, Client(address) as client:
        with pytest.raises(CallbackFailed) as caught:
            await client.run("go", session="s", decide=decide)

    assert isinstance(caught.value.__cause__, asyncio.CancelledError)
    assert [action for _, action in servicer.decided] == [decisions_pb2.DECISION_ACTION_UNSPECIFIED] * 3


class Asking:
    """Asks one question, and ends the run when it is answered."""

    def __init__(self) -> None:
        self.answered = asyncio.Event()
        self.answer = runs_pb2.AnswerQuestionRequest()

    async def StartRun(self, request: runs_pb2.StartRunRequest, _: Context) -> runs_pb2.StartRunResponse:  # noqa: N802
        return runs_pb2.StartRunResponse(run=runs_pb2.Run(run_id="run_1", session_id=request.session_id))

    async def ControlRun(  # noqa: N802 - gRPC's name
        self, _: AsyncIterator[runs_pb2.ControlRunRequest], _context: Context
    ) -> AsyncIterator[runs_pb2.ControlRunResponse]:
        yield runs_pb2.ControlRunResponse(opened=runs_pb2.ControlOpened(run=runs_pb2.Run(run_id="run_1")))
        options = [decisions_pb2.QuestionOption(option_id="o1", label="red")]
        items = [decisions_pb2.QuestionItem(item_id="i1", text="Which colour?", options=options)]
        question = decisions_pb2.Question(question_id="q1", run_id="run_1", items=items)
        yield runs_pb2.ControlRunResponse(question_requested=events_pb2.QuestionRequested(question=question))
        await asyncio.wait_for(self.answered.wait(), 10)
        yield runs_pb2.ControlRunResponse(finished=runs_pb2.ControlFinished(run=runs_pb2.Run(run_id="run_1")))

    async def AnswerQuestion(  # noqa: N802 - gRPC's name
        self, request: runs_pb2.AnswerQuestionRequest, _: Context
    ) -> runs_pb2.AnswerQuestionResponse:
        self.answer = request
        self.answered.set()
        return runs_pb2.AnswerQuestionResponse()


async def test_a_question_is_put_to_its_callable_and_answered_by_what_it_shows() -> None:
    servicer = Asking()
    heard: list[str] = []

    def questions(question: decisions_pb2.Question) -> str:
        heard.extend(item.text for item in question.items)
        return "red"

    async with runs(servicer) as address, Client(address) as client:
        await client.run("go", session="s", questions=questions)

    assert heard == ["Which colour?"]
    assert (servicer.answer.question_id, list(servicer.answer.answers[0].option_ids)) == ("q1", ["o1"])
    assert servicer.answer.request_id


class Newer(grpc.GenericRpcHandler):
    """Answers GetRun and WatchRun with states, bodies and fields that this client has never heard of."""

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        unknown_field = b"\xfa\x7f\x03new"  # field 2047, text
        if details.method.endswith("GetRun"):
            run = runs_pb2.Run(run_id="run_1").SerializeToString() + b"\x28\x63" + unknown_field  # state 99
            reply = b"\x0a" + bytes([len(run)]) + run + unknown_field

            async def get(_: bytes, _context: Any) -> bytes:
                return reply

            return grpc.unary_unary_rpc_method_handler(get)

        async def watch(_: bytes, _context: Any) -> AsyncIterator[bytes]:
            event = events_pb2.Event(seq=1).SerializeToString() + unknown_field
            yield b"\x0a" + bytes([len(event)]) + event + unknown_field

        return grpc.unary_stream_rpc_method_handler(watch)


async def test_what_a_newer_daemon_says_is_passed_over_and_kept() -> None:
    async with (
        serving(Newer()) as address,
        Client(address) as client,
    ):
        run = await client.get_run("run_1")
        (event,) = [event async for event in client.watch_run("run_1")]

    assert (run.run_id, run.state) == ("run_1", 99)
    assert (event.seq, event.WhichOneof("body")) == (1, None)
    assert b"new" in run.SerializeToString()


class Hanging:
    async def GetServerInfo(self, _: Any, _context: Context) -> Any:  # noqa: N802 - gRPC's name
        await asyncio.sleep(30)


async def test_a_call_obeys_a_scope_of_anyio_and_its_own_bound() -> None:
    async with (
        serving(implemented(AGENTS, Hanging())) as address,
        Client(address, timeout=10) as client,
    ):
        with anyio.move_on_after(0.1) as scope:
            await client.get_server_info()
        assert scope.cancelled_caught
        with pytest.raises(CallTimeout, match="did not answer in time"):
            await client.with_options(timeout=0.1).get_server_info()


class Guarded:
    async def GetServerInfo(self, _: Any, context: Context) -> Any:  # noqa: N802 - gRPC's name
        await context.abort_with_status(status("TOKEN_INVALID", grpc.StatusCode.UNAUTHENTICATED))


async def test_a_wrong_token_is_an_error_that_says_where_the_token_came_from() -> None:
    async with (
        serving(implemented(AGENTS, Guarded())) as address,
        Client(address, token="t" * 20) as client,
    ):
        with pytest.raises(Unauthenticated, match="TOKEN_INVALID") as caught:
            await client.get_server_info()
    assert "STEPRAIL_TOKEN_FILE" in str(caught.value)


async def test_what_listens_and_is_no_daemon_is_told_apart() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, family=socket.AF_INET)
    port = server.sockets[0].getsockname()[1]
    try:
        async with Client(f"127.0.0.1:{port}", timeout=5) as client:
            with pytest.raises(StepRailError) as caught:
                await client.get_server_info()
    finally:
        server.close()
    assert isinstance(caught.value, ConnectionFailed)
    assert "does not speak gRPC" in str(caught.value)
