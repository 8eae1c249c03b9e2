"""Rows 8, 9 and 11: what the daemon holds and uses while nothing happens, without sessions and with many idle ones.

Each session has an agent of its own that waits for a prompt, a shell, so that there is room for many. What agents hold
is theirs and is not counted. The first sessions are made before anything is measured: they warm up what all share.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from steprail_daemon.testing.bench.figures import Figures, Size
from steprail_daemon.testing.bench.footprint import fine_cpu_seconds, footprint
from steprail_daemon.testing.bench.rig import Rig, serving
from steprail_daemon.testing.bench.table import Better, Goal, Row

#: What CPU is extrapolated to.
MANY = 1000
WARM_UP = 32
AT_ONCE = 8

_MEMORY = Goal(64.0, 24.0, Better.LOWER)
#: A thread for each would be 1; gRPC and the loop have pools whose threads come and go.
_THREADS = Goal(0.02, None, Better.LOWER)
_DESCRIPTORS = Goal(4.0, None, Better.LOWER)
#: "About 0 %" of one CPU.
_CPU = Goal(1.0, None, Better.LOWER)
_AT_REST = Goal(80.0, 60.0, Better.LOWER)

#: The agent.
IDLE_SH = Path(__file__).with_name("idle.sh")
_AGENT = "idle"


class IdleBench:
    """Measures in `directory`. `say` is told what is going on."""

    def __init__(self, directory: Path, size: Size, say: Callable[[str], None]) -> None:
        self._directory = directory
        self._size = size
        self._say = say
        self._figures = Figures()

    def rows(self, *, sessions: bool, meanwhile: Callable[[], list[Row]]) -> list[Row]:
        """Measure, rest first, and then what is about idle sessions, if that is wanted.

        Between the start of the sessions and the measurement of them `meanwhile` is done, and its rows are added.
        """
        note = self._figures.note
        with serving(self._directory / "idle", agents={_AGENT: ("claude", ("/bin/sh", str(IDLE_SH)))}) as rig:
            self._say("idle: at rest")
            rig.wait_probed()
            rest = footprint(rig.processes())
            note("memory at rest", rest.memory / 1024)
            row = self._figures.row
            rows = [row("11", "daemon at rest, all processes, PSS if alone", "MiB", "memory at rest", "", _AT_REST)]
            if sessions:
                cpu_at_rest = self._cpu_percent(rig)
                note("CPU at rest", cpu_at_rest)
                rows += self._of_sessions(rig, cpu_at_rest, meanwhile)
            else:
                rows += meanwhile()
        return rows

    def _of_sessions(self, rig: Rig, cpu_at_rest: float, meanwhile: Callable[[], list[Row]]) -> list[Row]:
        count, note, row = self._size.idle_sessions, self._figures.note, self._figures.row
        self._make(rig, WARM_UP)
        before = footprint(rig.processes())
        self._say(f"idle: {count} sessions")
        self._make(rig, count)
        # What their start left to be done is not what idle ones cost.
        settled = time.monotonic() + self._size.idle_seconds
        others = meanwhile()
        threading.Event().wait(max(0.0, settled - time.monotonic()))
        after = footprint(rig.processes())
        note("memory", (after.memory - before.memory) / count)
        note("threads", (after.threads - before.threads) / count)
        note("descriptors", (after.descriptors - before.descriptors) / count)
        measured = self._cpu_percent(rig)
        made = WARM_UP + count
        note("CPU", measured + max(0.0, measured - cpu_at_rest) / made * (MANY - made))
        name = f"an idle session, of {count}"
        return [
            *others,
            row("8", f"{name}: memory, PSS", "KiB", "memory", "", _MEMORY),
            row("8 threads", f"{name}: threads", "threads", "threads", "", _THREADS),
            row("8 fds", f"{name}: descriptors", "fds", "descriptors", "", _DESCRIPTORS),
            row("9", f"CPU of {MANY} idle sessions, from {made}", "%", "CPU", "", _CPU),
            row("9 rest", "CPU without sessions", "%", "CPU at rest"),
        ]

    @staticmethod
    def _make(rig: Rig, count: int) -> None:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for made in [pool.submit(rig.create_session, _AGENT) for _ in range(count)]:
                made.result()

    def _cpu_percent(self, rig: Rig) -> float:
        """Give the CPU time that the daemon uses in a while, as a percentage of one CPU."""
        seconds = self._size.idle_seconds
        pids = rig.processes()
        before = sum(map(fine_cpu_seconds, pids))
        threading.Event().wait(seconds)
        return (sum(map(fine_cpu_seconds, pids)) - before) / seconds * 100
