"""The events of a session in memory, and those who follow them; for `fake_facade`."""

from __future__ import annotations

from collections.abc import Callable

import anyio

from steprail_daemon.engine.facade import Cursor, EventFilter, Respondent, Slice
from steprail_daemon.service.translate import SessionEncoder

EPOCH = "epoch-1"


class Bell:
    """Wakes all who wait for something to happen anywhere."""

    def __init__(self) -> None:
        self.rung = anyio.Event()

    def ring(self) -> None:
        """Wake them."""
        self.rung.set()
        self.rung = anyio.Event()


class Log:
    """The events of a session: entries with kind and run; the first has sequence number 1."""

    def __init__(self, session_id: str, bell: Bell) -> None:
        self.encoder = SessionEncoder(session_id)
        self.entries: list[tuple[int, bytes, str]] = []
        self.changed = anyio.Event()
        self.followers = 0
        self.asked_at_once: list[Subscription] = []
        self._bell = bell

    def respondents(self) -> list[Respondent]:
        """Give those who can be asked at once."""
        found = [subscription.respondent() for subscription in self.asked_at_once]
        return [respondent for respondent in found if respondent is not None]

    def wake(self) -> None:
        """Wake those who follow."""
        self.changed.set()
        self.changed = anyio.Event()
        self._bell.ring()

    def after(self, seq: int, wanted: Callable[[int, str], bool]) -> Slice | None:
        """Give the entries after `seq` that are wanted by kind and run."""
        mine = [(kind, entry) for kind, entry, run_id in self.entries[seq:] if wanted(kind, run_id)]
        if not mine:
            return None
        ends: list[int] = []
        for _, entry in mine:
            ends.append((ends[-1] if ends else 0) + len(entry))
        wire, kinds = b"".join(entry for _, entry in mine), bytes(kind for kind, _ in mine)
        return Slice(wire, kinds, tuple(ends), len(self.entries))


class Subscription:
    """See `engine.facade.Subscription`."""

    def __init__(self, log: Log, after_seq: int, run_id: str, ended: Callable[[], bool]) -> None:
        self._log = log
        self._run_id = run_id
        self._ended = ended
        self._open = True
        self._respondent: Respondent | None = None
        self.last_seq = after_seq
        log.followers += 1

    async def next(self, timeout_ns: int) -> Slice | None:
        """See `engine.facade.Subscription`."""
        found = self._take()
        if found is not None:
            return found
        if self._ended():
            raise StopAsyncIteration
        changed = self._log.changed
        with anyio.move_on_after(timeout_ns / 1e9):
            await changed.wait()
        return self._take()

    def ask_at_once(self, respondent: Respondent) -> None:
        """See `engine.facade.Subscription`."""
        self._respondent = respondent
        self._log.asked_at_once.append(self)

    def respondent(self) -> Respondent | None:
        """Give who is asked, if all that is recorded was given."""
        respondent = self._respondent
        if respondent is None or self.last_seq < len(self._log.entries) or not respondent.can_be_asked():
            return None
        return respondent

    def close(self) -> None:
        """See `engine.facade.Subscription`."""
        if self._open:
            self._open = False
            self._log.followers -= 1
            if self._respondent is not None:
                self._log.asked_at_once.remove(self)

    def _take(self) -> Slice | None:
        after, self.last_seq = self.last_seq, len(self._log.entries)
        return self._log.after(after, lambda _, run_id: self._run_id in ("", run_id))


class FanIn:
    """See `engine.facade.EventsSubscription`; `select` gives the logs that are wanted now, by session."""

    def __init__(
        self, select: Callable[[], dict[str, Log]], cursors: list[Cursor], wanted: EventFilter, bell: Bell
    ) -> None:
        self._select = select
        self._wanted = wanted
        self._bell = bell
        given = {cursor.session_id: cursor.after_seq for cursor in cursors}
        logs = select()
        self._places = {session_id: given.get(session_id, len(log.entries)) for session_id, log in logs.items()}
        for log in logs.values():
            log.followers += 1

    async def next(self, timeout_ns: int) -> Slice | None:
        """See `engine.facade.EventsSubscription`."""
        with anyio.move_on_after(timeout_ns / 1e9):
            while True:
                rung = self._bell.rung
                found = self._take()
                if found is not None:
                    return found
                await rung.wait()
        return self._take()

    def cursors(self) -> list[Cursor]:
        """See `engine.facade.EventsSubscription`."""
        return [Cursor(session_id, seq, EPOCH) for session_id, seq in self._places.items()]

    def close(self) -> None:
        """See `engine.facade.EventsSubscription`."""
        for session_id, log in self._select().items():
            if session_id in self._places:
                log.followers -= 1
        self._places.clear()

    def _take(self) -> Slice | None:
        for session_id, log in self._select().items():
            if session_id not in self._places:
                self._places[session_id] = 0
                log.followers += 1
            after, self._places[session_id] = self._places[session_id], len(log.entries)
            found = log.after(after, lambda kind, _: not self._wanted.kinds or kind in self._wanted.kinds)
            if found is not None:
                return found
        return None
