"""Where two things meet: a close and a run, an end and a start, a commit and a crash, an agent and its gate."""

from __future__ import annotations

import copy
from functools import partial
from pathlib import Path

import anyio
import pytest
from tests.unit.engine.stage import Stage, WatchedStore, boundary_line, engine_stage, step_lines

from steprail_daemon.core.errors import StepRailError
from steprail_daemon.core.model import SECOND, Decision, DecisionAction, QueueMode, RunState, SessionState, StepGate
from steprail_daemon.core.records import AbortAsked
from steprail_daemon.core.views import RunView, SessionView
from steprail_daemon.engine.facade import LOCAL, CreateSession, DeciderRequest, LimitsRequest, StartRun
from steprail_daemon.engine.interpreting import MAX_CALLS
from steprail_daemon.journal.store import Batch, JournalError

pytestmark = pytest.mark.anyio


# --- closing ----------------------------------------------------------------------------------------------------------


async def test_a_session_that_is_being_closed_takes_no_run(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        session_id, process = await stage.session()
        process.lingers = True
        async with anyio.create_task_group() as tasks:

            async def close() -> None:
                await stage.engine.close_session(LOCAL, session_id, force=False)

            tasks.start_soon(close)
            tasks.start_soon(close)
            await stage.until(lambda: process.ladder is not None)
            with pytest.raises(StepRailError, match="SESSION_CLOSED"):
                await stage.engine.start_run(LOCAL, StartRun(session_id=session_id, prompt="x"))
            process.exit(0)
        assert stage.engine.get_session(LOCAL, session_id).state is SessionState.CLOSED
        closings = [event for event in stage.events(session_id) if event.session_state_changed.state == 5]
        assert len(closings) == 1


async def test_a_close_goes_on_although_its_caller_went_away(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        session_id, process = await stage.session()
        process.lingers = True
        with anyio.move_on_after(0.05):
            await stage.engine.close_session(LOCAL, session_id, force=False)
        assert stage.engine.get_session(LOCAL, session_id).state is SessionState.IDLE
        process.exit(0)
        await stage.until(lambda: stage.engine.get_session(LOCAL, session_id).state is SessionState.CLOSED)


async def test_a_close_that_cannot_be_recorded_is_refused_and_can_be_repeated(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        session_id, _ = await stage.session()
        stage.store.broken = True
        with pytest.raises(StepRailError, match="JOURNAL_UNAVAILABLE"):
            await stage.engine.close_session(LOCAL, session_id, force=False)
        stage.store.broken = False
        await stage.until(lambda: not stage.runner(session_id).ledger.stalled)
        view = await stage.engine.close_session(LOCAL, session_id, force=False)
        assert view.state is SessionState.CLOSED


async def test_an_agent_that_cannot_be_killed_does_not_keep_close_or_drain_waiting(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        session_id, run_id, process = await stage.running()
        process.immortal = True
        with anyio.fail_after(5):
            await stage.engine.close_session(LOCAL, session_id, force=True)
        view = stage.engine.get_run(LOCAL, run_id)
        assert view.state is RunState.ABORTED
        assert view.failure is not None


async def test_the_late_exit_of_a_process_that_was_given_up_does_not_end_its_successor(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        session_id, run_id, process = await stage.running()
        process.immortal = True
        process.say({"type": "control_request", "request_id": "r", "request": "not an object"})
        await stage.until(lambda: stage.engine.get_run(LOCAL, run_id).ended)
        await stage.until(lambda: not stage.runner(session_id).host.up)
        run = await stage.engine.start_run(LOCAL, StartRun(session_id=session_id, prompt="next"))
        second = await stage.launcher.next_process()
        second.handshake()
        second.take_prompt()
        process.say(*step_lines("ghost"))
        process.exit(signal=9)
        assert run.state is RunState.RUNNING
        assert stage.runner(session_id).host.ready
        assert not [event for event in stage.events(session_id) if event.tool_start.call.call_id == "toolu_ghost"]


async def test_a_drain_ends_although_the_journal_refuses(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        await stage.running()
        stage.store.broken = True
        with anyio.fail_after(5):
            await stage.end(window_ns=SECOND // 100, longest_end_ns=SECOND // 10)


# --- a journal that refuses -------------------------------------------------------------------------------------------


async def test_while_the_journal_refuses_what_is_shown_is_what_is_recorded(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        session_id, run_id, process = await stage.running()
        stage.store.broken = True
        process.end_turn("completed", "done")
        assert stage.engine.get_run(LOCAL, run_id).state is RunState.RUNNING
        assert stage.engine.get_session(LOCAL, session_id).state is SessionState.RUNNING
        assert [run.state for run in stage.engine.list_runs(LOCAL, "")] == [RunState.RUNNING]
        assert [session.state for session in stage.engine.list_sessions(LOCAL)] == [SessionState.RUNNING]
        stage.store.unreadable = True
        with pytest.raises(StepRailError, match="JOURNAL_UNAVAILABLE"):
            stage.engine.get_run(LOCAL, run_id)
        stage.store.broken = stage.store.unreadable = False
        view = await stage.engine.wait_run(LOCAL, run_id, attention=False, timeout_ns=5 * SECOND)
        assert view.state is RunState.COMPLETED


async def test_a_journal_that_refuses_is_asked_again_at_even_intervals_and_not_by_several(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        session_id, _, process = await stage.running()
        stage.store.broken = True
        process.say(*step_lines("a"))
        for name in "bcd":
            process.say(*step_lines(name))
        before = stage.store.refusals
        runner = stage.runner(session_id)
        started = stage.world.clock.now()
        await stage.until(lambda: stage.store.refusals >= before + 5)
        interval = stage.settings.journal_retry_ns
        assert stage.store.refusals - before <= (stage.world.clock.now() - started) // interval + 1
        assert runner.ledger.stalled


async def test_a_batch_that_the_store_calls_malformed_is_a_bug_and_ends_the_daemon(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        _, _, process = await stage.running()
        stage.store.refuses_as_malformed = True
        process.step("a", "gate-1")
        assert "gate-1" not in process.answers()
        assert len(stage.crashes) == 1
        stage.crashes.clear()


# --- facts first, events after ----------------------------------------------------------------------------------------


class DiesAfterFacts(WatchedStore):
    """A store whose process dies between the facts of a decision and their events."""

    dead = False

    def append(self, batch: Batch) -> None:
        """Commit facts; die when their events come."""
        if self.dead:
            raise JournalError("the process is gone")
        super().append(batch)
        if b"step_whole" in batch.records and not batch.kinds:
            self.dead = True

    def in_its_next_life(self) -> DiesAfterFacts:
        """Give the store as another process finds it; this one stays dead."""
        another = copy.copy(self)
        another.dead = False
        return another


async def test_a_crash_between_facts_and_events_is_mended_by_making_the_events(tmp_path: Path) -> None:
    store = DiesAfterFacts([])
    async with engine_stage(tmp_path, store) as before:
        session_id, run_id, process = await before.running()
        process.step("a", "gate-1")
        assert process.answers()["gate-1"] == {}
        assert not any(event.HasField("step_end") for event in before.events(session_id))
        async with engine_stage(tmp_path, store.in_its_next_life()) as after:
            after.recover()
            events = after.events(session_id)
            assert [event.seq for event in events] == list(range(1, len(events) + 1))
            (step,) = [event for event in events if event.HasField("step_end")]
            assert step.run_id == run_id
            assert step.step_end.step.tool_results[0].output.value == "output of a"
            assert [
                event.decision_recorded.decision.action for event in events if event.HasField("decision_recorded")
            ] == [1]
            assert [stored.number for stored in after.engine.steps(LOCAL, run_id, 0, 5)] == [1]
            count = len(events)
            async with engine_stage(tmp_path, store.in_its_next_life()) as third:
                third.recover()
                assert len(third.events(session_id)) == count


async def test_a_step_too_large_to_be_committed_twice_is_committed_with_its_events_before_the_answer(
    tmp_path: Path,
) -> None:
    async with engine_stage(tmp_path) as stage:
        _, _, process = await stage.running()
        big = step_lines("a")
        big[1]["message"]["content"][0]["content"] = "x" * 50_000  # type: ignore[index]
        process.say(*big)
        stage.diary.clear()
        process.say(boundary_line("a", "gate-1"))
        assert stage.diary == ["commit", "write control_response"]


# --- gates, starts and ends -------------------------------------------------------------------------------------------


async def test_an_agent_that_does_not_wait_is_noticed_also_where_nobody_is_asked(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        session_id, run_id, process = await stage.running()
        process.say(*step_lines("a"), boundary_line("a", "gate-1"), *step_lines("b"), boundary_line("b", "gate-2"))
        view = stage.engine.get_run(LOCAL, run_id)
        assert view.failure is not None
        assert view.failure.reason == "GATE_LOST"
        assert stage.engine.get_session(LOCAL, session_id).capabilities.step_gate is StepGate.BEST_EFFORT
        of_run = [event for event in stage.events(session_id) if event.run_id == run_id]
        assert of_run[-1].HasField("agent_end")


UNKNOWN_CONVERSATION = {
    "type": "result",
    "subtype": "error_during_execution",
    "is_error": True,
    "errors": ["No conversation found with session ID: x"],
}


async def test_a_conversation_that_the_agent_never_knew_makes_no_session(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        request = CreateSession(agent="claude", cwd=str(stage.directory), resume="gone")
        refusals: list[StepRailError] = []

        async def create() -> None:
            with pytest.raises(StepRailError, match="RESUME_UNKNOWN") as caught:
                await stage.engine.create_session(LOCAL, request)
            refusals.append(caught.value)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(create)
            process = await stage.launcher.next_process()
            assert "--resume=gone" in process.argv
            process.say(UNKNOWN_CONVERSATION)
            process.exit(1)
        assert refusals[0].metadata == {"agent_session_id": "gone"}
        assert "No conversation found" in refusals[0].message
        assert stage.engine.list_sessions(LOCAL) == []


async def test_a_conversation_that_the_agent_knows_is_taken_up_before_the_session_is_given(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        request = CreateSession(agent="claude", cwd=str(stage.directory), resume="known")
        made: list[SessionView] = []

        async def create() -> None:
            made.append(await stage.engine.create_session(LOCAL, request))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(create)
            process = await stage.launcher.next_process()
            process.handshake()
        assert made[0].state is SessionState.IDLE
        with pytest.raises(StepRailError, match="AGENT_SESSION_IN_USE"):
            await stage.engine.create_session(LOCAL, request)


async def test_a_conversation_that_the_agent_has_lost_breaks_the_session_by_name(tmp_path: Path) -> None:
    store = WatchedStore([])
    async with engine_stage(tmp_path, store) as stage:
        session_id, _, process = await stage.running()
        process.end_turn("completed", "done")
        process.exit(0)
        run = await stage.engine.start_run(LOCAL, StartRun(session_id=session_id, prompt="more"))
        second = await stage.launcher.next_process()
        second.say(UNKNOWN_CONVERSATION)
        second.exit(1)
        assert run.state is RunState.FAILED
        assert run.failure is not None
        assert run.failure.reason == "RESUME_FAILED"
        view = stage.engine.get_session(LOCAL, session_id)
        assert view.state is SessionState.BROKEN
        with pytest.raises(StepRailError, match="SESSION_BROKEN") as refused:
            await stage.engine.start_run(LOCAL, StartRun(session_id=session_id, prompt="again"))
        assert "No conversation found" in refused.value.metadata["broken_reason"]
        async with engine_stage(tmp_path, store) as after:
            after.recover()
            assert after.engine.get_session(LOCAL, session_id).state is SessionState.BROKEN
            assert (await after.engine.close_session(LOCAL, session_id, force=False)).state is SessionState.CLOSED


async def test_an_agent_that_died_before_it_confirmed_its_prompt_is_asked_for_the_conversation_first(
    tmp_path: Path,
) -> None:
    async with engine_stage(tmp_path) as stage:
        session_id, process = await stage.session()
        lost = await stage.start(session_id)
        process.exit(signal=9)
        assert (lost.state, lost.started_at) == (RunState.FAILED, None)
        run = await stage.start(session_id, "again")
        second = await stage.launcher.next_process()
        assert any(part.startswith("--resume=") for part in second.argv)
        second.say(UNKNOWN_CONVERSATION)
        second.exit(1)
        third = await stage.launcher.next_process()
        assert any(part.startswith("--session-id=") for part in third.argv)
        third.handshake()
        third.take_prompt()
        assert run.state is RunState.RUNNING


async def test_an_agent_that_stays_after_it_could_not_take_a_conversation_up_is_ended(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        session_id, _, process = await stage.running()
        process.end_turn("completed", "done")
        process.exit(0)
        run = await stage.engine.start_run(LOCAL, StartRun(session_id=session_id, prompt="more"))
        second = await stage.launcher.next_process()
        second.say(UNKNOWN_CONVERSATION)
        await anyio.wait_all_tasks_blocked()
        assert second.ladder is not None
        assert run.failure is not None
        assert run.failure.reason == "RESUME_FAILED"


async def test_an_agent_that_died_before_it_stored_anything_begins_anew(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        session_id, run_id, process = await stage.running()
        process.exit(signal=9)
        assert stage.engine.get_run(LOCAL, run_id).state is RunState.FAILED
        run = await stage.engine.start_run(LOCAL, StartRun(session_id=session_id, prompt="again"))
        second = await stage.launcher.next_process()
        assert any(part.startswith("--resume=") for part in second.argv)
        second.say(UNKNOWN_CONVERSATION)
        second.exit(1)
        third = await stage.launcher.next_process()
        assert any(part.startswith("--session-id=") for part in third.argv)
        third.handshake()
        third.take_prompt()
        assert third.prompts() == ["again"]
        assert run.state is RunState.RUNNING


async def test_a_second_answer_to_the_handshake_sends_no_second_prompt(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        _, _, process = await stage.running()
        process.handshake()
        assert process.prompts() == ["go"]


async def test_an_agent_that_never_takes_the_prompt_fails_the_run(tmp_path: Path) -> None:
    async with engine_stage(tmp_path, prompt_timeout_ns=SECOND // 50) as stage:
        session_id, process = await stage.session()
        run = await stage.engine.start_run(LOCAL, StartRun(session_id=session_id, prompt="go"))
        await stage.until(lambda: run.ended)
        assert run.failure is not None
        assert run.failure.reason == "AGENT_UNRESPONSIVE"
        assert process.prompts() == ["go"]


async def test_a_run_that_comes_while_an_unready_process_is_being_ended_gets_one_of_its_own(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        view = await stage.engine.create_session(LOCAL, CreateSession(agent="claude", cwd=str(stage.directory)))
        first = await stage.launcher.next_process()
        first.lingers = True
        stage.runner(view.session_id).host.end()
        await stage.until(lambda: first.ladder is not None)
        run = await stage.engine.start_run(LOCAL, StartRun(session_id=view.session_id, prompt="go"))
        first.exit(143)
        second = await stage.launcher.next_process()
        second.handshake()
        assert second.prompts() == ["go"]
        assert not run.ended


async def test_processes_are_counted_with_those_that_are_about_to_start(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        refused: list[StepRailError] = []
        async with anyio.create_task_group() as tasks:

            async def make() -> None:
                try:
                    await stage.engine.create_session(LOCAL, CreateSession(agent="claude", cwd=str(stage.directory)))
                except StepRailError as error:
                    refused.append(error)

            for _ in range(7):
                tasks.start_soon(make)
        assert len(stage.engine.list_sessions(LOCAL)) == 4
        assert {error.reason for error in refused} == {"TOO_MANY_SESSIONS"}


async def test_nobody_gives_way_to_a_request_that_is_refused(tmp_path: Path) -> None:
    async with engine_stage(tmp_path, max_processes=1) as stage:
        suspended, _ = await stage.session()
        idle_session, idle = await stage.session()
        with pytest.raises(StepRailError, match="PROMPT_INVALID"):
            await stage.start(suspended, " ")
        with pytest.raises(StepRailError, match="AGENT_UNKNOWN"):
            await stage.engine.create_session(LOCAL, CreateSession(agent="nobody", cwd=str(stage.directory)))
        assert not stage.runner(idle_session).host.ending
        await stage.start(suspended, "back")
        await stage.until(lambda: idle.exited)


async def test_the_process_that_was_idle_for_longest_gives_way_to_a_new_one(tmp_path: Path) -> None:
    async with engine_stage(tmp_path, max_processes=2) as stage:
        first_session, _, first = await stage.running()
        first.end_turn("completed", "done")
        second_session, _, second = await stage.running()
        await stage.session()
        assert first.exited
        assert not second.exited
        view = stage.engine.get_session(LOCAL, first_session)
        assert view.state is SessionState.SUSPENDED
        assert "gave way" in view.state_reason
        assert stage.engine.get_session(LOCAL, second_session).state is SessionState.RUNNING
        await stage.engine.start_run(LOCAL, StartRun(session_id=first_session, prompt="back"))
        with pytest.raises(StepRailError, match="TOO_MANY_SESSIONS"):
            await stage.engine.create_session(LOCAL, CreateSession(agent="claude", cwd=str(stage.directory)))


async def test_the_first_events_of_a_run_after_a_held_one_belong_to_its_first_step(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        session_id, run_id, process = await stage.running(decider=DeciderRequest())
        process.step("a", "gate-1")
        process.lingers = True
        process.say(*step_lines("b"))
        assert stage.engine.get_run(LOCAL, run_id).ended
        run = await stage.engine.start_run(LOCAL, StartRun(session_id=session_id, prompt="next"))
        process.exit(143)
        second = await stage.launcher.next_process()
        second.handshake()
        second.take_prompt()
        second.say(*step_lines("c"))
        started = [
            event for event in stage.events(session_id) if event.run_id == run.run_id and event.HasField("tool_start")
        ]
        assert [event.step_number for event in started] == [1]


async def test_a_message_with_more_calls_than_a_step_can_show_is_a_named_failure(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        session_id, run_id, process = await stage.running()
        lines = [line for number in range(MAX_CALLS + 1) for line in step_lines(str(number))]
        process.say(*lines, boundary_line("0", "gate-1"))
        view = stage.engine.get_run(LOCAL, run_id)
        assert view.failure is not None
        assert view.failure.reason == "PROTOCOL_ERROR"
        assert str(MAX_CALLS) in view.failure.message
        await stage.until(lambda: process.exited)
        await stage.engine.start_run(LOCAL, StartRun(session_id=session_id, prompt="next"))


async def test_a_boundary_of_a_process_that_is_being_ended_is_no_affair_of_the_next_run(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        session_id, run_id, process = await stage.running(limits=LimitsRequest(hard_timeout_ns=SECOND // 50))
        process.lingers = True
        await stage.until(lambda: stage.engine.get_run(LOCAL, run_id).ended)
        run = await stage.engine.start_run(LOCAL, StartRun(session_id=session_id, prompt="next"))
        process.step("late", "gate-9")
        answer = process.answers()["gate-9"]
        assert isinstance(answer, dict)
        assert answer["continue"] is False
        process.exit(143)
        second = await stage.launcher.next_process()
        second.handshake()
        assert second.prompts() == ["next"]
        assert not run.ended


class RefusesEvents(WatchedStore):
    """A store that is full as soon as the facts of a decision are in."""

    full = False

    def append(self, batch: Batch) -> None:
        """Commit facts, refuse events."""
        if self.full and batch.kinds:
            raise JournalError("disk full")
        super().append(batch)


async def test_a_decision_whose_facts_are_recorded_is_accepted_although_its_events_have_to_wait(tmp_path: Path) -> None:
    store = RefusesEvents([])
    async with engine_stage(tmp_path, store) as stage:
        _, run_id, process = await stage.running(decider=DeciderRequest())
        process.step("a", "gate-1")
        pending = stage.engine.get_run(LOCAL, run_id).pending_decision
        assert pending is not None
        store.full = True

        def decide() -> Decision:
            action = DecisionAction.CONTINUE
            return stage.engine.submit_decision(LOCAL, run_id, pending.step_id, action, reason="", error="")

        assert decide().action is DecisionAction.CONTINUE
        assert process.answers()["gate-1"] == {}
        store.full = False
        await stage.until(lambda: len(stage.engine.steps(LOCAL, run_id, 0, 5)) == 1)


async def test_while_the_journal_refuses_steps_show_no_decision_that_is_not_recorded(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        _, run_id, process = await stage.running(decider=DeciderRequest())
        process.step("a", "gate-1")
        pending = stage.engine.get_run(LOCAL, run_id).pending_decision
        assert pending is not None
        stage.store.broken = True
        with pytest.raises(StepRailError, match="JOURNAL_UNAVAILABLE"):
            stage.engine.submit_decision(LOCAL, run_id, pending.step_id, DecisionAction.CONTINUE, reason="", error="")
        (step,) = stage.engine.steps(LOCAL, run_id, 0, 5)
        assert step.decision is None
        assert "gate-1" not in process.answers()


# --- deleting ---------------------------------------------------------------------------------------------------------


async def broken_session(stage: Stage, *behind: LimitsRequest) -> tuple[str, list[RunView]]:
    """Break a session whose conversation went; gives its id and the runs that wait in it."""
    session_id, _, process = await stage.running()
    process.end_turn("completed", "done")
    process.exit(0)
    await stage.start(session_id, "more")
    waiting = [await stage.start(session_id, "behind", queue=QueueMode.QUEUE, limits=limits) for limits in behind]
    second = await stage.launcher.next_process()
    second.say(UNKNOWN_CONVERSATION)
    second.exit(1)
    assert stage.engine.get_session(LOCAL, session_id).state is SessionState.BROKEN
    return session_id, waiting


async def test_a_broken_session_that_is_deleted_takes_its_queue_along(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        session_id, (run,) = await broken_session(stage, LimitsRequest())
        stage.engine.delete_session(LOCAL, session_id)
        assert (run.state, run.abort_asked) == (RunState.ABORTED, AbortAsked(LOCAL.name, "the session is deleted"))


async def test_a_session_that_is_being_closed_is_not_deleted(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        session_id, _ = await broken_session(stage)

        async def delete() -> None:
            with pytest.raises(StepRailError, match="SESSION_BUSY"):
                stage.engine.delete_session(LOCAL, session_id)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(stage.engine.close_session, LOCAL, session_id, force=True))
            tasks.start_soon(delete)
        stage.engine.delete_session(LOCAL, session_id)
        assert stage.engine.list_sessions(LOCAL) == []


# --- what comes late --------------------------------------------------------------------------------------------------


async def test_a_confirmation_that_comes_late_begins_no_other_run(tmp_path: Path) -> None:
    async with engine_stage(tmp_path, prompt_timeout_ns=SECOND // 5) as stage:
        session_id, process = await stage.session()
        process.lingers = True
        first = await stage.start(session_id)
        await stage.until(lambda: first.ended)
        second = await stage.start(session_id, "second")
        process.take_prompt()
        kinds = [event.WhichOneof("body") for event in stage.events(session_id) if event.run_id == second.run_id]
        assert "agent_start" not in kinds
        assert (second.state, second.prompt_id) == (RunState.QUEUED, "")
        process.exit(signal=9)
