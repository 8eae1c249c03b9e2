"""Rows 3, 4 and 5: how long the agent waits at a step boundary, timed inside the agent.

Two pacings. With **gaps** the agent pauses for 1 ms before each boundary and after it, so that what is timed is the
boundary alone: the messages of the step were taken meanwhile, as they are with a real CLI, which writes the boundary
some milliseconds after the last result (Claude Code 2.1.332: 2 to 7 ms). **Back to back** the whole step (message,
result, boundary) comes in one write and all of it is timed, with nothing to overlap it. Gaps are judged, both are
printed. A limit runs with the same agent in the same pacing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TypeAlias

from steprail_daemon.testing.bench.figures import Figures, Size
from steprail_daemon.testing.bench.processes import (
    AGENT_ARGV,
    finish,
    module_argv,
    read_report,
    run,
    run_pair,
    running,
)
from steprail_daemon.testing.bench.rig import serving
from steprail_daemon.testing.bench.table import Better, Goal, Row, percentile

GAP_NS = 1_000_000
#: The first part of a series of waits, in which programs warm up, is left out.
WARM_UP = 0.1

_RULE = Goal(2.0, 1.2, Better.LOWER)
_MEMORY = Goal(3.0, 1.5, Better.LOWER)
_NODE = Goal(1.0, None, Better.LOWER)
_CLIENT = Goal(1.5, 1.2, Better.LOWER)

_ECHO = "echo"
_LOOP = "echo on an event loop"
_COMMIT = "echo + commit"
_NODE_RULE = "Node readline + rule"
_PING_PONG = "ping-pong"
_ALL_THREE = "ping-pong + echo + commit"
_RULE_MJS = Path(__file__).with_name("rule.mjs")

#: Takes the number of steps and the gap in nanoseconds, gives the waits in nanoseconds.
Waits: TypeAlias = Callable[[int, int], list[int]]


class DecisionBench:
    """Measures in `directory`. `kinds` names what decides: "rule", "memory" (a rule, journal in memory), "client"."""

    def __init__(self, directory: Path, size: Size, say: Callable[[str], None], kinds: frozenset[str]) -> None:
        self._directory = directory
        self._size = size
        self._say = say
        self._kinds = kinds
        self._report = directory / "waits"
        self._figures = Figures()

    def rows(self) -> list[Row]:
        """Measure."""
        size = self._size
        with ExitStack() as stack:
            subjects = self._subjects(stack)
            limits = self._limits()
            for number in range(size.decision_rounds):
                self._say(f"decisions: round {number + 1} of {size.decision_rounds}")
                for gap_ns in (0, GAP_NS):
                    for name, waits in _in_turn(limits, subjects):
                        self._note(name, gap_ns, self._measured(waits, gap_ns))
        if "rule" in self._kinds:
            self._synced()
        return [row for gap_ns in (GAP_NS, 0) for row in self._table(gap_ns)]

    def _measured(self, waits: Waits, gap_ns: int) -> list[int]:
        return waits(self._size.spaced_steps if gap_ns else self._size.steps, gap_ns)

    def _synced(self) -> None:
        """Measure with FULL by itself: its waits for the disk would be felt by whatever is measured beside it."""
        self._say("decisions: FULL")
        with serving(self._directory / "full", synchronous="full") as full:
            for _ in range(self._size.decision_rounds):
                for gap_ns in (0, GAP_NS):
                    self._note("rule, FULL", gap_ns, full.steps(self._size.spaced_steps, gap_ns))

    def _subjects(self, stack: ExitStack) -> dict[str, Waits]:
        subjects: dict[str, Waits] = {}
        if "memory" in self._kinds:
            subjects["memory"] = stack.enter_context(serving(self._directory / "memory", memory=True)).steps
        if not self._kinds & {"rule", "client"}:
            return subjects
        normal = stack.enter_context(serving(self._directory / "decisions"))
        if "rule" in self._kinds:
            subjects["rule"] = normal.steps
        if "client" in self._kinds:
            subjects["client"] = normal.steps_with_client
        return subjects

    def _limits(self) -> dict[str, Waits]:
        limits: dict[str, Waits] = {}
        if "memory" in self._kinds:
            limits |= {_ECHO: self._echo, _NODE_RULE: self._node, _LOOP: self._echo_on_loop}
        if self._kinds & {"rule", "client"}:
            limits[_COMMIT] = self._echo_commit
        if "client" in self._kinds:
            limits[_PING_PONG] = self._ping_pong
        return limits

    def _note(self, name: str, gap_ns: int, waits: list[int]) -> None:
        warm = waits[int(len(waits) * WARM_UP) :]
        self._figures.note(f"{name} @{gap_ns}", percentile(warm, 0.5) / 1000)

    def _prompt(self, count: int, gap_ns: int) -> dict[str, object]:
        return {"mode": "steps", "count": count, "gap_ns": gap_ns, "report": str(self._report)}

    def _waits(self) -> list[int]:
        waits: list[int] = read_report(self._report)["waits_ns"]
        return waits

    def _echo(self, count: int, gap_ns: int) -> list[int]:
        run_pair(module_argv("limits", "echo"), self._prompt(count, gap_ns))
        return self._waits()

    def _echo_on_loop(self, count: int, gap_ns: int) -> list[int]:
        run_pair(module_argv("limits", "echo", "--loop"), self._prompt(count, gap_ns))
        return self._waits()

    def _echo_commit(self, count: int, gap_ns: int) -> list[int]:
        argv = module_argv("limits", "echo", f"--commit={self._directory / 'rows.db'}")
        run_pair(argv, self._prompt(count, gap_ns))
        return self._waits()

    def _node(self, count: int, gap_ns: int) -> list[int]:
        prompt = json.dumps(self._prompt(count, gap_ns))
        run(["node", str(_RULE_MJS), *AGENT_ARGV, "--bare", prompt], "node")
        return self._waits()

    def _ping_pong(self, count: int, gap_ns: int) -> list[int]:
        socket = f"--socket={self._directory / 'ping-pong'}"
        asking = [socket, f"--count={count}", f"--gap-ns={gap_ns}", f"--report={self._report}"]
        with (
            running(module_argv("pingpong", "serve", *asking)) as server,
            running(module_argv("pingpong", "answer", socket)) as client,
        ):
            finish(server, "the asking side")
            finish(client, "the answering side")
        return self._waits()

    def _table(self, gap_ns: int) -> list[Row]:
        judged = gap_ns > 0
        pacing = "1 ms gaps" if judged else "back to back"
        rows: list[Row] = []

        def add(number: str, name: str, subject: str, limit: str, goal: Goal | None) -> None:
            row = self._figures.row(
                number if judged else f"{number} b2b",
                f"{name}, {pacing}",
                "us",
                f"{subject} @{gap_ns}",
                f"{limit} @{gap_ns}",
                goal if judged else None,
            )
            rows.append(row)

        if "rule" in self._kinds:
            add("3", "decision by a rule", "rule", _COMMIT, _RULE)
            add("3 FULL", "the same, FULL", "rule, FULL", _COMMIT, None)
        if "memory" in self._kinds:
            add("4", "a rule, in memory", "memory", _ECHO, _MEMORY)
            add("4 node", "a rule, in memory", "memory", _NODE_RULE, _NODE)
            add("4 loop", "a rule, in memory", "memory", _LOOP, None)
        if "client" in self._kinds:
            self._sum_limit(gap_ns)
            add("5", "decision by a client", "client", _ALL_THREE, _CLIENT)
        return rows

    def _sum_limit(self, gap_ns: int) -> None:
        both = (self._figures.of(f"{_PING_PONG} @{gap_ns}"), self._figures.of(f"{_COMMIT} @{gap_ns}"))
        for ping_pong, commit in zip(*both, strict=True):
            self._figures.note(f"{_ALL_THREE} @{gap_ns}", ping_pong + commit)


def _in_turn(limits: Mapping[str, Waits], subjects: Mapping[str, Waits]) -> Iterator[tuple[str, Waits]]:
    """Give limits and subjects by turns, so that noise which lasts hits both."""
    left, right = list(limits.items()), list(subjects.items())
    for place in range(max(len(left), len(right))):
        yield from left[place : place + 1]
        yield from right[place : place + 1]
