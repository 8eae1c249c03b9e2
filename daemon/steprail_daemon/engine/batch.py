"""Builds the batches of one session: numbers events, gives them their wire form, keeps their records."""

from __future__ import annotations

from array import array
from itertools import accumulate

from steprail_daemon.core.events import PassiveEvent
from steprail_daemon.core.records import Fact, Record
from steprail_daemon.engine.ports import EventEncoder, RecordCodec
from steprail_daemon.journal.store import Batch


class BatchBuilder:
    """Collects what happens until it is committed. A batch belongs to one run, or to none."""

    __slots__ = (
        "_at",
        "_classes",
        "_codec",
        "_encode",
        "_encoder",
        "_entries",
        "_first_seq",
        "_kinds",
        "_records",
        "closes_session",
        "ends_run",
        "opens_run",
        "opens_session",
        "run_no",
        "seq",
        "session_no",
    )

    def __init__(self, session_no: int, last_seq: int, encoder: EventEncoder, codec: RecordCodec) -> None:
        self.session_no = session_no
        self.seq = last_seq
        self._encoder = encoder
        self._encode = encoder.encode
        # A plain dictionary, since looking into a mapping proxy takes twice as long.
        self._kinds = dict(encoder.kinds)
        self._codec = codec
        self._reset()

    def _reset(self) -> None:
        self._entries: list[bytes] = []
        self._classes: list[type] = []
        self._records: list[Record] = []
        self._first_seq = self.seq + 1
        self.opens_session = ""
        self.opens_run = ""
        self.ends_run = False
        self.closes_session = False

    def begin(self, at: int, run_no: int, run_id: str, step_number: int) -> None:
        """Set what the events that follow share. The batch before must have been taken if the run changes."""
        self._at = at
        self.run_no = run_no
        self._encoder.begin(at, run_id, step_number)

    def add(self, event: PassiveEvent | Fact) -> None:
        """Add a public event."""
        self.seq = seq = self.seq + 1
        self._entries.append(self._encode(seq, event))
        self._classes.append(type(event))

    def add_fact(self, fact: Fact) -> None:
        """Add a fact: its record and, if it is public, its event."""
        record = self._codec.to_record(fact)
        if record is not None:
            self._records.append(record)
        if type(fact) in self._kinds:
            self.add(fact)

    def keep(self, text: str) -> None:
        """Have a text that a resource shows kept, if it is too large to be shown whole."""
        self._encoder.keep(text)

    def add_record(self, record: Record) -> None:
        """Add a record that is no fact of a run, such as the making of the session."""
        self._records.append(record)

    def take(self) -> Batch | None:
        """Give the batch and begin a new one; None if nothing was added."""
        entries = self._entries
        if not entries and not self._records:
            return None
        batch = Batch(
            session_no=self.session_no,
            run_no=self.run_no,
            first_seq=self._first_seq,
            last_seq=self.seq,
            at=self._at,
            kinds=bytes(map(self._kinds.__getitem__, self._classes)),
            ends=array("I", accumulate(map(len, entries))).tobytes(),
            wire=b"".join(entries),
            records=self._codec.encode_records(self._records) if self._records else b"",
            opens_session=self.opens_session,
            opens_run=self.opens_run,
            ends_run=self.ends_run,
            closes_session=self.closes_session,
            blobs=self._encoder.take_blobs(),
        )
        self._reset()
        return batch

    def drop(self) -> None:
        """Forget what was added since the last batch, as if it had not happened."""
        self.rewind(self._first_seq - 1)

    def rewind(self, last_seq: int) -> None:
        """Forget what was added, and go on after `last_seq`: the batch that was taken last was not committed."""
        self.seq = last_seq
        self._encoder.take_blobs()
        self._reset()
