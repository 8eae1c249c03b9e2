"""Rows 1, 2 and 7: events from the agent's write to the client's count, and to a hundred clients.

The agent writes results of tools as fast as the pipe takes them. The limit reads and parses the same lines with the
same reader and the same types, and does nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from steprail_daemon.journal.verify import verify
from steprail_daemon.testing.bench.figures import Figures, Size
from steprail_daemon.testing.bench.processes import module_argv, read_report, run_pair
from steprail_daemon.testing.bench.rig import Flood, Rig, serving
from steprail_daemon.testing.bench.table import Better, Goal, Row

_RATE = Goal(0.25, 0.5, Better.HIGHER)
_CPU = Goal(5.0, 3.0, Better.LOWER)
_WATCHERS = Goal(1.5, 1.1, Better.LOWER)
#: How the agent writes: 64 KiB at a time, or each line by itself.
_WRITES = ("chunk", "line")


class EventBench:
    """Measures in `directory`. `say` is told what is going on."""

    def __init__(self, directory: Path, size: Size, say: Callable[[str], None]) -> None:
        self._directory = directory
        self._size = size
        self._say = say
        self._figures = Figures()

    def rows(self) -> list[Row]:
        """Measure, and read the journals back afterwards.

        Raises:
            RuntimeError: an event was lost on the way to a client or to the journal.
        """
        size = self._size
        with ExitStack() as stack:
            normal = stack.enter_context(serving(self._directory / "events"))
            full = stack.enter_context(serving(self._directory / "events-full", synchronous="full"))
            for number in range(size.rounds):
                self._say(f"events: round {number + 1} of {size.rounds}")
                for write in _WRITES:
                    self._parse(write)
                    self._note_flood(f"daemon, {write}", size.events, normal.flood(size.events, write))
                self._note_flood("daemon, FULL", size.full_events, full.flood(size.full_events, "chunk"))
                self._fan_out(normal)
            recorded = {rig.journal: rig.session().last_seq for rig in (normal, full)}
        for journal, least in recorded.items():
            self._read_back(journal, least)
        return self._table()

    def _parse(self, write: str) -> None:
        count = self._size.events
        parsed, written = self._directory / "parsed", self._directory / "written"
        run_pair(
            module_argv("limits", "parse", f"--count={count}", f"--report={parsed}"),
            {"mode": "flood", "count": count, "write": write, "report": str(written)},
        )
        limit, agent = read_report(parsed), read_report(written)
        if limit["count"] != count:
            raise RuntimeError(f"the limit saw {limit['count']} of {count} lines")
        self._figures.note(f"rate of read + parse, {write}", count / (limit["ended_ns"] - agent["begun_ns"]) * 1e9)
        self._figures.note(f"CPU of read + parse, {write}", limit["cpu_s"] / count * 1e6)

    def _note_flood(self, name: str, count: int, flood: Flood) -> None:
        self._figures.note(f"rate of {name}", count / flood.seconds)
        self._figures.note(f"CPU of {name}", flood.cpu_s / count * 1e6)

    def _fan_out(self, rig: Rig) -> None:
        """Measure what delivery alone costs, by clients that read back what was recorded; and all of it, live."""
        size = self._size
        live = rig.flood(size.fanned_out, "chunk", size.watchers)
        delivered = size.fanned_out * size.watchers
        self._figures.note("live to many", live.cpu_s / delivered * 1e6)
        read_back = rig.replay(size.fanned_out, live.after_seq, size.watchers)
        self._figures.note("read back by many", read_back / delivered * 1e6)
        # A tick of the CPU clock is 10 ms, so the one reads many more events.
        read_back = rig.replay(size.events, 0, 1)
        self._figures.note("read back by one", read_back / size.events * 1e6)

    def _read_back(self, journal: Path, least: int) -> None:
        """Check a journal with its daemon gone: whole, without gaps, and with every event that was seen."""
        report = verify(journal)
        if not report.ok or report.events < least:
            raise RuntimeError(f"{journal} holds {report.events} events, expected {least} or more: {report.problems}")
        self._say(f"read back {report.events} events in {report.batches} batches, no gaps")

    def _table(self) -> list[Row]:
        row = self._figures.row
        chunks, lines = "64 KiB writes", "a write per line"
        return [
            row("1", f"events, {chunks}", "ev/s", "rate of daemon, chunk", "rate of read + parse, chunk", _RATE),
            row("1b", f"events, {lines}", "ev/s", "rate of daemon, line", "rate of read + parse, line", _RATE),
            row("1c", f"events, FULL, {chunks}", "ev/s", "rate of daemon, FULL", "rate of read + parse, chunk"),
            row("2", f"CPU per event, {chunks}", "us", "CPU of daemon, chunk", "CPU of read + parse, chunk", _CPU),
            row("2b", f"CPU per event, {lines}", "us", "CPU of daemon, line", "CPU of read + parse, line", _CPU),
            row("7", "CPU per delivery, 100 watchers", "us", "read back by many", "read back by one", _WATCHERS),
            row("7b", "the same live, parse and commit included", "us", "live to many", "read back by one"),
        ]
