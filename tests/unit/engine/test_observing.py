"""What the engine tells those who observe it: commits after they are published, and what no fact tells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import pytest
from tests.framework.metrics import BY_ENGINE
from tests.unit.engine.stage import Stage, WatchedStore, engine_stage

from steprail_daemon.core.errors import Unavailable
from steprail_daemon.core.events import PassiveEvent, RateLimited
from steprail_daemon.core.model import SECOND, RateLimitKind
from steprail_daemon.core.records import (
    Fact,
    RunCreated,
    RunEnded,
    SessionStateChanged,
    StepEnded,
)
from steprail_daemon.core.views import SessionView
from steprail_daemon.engine.engine import Engine
from steprail_daemon.engine.facade import LOCAL, CreateSession, StartRun
from steprail_daemon.engine.rate_limits import RateLimits
from steprail_daemon.journal.store import Batch

pytestmark = pytest.mark.anyio

Observed = tuple[str, float, dict[str, str]]


class Observer:
    """Keeps what it hears, and notes in the diary when that was."""

    def __init__(self, diary: list[str]) -> None:
        self.diary = diary
        self.facts: list[Fact] = []
        self.batches: list[Batch] = []
        self.events: list[PassiveEvent | Fact] = []
        self.refusals: list[str] = []
        self.deletions: list[str] = []
        self.observed: list[Observed] = []

    def committed(
        self, session: SessionView, batch: Batch, facts: Sequence[Fact], events: Sequence[PassiveEvent | Fact]
    ) -> None:
        self.diary.append("heard")
        self.batches.append(batch)
        self.facts += facts
        self.events += events

    def journal_refused(self, message: str) -> None:
        self.refusals.append(message)

    def deleted(self, session: SessionView) -> None:
        self.deletions.append(session.session_id)

    def observe(self, name: str, value: float, labels: Mapping[str, str]) -> None:
        self.observed.append((name, value, dict(labels)))

    def of(self, name: str) -> list[tuple[float, dict[str, str]]]:
        return [(value, labels) for found, value, labels in self.observed if found == name]

    def kinds(self, *classes: type) -> list[type]:
        return [type(fact) for fact in self.facts if type(fact) in classes]


def watched(stage: Stage) -> Observer:
    """Have the stage's engine observed."""
    observer = Observer(stage.diary)
    stage.world = msgspec.structs.replace(stage.world, listener=observer, observe=observer.observe)
    stage.engine = Engine(stage.world, stage.agents)
    return observer


async def test_every_fact_is_heard_once_whether_or_not_it_was_committed_ahead_of_its_event(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        observer = watched(stage)
        _, _, process = await stage.running()
        process.step("one", "r1")
        process.step("two", "r2")
        process.end_turn("completed", "done")
        assert observer.kinds(RunCreated, StepEnded, RunEnded) == [RunCreated, StepEnded, StepEnded, RunEnded]
        assert SessionStateChanged in map(type, observer.facts)
        assert sum(len(batch.kinds) for batch in observer.batches) == len(observer.events)


async def test_that_a_session_is_deleted_is_heard(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        observer = watched(stage)
        session_id, _ = await stage.session()
        await stage.engine.close_session(LOCAL, session_id, force=False)
        stage.engine.delete_session(LOCAL, session_id)
        assert observer.deletions == [session_id]


async def test_the_agent_has_its_answer_before_anybody_hears_of_the_step(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        watched(stage)
        _, _, process = await stage.running()
        stage.diary.clear()
        process.step("one", "r1")
        assert stage.diary == ["commit", "write control_response", "commit", "heard"]


async def test_what_the_journal_refuses_is_heard_when_it_is_committed_at_last(tmp_path: Path) -> None:
    store = WatchedStore([])
    async with engine_stage(tmp_path, store) as stage:
        observer = watched(stage)
        _, run_id, process = await stage.running()
        store.broken = True
        process.step("one", "r1")
        assert observer.kinds(StepEnded) == []
        assert set(observer.refusals) == {"disk full"}
        store.broken = False
        await stage.until(lambda: observer.kinds(StepEnded) == [StepEnded])
        assert stage.engine.get_run(LOCAL, run_id).step_count == 1


async def test_a_start_that_the_journal_refuses_leaves_nothing_to_hear(tmp_path: Path) -> None:
    store = WatchedStore([])
    async with engine_stage(tmp_path, store) as stage:
        observer = watched(stage)
        session_id, _ = await stage.session()
        heard = len(observer.batches)
        store.broken = True
        with pytest.raises(Unavailable):
            await stage.engine.start_run(LOCAL, StartRun(session_id=session_id, prompt="go"))
        assert len(observer.batches) == heard
        assert observer.refusals == ["disk full"]


async def test_a_start_and_an_end_of_an_agent_are_observed_with_how_they_went(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        observer = watched(stage)
        _, process = await stage.session()
        assert observer.of("agent_starts_total") == [(1, {"agent": "claude", "outcome": "ready"})]
        ((seconds, labels),) = observer.of("agent_start_seconds")
        assert seconds >= 0
        assert labels == {"agent": "claude"}
        process.exit(code=3)
        assert observer.of("agent_exits_total") == [(1, {"agent": "claude", "cause": "error"})]


@pytest.mark.parametrize(
    ("code", "signal", "cause"), [(0, None, "exit"), (1, None, "error"), (None, 9, "signal"), (None, None, "unknown")]
)
async def test_the_cause_of_an_exit_says_how_the_process_ended(
    tmp_path: Path, code: int | None, signal: int | None, cause: str
) -> None:
    async with engine_stage(tmp_path) as stage:
        observer = watched(stage)
        _, process = await stage.session()
        process.exit(code, signal)
        assert observer.of("agent_exits_total") == [(1, {"agent": "claude", "cause": cause})]


async def test_an_agent_that_the_daemon_ends_was_ended(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        observer = watched(stage)
        session_id, _ = await stage.session()
        await stage.engine.close_session(LOCAL, session_id, force=True)
        assert observer.of("agent_exits_total") == [(1, {"agent": "claude", "cause": "ended"})]


async def test_an_agent_that_does_not_come_up_is_a_start_that_failed(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        observer = watched(stage)
        await stage.engine.create_session(LOCAL, CreateSession(agent="claude", cwd=str(tmp_path)))
        process = await stage.launcher.next_process()
        process.exit(code=1)
        assert observer.of("agent_starts_total") == [(1, {"agent": "claude", "outcome": "failed"})]
        assert observer.of("agent_start_seconds") == []


async def test_who_follows_is_counted_and_so_is_what_they_have_yet_to_get(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        observer = watched(stage)
        session_id, run_id, process = await stage.running()
        process.step("one", "r1")
        watch = stage.engine.watch_run(LOCAL, run_id, 0, "")
        assert observer.of("watchers") == [(1, {})]
        await watch.next(1_000_000)
        behind = stage.runner(session_id).view.last_seq - watch.last_seq
        assert observer.of("watcher_lag_events") == [(behind, {})]
        watch.close()
        watch.close()
        assert observer.of("watchers") == [(1, {}), (-1, {})]


async def test_the_engine_moves_all_that_it_is_said_to_move(tmp_path: Path) -> None:
    store = WatchedStore([])
    async with engine_stage(tmp_path, store) as stage:
        observer = watched(stage)
        _, run_id, process = await stage.running()
        watch = stage.engine.watch_run(LOCAL, run_id, 0, "")
        await watch.next(1_000_000)
        watch.close()
        process.exit(code=1)
        limits = RateLimits(stage.settings, stage.world.clock, lambda: 0.0, observer.observe)
        limits.refused("claude", RateLimited(RateLimitKind.TRANSIENT, "anthropic", retry_after_ns=30 * SECOND))
        ((seconds, labels),) = observer.of("rate_limit_backoff_seconds")
        assert (round(seconds), labels) == (30, {"provider": "anthropic"})
        # Its listener counts refusals: observability/sink.py.
        store.broken = True
        with pytest.raises(Unavailable):
            await stage.session()
        names = {name for name, _, _ in observer.observed}
        assert names | ({"journal_refusals_total"} if observer.refusals else set()) == BY_ENGINE
