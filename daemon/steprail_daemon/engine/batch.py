"""Builds the batches of one session: numbers events, gives them their wire form, keeps their records."""

from __future__ import annotations

from array import array

from steprail_daemon.core.events import PassiveEvent
from steprail_daemon.core.records import Fact, Record
from steprail_daemon.engine.ports import EventEncoder, RecordCodec
from steprail_daemon.journal.store import Batch


class BatchBuilder:
    """Collects what happens until it is committed. A batch belongs to one run, or to none."""

    __slots__ = (
        "_at",
        "_codec",
        "_encode",
        "_encoder",
        "_ends",
        "_entries",
        "_first_seq",
        "_kind_of",
        "_kinds",
        "_records",
        "_size",
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
        self._kind_of = encoder.kinds
        self._codec = codec
        self._reset()

    def _reset(self) -> None:
        self._entries: list[bytes] = []
        self._kinds = bytearray()
        self._ends = array("I")
        self._size = 0
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
        entry = self._encode(seq, event)
        self._entries.append(entry)
        self._kinds.append(self._kind_of[type(event)])
        self._size = size = self._size + len(entry)
        self._ends.append(size)

    def add_fact(self, fact: Fact) -> None:
        """Add a fact: its record and, if it is public, its event."""
        record = self._codec.to_record(fact)
        if record is not None:
            self._records.append(record)
        if type(fact) in self._kind_of:
            self.add(fact)

    def add_record(self, record: Record) -> None:
        """Add a record that is no fact of a run, such as the making of the session."""
        self._records.append(record)

    def take(self) -> Batch | None:
        """Give the batch and begin a new one; None if nothing was added."""
        if not self._entries and not self._records:
            return None
        batch = Batch(
            session_no=self.session_no,
            run_no=self.run_no,
            first_seq=self._first_seq,
            last_seq=self.seq,
            at=self._at,
            kinds=bytes(self._kinds),
            ends=self._ends.tobytes(),
            wire=b"".join(self._entries),
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
