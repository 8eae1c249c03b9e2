"""An open conversation about one run: what happens comes, decisions go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Any

import grpc
import grpc.aio

from steprail.client import _messages as messages
from steprail.client._backoff import Comeback, comes_back
from steprail.client._channel import new_request_id
from steprail.client._watch import SILENCE_SECONDS, read
from steprail.errors import CallTimeout, ConnectionFailed, StepRailError, from_rpc
from steprail.v1 import decisions_pb2, runs_pb2

#: Messages that are kept until the daemon shows that it has them.
_MAX_UNCONFIRMED = 64


class Control:
    """A ControlRun stream. Use it with `async with`; iterate over it for what the daemon sends, `finished` last.

    Losing or leaving it never ends the run. A stream that is lost is taken up again where it ended: no event is missing
    or comes twice, what waits is asked once, and what was sent and perhaps not received is sent again under its request
    id. A message that the daemon refuses comes back as `rejected`.
    """

    def __init__(
        self,
        open_call: Callable[[], Any],
        first: runs_pb2.ControlRunRequest,
        address: str,
        timeout: float,
        comeback: Comeback,
        *,
        silence: float = SILENCE_SECONDS,
    ) -> None:
        self._open_call = open_call
        self._first = first
        self._address = address
        self._timeout = timeout
        self._comeback = comeback
        self._silence = silence
        self._writing = asyncio.Lock()
        self._call: Any = None
        self._over = False
        self._after_seq = first.attach.after_seq
        self._epoch = first.attach.epoch
        #: Ids of steps, permissions and questions that were asked about.
        self._asked: set[str] = set()
        #: What was sent and is not known to have come, by request id.
        self._unconfirmed: dict[str, runs_pb2.ControlRunRequest] = {}
        self._opened = runs_pb2.ControlOpened()

    @property
    def opened(self) -> runs_pb2.ControlOpened:
        """What the daemon said when it opened the stream, the last one where it was taken up again."""
        return self._opened

    @property
    def run_id(self) -> str:
        """The run that this is about."""
        return self._opened.run.run_id

    async def __aenter__(self) -> Control:
        """Open the conversation. That is tried once: what starts a run must not start two.

        Raises:
            StepRailError: it was refused, or not answered in time.
        """
        await self._open(self._first)
        self._comeback.answered()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave; the run goes on."""
        self._over = True
        self._leave()

    async def __aiter__(self) -> AsyncIterator[runs_pb2.ControlRunResponse]:
        """Give what the daemon sends until the run has ended.

        Raises:
            StepRailError: the daemon did not come back, or the place in the sequence is no more; the run goes on.
        """
        while (message := await self._next()) is not None:
            if self._is_new(message):
                yield message

    async def decide(
        self,
        step_id: str,
        action: decisions_pb2.DecisionAction.ValueType = decisions_pb2.DECISION_ACTION_UNSPECIFIED,
        *,
        guidance: str = "",
        model: str = "",
        reason: str = "",
        error: str = "",
    ) -> None:
        """Send a decision about a step, or with `error` alone that none could be made.

        With CONTINUE, `guidance` is text that the model gets with its next step, `model` the one from then on.
        """
        body = runs_pb2.SubmitDecisionRequest(
            step_id=step_id, action=action, guidance=guidance, model=model, reason=reason, error=error
        )
        await self._say(runs_pb2.ControlRunRequest(decision=body))

    async def answer_permission(
        self,
        permission_id: str,
        answer: decisions_pb2.PermissionAnswer.ValueType | None = None,
        *,
        command: str | None = None,
        arguments_json: str | None = None,
        reason: str = "",
    ) -> None:
        """Send an answer to a permission, or with `command` or `arguments_json` what is to be done instead."""
        body = messages.permission_answer(
            permission_id, answer, command=command, arguments_json=arguments_json, reason=reason
        )
        await self._say(runs_pb2.ControlRunRequest(permission_answer=body))

    async def answer_question(
        self, question_id: str, answers: list[decisions_pb2.QuestionItemAnswer] | None = None
    ) -> None:
        """Send the answers to a question, one for each item; without any the question is declined."""
        body = messages.question_answer(question_id, answers)
        await self._say(runs_pb2.ControlRunRequest(question_answer=body))

    async def stop(self, reason: str = "") -> None:
        """Ask for a stop at the next boundary."""
        await self._say(runs_pb2.ControlRunRequest(stop=runs_pb2.StopRunRequest(reason=reason)))

    async def steer(self, text: str) -> None:
        """Give text to the running turn."""
        await self._say(runs_pb2.ControlRunRequest(steer=runs_pb2.SteerRunRequest(text=text)))

    async def abort(self, reason: str = "") -> None:
        """Cut the run off."""
        await self._say(runs_pb2.ControlRunRequest(abort=runs_pb2.AbortRunRequest(reason=reason)))

    # --- the stream, and the next one ---

    async def _open(self, first: runs_pb2.ControlRunRequest) -> None:
        self._call = self._open_call()
        try:
            async with asyncio.timeout(self._timeout):
                await self._send(first)
                message = await read(self._call, self._address, None)
        except TimeoutError:
            self._leave()
            raise CallTimeout(f"the daemon at {self._address} did not answer in {self._timeout:g} s") from None
        except BaseException:
            self._leave()
            raise
        if message is None or message.WhichOneof("body") != "opened":
            self._leave()
            raise StepRailError(f"the daemon at {self._address} did not open the conversation")
        self._opened = message.opened
        self._epoch = message.opened.epoch

    async def _next(self) -> runs_pb2.ControlRunResponse | None:
        while True:
            try:
                message: runs_pb2.ControlRunResponse | None = await read(self._call, self._address, self._silence)
            except StepRailError as error:
                await self._take_up(error)
                continue
            self._comeback.answered()
            if message is None and not self._over:
                await self._take_up(ConnectionFailed(self._address, "the stream ended before the run did"))
                continue
            return message

    async def _take_up(self, error: StepRailError) -> None:
        """Open the next stream where the last one ended."""
        self._leave()
        if self._over:
            raise error
        while True:
            await self._comeback.after(error)
            try:
                await self._open(self._attach())
                for message in list(self._unconfirmed.values()):
                    await self._send(message)
            except StepRailError as again:
                error = again if not isinstance(again, CallTimeout) else ConnectionFailed(self._address, str(again))
            else:
                return

    def _attach(self) -> runs_pb2.ControlRunRequest:
        attach = runs_pb2.AttachRun(run_id=self.run_id)
        if self._after_seq and self._first.events != runs_pb2.CONTROL_EVENTS_NO_EVENTS:
            attach.after_seq, attach.epoch = self._after_seq, self._epoch
        return runs_pb2.ControlRunRequest(
            attach=attach, decide=self._first.decide, events=self._first.events, request_id=new_request_id()
        )

    def _leave(self) -> None:
        # A call that is only dropped is never collected (grpc/grpc#43462).
        if self._call is not None:
            self._call.cancel()

    # --- what comes ---

    def _is_new(self, message: runs_pb2.ControlRunResponse) -> bool:
        """Note what a message tells of the place and of what was sent; false if the reader has had it."""
        body = message.WhichOneof("body")
        if body == "events":
            return self._note_events(message)
        if body in ("decision_requested", "permission_requested", "question_requested"):
            asked = messages.asked_id(message)
            if asked in self._asked:
                return False
            self._asked.add(asked)
        elif body == "decision_recorded":
            self._confirm(message.decision_recorded.step_id)
        elif body == "rejected":
            self._unconfirmed.pop(message.rejected.request_id, None)
        elif body == "finished":
            self._over = True
        return True

    def _note_events(self, message: runs_pb2.ControlRunResponse) -> bool:
        batch = message.events
        fresh = [event for event in batch.events if event.seq > self._after_seq]
        if len(fresh) < len(batch.events):
            kept = runs_pb2.ControlRunResponse()
            kept.events.events.extend(fresh)
            message.CopyFrom(kept)
        for event in fresh:
            self._after_seq = event.seq
            kind = event.WhichOneof("body")
            if kind == "permission_resolved":
                self._confirm(event.permission_resolved.permission_id)
            elif kind == "question_resolved":
                self._confirm(event.question_resolved.question_id)
        return bool(fresh) or batch.HasField("heartbeat")

    def _confirm(self, asked_id: str) -> None:
        """Keep no answer any more to what was settled."""
        for request_id in [key for key, sent in self._unconfirmed.items() if messages.answered_id(sent) == asked_id]:
            del self._unconfirmed[request_id]

    # --- what goes ---

    async def _say(self, request: runs_pb2.ControlRunRequest) -> None:
        """Send a message; one that does not get through is sent when the stream is taken up again."""
        if self._over:
            raise StepRailError("the conversation has ended; nothing can be sent any more")
        request.request_id = new_request_id()
        self._unconfirmed[request.request_id] = request
        if len(self._unconfirmed) > _MAX_UNCONFIRMED:
            del self._unconfirmed[next(iter(self._unconfirmed))]
        try:
            await self._send(request)
        except StepRailError as error:
            if not comes_back(error):
                raise

    async def _send(self, request: runs_pb2.ControlRunRequest) -> None:
        if not request.request_id:
            request.request_id = new_request_id()
        try:
            async with self._writing:
                await self._call.write(request)
        except grpc.RpcError as error:
            raise from_rpc(error, self._address) from None
        except asyncio.InvalidStateError:
            raise ConnectionFailed(self._address, "the stream has ended") from None
        except asyncio.CancelledError:
            # gRPC raises it here too for a call that was left for the next one meanwhile.
            if self._call.cancelled() and not _is_cancelled():
                raise ConnectionFailed(self._address, "the stream was left") from None
            raise


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
