"""Generated from `steprail.client._streams` by scripts/blocking.py; never edited by hand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from google.protobuf.timestamp_pb2 import Timestamp

from steprail.client._blocking.control import SyncControl
from steprail.client._blocking.portal import Blocking
from steprail.client._client import Client
from steprail.v1 import budgets_pb2, events_pb2, rules_pb2, runs_pb2


class SyncStreamCalls(Blocking[Client]):
    """Watches runs and sessions. A watch comes back to a daemon that went away and goes on after the last event."""

    def watch_run(self, run_id: str, *, after_seq: int = 0, epoch: str = "") -> Iterator[events_pb2.Event]:
        """Give every event of a run, recorded ones first, until its end.

        `after_seq` and `epoch` are where to go on: the last event seen, and the epoch of the session.

        Raises:
            CursorInvalid: that place is no more, or not yet.
            NotFound: RUN_NOT_FOUND.
            ConnectionFailed: the daemon did not come back within the client's `patience`.
        """
        return self._portal.iterate(self._calls.watch_run(run_id, after_seq=after_seq, epoch=epoch))

    def watch_session(self, session_id: str, *, after_seq: int = 0, epoch: str = "") -> Iterator[events_pb2.Event]:
        """Give every event of a session until it is closed; see `watch_run`."""
        return self._portal.iterate(self._calls.watch_session(session_id, after_seq=after_seq, epoch=epoch))

    def watch_events(
        self,
        *,
        cursors: Iterable[events_pb2.SessionCursor] = (),
        kinds: Iterable[str] = (),
        agents: Iterable[str] = (),
        labels: Mapping[str, str] | None = None,
    ) -> Iterator[events_pb2.Event]:
        """Give the events of all sessions that the caller may see, for ever; in order within each session.

        A session with a cursor goes on there, another one is followed from now on, a new one from its beginning.
        `kinds` are names of the fields of `Event.body`, such as step_end; with them, `agents` and `labels` only what
        fits is sent. A session that is deleted is left out from then on.

        Raises:
            CursorInvalid: a place is no more, or not yet; its metadata names the session.
            ConnectionFailed: the daemon did not come back within the client's `patience`.
        """
        return self._portal.iterate(
            self._calls.watch_events(cursors=cursors, kinds=kinds, agents=agents, labels=labels)
        )

    def watch_budgets(self, names: Iterable[str] = ()) -> Iterator[budgets_pb2.Budget]:
        """Give the budgets of these names, or all, and then each that changed, for ever.

        It comes back to a daemon that went away, and then begins with all of them again.

        Raises:
            NotFound: BUDGET_NOT_FOUND.
            Unimplemented: this daemon keeps none.
        """
        return self._portal.iterate(self._calls.watch_budgets(names))

    def read_blob(self, blob_id: str, *, offset: int = 0) -> bytes:
        """Give the whole of a content that was cut or left out, from `offset` on, in bytes."""
        return self._portal.wait(self._calls.read_blob(blob_id, offset=offset))

    def test_stop_rules(
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
    ) -> Iterator[runs_pb2.StopRuleTest]:
        """Hold rules against recorded runs (TestStopRules): where each would have stopped, and what it had saved.

        At least one filter is needed. It changes nothing.

        Raises:
            InvalidArgument: RULE_INVALID.
            Unimplemented: this daemon does not serve it.
        """
        return self._portal.iterate(
            self._calls.test_stop_rules(
                stop_rules,
                run_ids=run_ids,
                session_id=session_id,
                agents=agents,
                labels=labels,
                created_since=created_since,
                created_before=created_before,
                max_runs=max_runs,
            )
        )

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
    ) -> SyncControl:
        """Give a conversation about a run that it starts, continues or attaches to; `decide` registers as a decider.

        `after_seq` and `epoch` are where to go on, with `attach` alone. `run` is the shorter way for most.
        """
        return SyncControl(
            self._calls.control(
                start=start,
                continue_run=continue_run,
                attach=attach,
                after_seq=after_seq,
                epoch=epoch,
                decide=decide,
                events=events,
            ),
            self._portal,
        )
