"""Random histories of a store, judged by a simple model. Needs Hypothesis: the extra `testing`."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from steprail_daemon.journal.store import Batch, Blob, RequestRow, RunRow, SessionRow, Store
from steprail_daemon.testing.store_kit import as_read, make_batch, make_blob, make_request, refused

_EVENTS = st.lists(st.binary(max_size=200), max_size=5).map(tuple)
_SESSIONS = st.sampled_from([1, 2, 65])


class _ModelSession:
    def __init__(self, session_no: int) -> None:
        self.row = SessionRow(session_no, f"ses_{session_no}", 0, 0, closed=False)
        self.batches: list[Batch] = []
        self.runs: dict[int, RunRow] = {}


class StoreHistory(RuleBasedStateMachine):
    """Appends, refusals, reads and reopenings in any order; the model is three lists."""

    def __init__(self) -> None:
        super().__init__()
        self.store = self.make()
        self.model: dict[int, _ModelSession] = {}
        self.blobs: dict[str, Blob] = {}
        self.blob_sessions: dict[str, set[int]] = {}
        self.deleted: set[int] = set()
        self.requests: dict[str, RequestRow] = {}

    def make(self) -> Store:
        """Make an empty store."""
        raise NotImplementedError

    def reopen(self) -> Store | None:
        """Close the store and open it again with what it had; None, the default, if it keeps nothing."""
        return None

    def _commit(self, session: _ModelSession, **fields: Any) -> None:
        row = session.row
        batch = make_batch(row.session_no, row.last_seq + 1, **fields)
        self.store.append(batch)
        session.batches.append(batch)
        run_no = batch.run_no
        if batch.opens_run:
            session.runs[run_no] = RunRow(batch.opens_run, row.session_no, run_no, batch.first_seq, None)
        if batch.ends_run:
            opened = session.runs[run_no]
            session.runs[run_no] = RunRow(opened.run_id, row.session_no, run_no, opened.first_seq, batch.last_seq)
        session.row = SessionRow(
            row.session_no, row.session_id, batch.last_seq, max(session.runs, default=0), batch.closes_session
        )

    def _open_runs(self, session: _ModelSession) -> list[int]:
        return [run.run_no for run in session.runs.values() if run.last_seq is None]

    def _live(self) -> list[_ModelSession]:
        return [session for session in self.model.values() if not session.row.closed]

    @rule(session_no=_SESSIONS, events=_EVENTS)
    def open_session(self, session_no: int, events: tuple[bytes, ...]) -> None:
        """Open a session, or be refused if it is there or was deleted."""
        fields: dict[str, Any] = {"records": b"made", "opens_session": f"ses_{session_no}"}
        if session_no in self.model or session_no in self.deleted:
            refused(self.store, make_batch(session_no, 1, events, **fields))
            return
        session = self.model[session_no] = _ModelSession(session_no)
        self._commit(session, events=events, **fields)

    @precondition(lambda self: self._live())
    @rule(data=st.data(), events=_EVENTS, records=st.binary(max_size=20))
    def append(self, data: st.DataObject, events: tuple[bytes, ...], records: bytes) -> None:
        """Append to an open run or to none."""
        session = data.draw(st.sampled_from(self._live()))
        run_no = data.draw(st.sampled_from([0, *self._open_runs(session)]))
        if events or records:
            self._commit(session, events=events, records=records, run_no=run_no)
        else:
            refused(self.store, make_batch(session.row.session_no, session.row.last_seq + 1, run_no=run_no))

    @precondition(lambda self: self._live())
    @rule(data=st.data(), events=_EVENTS, ends=st.booleans())
    def open_run(self, data: st.DataObject, events: tuple[bytes, ...], ends: bool) -> None:
        """Open a run, perhaps one that ends at once."""
        session = data.draw(st.sampled_from(self._live()))
        run_no = session.row.last_run_no + 1
        run_id = f"run_{session.row.session_no}_{run_no}"
        self._commit(session, events=events, records=b"run", run_no=run_no, opens_run=run_id, ends_run=ends)

    @precondition(lambda self: any(self._open_runs(session) for session in self._live()))
    @rule(data=st.data(), event=st.binary(max_size=50))
    def end_run(self, data: st.DataObject, event: bytes) -> None:
        """End an open run; it takes nothing then."""
        session = data.draw(st.sampled_from([session for session in self._live() if self._open_runs(session)]))
        run_no = data.draw(st.sampled_from(self._open_runs(session)))
        self._commit(session, events=(event,), run_no=run_no, ends_run=True)
        refused(self.store, make_batch(session.row.session_no, session.row.last_seq + 1, (event,), run_no=run_no))

    @precondition(lambda self: self._live())
    @rule(data=st.data(), event=st.binary(max_size=50))
    def close_session(self, data: st.DataObject, event: bytes) -> None:
        """Close a session, or be refused over an open run; a closed one takes nothing."""
        session = data.draw(st.sampled_from(self._live()))
        batch = make_batch(session.row.session_no, session.row.last_seq + 1, (event,), closes_session=True)
        if self._open_runs(session):
            refused(self.store, batch)
            return
        self._commit(session, events=(event,), closes_session=True)
        refused(self.store, batch)

    @precondition(lambda self: self._live())
    @rule(data=st.data(), contents=st.lists(st.binary(max_size=30), min_size=1, max_size=3))
    def bring_blobs(self, data: st.DataObject, contents: list[bytes]) -> None:
        """Bring blobs, some of which may be there."""
        session = data.draw(st.sampled_from(self._live()))
        blobs = tuple(map(make_blob, contents))
        self._commit(session, events=(b"blob",), blobs=blobs)
        for blob in blobs:
            self.blobs[blob.blob_id] = blob
            self.blob_sessions.setdefault(blob.blob_id, set()).add(session.row.session_no)

    def _request(self, name: str) -> RequestRow:
        request = make_request(name, at=len(self.requests) + 1)
        self.requests.pop(name, None)
        self.requests[name] = request
        return request

    @precondition(lambda self: self._live())
    @rule(data=st.data(), name=st.sampled_from("abc"), event=st.binary(max_size=50), alone=st.booleans())
    def carry_out_a_request(self, data: st.DataObject, name: str, event: bytes, alone: bool) -> None:
        """Append with a request, or keep one alone."""
        session = data.draw(st.sampled_from(self._live()))
        request = self._request(name)
        if alone:
            self.store.remember(request)
        else:
            self._commit(session, events=(event,), request=request)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def delete_session(self, data: st.DataObject) -> None:
        """Delete a session, whatever its state."""
        number = data.draw(st.sampled_from(sorted(self.model)))
        row = self.model.pop(number).row
        self.store.delete_session(number)
        self.deleted.add(number)
        for sessions in self.blob_sessions.values():
            sessions.discard(number)
        refused(self.store, make_batch(number, row.last_seq + 1, (b"e",)))

    @precondition(lambda self: self._live())
    @rule(data=st.data(), offset=st.sampled_from([-2, -1, 1, 7]))
    def miss_the_end(self, data: st.DataObject, offset: int) -> None:
        """Append at a wrong place and be refused."""
        row = data.draw(st.sampled_from(self._live())).row
        refused(self.store, make_batch(row.session_no, row.last_seq + 1 + offset, (b"e",)))

    @precondition(lambda self: self.model)
    @rule(data=st.data(), max_bytes=st.sampled_from([0, 1, 100, 1 << 20]))
    def read(self, data: st.DataObject, max_bytes: int) -> None:
        """Read from any cursor."""
        session = data.draw(st.sampled_from(list(self.model.values())))
        after = data.draw(st.integers(0, session.row.last_seq + 2))
        wanted: list[Batch] = []
        for batch in session.batches:
            enough = wanted and sum(len(one.wire) for one in wanted) >= max_bytes
            if batch.kinds and batch.last_seq > after and not enough:
                wanted.append(as_read(batch))
        assert self.store.read(session.row.session_no, after, max_bytes) == wanted

    @rule()
    def close_and_open(self) -> None:
        """Close the store and open it again."""
        opened = self.reopen()
        if opened is not None:
            assert opened.epoch == self.store.epoch
            self.store = opened

    @invariant()
    def tables_agree(self) -> None:
        """Sessions, runs, records and blobs are those of the model."""
        sessions = sorted(self.model.values(), key=lambda session: session.row.session_no)
        assert list(self.store.sessions()) == [session.row for session in sessions]
        for session in sessions:
            number = session.row.session_no
            assert self.store.session(session.row.session_id) == session.row
            assert self.store.runs(number) == list(session.runs.values())
            assert list(self.store.records(number)) == [
                (batch.run_no, batch.records) for batch in session.batches if batch.records
            ]
            facts: list[tuple[int, int, bytes]] = []
            for batch in session.batches:
                facts = [] if batch.kinds else [*facts, (batch.run_no, batch.at, batch.records)]
            assert self.store.unpublished(number) == facts
            assert self.store.earliest_seq(number) == 1
        assert self.store.last_session_no() == max([*self.model, *self.deleted], default=0)
        assert list(self.store.requests(0)) == list(self.requests.values())
        for number in self.deleted:
            assert self.store.read(number, 0, 1 << 20) == []
            assert list(self.store.records(number)) == []
        for blob in self.blobs.values():
            if not self.blob_sessions[blob.blob_id]:
                assert self.store.read_blob(blob.blob_id, 0, 1000) is None
                assert self.store.blob_sessions(blob.blob_id) == frozenset()
                continue
            assert self.store.read_blob(blob.blob_id, 0, 1000) == (blob.data, len(blob.data), blob.mime_type)
            assert self.store.blob_sessions(blob.blob_id) == self.blob_sessions[blob.blob_id]

    def teardown(self) -> None:
        """Close the store."""
        self.store.close()
