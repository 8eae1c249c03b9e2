"""Reaping children, and killing trees until nothing of them is left."""

from __future__ import annotations

import os
import signal

from steprail_daemon.parent import procfs
from steprail_daemon.parent.lineage import Lineage, ancestors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from steprail_daemon.parent.loop import Loop, Timer
    from steprail_daemon.parent.procfs import Process
    from steprail_daemon.parent.trees import Identity, Tree

KILL_LIMIT = 5.0
"""Seconds after which a tree is given up: what is left then waits in the kernel and dies when it comes back."""

_FIRST_PAUSE = 0.002
_LONGEST_PAUSE = 0.1
_HOPELESS_PAUSE = 1.0

_STRAYS = -1
_ORPHANS = -2


class View:
    """One scan, attributed: processes by tree, those with the mark of a tree that is gone, orphans of nobody."""

    def __init__(self, processes: dict[int, Process], owner: dict[int, int], unowned: list[Process]) -> None:
        self.processes = processes
        self.unowned = unowned
        self._by_tree: dict[int, list[Process]] = {}
        for pid, tree in owner.items():
            self._by_tree.setdefault(tree, []).append(processes[pid])

    def of(self, tree: int) -> list[Process]:
        """Give the processes of a tree, zombies too."""
        return self._by_tree.get(tree, [])

    @property
    def strays(self) -> list[Process]:
        """Living processes with a mark of this instance and no tree."""
        return [process for process in self.of(_STRAYS) if process.is_alive]

    @property
    def orphans(self) -> list[Process]:
        """Living orphans (and what descends from them) that nothing ties to a tree."""
        return [process for process in self.of(_ORPHANS) if process.is_alive]


class Sweeper:
    """Owns all trees: reaps, attributes, kills in passes.

    `on_exit(tree)` is called when a root was reaped; it may doom further trees. `on_gone(tree, survivors)` is called
    once per tree, when after that nothing of it lives, or at the limit. `on_settled()` is called after each pass that
    left nothing to kill but what is past the limit. Counts since the parent's start: `orphans_reaped`,
    `orphans_killed`, `strays_killed`.
    """

    def __init__(
        self,
        loop: Loop,
        instance: str,
        on_exit: Callable[[Tree], None],
        on_gone: Callable[[Tree, int], None],
        on_settled: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._prefix = f"{instance}."
        self._on_exit = on_exit
        self._on_gone = on_gone
        self._on_settled = on_settled
        self._trees: dict[int, Tree] = {}
        self._by_pid: dict[int, Tree] = {}
        self._by_mark: dict[str, int] = {}
        self._own_pid = os.getpid()
        self._foreign_sessions: set[int] = {0, os.getsid(0)}
        self._timer: Timer | None = None
        self._pause = _FIRST_PAUSE
        self._signalled: set[Identity] = set()
        self._is_passing = False
        self._on_clean: Callable[[], None] | None = None
        self._clean_deadline = 0.0
        self.orphans_reaped = 0
        self.orphans_killed = 0
        self.strays_killed = 0

    @property
    def trees(self) -> list[Tree]:
        """All trees of which something may be left."""
        return list(self._trees.values())

    def clean_up(self, on_clean: Callable[[], None]) -> None:
        """Kill what an earlier life left, then take stock of what is none of ours, then call back."""
        self._on_clean = on_clean
        self._clean_deadline = self._loop.now() + KILL_LIMIT
        self._schedule(0)

    def add(self, tree: Tree) -> None:
        """Own a tree."""
        self._trees[tree.number] = tree
        self._by_pid[tree.pid] = tree
        self._by_mark[tree.mark] = tree.number
        self._foreign_sessions.discard(tree.pid)

    def kill(self, *trees: Tree) -> None:
        """Kill trees, each to its last process. It scans before the first signal, so that no link is cut unseen."""
        for tree in trees:
            tree.doom()
        self._pause = _FIRST_PAUSE
        if self._is_passing:
            self._schedule(0)
        else:
            self._pass(self._look())

    def signal_tree(self, tree: Tree, signum: int) -> None:
        """Send a signal once to all that lives of a tree."""
        if signum == signal.SIGKILL:
            self.kill(tree)
            return
        for process in tree.note(self._look().of(tree.number)):
            procfs.send_signal(process, signum)

    def reap(self) -> None:
        """Take every exit there is. A root's status goes to its tree; any other child is an orphan that came to us."""
        view: View | None = None
        ended = False
        while (pid := _next_exit()) is not None:
            tree = self._by_pid.get(pid)
            if tree is None:
                _wait(pid)
                self.orphans_reaped += 1
                continue
            # While the root is a zombie its number cannot be another's, so its session is certainly its own.
            if view is None or pid not in view.processes or view.processes[pid].is_alive:
                view = self._look()
            del self._by_pid[pid]
            tree.reaped(_wait(pid))
            self._on_exit(tree)
            ended = True
        if ended and view is not None:
            self._pause = _FIRST_PAUSE
            self._pass(view)

    def _look(self) -> View:
        processes = procfs.scan()
        lineage = Lineage(processes, ancestors(processes, self._own_pid), self._foreign_sessions)
        for tree in self._trees.values():
            lineage.claim((pid for pid, start in tree.members if self._is(processes, pid, start)), tree.number)
            if tree.session_open:
                lineage.claim_session(tree.pid, tree.number)
        for process in lineage.unowned():
            mark = procfs.mark(process.pid)
            if mark.startswith(self._prefix):
                lineage.claim([process.pid], self._by_mark.get(mark, _STRAYS))
        lineage.claim((p.pid for p in lineage.unowned() if self._is_adopted(p)), _ORPHANS)
        return View(processes, lineage.owner, lineage.unowned())

    def _is(self, processes: dict[int, Process], pid: int, start: int) -> bool:
        process = processes.get(pid)
        return process is not None and process.start == start

    def _is_adopted(self, process: Process) -> bool:
        return process.ppid == self._own_pid and process.session not in self._foreign_sessions

    def _pass(self, view: View) -> None:
        """Kill what has to die and report what is gone; come again while something has to die."""
        self._is_passing = True
        self._signalled &= {process.identity for process in view.processes.values()}
        unfinished = [tree for tree in self.trees if self._pass_tree(tree, view)]
        doomed = view.strays
        self.strays_killed += self._kill_each(view.strays)
        if self._on_clean is not None:
            self._pass_clean_up(view)
        elif not any(tree.request_id is not None and not tree.is_doomed for tree in self._trees.values()):
            doomed += view.orphans
            self.orphans_killed += self._kill_each(view.orphans)
        self._is_passing = False
        if unfinished or doomed:
            self._schedule(self._pause)
            self._pause = min(self._pause * 2, _LONGEST_PAUSE)
        if not doomed and all(self._is_past(tree) for tree in unfinished):
            self._pause = _HOPELESS_PAUSE
            self._on_settled()

    def _pass_clean_up(self, view: View) -> None:
        if view.strays and self._loop.now() < self._clean_deadline:
            return
        # Whoever is here before the first tree is none of ours, nor who is born into their sessions later.
        self._foreign_sessions |= {process.session for process in [*view.unowned, *view.of(_ORPHANS)]}
        callback, self._on_clean = self._on_clean, None
        if callback is not None:
            callback()

    def _pass_tree(self, tree: Tree, view: View) -> bool:
        """Do what one tree needs; tell whether it needs another pass."""
        living = tree.note(view.of(tree.number))
        if not tree.is_doomed:
            return False
        if tree.deadline is None:
            tree.deadline = self._loop.now() + KILL_LIMIT
        for process in living:
            if procfs.send_signal(process, signal.SIGKILL):
                tree.killed.add(process.identity)
        if not tree.is_over:
            return True
        tree.scans_without_find = 0 if living else tree.scans_without_find + 1
        # An orphan between fork and exec has no mark to read yet: look once more before calling the tree gone.
        if not living and (tree.scans_without_find > 1 or not view.orphans):
            self._gone(tree, 0)
            return False
        if self._is_past(tree):
            self._gone(tree, len(living))
            return False
        return True

    def _is_past(self, tree: Tree) -> bool:
        return tree.deadline is not None and self._loop.now() >= tree.deadline

    def _gone(self, tree: Tree, survivors: int) -> None:
        del self._trees[tree.number]
        del self._by_mark[tree.mark]
        self._on_gone(tree, survivors)

    def _kill_each(self, processes: list[Process]) -> int:
        """Kill processes; give how many were not sent the signal before."""
        before = len(self._signalled)
        self._signalled |= {p.identity for p in processes if procfs.send_signal(p, signal.SIGKILL)}
        return len(self._signalled) - before

    def _schedule(self, delay: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(delay, lambda: self._pass(self._look()))


def _next_exit() -> int | None:
    """Give a child that exited, without reaping it; None if there is none."""
    try:
        found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    return found.si_pid if found is not None else None


def _wait(pid: int) -> int:
    return os.waitpid(pid, 0)[1]
