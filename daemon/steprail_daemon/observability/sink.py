"""Hears what was committed. Only notes it, for the hot path is not to wait; the pulse has the rest done later.

`committed` is called for every batch once it is published, when nobody waits for it any more. `drain` then does for
each fact what `rows` says.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from steprail_daemon.core.events import PassiveEvent
from steprail_daemon.core.model import RunState
from steprail_daemon.core.records import Fact
from steprail_daemon.core.views import RunView, SessionView
from steprail_daemon.observability.registry import Observe
from steprail_daemon.observability.rows import NO_LABELS, PASSIVE_ROWS, ROWS, LiveRun, Moment, Row, Tally

#: Batches that may wait before they are worked off at once, whoever's time that takes.
LONGEST_QUEUE: Final = 10_000
_PORTION: Final = 25

log: Final = logging.getLogger("steprail.metrics")


class Batch(Protocol):
    """What is read of a batch: see `journal.store.Batch`."""

    run_no: int
    at: int
    kinds: bytes


class Sink:
    """Hears commits; see the module docstring.

    `kinds` names the kinds of events by number, `numbers` gives the number of a class that is a public event.
    `label_keys` are the session labels that become metric labels, with those labels' names. With `content` prompts and
    texts may be logged. `monotonic` gives seconds.
    """

    def __init__(
        self,
        observe: Observe,
        *,
        kinds: Mapping[int, str],
        numbers: Mapping[type, int],
        label_keys: Mapping[str, str],
        content: bool,
        monotonic: Callable[[], float],
    ) -> None:
        self._observe = observe
        self._kinds = kinds
        self._label_keys = label_keys
        self._monotonic = monotonic
        self._tally = Tally(observe, content=content)
        self._queue: deque[tuple[SessionView, int, int, list[Any]]] = deque()
        self._seen_kinds: list[bytes] = []
        self._runs: dict[tuple[str, int], LiveRun] = {}
        self._passive = tuple(numbers[cls] for cls in PASSIVE_ROWS if cls in numbers)
        self._refused_at: float | None = None
        self._refusal = ""

    def committed(
        self, session: SessionView, batch: Batch, facts: Sequence[Fact], events: Sequence[PassiveEvent | Fact]
    ) -> None:
        """Note a batch that was published; see `engine.ports.Listener`."""
        kinds = batch.kinds
        if kinds:
            self._seen_kinds.append(kinds)
        noted: list[Any] = [*facts]
        for number in self._passive:
            if number in kinds:
                noted += [event for event in events if type(event) in PASSIVE_ROWS]
                break
        if noted:
            self._queue.append((session, batch.run_no, batch.at, noted))
        if len(self._seen_kinds) > LONGEST_QUEUE:
            self.drain()

    def journal_refused(self, message: str) -> None:
        """Note that a commit was refused; see `engine.ports.Listener`."""
        self._refused_at = self._monotonic()
        self._refusal = message
        self._observe("journal_refusals_total", 1, NO_LABELS)

    def deleted(self, session: SessionView) -> None:
        """Count a session no more; see `engine.ports.Listener`."""
        self.drain()
        self._tally.forget(session.session_id)

    def refusal(self, seconds: float) -> str:
        """Say why the journal refused a commit, if it did within the last `seconds`; else nothing."""
        at = self._refused_at
        return self._refusal if at is not None and self._monotonic() - at < seconds else ""

    def take_stock(self, session: SessionView, runs: Mapping[int, RunView]) -> None:
        """Count a session that the journal had at the start, and its runs, by their numbers, that still wait."""
        self.drain()
        self._tally.session(session, session.state)
        for run_no, view in runs.items():
            key = (session.session_id, run_no)
            if view.state is RunState.QUEUED and key not in self._runs:
                run = self._runs[key] = LiveRun()
                run.run_id, run.created_at, run.state = view.run_id, view.created_at, view.state
                self._observe("runs_queued", 1, NO_LABELS)

    def drain(self) -> None:
        """Do all that was noted. A fact that cannot be counted is a bug, which is logged and ends nothing."""
        while self.drain_some():
            pass

    def drain_some(self) -> bool:
        """Do some of what was noted, in less than about a millisecond; whether more is left."""
        seen, self._seen_kinds = self._seen_kinds, []
        if seen:
            self._observe("event_batches_total", len(seen), NO_LABELS)
            for number, count in Counter(b"".join(seen)).items():
                self._observe("events_total", count, {"kind": self._kinds.get(number, str(number))})
        queue = self._queue
        for _ in range(min(_PORTION, len(queue))):
            self._take(*queue.popleft())
        return bool(queue)

    def _take(self, session: SessionView, run_no: int, at: int, facts: list[Any]) -> None:
        key = (session.session_id, run_no)
        run = self._runs.get(key) or LiveRun()
        if run_no:
            self._runs[key] = run
        labels = {name: session.labels.get(key, "") for key, name in self._label_keys.items()}
        labels["agent"] = session.agent
        moment = Moment(self._tally, session, run, at, labels)
        for fact in facts:
            row = ROWS.get(type(fact)) or PASSIVE_ROWS.get(type(fact))
            if row is not None:
                _tell(row, moment, fact)
        if run.ended:
            self._runs.pop(key, None)


def _tell(row: Row, moment: Moment, fact: object) -> None:
    try:
        row(moment, fact)
    except Exception:
        log.exception("a fact could not be counted", extra={"fact": type(fact).__name__})
