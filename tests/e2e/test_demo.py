"""`steprail demo` with the real Claude Code, as `make demo` runs it; each number that it prints is the journal's."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from tests.framework.daemon import STEPRAIL, short_directory

from steprail.v1 import events_pb2, rules_pb2, runs_pb2
from steprail_daemon.journal.layout import LANES
from steprail_daemon.journal.sqlite import SqliteStore
from steprail_daemon.testing.claude_binary import ensure_claude

_ID = re.compile(r"\b(run|ses)_[0-9a-z]{26}\b")


class Played(msgspec.Struct, frozen=True):
    """What a demonstration printed, what it left, and how long it took as seen from outside."""

    lines: list[str]
    directory: Path
    seconds: float


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    ensure_claude()
    with short_directory() as directory:
        environment = {**os.environ, "STEPRAIL_ADDRESS": "unix:/nowhere", "STEPRAIL_LIMITS__NONSENSE": "1"}
        begun = time.monotonic()
        done = subprocess.run(
            [STEPRAIL, "demo", "--directory", str(directory)],
            cwd=tmp_path_factory.mktemp("elsewhere"),
            env=environment,
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, ""), done.stdout
        yield Played(done.stdout.splitlines(), directory, time.monotonic() - begun)


@pytest.mark.timeout(240)
def test_the_demonstration_stops_exactly_and_goes_on(played: Played) -> None:
    text = "\n".join(played.lines)
    assert "\x1b" not in text
    assert re.findall(r"^\$ steprail (\S+)", text, re.MULTILINE) == [
        "serve",
        "agents",
        "run",
        "show",
        "continue",
        "journal",
    ]
    assert played.lines[played.lines.index("What happened") + 1 :][:4] == [
        "  stopped after 1 step; the model had been asked 1 time",
        "  while it was stopped: 0 requests to the model",
        "  continued: 2 more steps with 3 more requests, 4 in all",
        "  the agent's note: written by a scripted model",
    ]
    assert sorted(path.name for path in played.directory.iterdir()) == [
        "daemon.log",
        "state",
        "steprail.toml",
        "workspace",
    ]


@pytest.mark.timeout(240)
def test_each_number_that_the_demonstration_prints_is_the_journal_s(played: Played) -> None:
    journal = _Journal(played.directory / "state" / "journal.db")
    told = set(journal.lines())
    last = played.lines[-1]
    seen = set()
    for line in played.lines[:-1]:
        ids = {match[0] for match in _ID.finditer(line)}
        assert ids <= journal.ids, line
        words = _ID.sub("ID", line)
        if re.search(r"\d", words) and not line.startswith("$ "):
            assert words in told, f"the journal does not say: {line}"
            seen.add(words)
    assert told == seen, "the demonstration does not tell all of it"
    seconds = re.fullmatch(r"  (\d+\.\d) s from the first command to the last; .*", last)
    assert seconds is not None, last
    # The runs are within the commands, and those within the demonstration.
    assert journal.span <= float(seconds[1]) + 0.05
    assert float(seconds[1]) <= played.seconds + 0.05


class _Journal:
    """The journal of a demonstration, and what it has to say in the words of the command line."""

    def __init__(self, path: Path) -> None:
        with closing(SqliteStore(path)) as store:
            (session,) = store.sessions()
            batches = store.read(session.session_no, 0, 1 << 30)
            self._first, self._second = [run.run_id for run in store.runs(session.session_no)]
        wire = b"".join(batch.wire for batch in batches)
        self._events = list(runs_pb2.WatchRunResponse.FromString(wire).events)
        self.ids = {session.session_id, self._first, self._second}
        with closing(sqlite3.connect(path)) as rows:
            lanes = [rows.execute(f"SELECT count(*) FROM batches_{lane}").fetchone() for lane in range(LANES)]
            (blobs,) = rows.execute("SELECT count(*) FROM blobs").fetchone()
        counts = {"sessions": 1, "runs": 2, "events": len(self._events), "batches": sum(count for (count,) in lanes)}
        counts |= {"blobs": blobs, "wire bytes": len(wire)}
        self._counts = f"{path}: {', '.join(f'{name} {count}' for name, count in counts.items())}"

    @property
    def span(self) -> float:
        """Seconds from the first run's beginning to the second one's end."""
        of_runs = [event.time.ToNanoseconds() for event in self._events if event.run_id]
        return (of_runs[-1] - of_runs[0]) / 1e9

    def _of(self, run_id: str, kind: str) -> list[events_pb2.Event]:
        return [event for event in self._events if event.run_id == run_id and event.HasField(kind)]  # type: ignore[arg-type]

    def lines(self) -> Iterator[str]:
        """Give each line with a number, without ids."""
        yield self._counts
        yield "The daemon was told to end (SIGTERM); it drained and ended with 0."
        for run_id in (self._first, self._second):
            (start,) = self._of(run_id, "agent_start")
            yield f"agent claude {start.agent_start.version}"
            yield f"claude  claude  {start.agent_start.version}  EXACT      yes"
            for event in self._of(run_id, "step_end"):
                verdicts = [_verdict(verdict) for verdict in event.step_end.step.verdicts]
                yield "  ".join([f"step {event.step_end.step.number}", *verdicts])
            for event in self._of(run_id, "tool_end"):
                output = event.tool_end.result.output.value.splitlines()[0]
                if re.search(r"\d", output):
                    yield f"  < {output}"
            (end,) = self._of(run_id, "agent_end")
            yield f"tokens: {end.agent_end.usage.input_tokens} in, {end.agent_end.usage.output_tokens} out"
        (stopped,), (completed,) = self._of(self._first, "agent_end"), self._of(self._second, "agent_end")
        reason = stopped.agent_end.stop_reason
        yield f"stopped after {stopped.agent_end.step_count} step: {reason.reason} (rule {reason.rule_id})"
        yield f"  stop (decided by rule: {reason.reason})"
        yield f"completed after {completed.agent_end.step_count} steps"
        # A request to the model is a message of it; nothing was said between the first run's end and the second one.
        before, after = [len(self._of(run_id, "message_end")) for run_id in (self._first, self._second)]
        between = [event for event in self._events if stopped.seq < event.seq and not event.run_id]
        asked = sum(event.HasField("message_end") for event in between)
        yield f"  stopped after {stopped.agent_end.step_count} step; the model had been asked {before} time"
        yield f"  while it was stopped: {asked} requests to the model"
        steps = completed.agent_end.step_count
        yield f"  continued: {steps} more steps with {after} more requests, {before + after} in all"


def _verdict(verdict: rules_pb2.Verdict) -> str:
    assert verdict.outcome == rules_pb2.VERDICT_OUTCOME_MATCHED
    return f"steps {verdict.observed}/{verdict.limit} reached"
