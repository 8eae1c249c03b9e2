"""Who belongs to which tree: a pure closure over one scan of the processes."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from steprail_daemon.parent.procfs import Process


class Lineage:
    """Claims processes of one scan for trees (named by a number) and spreads each claim to all that it entails.

    A claim spreads to the children of a process and to its session: sessions are only inherited, so whoever is in the
    session of a tree's process descends from that tree. It never spreads through `foreign_sessions`, those which
    existed before any tree did, nor to `protected` processes (the parent itself, its ancestors). The first claim
    stands.
    """

    def __init__(
        self, processes: Mapping[int, Process], protected: Iterable[int], foreign_sessions: Iterable[int]
    ) -> None:
        self.owner: dict[int, int] = {}
        self._processes = processes
        self._protected = frozenset(protected)
        self._spread_sessions = set(foreign_sessions)
        self._children: dict[int, list[int]] = {}
        self._sessions: dict[int, list[int]] = {}
        for process in processes.values():
            self._children.setdefault(process.ppid, []).append(process.pid)
            self._sessions.setdefault(process.session, []).append(process.pid)

    def unowned(self) -> list[Process]:
        """Give the processes that no claim reached, protected ones left out."""
        return [p for pid, p in self._processes.items() if pid not in self.owner and pid not in self._protected]

    def claim(self, pids: Iterable[int], tree: int) -> None:
        """Claim processes for a tree, with all that follows."""
        reached = list(pids)
        while reached:
            pid = reached.pop()
            if pid in self.owner or pid in self._protected or pid not in self._processes:
                continue
            self.owner[pid] = tree
            reached.extend(self._children.get(pid, ()))
            reached.extend(self._session_of(pid))

    def claim_session(self, session: int, tree: int) -> None:
        """Claim all of a session, whether or not its leader is still there."""
        if session not in self._spread_sessions:
            self._spread_sessions.add(session)
            self.claim(self._sessions.get(session, ()), tree)

    def _session_of(self, pid: int) -> Iterable[int]:
        session = self._processes[pid].session
        if session in self._spread_sessions:
            return ()
        self._spread_sessions.add(session)
        return self._sessions[session]


def ancestors(processes: Mapping[int, Process], pid: int) -> set[int]:
    """Give a process and all above it."""
    found: set[int] = set()
    while pid in processes and pid not in found:
        found.add(pid)
        pid = processes[pid].ppid
    return found
