"""Reads completed steps back from the journal: the public events that carry them, found by kind, never decoded."""

from __future__ import annotations

from array import array

from steprail_daemon.engine.broker import SLICE_BYTES
from steprail_daemon.engine.facade import StoredStep
from steprail_daemon.engine.runner import RunPlace
from steprail_daemon.journal.store import Batch, Store

#: Number of `step_end` in the public event's body.
STEP_END = 29


def read_steps(store: Store, session_no: int, place: RunPlace, *, after_number: int, limit: int) -> list[StoredStep]:
    """Give at most `limit` steps after `after_number`.

    The nth `step_end` of a run is step n, since numbers have no gaps.

    Raises:
        JournalError: the store could not be read.
    """
    view = place.view
    found: list[StoredStep] = []
    number = 0
    seq = place.first_seq - 1
    while number < view.step_count and len(found) < limit:
        batches = store.read(session_no, seq, SLICE_BYTES)
        if not batches:
            break
        for batch in batches:
            seq = batch.last_seq
            if batch.run_no != place.run_no:
                continue
            for event in _step_ends(batch):
                number += 1
                if number > after_number and len(found) < limit:
                    step_id = view.steps[number - 1].step_id
                    found.append(StoredStep(number, event, view.decisions.get(step_id)))
    return found


def _step_ends(batch: Batch) -> list[bytes]:
    events: list[bytes] = []
    place = batch.kinds.find(STEP_END)
    if place < 0:
        return events
    ends = array("I", batch.ends)
    while place >= 0:
        start = ends[place - 1] if place else 0
        events.append(_payload(batch.wire[start : ends[place]]))
        place = batch.kinds.find(STEP_END, place + 1)
    return events


def _payload(entry: bytes) -> bytes:
    """Take the tag and the length off an entry: a byte, then a base-128 number whose last byte is below 128."""
    place = 1
    while entry[place] & 0x80:
        place += 1
    return entry[place + 1 :]
