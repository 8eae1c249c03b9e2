"""What a control stream tells of permissions and questions that wait: those of now, once their events were sent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Final

from steprail.v1 import events_pb2, runs_pb2
from steprail_daemon.core.model import Permission, Question
from steprail_daemon.core.views import RunView
from steprail_daemon.engine.facade import Caller, Facade, Slice
from steprail_daemon.service import asks
from steprail_daemon.service.contents import Contents

_Event = events_pb2.Event
_KINDS: Final = frozenset((_Event.PERMISSION_REQUESTED_FIELD_NUMBER, _Event.QUESTION_REQUESTED_FIELD_NUMBER))


class Asks:
    """Tells of what waits in one run. History is passed over: what is resolved by now is not told."""

    def __init__(
        self, facade: Facade, caller: Caller, send: Callable[[runs_pb2.ControlRunResponse], Awaitable[None]]
    ) -> None:
        self._facade = facade
        self._caller = caller
        self._send = send
        self._run_id = ""
        self._at_opening: list[str] = []
        self._told: set[str] = set()

    def begin(self, run: RunView) -> None:
        """Take note of what waits at the opening."""
        self._run_id = run.run_id
        self._at_opening = list(_open_items(run))

    async def tell_found(self, found: Slice) -> None:
        """Tell of what was asked within a slice that was sent."""
        await self._tell(list(_asked_in(found)))

    async def tell_rest(self) -> None:
        """Tell of what waited at the opening and was asked before the place that the stream began at."""
        await self._tell(self._at_opening)

    async def _tell(self, item_ids: list[str]) -> None:
        run = self._facade.get_run(self._caller, self._run_id)
        waiting = _open_items(run)
        for item_id in item_ids:
            item = waiting.get(item_id)
            if item is not None and item_id not in self._told:
                self._told.add(item_id)
                await self._send(_request(item, run, self._facade.now()))


def _open_items(run: RunView) -> dict[str, Permission | Question]:
    """Give what waits, by id."""
    permissions = {item.permission_id: item for item in run.pending_permissions}
    return {**permissions, **{item.question_id: item for item in run.pending_questions}}


def _asked_in(found: Slice) -> Iterator[str]:
    """Give the ids of what was asked within a slice, in order."""
    start = 0
    for kind, end in zip(found.kinds, found.ends, strict=True):
        if kind in _KINDS:
            (event,) = events_pb2.EventBatch.FromString(found.wire[start:end]).events
            if kind == _Event.PERMISSION_REQUESTED_FIELD_NUMBER:
                yield event.permission_requested.permission.permission_id
            else:
                yield event.question_requested.question.question_id
        start = end


def _request(item: Permission | Question, run: RunView, now: int) -> runs_pb2.ControlRunResponse:
    if isinstance(item, Permission):
        permission = asks.permission(item, run.session_id, run.run_id, now, Contents())
        return runs_pb2.ControlRunResponse(permission_requested=events_pb2.PermissionRequested(permission=permission))
    question = asks.question(item, run.session_id, run.run_id, now)
    return runs_pb2.ControlRunResponse(question_requested=events_pb2.QuestionRequested(question=question))
