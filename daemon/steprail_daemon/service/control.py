"""ControlRun: one stream that starts a run, follows it, and decides about it.

Two sides share the stream: one reads the client's messages, the other sends what happens. Losing it never ends the run.
Where no events are wanted, a question is also sent from the engine's own stack, if the stream is free then.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import anyio

from steprail.v1 import events_pb2, runs_pb2
from steprail_daemon.core.errors import StepRailError
from steprail_daemon.core.model import PendingDecision
from steprail_daemon.engine.facade import Caller, Facade, Slice
from steprail_daemon.service import checks, entries, resources
from steprail_daemon.service.calls import Call, Disconnected
from steprail_daemon.service.control_asks import Asks
from steprail_daemon.service.errors import rejection
from steprail_daemon.service.kinds import KIND_NUMBERS
from steprail_daemon.service.streams import Watch, check_cursor, parts
from steprail_daemon.service.verbs import Verbs
from steprail_daemon.service.wire import delimited

_Request = runs_pb2.ControlRunRequest
_Response = runs_pb2.ControlRunResponse
#: Bodies that are about a run.
_B = TypeVar(
    "_B",
    runs_pb2.SubmitDecisionRequest,
    runs_pb2.AnswerPermissionRequest,
    runs_pb2.AnswerQuestionRequest,
    runs_pb2.StopRunRequest,
    runs_pb2.SteerRunRequest,
    runs_pb2.AbortRunRequest,
)
_Body = (
    runs_pb2.StartRunRequest
    | runs_pb2.ContinueRunRequest
    | runs_pb2.SubmitDecisionRequest
    | runs_pb2.AnswerPermissionRequest
    | runs_pb2.AnswerQuestionRequest
    | runs_pb2.StopRunRequest
    | runs_pb2.SteerRunRequest
    | runs_pb2.AbortRunRequest
)

_STEP_END: Final = KIND_NUMBERS["step_end"]
_DECISION_REQUESTED: Final = KIND_NUMBERS["decision_requested"]
_DECISION_RECORDED: Final = KIND_NUMBERS["decision_recorded"]
_PERMISSION_REQUESTED: Final = KIND_NUMBERS["permission_requested"]
_QUESTION_REQUESTED: Final = KIND_NUMBERS["question_requested"]
#: Complete steps, decisions and changes of state.
_STEPS_KINDS: Final = frozenset(
    KIND_NUMBERS[name]
    for name in (
        "session_state_changed",
        "run_state_changed",
        "capabilities_changed",
        "agent_end",
        "step_end",
        "decision_requested",
        "decision_recorded",
    )
)
#: Tags of fields of `ControlRunResponse`.
_EVENTS: Final = b"\x12"
_REQUESTED: Final = b"\x1a"
_RECORDED: Final = b"\x22"
_NO_EVENTS: Final = runs_pb2.CONTROL_EVENTS_NO_EVENTS
_OPENERS: Final = ("start", "continue_run", "attach")


class Conversation:
    """One ControlRun stream."""

    def __init__(
        self, facade: Facade, verbs: Verbs, call: Call, receive: Callable[[], Awaitable[_Request | None]]
    ) -> None:
        self._facade = facade
        self._verbs = verbs
        self._call = call
        self._caller = call.caller
        self._receive = receive
        self._failure: Exception | None = None
        self._run_id = ""
        self._events: int = runs_pb2.CONTROL_EVENTS_ALL
        #: Takes back that the client decides.
        self._leave: Callable[[], None] = _nothing
        #: The step that the client was last asked about and has not been told the decision of.
        self._asked = ""
        #: What is done about a run, by body of a message, beside decisions.
        self._others: Final[dict[str, Callable[[Any, Caller], object]]] = {
            "permission_answer": verbs.answer_permission,
            "question_answer": verbs.answer_question,
            "stop": verbs.stop,
            "steer": verbs.steer,
            "abort": verbs.abort,
        }
        self._asks = Asks(facade, call.caller, self._send)
        self._sending = False
        #: What somebody waits for who wants to send meanwhile.
        self._sent: anyio.Event | None = None

    async def hold(self) -> None:
        """Hold the conversation until the run has ended.

        Raises:
            StepRailError: the opening was refused, or a message is malformed.
            Disconnected: the client is gone.
        """
        first = await self._first()
        watch = await self._open(first)
        self._call.refine = watch.stalled
        try:
            if first.decide:
                self._leave = self._facade.register_decider(self._caller, self._run_id)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._guarded, self._listen, tasks.cancel_scope)
                await self._guarded(lambda: self._tell(watch, decide=first.decide), tasks.cancel_scope)
                tasks.cancel_scope.cancel()
        finally:
            watch.close()
            self._leave()
        if self._failure is not None:
            raise self._failure

    async def _guarded(self, side: Callable[[], Awaitable[None]], scope: anyio.CancelScope) -> None:
        """Run one side; what ends the stream ends the other side too."""
        try:
            await side()
        except (StepRailError, Disconnected) as error:
            self._failure = self._failure or error
            scope.cancel()

    # --- opening ----------------------------------------------------------------------------------------------------

    async def _first(self) -> _Request:
        seconds = self._facade.limits().stalled_reader_ns / 1e9
        problem = "is required first: start, continue_run or attach"
        try:
            with anyio.fail_after(seconds):
                first = await self._receive()
        except TimeoutError:
            raise checks.invalid("body", f"{problem}; nothing came in {seconds:g} s") from None
        if first is None:
            raise checks.invalid("body", problem)
        return first

    async def _open(self, first: _Request) -> Watch:
        body = first.WhichOneof("body")
        if body not in _OPENERS:
            raise checks.invalid("body", f"is {body or 'empty'}; the first message is start, continue_run or attach")
        if first.events not in runs_pb2.ControlEvents.values():
            raise checks.invalid(
                "events", f"is {first.events}; accepted are {', '.join(runs_pb2.ControlEvents.keys())}"
            )
        self._events = first.events or runs_pb2.CONTROL_EVENTS_ALL
        after_seq, epoch = 0, ""
        if body == "attach":
            self._run_id, after_seq, epoch = first.attach.run_id, first.attach.after_seq, first.attach.epoch
            check_cursor(after_seq, epoch)
        elif body == "start":
            take_request_id(first, first.start)
            self._run_id = await self._verbs.start(first.start, self._caller)
        else:
            take_request_id(first, first.continue_run)
            self._run_id = await self._verbs.continue_run(first.continue_run, self._caller)
        session = self._facade.get_session(self._caller, self._facade.get_run(self._caller, self._run_id).session_id)
        if self._events == _NO_EVENTS:
            after_seq, epoch = session.last_seq, session.epoch
        subscription = self._facade.watch_run(self._caller, self._run_id, after_seq, epoch)
        return Watch(self._facade, self._caller, session, subscription, self._run_id)

    # --- what the client says ---------------------------------------------------------------------------------------

    async def _listen(self) -> None:
        """Act on the client's messages. One that only sends no more stays."""
        receive, act = self._receive, self._act
        while (request := await receive()) is not None:
            try:
                act(request)
            except StepRailError as error:
                await self._send(_Response(rejected=rejection(error, request.request_id)))

    def _act(self, request: _Request) -> None:
        body = request.WhichOneof("body")
        if body is None:
            raise checks.invalid("body", f"is required: decision, {', '.join(self._others)}")
        if request.decide or request.events or body in _OPENERS:
            raise checks.invalid(body, "came too late: start, continue_run, attach, decide, events open a stream")
        caller = self._caller
        if body == "decision":
            self._verbs.decide(self._about_this_run(request, request.decision), caller)
        else:
            self._others[body](self._about_this_run(request, getattr(request, body)), caller)

    def _about_this_run(self, request: _Request, body: _B) -> _B:
        """Fill in the run and the request id of a message."""
        run_id = body.run_id
        if run_id != self._run_id:
            if run_id:
                raise checks.invalid("run_id", f"is {run_id!r}; this stream is about {self._run_id!r}")
            body.run_id = self._run_id
        if request.request_id:
            take_request_id(request, body)
        return body

    # --- what the client is told ------------------------------------------------------------------------------------

    async def _tell(self, watch: Watch, *, decide: bool) -> None:
        await self._tell_how_it_stands(watch, decide=decide)
        if self._events == _NO_EVENTS:
            # Where events are sent, they come before the question.
            watch.ask_at_once(self)
        while True:
            try:
                found = await watch.next()
            except StopAsyncIteration:
                break
            if found is None:
                await self._send(_Response(events=events_pb2.EventBatch(heartbeat=watch.heartbeat())))
            else:
                await self._forward(found)
        ended = resources.run(self._facade.get_run(self._caller, self._run_id), self._facade.now())
        await self._send(_Response(finished=runs_pb2.ControlFinished(run=ended)))

    async def _tell_how_it_stands(self, watch: Watch, *, decide: bool) -> None:
        run = self._facade.get_run(self._caller, self._run_id)
        session = self._facade.get_session(self._caller, run.session_id)
        opened = runs_pb2.ControlOpened(
            run=resources.run(run, self._facade.now()),
            epoch=session.epoch,
            last_seq=session.last_seq,
            decider_registered=decide,
        )
        pending = run.pending_decision
        self._asks.begin(run)
        await self._send(_Response(opened=opened))
        await self._send(_Response(events=events_pb2.EventBatch(heartbeat=watch.heartbeat())))
        if pending is not None:
            # The stream begins behind the boundary: what waits there would not come again.
            boundary = self._stored_step(pending)
            if events_pb2.Event.FromString(boundary).seq <= watch.cursor:
                await self._ask(pending, entries.step_of_event(boundary))
        if run.asks:
            await self._catch_up(watch, session.last_seq)
            await self._asks.tell_rest()

    async def _catch_up(self, watch: Watch, last_seq: int) -> None:
        """Forward what was recorded before the stream was opened."""
        try:
            while watch.cursor < last_seq and (found := await watch.poll()) is not None:
                await self._forward(found)
        except StopAsyncIteration:
            # The run has ended meanwhile.
            return

    async def _forward(self, found: Slice) -> None:
        """Send the events that the client wants, then what is pending after them."""
        kinds = found.kinds
        if self._events != _NO_EVENTS:
            wanted = None if self._events == runs_pb2.CONTROL_EVENTS_ALL else _STEPS_KINDS.__contains__
            for wire in parts(found, wanted):
                await self._send(delimited(_EVENTS, wire))
        if self._asked and _DECISION_RECORDED in kinds:
            await self._tell_decision(found)
        if _PERMISSION_REQUESTED in kinds or _QUESTION_REQUESTED in kinds:
            await self._asks.tell_found(found)
        place = kinds.rfind(_DECISION_REQUESTED)
        if place >= 0:
            pending = self._facade.get_run(self._caller, self._run_id).pending_decision
            if (
                pending is not None
                and pending.step_id != self._asked
                and entries.asks_about(found.wire, *_ends(found, place), pending.step_id)
            ):
                await self._ask(pending, self._step_before(found, place))

    def _step_before(self, found: Slice, place: int) -> bytes | None:
        """Give the step that an entry of a slice asks about, if it is in the slice too."""
        number = found.kinds.rfind(_STEP_END, 0, place)
        return entries.step_of_entry(found.wire, *_ends(found, number)) if number >= 0 else None

    async def _tell_decision(self, found: Slice) -> None:
        """Tell what became of the step that the client was asked about."""
        asked = self._asked.encode()
        for place, kind in enumerate(found.kinds):
            if kind == _DECISION_RECORDED:
                recorded = entries.decision_of_entry(found.wire, *_ends(found, place))
                if entries.id_of_decision(recorded) == asked:
                    self._asked = ""
                    await self._send(delimited(_RECORDED, recorded))
                    return

    async def _ask(self, pending: PendingDecision, step: bytes | None) -> None:
        """Ask about the step that waits. `step` is its wire form, if that is at hand."""
        if step is None:
            step = entries.step_of_event(self._stored_step(pending))
        self._asked = pending.step_id
        request = entries.decision_request(step, pending, self._facade.now())
        await self._send(delimited(_REQUESTED, request))

    def can_be_asked(self) -> bool:
        """See `Respondent`: not while a message is under way, or the answer to what was asked before."""
        return not (self._sending or self._asked)

    def ask(self, pending: PendingDecision, step: bytes) -> None:
        """See `Respondent`."""
        self._asked = pending.step_id
        self._sending = True
        request = entries.decision_request(step, pending, self._facade.now())
        self._call.send_at_once(delimited(_REQUESTED, request), self._has_sent)

    def _stored_step(self, pending: PendingDecision) -> bytes:
        (stored,) = self._facade.steps(self._caller, self._run_id, pending.step_number - 1, 1)
        return stored.event

    async def _send(self, message: _Response | bytes) -> None:
        # Only a refusal ever meets what is told: a lock would be paid for at each message and hardly ever be used.
        while self._sending:
            self._sent = self._sent or anyio.Event()
            await self._sent.wait()
        self._sending = True
        try:
            await self._call.send(message)
        finally:
            self._has_sent()

    def _has_sent(self) -> None:
        self._sending = False
        if self._sent is not None:
            self._sent.set()
            self._sent = None


def take_request_id(request: _Request, body: _Body) -> None:
    """Let a message and its body have one request id.

    Raises:
        Invalid: FIELD_INVALID; they have two.
    """
    inner = body.request_id
    if inner and request.request_id and inner != request.request_id:
        raise checks.invalid("request_id", f"is {request.request_id!r} and within the body {inner!r}; one is enough")
    body.request_id = inner or request.request_id


def _nothing() -> None:
    """Stands for what need not be taken back."""


def _ends(found: Slice, place: int) -> tuple[int, int]:
    """Give where an entry of a slice begins and ends."""
    ends = found.ends
    return ends[place - 1] if place else 0, ends[place]
