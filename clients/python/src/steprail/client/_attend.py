"""Lets the callables of a run answer what is asked, and tells the daemon."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from steprail.client import _decide as answers
from steprail.client import _messages as messages
from steprail.client._backoff import Comeback
from steprail.client._channel import new_request_id
from steprail.client._connection import Stubs
from steprail.client._tasks import Tasks, called
from steprail.errors import CallTimeout, ConnectionFailed, FailedPrecondition, StepRailError
from steprail.v1 import decisions_pb2, runs_pb2

log = logging.getLogger("steprail.client")

_TOO_LATE = frozenset({"DECISION_NOT_PENDING", "PERMISSION_NOT_PENDING", "QUESTION_NOT_PENDING"})


@dataclass(frozen=True)
class Callables:
    """Who decides, allows and answers; see `Client.run`."""

    decide: answers.Decide | None = None
    permissions: answers.Permit | None = None
    questions: answers.Answer | None = None

    @property
    def asked(self) -> bool:
        """Whether anybody is to be asked."""
        return self.decide is not None or self.needs_events

    @property
    def needs_events(self) -> bool:
        """Whether events are needed: what became of a permission or a question is told by them alone."""
        return self.permissions is not None or self.questions is not None

    def decider(self, given: decisions_pb2.Decider | None) -> decisions_pb2.Decider | None:
        """Give the run's decider: with `decide` a client, by the settings that are given."""
        if self.decide is None:
            return given
        made = decisions_pb2.Decider()
        if given is not None:
            made.CopyFrom(given)
        made.mode = decisions_pb2.DECIDER_MODE_CLIENT
        return made


@dataclass(frozen=True)
class Links:
    """What a run needs of its client beside the public calls."""

    stubs: Stubs
    ask: Callable[[Any, Any], Awaitable[Any]]
    comeback: Callable[[str, str], Comeback]
    begin: Callable[[runs_pb2.StartRunRequest | runs_pb2.ContinueRunRequest], Awaitable[runs_pb2.Run]]


@dataclass(frozen=True)
class _Kind:
    """One kind of question: whom it is for, how his answer becomes a request, and what is said if he fails."""

    callable: str
    method: str
    request: Callable[[Any, object], Any]
    fallback: Callable[[Any, BaseException], Any]


_KINDS: Mapping[str, _Kind] = {
    "decision_requested": _Kind("decide", "SubmitDecision", answers.decision, answers.no_decision),
    "permission_requested": _Kind("permissions", "AnswerPermission", answers.permission, answers.denied),
    "question_requested": _Kind("questions", "AnswerQuestion", answers.question, answers.declined),
}


class Attendant:
    """Attends to one run.

    Each thing that is asked is put to its callable once. A callable whose answer is not wanted any more is cancelled;
    one on a thread runs on, and its answer is dropped. Only what fails is kept, in `failed`: the name of the callable
    that failed first, and how.
    """

    def __init__(self, links: Links, callables: Callables, tasks: Tasks, run_id: str) -> None:
        self._links = links
        self._callables = callables
        self._tasks = tasks
        self._run_id = run_id
        self._seen: set[str] = set()
        self._answering: dict[str, asyncio.Task[None]] = {}
        self.failed: tuple[str, BaseException] | None = None

    def heed(self, message: runs_pb2.ControlRunResponse) -> None:
        """Act on a message of the daemon."""
        body = message.WhichOneof("body")
        if body == "decision_requested":
            self._put(body, messages.asked_id(message), message.decision_requested.step)
        elif body == "permission_requested":
            self._put(body, messages.asked_id(message), message.permission_requested.permission)
        elif body == "question_requested":
            self._put(body, messages.asked_id(message), message.question_requested.question)
        elif body == "decision_recorded":
            self._settled(message.decision_recorded.step_id)
        elif body == "events":
            for event in message.events.events:
                self._settled(event.permission_resolved.permission_id or event.question_resolved.question_id)

    def dismiss(self) -> None:
        """Cancel whoever still answers: the run is over."""
        for task in self._answering.values():
            task.cancel()

    def _put(self, body: str, asked_id: str, asked: Any) -> None:
        kind = _KINDS[body]
        function = getattr(self._callables, kind.callable)
        if function is None or asked_id in self._seen:
            return
        self._seen.add(asked_id)
        task = self._answering[asked_id] = self._tasks.start(self._answer(kind, function, asked))
        task.add_done_callback(lambda _: self._answering.pop(asked_id, None))

    def _settled(self, asked_id: str) -> None:
        task = self._answering.get(asked_id)
        if task is not None:
            task.cancel()

    async def _answer(self, kind: _Kind, function: Callable[[Any], Any], asked: Any) -> None:
        try:
            request = kind.request(asked, await called(function, asked))
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # Not ours: something within the callable was cancelled, and the daemon still waits.
            await self._failed(kind, asked, error)
            return
        except Exception as error:  # noqa: BLE001 - whatever a callable raises, the daemon is told and the caller too
            await self._failed(kind, asked, error)
            return
        try:
            await self._send(kind, request)
        except StepRailError as error:
            # Guidance that the agent cannot take, or the like: it is still waited for.
            await self._failed(kind, asked, error)

    async def _failed(self, kind: _Kind, asked: Any, error: BaseException) -> None:
        log.warning("run %s: `%s` failed: %s: %s", self._run_id, kind.callable, type(error).__name__, error)
        self.failed = self.failed or (kind.callable, error)
        try:
            await self._send(kind, kind.fallback(asked, error))
        except StepRailError as lost:
            log.warning("run %s: the failure of `%s` could not be told: %s", self._run_id, kind.callable, lost)

    async def _send(self, kind: _Kind, request: Any) -> None:
        """Send an answer under one request id until the daemon has it. One that comes too late is dropped."""
        request.request_id = new_request_id()
        comeback = self._links.comeback(kind.method, self._run_id)
        while True:
            try:
                await self._links.ask(getattr(self._links.stubs.runs, kind.method), request)
            except CallTimeout as error:
                await comeback.after(ConnectionFailed("the daemon", str(error)))
            except FailedPrecondition as error:
                if error.reason not in _TOO_LATE:
                    raise
                log.info("run %s: an answer of `%s` came too late", self._run_id, kind.callable)
                return
            except StepRailError as error:
                await comeback.after(error)
            else:
                return
