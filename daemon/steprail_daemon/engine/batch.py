"""Builds the batches of one session: numbers events, keeps their records, and gives them their wire form.

Events are encoded when a batch is taken, not when they are added, so that an agent which waits for an answer does not
wait for that: the facts are committed alone first (`commit_facts`), the answer is written, and then the events follow.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from itertools import accumulate

from steprail_daemon.core.events import PassiveEvent
from steprail_daemon.core.records import Fact, Record, StepEnded
from steprail_daemon.engine.ports import EventEncoder, RecordCodec
from steprail_daemon.journal.store import Batch, RequestRow

#: Bytes of facts that may be committed twice, as they are and in their events. Larger ones are committed once, and the
#: agent waits for the encoding.
MAX_EARLY_FACTS = 32 * 1024

#: The facts of a batch, also those that are no events, and its events.
Heard = tuple[list[Fact], list[PassiveEvent | Fact]]
_NOTHING: Heard = ([], [])


class BatchBuilder:
    """Collects what happens until it is committed. A batch belongs to one run, or to none."""

    __slots__ = (
        "_at",
        "_codec",
        "_encode_records",
        "_encoder",
        "_events",
        "_facts",
        "_first_seq",
        "_heard",
        "_held",
        "_kept",
        "_kind_of",
        "_records",
        "_run_id",
        "_step_number",
        "_taken",
        "closes_session",
        "ends_run",
        "opens_run",
        "opens_session",
        "request",
        "run_no",
        "seq",
        "session_no",
    )

    def __init__(self, session_no: int, last_seq: int, encoder: EventEncoder, codec: RecordCodec) -> None:
        self.session_no = session_no
        self.seq = last_seq
        self._encoder = encoder
        self._kind_of = encoder.kinds
        self._codec = codec
        # Looked up once, as this is on the way to every answer.
        self._encode_records = codec.encode_records
        self._at = 0
        self._run_id = ""
        self._step_number = 0
        self.run_no = 0
        self._taken = _NOTHING
        self._reset()

    def _reset(self) -> None:
        self._events: list[PassiveEvent | Fact] = []
        self._facts: list[Fact] = []
        self._heard: list[Fact] = []
        self._records: list[Record] = []
        self._kept = ""
        #: How many events the parts that are held have, and what those of each part share.
        self._held: list[tuple[int, int, int]] = []
        self._first_seq = self.seq + 1
        self.opens_session = ""
        self.opens_run = ""
        self.ends_run = False
        self.closes_session = False
        #: The request that is carried out; it goes with what is committed first.
        self.request: RequestRow | None = None

    def begin(self, at: int, run_no: int, run_id: str, step_number: int) -> None:
        """Set what the events that follow share. The batch before must have been taken if the run changes."""
        self._at = at
        self.run_no = run_no
        self._run_id = run_id
        self._step_number = step_number

    def add(self, event: PassiveEvent | Fact) -> None:
        """Add a public event."""
        self.seq += 1
        self._events.append(event)

    def extend(self, events: list[PassiveEvent]) -> None:
        """Add public events."""
        self.seq += len(events)
        self._events += events

    def add_fact(self, fact: Fact) -> None:
        """Add a fact: its record and, if it is public, its event."""
        self._facts.append(fact)
        if type(fact) in self._kind_of:
            self.seq += 1
            self._events.append(fact)

    def add_event_of(self, fact: Fact) -> None:
        """Add the event of a fact that is recorded already, if it has one."""
        if type(fact) in self._kind_of:
            self.add(fact)

    def add_record(self, record: Record) -> None:
        """Add a record that is no fact of a run, such as the making of the session."""
        self._records.append(record)

    def keep(self, text: str) -> None:
        """Have a text that a resource shows kept, if it is too large to be shown whole."""
        self._kept = text

    def commit_facts(self, append: Callable[[Batch], None]) -> Batch | None:
        """Have the facts alone committed, whole, so that their events can follow; None if that would not pay.

        What is taken next has their events and not their records. An error of `append` is passed on, and nothing was
        taken.
        """
        facts = self._facts
        records = self._encode_records(facts)
        if not 0 < len(records) <= MAX_EARLY_FACTS:
            return None
        batch = Batch(
            session_no=self.session_no,
            run_no=self.run_no,
            first_seq=self._first_seq,
            last_seq=self._first_seq - 1,
            at=self._at,
            kinds=b"",
            ends=b"",
            wire=b"",
            records=records,
            request=self.request,
        )
        append(batch)
        self._heard = [*self._heard, *facts] if self._heard else facts
        self._facts = []
        self.request = None
        return batch

    def step_of(self, step_id: str) -> bytes | None:
        """Give the public form of a step that is among what was added; None if it is not, or is too large to be whole.

        Its event, which is made when the batch is taken, holds the same bytes.
        """
        for fact in reversed(self._events):
            if type(fact) is StepEnded:
                if fact.step.step_id != step_id:
                    return None
                self._encoder.begin(self._at, self._run_id, self._step_number)
                return self._encoder.step(fact)
        return None

    def hold(self) -> None:
        """Keep these events, whose facts are committed, for the batch that is taken next, of the same run."""
        if self._events:
            self._held.append((len(self._events), self._at, self._step_number))

    def take(self) -> Batch | None:
        """Give the batch and begin a new one; None if nothing was added."""
        events = self._events
        if not events and not self._facts and not self._records:
            return None
        encoder, kind_of = self._encoder, self._kind_of
        if self._kept:
            encoder.keep(self._kept)
        if self._held:
            entries = self._encode_parts()
        else:
            encoder.begin(self._at, self._run_id, self._step_number)
            entries = list(map(encoder.encode, range(self._first_seq, self.seq + 1), events))
        records = self._encode_records([*self._records, *map(self._codec.to_record, self._facts)])
        kinds = bytes(map(kind_of.__getitem__, map(type, events)))
        ends = array("I", accumulate(map(len, entries))).tobytes()
        batch = Batch(
            session_no=self.session_no,
            run_no=self.run_no,
            first_seq=self._first_seq,
            last_seq=self.seq,
            at=self._at,
            kinds=kinds,
            ends=ends,
            wire=b"".join(entries),
            records=records,
        )
        batch.opens_session = self.opens_session
        batch.opens_run = self.opens_run
        batch.ends_run = self.ends_run
        batch.closes_session = self.closes_session
        batch.blobs = encoder.take_blobs()
        batch.request = self.request
        self._taken = ([*self._heard, *self._facts] if self._heard else self._facts, events)
        self._reset()
        return batch

    def hear(self) -> Heard:
        """Give and forget the facts and events of the batch that was taken last."""
        taken, self._taken = self._taken, _NOTHING
        return taken

    def _encode_parts(self) -> list[bytes]:
        """Encode the events of the parts that were held, and those that came after them."""
        encoder, events = self._encoder, self._events
        entries: list[bytes] = []
        for end, at, step_number in [*self._held, (len(events), self._at, self._step_number)]:
            start = len(entries)
            encoder.begin(at, self._run_id, step_number)
            entries += map(encoder.encode, range(self._first_seq + start, self._first_seq + end), events[start:end])
        return entries

    def drop(self) -> None:
        """Forget what was added since the last batch, or since something was held, as if it had not happened."""
        held, events = self._held, self._events
        self.rewind(self._first_seq - 1)
        if held:
            kept = held[-1][0]
            self._held, self._events = held, events[:kept]
            self.seq += kept

    def rewind(self, last_seq: int) -> None:
        """Forget what was added, and go on after `last_seq`: the batch that was taken last was not committed."""
        self.seq = last_seq
        self._reset()
