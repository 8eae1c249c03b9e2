"""The ledger of one session: what was decided is written down here before anybody acts on it or sees it.

When the journal refuses, the ledger **stands still**: what waits is tried again at intervals until it holds, and what
happens meanwhile is put off. After `journal_patience_ns` the owner is told, once, that this takes too long.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from steprail_daemon.core.views import SessionView
from steprail_daemon.engine.batch import BatchBuilder, Heard
from steprail_daemon.engine.broker import Feed
from steprail_daemon.engine.refusals import not_written
from steprail_daemon.engine.world import World
from steprail_daemon.journal.store import Batch, BatchRefused, JournalError


class LedgerOwner(Protocol):
    """Who writes into the ledger."""

    def ledger_stalled(self) -> None:
        """The journal refuses. Nothing may be answered, and nothing more should come."""

    def ledger_waits_too_long(self) -> None:
        """The journal has refused for longer than there is patience."""

    def ledger_goes_on(self) -> None:
        """All that waited is committed: act on it, and take what was put off."""


class Ledger:
    """Commits and publishes; see the module docstring. `builder` collects what comes next."""

    def __init__(self, world: World, view: SessionView, feed: Feed, builder: BatchBuilder, owner: LedgerOwner) -> None:
        self._builder = builder
        self._view = view
        self._world = world
        self._append = world.store.append
        self._feed = feed
        self._owner = owner
        self._listener = world.listener
        self._uncommitted: list[tuple[Batch, Heard]] = []
        self._put_off: list[Callable[[], None]] = []
        self._stalled_since = 0
        #: Whether something waits for the journal.
        self.stalled = False
        self._impatient = False

    def require(self) -> None:
        """See that the journal is not refusing.

        Raises:
            Unavailable: JOURNAL_UNAVAILABLE.
        """
        if self.stalled:
            raise not_written("nothing is accepted until it can be written again")

    def put_off(self, happen: Callable[[], None]) -> None:
        """Keep what happens while the ledger stands still, in order."""
        self._put_off.append(happen)

    def cut(self) -> None:
        """End the batch here: what comes next belongs to another run, or to none."""
        batch = self._builder.take()
        if batch is not None:
            self._uncommitted.append((batch, self._builder.hear()))

    def commit_facts(self) -> bool:
        """Commit the facts of the present batch ahead of their events; whether that was possible."""
        if self._uncommitted:
            return False
        try:
            facts = self._builder.commit_facts(self._append)
        except BatchRefused:
            raise
        except JournalError as error:
            # The batch is committed whole once the journal takes it; until then nothing is answered.
            self._listener.journal_refused(error.message)
            return False
        if facts is None:
            return False
        if facts.request is not None:
            self._world.requests.add(facts.request)
        return True

    def commit(self) -> bool:
        """Commit and publish all there is; whether it is committed. If not, the ledger stands still from now on."""
        batch = self._builder.take()
        if batch is not None:
            self._uncommitted.append((batch, self._builder.hear()))
        try:
            self._commit_waiting()
        except BatchRefused:
            raise
        except JournalError as error:
            self._listener.journal_refused(error.message)
            self._stall()
            return False
        return True

    def commit_or_refuse(self) -> None:
        """Commit and publish the present batch, or forget it.

        Raises:
            Unavailable: JOURNAL_UNAVAILABLE; it is as if nothing had been added.
        """
        batch = self._builder.take()
        if batch is None:
            return
        try:
            self._append(batch)
        except BatchRefused:
            raise
        except JournalError as error:
            self._listener.journal_refused(error.message)
            self._builder.rewind(batch.first_seq - 1)
            raise not_written(error.message) from error
        self._publish(batch, self._builder.hear())

    def _commit_waiting(self) -> None:
        waiting = self._uncommitted
        while waiting:
            batch, heard = waiting[0]
            self._append(batch)
            waiting.pop(0)
            self._publish(batch, heard)

    def _publish(self, batch: Batch, heard: Heard) -> None:
        self._view.last_seq = batch.last_seq
        if batch.request is not None:
            self._world.requests.add(batch.request)
        self._feed.publish(batch)
        self._listener.committed(self._view, batch, *heard)

    def _stall(self) -> None:
        if not self.stalled:
            self.stalled = True
            self._stalled_since = self._world.clock.now()
            self._impatient = False
            self._owner.ledger_stalled()
            self._retry_later()

    def _retry_later(self) -> None:
        seconds = self._world.settings.journal_retry_ns / 1e9
        self._world.loop.call_later(seconds, self._world.guarded(self._retry))

    def _retry(self) -> None:
        if not self.stalled:
            return
        try:
            self._commit_waiting()
        except BatchRefused:
            raise
        except JournalError as error:
            self._listener.journal_refused(error.message)
            patience = self._world.settings.journal_patience_ns
            if not self._impatient and self._world.clock.now() - self._stalled_since > patience:
                self._impatient = True
                self._owner.ledger_waits_too_long()
            self._retry_later()
            return
        self.stalled = False
        self._owner.ledger_goes_on()
        while self._put_off and not self.stalled:
            self._put_off.pop(0)()
