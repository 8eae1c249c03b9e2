"""What happens by itself: silence, refusals of a provider, deciders that leave, changes of a session."""

from __future__ import annotations

from pathlib import Path

import anyio
import msgspec
import pytest
from tests.unit.engine.stage import engine_stage

from steprail.v1 import events_pb2
from steprail_daemon.core.errors import Exhausted, WrongState
from steprail_daemon.core.events import RateLimited
from steprail_daemon.core.model import (
    SECOND,
    DecisionAction,
    OnDisconnect,
    PermissionMode,
    QueueMode,
    RateLimitKind,
    RunState,
    SessionState,
)
from steprail_daemon.engine import broker
from steprail_daemon.engine.facade import LOCAL, Cursor, DeciderRequest, EventFilter, SessionChange
from steprail_daemon.engine.system import SystemClock

pytestmark = pytest.mark.anyio


async def test_an_agent_that_gives_no_sign_of_life_is_given_up_and_its_session_lives_on(tmp_path: Path) -> None:
    async with engine_stage(tmp_path, silence_ns=SECOND // 20) as stage:
        session_id, run_id, process = await stage.running()
        view = stage.engine.get_run(LOCAL, run_id)
        await stage.until(lambda: view.ended)
        assert view.failure is not None
        assert view.failure.reason == "AGENT_UNRESPONSIVE"
        await stage.until(lambda: process.exited)
        run = await stage.start(session_id, "again")
        (await stage.launcher.next_process()).handshake()
        stage.launcher.processes[-1].take_prompt()
        assert run.state is RunState.RUNNING


async def test_who_waits_for_a_person_is_not_silent(tmp_path: Path) -> None:
    async with engine_stage(tmp_path, silence_ns=SECOND // 50) as stage:
        _, run_id, process = await stage.running(decider=DeciderRequest())
        process.step("a", "gate-1")
        view = stage.engine.get_run(LOCAL, run_id)
        looks = stage.runner(view.session_id)._silence
        before = looks._since
        await stage.until(lambda: looks._since > before + SECOND // 10)
        assert view.state is RunState.AWAITING_DECISION


async def test_while_a_provider_refuses_runs_wait_or_are_refused_and_then_begin(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        session_id, _, process = await stage.running()
        refusal = RateLimited(RateLimitKind.TRANSIENT, retry_after_ns=SECOND // 10)
        stage.runner(session_id).agent_said([refusal])
        process.end_turn("completed", "done")
        with pytest.raises(Exhausted, match="RATE_LIMITED") as caught:
            await stage.start(session_id, "at once")
        assert caught.value.retry_after_ns is not None
        run = await stage.start(session_id, "later", queue=QueueMode.QUEUE)
        assert run.state is RunState.QUEUED
        assert not run.turn_came
        await stage.until(lambda: process.prompts() == ["go", "later"])
        assert any(event.HasField("rate_limited") for event in stage.events(session_id))


async def test_refusals_that_follow_each_other_are_waited_for_once(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        session_id, _, process = await stage.running()
        for delay in (SECOND // 20, SECOND // 10, SECOND // 5):
            stage.runner(session_id).agent_said([RateLimited(RateLimitKind.TRANSIENT, retry_after_ns=delay)])
        (end,) = stage.engine._backoff_ends.values()
        left = end.when() - stage.world.loop.time()
        assert left * SECOND == pytest.approx(stage.world.rate_limits.remaining_ns("claude"), abs=SECOND // 20)
        process.end_turn("completed", "done")
        await stage.start(session_id, "later", queue=QueueMode.QUEUE)
        await stage.until(lambda: process.prompts() == ["go", "later"])


class SlowClock:
    """A clock that the loop's timers are ahead of."""

    def __init__(self) -> None:
        self._began = SystemClock().now()

    def now(self) -> int:
        return self._began + (SystemClock().now() - self._began) * 9 // 10


async def test_a_timer_that_is_early_leaves_no_run_waiting(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        session_id, _, process = await stage.running()
        stage.world.rate_limits._clock = SlowClock()
        refusal = RateLimited(RateLimitKind.TRANSIENT, retry_after_ns=SECOND // 10)
        stage.runner(session_id).agent_said([refusal])
        process.end_turn("completed", "done")
        await stage.start(session_id, "later", queue=QueueMode.QUEUE)
        await stage.until(lambda: process.prompts() == ["go", "later"])


async def test_a_decider_that_left_is_missed_after_its_grace(tmp_path: Path) -> None:
    decider = DeciderRequest(on_disconnect=OnDisconnect.CONTINUE, disconnect_grace_ns=SECOND // 50)
    async with engine_stage(tmp_path) as stage:
        _, run_id, process = await stage.running(decider=decider)
        leave = stage.engine.register_decider(LOCAL, run_id)
        process.step("a", "gate-1")
        leave()
        leave()
        await stage.until(lambda: "gate-1" in process.answers())
        assert process.answers()["gate-1"] == {}
        view = stage.engine.get_run(LOCAL, run_id)
        (decision,) = view.decisions.values()
        assert decision.source.name == "DISCONNECT"
        assert decision.action is DecisionAction.CONTINUE


async def test_one_that_was_never_registered_is_not_missed(tmp_path: Path) -> None:
    decider = DeciderRequest(on_disconnect=OnDisconnect.STOP, disconnect_grace_ns=0)
    async with engine_stage(tmp_path) as stage:
        _, run_id, process = await stage.running(decider=decider)
        process.step("a", "gate-1")
        assert stage.engine.get_run(LOCAL, run_id).state is RunState.AWAITING_DECISION


async def test_a_session_takes_other_settings_when_it_is_started_anew(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        session_id, _ = await stage.session()
        view = stage.engine.update_session(
            LOCAL, session_id, SessionChange(permission_mode=PermissionMode.READ_ONLY, labels={"a": "b"})
        )
        assert (view.permission_mode, view.labels) == (PermissionMode.READ_ONLY, {"a": "b"})
        await stage.until(lambda: stage.engine.get_session(LOCAL, session_id).state is not SessionState.STARTING)
        run = await stage.start(session_id)
        assert run.spec.permission_mode is PermissionMode.READ_ONLY


async def test_an_unknown_capability_is_refused_and_labels_alone_need_no_agent(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        session_id, _, process = await stage.running()
        view = stage.engine.update_session(LOCAL, session_id, SessionChange(labels={"team": "x"}))
        assert view.labels == {"team": "x"}
        assert not process.exited


async def test_many_sessions_are_followed_in_one_stream(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        one, _, process = await stage.running()
        known = Cursor(one, 0, stage.store.epoch)
        everything = stage.engine.watch_events(LOCAL, [known], EventFilter())
        steps = stage.engine.watch_events(LOCAL, [], EventFilter(kinds=frozenset({29})))
        seen: dict[str, list[int]] = {}

        async def collect() -> None:
            while (found := await everything.next(0)) is not None:
                for event in _events(found.wire):
                    seen.setdefault(event.session_id, []).append(event.seq)

        await collect()
        two, _, _ = await stage.running()
        process.step("a", "gate-1")
        await collect()
        assert set(seen) == {one, two}
        for session_id, seqs in seen.items():
            assert seqs == list(range(1, stage.engine.get_session(LOCAL, session_id).last_seq + 1))
        assert {cursor.session_id: cursor.after_seq for cursor in everything.cursors()} == {
            session_id: seqs[-1] for session_id, seqs in seen.items()
        }
        found = await steps.next(0)
        assert found is not None
        assert [event.WhichOneof("body") for event in _events(found.wire)] == ["step_end"]
        assert await steps.next(0) is None
        everything.close()
        steps.close()
        steps.close()
        assert stage.world.arrivals.followers == 0


async def test_who_wants_some_kinds_does_not_wait_behind_what_is_recorded_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker, "SLICE_BYTES", 1)
    async with engine_stage(tmp_path) as stage:
        session_id, _, process = await stage.running()
        process.step("a", "gate-1")
        beginning = Cursor(session_id, 0, stage.store.epoch)
        steps = stage.engine.watch_events(LOCAL, [beginning], EventFilter(kinds=frozenset({29})))
        with anyio.fail_after(5):
            found = await steps.next(3600 * SECOND)
        assert found is not None
        assert [event.WhichOneof("body") for event in _events(found.wire)] == ["step_end"]
        assert await steps.next(0) is None
        steps.close()


async def test_a_session_that_is_closed_is_given_to_its_end_and_then_left(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        session_id, _ = await stage.session()
        follower = stage.engine.watch_events(LOCAL, [Cursor(session_id, 0, stage.store.epoch)], EventFilter())
        await stage.engine.close_session(LOCAL, session_id, force=True)
        seqs: list[int] = []
        while (found := await follower.next(0)) is not None:
            seqs += [event.seq for event in _events(found.wire)]
        feed = stage.runner(session_id).feed
        assert seqs == list(range(1, feed.last_seq + 1))
        assert not feed._followers
        assert follower.cursors() == [Cursor(session_id, feed.last_seq, stage.store.epoch)]
        follower.close()


async def test_whoever_follows_all_is_woken_by_what_comes(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        _, _, process = await stage.running()
        follower = stage.engine.watch_events(LOCAL, [], EventFilter())
        stage.world.loop.call_soon(lambda: process.step("a", "gate-1"))
        found = await follower.next(5 * SECOND)
        assert found is not None
        follower.close()


async def test_a_plan_needs_an_agent_that_can(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        session_id, _, _ = await stage.running()
        view = stage.runner(session_id).view
        view.capabilities = msgspec.structs.replace(view.capabilities, plan_mode=False)
        with pytest.raises(WrongState, match="CAPABILITY_MISSING"):
            stage.engine.update_session(LOCAL, session_id, SessionChange(plan_mode=True))


def _events(wire: bytes) -> list[events_pb2.Event]:
    return list(events_pb2.EventBatch.FromString(wire).events)
