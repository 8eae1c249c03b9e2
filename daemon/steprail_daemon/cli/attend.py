"""Attends to what the agent of a followed run asks: by a person, by the command line's word, or by telling how."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
import anyio.abc

from steprail_daemon.cli.ask import Person
from steprail_daemon.cli.asked import how_to_answer, permission_lines, question_lines
from steprail_daemon.cli.client import Daemon, Message
from steprail_daemon.cli.problems import Problem, Refused

_ALIKE: Final = {"allow": "allow_once", "deny": "deny"}
#: Somebody else, or the deadline, was faster.
_TOO_LATE = frozenset({"PERMISSION_NOT_PENDING", "QUESTION_NOT_PENDING"})

Note = Callable[[str], None]


class _Asking:
    """A person is asked; `over` is set once that has ended, which it does soon when `scope` is cancelled."""

    def __init__(self) -> None:
        self.scope = anyio.CancelScope()
        self.over = anyio.Event()


class Attendant:
    """Attends to one run. `permissions` is ask, allow or deny; `person` is None where nobody is to be asked."""

    def __init__(self, daemon: Daemon, note: Note, permissions: str, person: Person | None) -> None:
        self._daemon = daemon
        self._note = note
        self._alike = _ALIKE.get(permissions)
        self._person = person
        self._asking: dict[str, _Asking] = {}
        self._tasks: anyio.abc.TaskGroup | None = None

    @asynccontextmanager
    async def attending(self) -> AsyncIterator[None]:
        """Attend within; whoever is still asked at its end is asked no more."""
        async with anyio.create_task_group() as self._tasks:
            yield
            self._tasks.cancel_scope.cancel()

    async def settle(self, event: Mapping[str, Any]) -> None:
        """Ask no more about what an event closes; call it before that is shown, so that no prompt is open then."""
        if (asking := self._asking.get(_settled(event))) is not None:
            asking.scope.cancel()
            await asking.over.wait()

    def heed(self, event: Mapping[str, Any]) -> None:
        """See to what an event asks; call it once that was shown."""
        if permission := event.get("permission_requested", {}).get("permission"):
            self._permission(permission, event)
        elif question := event.get("question_requested", {}).get("question"):
            self._question(question, event)

    def _permission(self, permission: Mapping[str, Any], event: Mapping[str, Any]) -> None:
        run_id, asked = permission["run_id"], permission["permission_id"]

        async def answer(given: str | None) -> None:
            await self._daemon.answer_permission(run_id, asked, given or "deny", reason="")

        person = self._attends()
        if self._alike is not None:
            self._start(self._send, answer, self._alike)
        elif person is not None:
            self._put(asked, lambda: person.permits(permission_lines(permission)), answer)
        else:
            self._note(how_to_answer(event))

    def _question(self, question: Mapping[str, Any], event: Mapping[str, Any]) -> None:
        run_id, asked = question["run_id"], question["question_id"]

        async def answer(given: list[Message] | None) -> None:
            await self._daemon.answer_question(run_id, asked, given or [])

        person = self._attends()
        if person is not None and self._alike != "deny":
            self._put(asked, lambda: person.replies(question.get("items", []), question_lines(question)), answer)
        elif self._alike is not None:
            self._start(self._send, answer, None)
        else:
            self._note(how_to_answer(event))

    def _attends(self) -> Person | None:
        return self._person if self._person is not None and self._person.attends() else None

    def _put(self, asked: str, ask: Callable[[], Awaitable[Any]], answer: Callable[[Any], Awaitable[None]]) -> None:
        self._asking[asked] = _Asking()
        self._start(self._ask, asked, ask, answer)

    def _start(self, function: Callable[..., Coroutine[Any, Any, None]], *arguments: object) -> None:
        assert self._tasks is not None, "nobody attends"
        self._tasks.start_soon(function, *arguments)

    async def _ask(
        self, asked: str, ask: Callable[[], Awaitable[Any]], answer: Callable[[Any], Awaitable[None]]
    ) -> None:
        """Ask a person until it is settled elsewhere; an answer that was given is sent in any case."""
        asking = self._asking[asked]
        given: Any = None
        try:
            with asking.scope:
                given = await ask()
        finally:
            del self._asking[asked]
            asking.over.set()
        if not asking.scope.cancelled_caught:
            await self._send(answer, given)

    async def _send(self, answer: Callable[[Any], Awaitable[None]], given: object) -> None:
        try:
            await answer(given)
        except Refused as refusal:
            if refusal.reason in _TOO_LATE:
                self._note("the answer came too late")
            else:
                self._note(f"the answer was refused: {refusal.format_message()}")
        except Problem as problem:
            self._note(f"the answer came to nothing: {problem.format_message()}")


def _settled(event: Mapping[str, Any]) -> str:
    """Give the id of the permission or question that an event closes; empty if it closes none."""
    resolved: Message = event.get("permission_resolved") or event.get("question_resolved") or {}
    return str(resolved.get("permission_id") or resolved.get("question_id") or "")
