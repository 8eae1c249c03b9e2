"""What readers are told of events that are not kept any more, and of sessions whose record is damaged."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.engine.stage import Stage, WatchedStore, engine_stage

from steprail_daemon.core.errors import NotFound, OutOfRange, StepRailError, WrongState
from steprail_daemon.core.model import SECOND, RunState, SessionState
from steprail_daemon.engine.facade import LOCAL, ContinueRun, Cursor, DeciderRequest, EventFilter, StartRun
from steprail_daemon.journal.store import JournalError, JournalUnusable

pytestmark = pytest.mark.anyio


async def two_runs(stage: Stage) -> tuple[str, str, str]:
    """Make a session with two ended runs, of one step each; the events of the first are removed."""
    session_id, first, process = await stage.running()
    process.step("a", "gate-1")
    process.end_turn("completed", "done")
    second = (await stage.start(session_id)).run_id
    process.take_prompt()
    process.step("b", "gate-2")
    process.end_turn("completed", "done")
    return session_id, first, second


def remove_first(stage: Stage, session_id: str, first: str) -> int:
    """Remove the events of the first run; gives the last that is gone."""
    runner = stage.runner(session_id)
    last_seq = runner.places[first].last_seq
    assert last_seq is not None
    stage.store.remove_prefix(runner.session_no, last_seq)
    return last_seq


async def test_a_cursor_before_what_is_kept_is_invalid_and_is_told_where_to_go_on(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        session_id, first, second = await two_runs(stage)
        gone = remove_first(stage, session_id, first)
        epoch = stage.store.epoch
        for after_seq in (1, gone - 1):
            with pytest.raises(OutOfRange) as caught:
                stage.engine.watch_session(LOCAL, session_id, after_seq, epoch)
            assert caught.value.metadata["earliest_seq"] == str(gone + 1)
        part = await stage.engine.watch_session(LOCAL, session_id, gone, epoch).next(SECOND)
        whole = await stage.engine.watch_session(LOCAL, session_id, 0, "").next(SECOND)
        assert part is not None
        assert whole is not None
        assert whole.wire == part.wire
        run = await stage.engine.watch_run(LOCAL, second, 0, "").next(SECOND)
        assert run is not None


async def test_a_run_whose_events_are_gone_is_shown_but_not_watched_nor_its_steps_given(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        session_id, first, second = await two_runs(stage)
        remove_first(stage, session_id, first)
        with pytest.raises(OutOfRange, match="CURSOR_INVALID"):
            stage.engine.watch_run(LOCAL, first, 0, "")
        with pytest.raises(NotFound, match="STEP_NOT_FOUND"):
            stage.engine.steps(LOCAL, first, 0, 10)
        assert stage.engine.get_run(LOCAL, first).state is RunState.COMPLETED
        assert stage.engine.get_run(LOCAL, first).step_count == 1
        assert len(stage.engine.steps(LOCAL, second, 0, 10)) == 1


async def test_a_restart_after_a_removal_shows_the_same(tmp_path: Path) -> None:
    store = WatchedStore([])
    async with engine_stage(tmp_path, store) as stage:
        session_id, first, second = await two_runs(stage)
        remove_first(stage, session_id, first)
        views = [stage.engine.get_run(LOCAL, run_id) for run_id in (first, second)]
        async with engine_stage(tmp_path, store) as after:
            after.recover()
            assert [after.engine.get_run(LOCAL, run_id) for run_id in (first, second)] == views
            again = await after.engine.continue_run(LOCAL, ContinueRun(run_id=second, prompt="more"))
            assert again.state is RunState.QUEUED


async def test_a_reader_that_is_overtaken_is_told_and_misses_nothing_unawares(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        session_id, first, _ = await two_runs(stage)
        reader = stage.engine.watch_session(LOCAL, session_id, 1, stage.store.epoch)
        everybody = stage.engine.watch_events(LOCAL, [], EventFilter())
        remove_first(stage, session_id, first)
        with pytest.raises(OutOfRange, match="CURSOR_INVALID"):
            await reader.next(SECOND)
        everybody.close()


async def test_a_reader_of_a_session_that_is_deleted_is_told(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        session_id, _, _ = await two_runs(stage)
        reader = stage.engine.watch_session(LOCAL, session_id, 1, stage.store.epoch)
        await stage.engine.close_session(LOCAL, session_id, force=True)
        stage.engine.delete_session(LOCAL, session_id)
        with pytest.raises(NotFound, match="SESSION_NOT_FOUND") as told:
            await reader.next(SECOND)
        assert told.value.metadata == {"session_id": session_id}


async def test_a_reader_of_all_sessions_goes_on_when_one_is_deleted_that_it_has_not_been_given_all_of(
    tmp_path: Path,
) -> None:
    async with engine_stage(tmp_path) as stage:
        session_id, _, _ = await two_runs(stage)
        cursors = [Cursor(session_id, 1, stage.store.epoch)]
        everybody = stage.engine.watch_events(LOCAL, cursors, EventFilter())
        await stage.engine.close_session(LOCAL, session_id, force=True)
        stage.engine.delete_session(LOCAL, session_id)
        other, _ = await stage.session()
        found = await everybody.next(SECOND)
        assert found is not None
        assert [cursor.session_id for cursor in everybody.cursors()] == [other]
        everybody.close()


async def test_a_reader_of_all_sessions_is_told_in_which_one_it_was_overtaken(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        session_id, first, _ = await two_runs(stage)
        cursors = [Cursor(session_id, 1, stage.store.epoch)]
        everybody = stage.engine.watch_events(LOCAL, cursors, EventFilter())
        remove_first(stage, session_id, first)
        with pytest.raises(OutOfRange, match="CURSOR_INVALID") as late:
            await everybody.next(SECOND)
        with pytest.raises(OutOfRange, match="CURSOR_INVALID") as later:
            stage.engine.watch_events(LOCAL, cursors, EventFilter())
        assert late.value.metadata["session_id"] == later.value.metadata["session_id"] == session_id
        everybody.close()


async def test_a_session_whose_agent_left_the_configuration_says_which_one_it_was(tmp_path: Path) -> None:
    store = WatchedStore([])
    async with engine_stage(tmp_path, store) as stage:
        session_id, _, _ = await two_runs(stage)
    async with engine_stage(tmp_path, store, agents=()) as after:
        after.recover()
        with pytest.raises(WrongState, match="AGENT_UNAVAILABLE") as refused:
            await after.engine.start_run(LOCAL, StartRun(session_id=session_id, prompt="go"))
        assert refused.value.metadata == {"agent": "claude"}


class DamagedStore(WatchedStore):
    """A store whose records of one session cannot be read from a place on."""

    def __init__(self) -> None:
        super().__init__([])
        self.readable: dict[int, int] = {}
        self.error: JournalError = JournalUnusable("malformed")

    def records(self, session_no: int) -> Iterator[tuple[int, bytes]]:
        """Give those before the damage, then say that it is damaged."""
        found = list(super().records(session_no))
        if session_no not in self.readable:
            return iter(found)
        return self._until(found[: self.readable[session_no]])

    def _until(self, found: list[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
        yield from found
        raise self.error


@pytest.mark.parametrize("count", [0, 1, 4])
async def test_a_damaged_session_is_broken_and_the_others_go_on(tmp_path: Path, count: int) -> None:
    store = DamagedStore()
    async with engine_stage(tmp_path, store) as stage:
        damaged, run_id, process = await stage.running(decider=DeciderRequest())
        process.step("a", "gate-1")
        whole, _ = await stage.session()
        store.readable[stage.runner(damaged).session_no] = count
        batches = len(store.read(1, 0, 1 << 30))
        async with engine_stage(tmp_path, store) as after:
            after.recover()
            view = after.engine.get_session(LOCAL, damaged)
            assert view.state is SessionState.BROKEN
            assert "malformed" in view.state_reason
            assert after.engine.get_session(LOCAL, whole).state is SessionState.SUSPENDED
            if count == 4:
                run = after.engine.get_run(LOCAL, run_id)
                assert run.state is RunState.FAILED
                assert run.failure is not None
                assert run.failure.reason == "DAEMON_RESTARTED"
                assert not run.needs_attention
            for refused in (
                lambda: after.start(damaged),
                lambda: after.engine.close_session(LOCAL, damaged, force=True),
            ):
                with pytest.raises(StepRailError, match="SESSION_BROKEN"):
                    await refused()
            subscription = after.engine.watch_session(LOCAL, damaged, 0, "")
            assert await subscription.next(SECOND) is not None
            with pytest.raises(StopAsyncIteration):
                await subscription.next(SECOND)
            assert len(store.read(1, 0, 1 << 30)) == batches
            after.engine.delete_session(LOCAL, damaged)
            assert [one.session_id for one in after.engine.list_sessions(LOCAL)] == [whole]


async def test_a_journal_that_cannot_be_read_now_keeps_the_daemon_from_starting(tmp_path: Path) -> None:
    store = DamagedStore()
    async with engine_stage(tmp_path, store) as stage:
        await stage.session()
        store.readable[1] = 0
        store.error = JournalError("input/output error")
        async with engine_stage(tmp_path, store) as after:
            with pytest.raises(JournalError, match="input/output"):
                after.recover()
