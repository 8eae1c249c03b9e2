"""The calls that stream."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp

from steprail.client._control import Control
from steprail.client._sessions import SessionCalls
from steprail.client._watch import SILENCE_SECONDS, EventsWatch, Watch, read
from steprail.errors import StepRailError
from steprail.v1 import budgets_pb2, events_pb2, rules_pb2, runs_pb2, sessions_pb2


class StreamCalls(SessionCalls):
    """Watches runs and sessions. A watch comes back to a daemon that went away and goes on after the last event."""

    async def watch_run(self, run_id: str, *, after_seq: int = 0, epoch: str = "") -> AsyncIterator[events_pb2.Event]:
        """Give every event of a run, recorded ones first, until its end.

        `after_seq` and `epoch` are where to go on: the last event seen, and the epoch of the session.

        Raises:
            CursorInvalid: that place is no more, or not yet.
            NotFound: RUN_NOT_FOUND.
            ConnectionFailed: the daemon did not come back within the client's `patience`.
        """

        def open_stream(seq: int, of: str) -> Any:
            return self._stubs.runs.WatchRun(runs_pb2.WatchRunRequest(run_id=run_id, after_seq=seq, epoch=of))

        comeback = self._comeback("WatchRun", run_id)
        async for event in Watch(open_stream, self.address, comeback, after_seq=after_seq, epoch=epoch).events():
            yield event

    async def watch_session(
        self, session_id: str, *, after_seq: int = 0, epoch: str = ""
    ) -> AsyncIterator[events_pb2.Event]:
        """Give every event of a session until it is closed; see `watch_run`."""

        def open_stream(seq: int, of: str) -> Any:
            request = sessions_pb2.WatchSessionRequest(session_id=session_id, after_seq=seq, epoch=of)
            return self._stubs.sessions.WatchSession(request)

        comeback = self._comeback("WatchSession", session_id)
        async for event in Watch(open_stream, self.address, comeback, after_seq=after_seq, epoch=epoch).events():
            yield event

    async def watch_events(
        self,
        *,
        cursors: Iterable[events_pb2.SessionCursor] = (),
        kinds: Iterable[str] = (),
        agents: Iterable[str] = (),
        labels: Mapping[str, str] | None = None,
    ) -> AsyncIterator[events_pb2.Event]:
        """Give the events of all sessions that the caller may see, for ever; in order within each session.

        A session with a cursor goes on there, another one is followed from now on, a new one from its beginning.
        `kinds` are names of the fields of `Event.body`, such as step_end; with them, `agents` and `labels` only what
        fits is sent. A session that is deleted is left out from then on.

        Raises:
            CursorInvalid: a place is no more, or not yet; its metadata names the session.
            ConnectionFailed: the daemon did not come back within the client's `patience`.
        """
        wanted = sessions_pb2.WatchEventsRequest(kinds=kinds, agents=agents, labels=dict(labels or {}))

        def open_stream(places: list[events_pb2.SessionCursor]) -> Any:
            request = sessions_pb2.WatchEventsRequest(cursors=places)
            request.MergeFrom(wanted)
            return self._stubs.sessions.WatchEvents(request)

        async def epoch_of(session_id: str) -> str:
            return (await self.get_session(session_id)).epoch

        async def sessions() -> list[str]:
            found = await self.list_sessions(agents=wanted.agents, labels=wanted.labels)
            return [session.session_id for session in found]

        comeback = self._comeback("WatchEvents")
        watch = EventsWatch(open_stream, epoch_of, sessions, self.address, comeback, cursors=cursors)
        async for event in watch.events():
            yield event

    async def watch_budgets(self, names: Iterable[str] = ()) -> AsyncIterator[budgets_pb2.Budget]:
        """Give the budgets of these names, or all, and then each that changed, for ever.

        It comes back to a daemon that went away, and then begins with all of them again.

        Raises:
            NotFound: BUDGET_NOT_FOUND.
            Unimplemented: this daemon keeps none.
        """
        request = budgets_pb2.WatchBudgetsRequest(names=names)
        comeback = self._comeback("WatchBudgets")
        while True:
            try:
                async for reply in self._replies(self._stubs.budgets.WatchBudgets(request), SILENCE_SECONDS):
                    comeback.answered()
                    for budget in reply.budgets:
                        yield budget
                return
            except StepRailError as error:
                lost = error
            await comeback.after(lost)

    async def read_blob(self, blob_id: str, *, offset: int = 0) -> bytes:
        """Give the whole of a content that was cut or left out, from `offset` on, in bytes."""
        call = self._stubs.runs.ReadBlob(runs_pb2.ReadBlobRequest(blob_id=blob_id, offset=offset))
        return b"".join([reply.data async for reply in self._replies(call)])

    async def test_stop_rules(
        self,
        stop_rules: Iterable[rules_pb2.StopRule],
        *,
        run_ids: Iterable[str] = (),
        session_id: str = "",
        agents: Iterable[str] = (),
        labels: Mapping[str, str] | None = None,
        created_since: Timestamp | None = None,
        created_before: Timestamp | None = None,
        max_runs: int = 0,
    ) -> AsyncIterator[runs_pb2.StopRuleTest]:
        """Hold rules against recorded runs (TestStopRules): where each would have stopped, and what it had saved.

        At least one filter is needed. It changes nothing.

        Raises:
            InvalidArgument: RULE_INVALID.
            Unimplemented: this daemon does not serve it.
        """
        request = runs_pb2.TestStopRulesRequest(
            stop_rules=stop_rules,
            run_ids=run_ids,
            session_id=session_id,
            agents=agents,
            labels=dict(labels or {}),
            created_since=created_since,
            created_before=created_before,
            max_runs=max_runs,
        )
        async for reply in self._replies(self._stubs.runs.TestStopRules(request)):
            for result in reply.results:
                yield result

    async def _replies(self, call: Any, silence: float | None = None) -> AsyncIterator[Any]:
        """Give the messages of a call. Each has to come within `silence` seconds, by default the time of a call."""
        bound = self.timeout if silence is None else silence
        try:
            while (reply := await read(call, self.address, bound)) is not None:
                yield reply
        finally:
            # A call that is only dropped is never collected (grpc/grpc#43462).
            call.cancel()

    def control(
        self,
        *,
        start: runs_pb2.StartRunRequest | None = None,
        continue_run: runs_pb2.ContinueRunRequest | None = None,
        attach: str = "",
        after_seq: int = 0,
        epoch: str = "",
        decide: bool = False,
        events: runs_pb2.ControlEvents.ValueType = runs_pb2.CONTROL_EVENTS_ALL,
    ) -> Control:
        """Give a conversation about a run that it starts, continues or attaches to; `decide` registers as a decider.

        `after_seq` and `epoch` are where to go on, with `attach` alone. `run` is the shorter way for most.
        """
        first = runs_pb2.ControlRunRequest(decide=decide, events=events)
        if start is not None:
            first.start.CopyFrom(start)
            first.request_id = start.request_id
        elif continue_run is not None:
            first.continue_run.CopyFrom(continue_run)
            first.request_id = continue_run.request_id
        else:
            first.attach.CopyFrom(runs_pb2.AttachRun(run_id=attach, after_seq=after_seq, epoch=epoch))
        comeback = self._comeback("ControlRun", attach)
        return Control(self._stubs.runs.ControlRun, first, self.address, self.timeout, comeback)
