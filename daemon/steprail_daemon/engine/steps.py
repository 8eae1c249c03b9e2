"""Reads completed steps back from the journal: the public events that carry them, found by kind, never decoded."""

from __future__ import annotations

from array import array

from steprail_daemon.core.records import StepEnded
from steprail_daemon.core.views import RunView
from steprail_daemon.engine.broker import SLICE_BYTES
from steprail_daemon.engine.facade import StoredStep
from steprail_daemon.engine.runner import RunPlace
from steprail_daemon.engine.world import World
from steprail_daemon.journal.store import Batch


def read_steps(
    world: World, session_no: int, place: RunPlace, view: RunView, *, after_number: int, limit: int
) -> list[StoredStep]:
    """Give at most `limit` steps after `after_number`, of those that `view` has.

    The nth step's event of a run is step n, since numbers have no gaps.

    Raises:
        JournalError: the store could not be read.
    """
    kind = world.encoders.kinds[StepEnded]
    found: list[StoredStep] = []
    number = 0
    seq = place.first_seq - 1
    while number < len(view.steps) and len(found) < limit:
        batches = world.store.read(session_no, seq, SLICE_BYTES)
        if not batches:
            break
        for batch in batches:
            seq = batch.last_seq
            if batch.run_no != place.run_no:
                continue
            for entry in _entries(batch, kind):
                number += 1
                if number > after_number and len(found) < limit:
                    step_id = view.steps[number - 1].step_id
                    event = world.encoders.event_of(entry)
                    found.append(StoredStep(number, event, view.decisions.get(step_id)))
    return found


def _entries(batch: Batch, kind: int) -> list[bytes]:
    """Give the entries of one kind."""
    place = batch.kinds.find(kind)
    if place < 0:
        return []
    entries: list[bytes] = []
    ends = array("I", batch.ends)
    while place >= 0:
        start = ends[place - 1] if place else 0
        entries.append(batch.wire[start : ends[place]])
        place = batch.kinds.find(kind, place + 1)
    return entries
