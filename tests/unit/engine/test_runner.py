"""The interpreter: commit, then act, then publish; and what it does when things go wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.engine.stage import boundary_line, engine_stage, step_lines

from steprail_daemon.core.errors import StepRailError
from steprail_daemon.core.model import SECOND, DecisionAction, RunState, SessionState, StepCountRule, StepGate, StopRule
from steprail_daemon.engine.facade import LOCAL, ContinueRun, DeciderRequest, StartRun
from steprail_daemon.service.resources import run as run_message

pytestmark = pytest.mark.anyio
ONE_STEP = (StopRule("one", StepCountRule(1)),)


async def test_a_step_and_its_decision_are_committed_before_the_answer_and_their_events_after_it(
    tmp_path: Path,
) -> None:
    async with engine_stage(tmp_path) as stage:
        _, run_id, process = await stage.running()
        stage.diary.clear()
        process.step("a", "gate-1")
        assert stage.diary == ["commit", "write control_response", "commit"]
        assert process.answers()["gate-1"] == {}
        assert stage.engine.get_run(LOCAL, run_id).step_count == 1


async def test_a_rule_stops_the_run_at_the_boundary_and_the_agent_confirms_it(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        session_id, run_id, process = await stage.running(stop_rules=ONE_STEP)
        process.step("a", "gate-1")
        view = stage.engine.get_run(LOCAL, run_id)
        assert view.state is RunState.STOPPING
        answer = process.answers()["gate-1"]
        assert isinstance(answer, dict)
        assert answer["continue"] is False
        assert "one" not in str(answer.get("stopReason"))
        process.end_turn("hook_stopped")
        view = stage.engine.get_run(LOCAL, run_id)
        assert view.state is RunState.STOPPED
        assert view.stop_reason is not None
        assert view.stop_reason.rule_id == "one"
        assert stage.engine.get_session(LOCAL, session_id).state is SessionState.IDLE


async def test_a_decision_of_a_client_is_written_once_and_a_second_one_is_refused(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        _, run_id, process = await stage.running(decider=DeciderRequest())
        process.step("a", "gate-1")
        view = stage.engine.get_run(LOCAL, run_id)
        assert view.state is RunState.AWAITING_DECISION
        assert "gate-1" not in process.answers()
        assert view.pending_decision is not None
        step_id = view.pending_decision.step_id

        def decide(action: DecisionAction) -> object:
            return stage.engine.submit_decision(LOCAL, run_id, step_id, action, reason="", error="")

        decide(DecisionAction.CONTINUE)
        assert process.answers()["gate-1"] == {}
        written = len(process.sent)
        with pytest.raises(StepRailError, match="DECISION_NOT_PENDING"):
            decide(DecisionAction.STOP)
        assert len(process.sent) == written


async def test_sequence_numbers_have_no_gap_and_the_last_event_of_a_run_is_its_end(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        session_id, run_id, process = await stage.running()
        process.step("a", "gate-1")
        process.end_turn("completed", "done")
        events = stage.events(session_id)
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        of_run = [event for event in events if event.run_id == run_id]
        assert of_run[-1].WhichOneof("body") == "agent_end"
        assert sum(event.HasField("agent_end") for event in events) == 1
        assert stage.engine.get_run(LOCAL, run_id).text == "done"


async def test_while_the_journal_refuses_nothing_is_answered_and_the_agent_is_not_read(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        session_id, run_id, process = await stage.running()
        seen = len(stage.events(session_id))
        stage.store.broken = True
        process.step("a", "gate-1")
        assert process.paused
        assert "gate-1" not in process.answers()
        with pytest.raises(StepRailError, match="JOURNAL_UNAVAILABLE"):
            stage.engine.stop_run(LOCAL, run_id, reason="")
        assert len(stage.events(session_id)) == seen
        stage.store.broken = False
        await stage.until(lambda: "gate-1" in process.answers() and not process.paused)
        assert stage.engine.get_run(LOCAL, run_id).step_count == 1


async def test_an_agent_that_waits_for_a_journal_beyond_patience_is_ended_and_its_run_fails(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        _, run_id, process = await stage.running()
        stage.store.broken = True
        process.step("a", "gate-1")
        await stage.until(lambda: process.exited)
        stage.store.broken = False
        view = await stage.engine.wait_run(LOCAL, run_id, attention=False, timeout_ns=5 * SECOND)
        assert view.state is RunState.FAILED
        assert view.failure is not None
        assert view.failure.reason == "JOURNAL_UNAVAILABLE"


async def test_an_agent_that_closes_its_turn_when_it_is_given_up_is_not_blamed_for_it(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        _, run_id, process = await stage.running()
        process.lingers = True
        stage.store.broken = True
        process.step("a", "gate-1")
        await stage.until(lambda: process.ladder is not None)
        process.end_turn("aborted_tools")
        process.exit(code=0)
        stage.store.broken = False
        view = await stage.engine.wait_run(LOCAL, run_id, attention=False, timeout_ns=5 * SECOND)
        assert view.failure is not None
        assert (view.state, view.failure.reason) == (RunState.FAILED, "JOURNAL_UNAVAILABLE")
        assert view.failure.resumable_at_step == 1


async def test_a_run_that_cannot_be_recorded_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        session_id, process = await stage.session()
        stage.store.broken = True
        with pytest.raises(StepRailError, match="JOURNAL_UNAVAILABLE"):
            await stage.engine.start_run(LOCAL, StartRun(session_id=session_id, prompt="go"))
        stage.store.broken = False
        assert process.prompts() == []
        assert stage.engine.list_runs(LOCAL, session_id) == []
        run = await stage.engine.start_run(LOCAL, StartRun(session_id=session_id, prompt="again"))
        assert process.prompts() == ["again"]
        events = stage.events(session_id)
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        assert {event.run_id for event in events} == {"", run.run_id}


async def test_a_model_message_past_a_held_boundary_fails_the_run_and_lowers_the_gate(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        session_id, run_id, process = await stage.running(decider=DeciderRequest())
        process.step("a", "gate-1")
        process.say(*step_lines("b"))
        view = stage.engine.get_run(LOCAL, run_id)
        assert view.state is RunState.FAILED
        assert view.failure is not None
        assert view.failure.reason == "GATE_LOST"
        assert stage.engine.get_session(LOCAL, session_id).capabilities.step_gate is StepGate.BEST_EFFORT
        await stage.until(lambda: process.exited)
        with pytest.raises(StepRailError, match="CAPABILITY_MISSING"):
            await stage.engine.start_run(LOCAL, StartRun(session_id=session_id, prompt="x", stop_rules=ONE_STEP))


async def test_an_agent_that_exits_at_its_start_fails_the_waiting_run_and_the_next_one_gets_a_new_process(
    tmp_path: Path,
) -> None:
    async with engine_stage(tmp_path) as stage:
        session_id, process = await stage.session()
        process.exit(1)
        assert stage.engine.get_session(LOCAL, session_id).state is SessionState.SUSPENDED
        first = await stage.engine.start_run(LOCAL, StartRun(session_id=session_id, prompt="go"))
        second_process = await stage.launcher.next_process()
        second_process.stderr_tail = b"no licence"
        second_process.exit(3)
        assert first.state is RunState.FAILED
        assert first.failure is not None
        assert first.failure.reason == "AGENT_START_FAILED"
        assert "no licence" in first.failure.message
        assert "3" in first.failure.message
        await stage.engine.start_run(LOCAL, StartRun(session_id=session_id, prompt="go on"))
        third = await stage.launcher.next_process()
        third.handshake()
        assert third.prompts() == ["go on"]


async def test_a_program_that_cannot_be_started_fails_the_run_by_name(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        session_id, process = await stage.session()
        process.exit(0)
        stage.launcher.refuse = FileNotFoundError(2, "No such file")
        run = await stage.engine.start_run(LOCAL, StartRun(session_id=session_id, prompt="go"))
        await stage.until(lambda: run.ended)
        assert run.failure is not None
        assert run.failure.reason == "AGENT_START_FAILED"
        assert "No such file" in run.failure.message


async def test_an_agent_without_its_gate_is_not_used(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        session_id, process = await stage.session()
        process.exit(0)
        run = await stage.engine.start_run(LOCAL, StartRun(session_id=session_id, prompt="go"))
        second = await stage.launcher.next_process()
        second.handshake(gate=False)
        await stage.until(lambda: run.ended)
        assert second.prompts() == []
        assert run.failure is not None
        assert "step boundaries" in run.failure.message


async def test_a_run_that_comes_while_the_process_is_being_ended_gets_a_process_of_its_own(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        session_id, run_id, process = await stage.running(decider=DeciderRequest())
        process.step("a", "gate-1")
        process.say(*step_lines("b"))
        assert stage.engine.get_run(LOCAL, run_id).ended
        run = await stage.engine.start_run(LOCAL, StartRun(session_id=session_id, prompt="next"))
        second = await stage.launcher.next_process()
        second.handshake()
        assert process.prompts() == ["go"]
        assert second.prompts() == ["next"]
        assert any(part.startswith("--resume=") for part in second.argv)
        second.take_prompt()
        assert run.state is RunState.RUNNING


async def test_an_idle_agent_is_ended_and_comes_back_by_resume_with_the_next_run(tmp_path: Path) -> None:
    async with engine_stage(tmp_path, idle_timeout_ns=SECOND // 50) as stage:
        session_id, _, process = await stage.running()
        process.end_turn("completed", "done")
        await stage.until(lambda: process.exited)
        assert stage.engine.get_session(LOCAL, session_id).state is SessionState.SUSPENDED
        await stage.engine.start_run(LOCAL, StartRun(session_id=session_id, prompt="more"))
        second = await stage.launcher.next_process()
        assert any(part.startswith("--resume=") for part in second.argv)
        second.handshake()
        assert second.prompts() == ["more"]


async def test_a_boundary_outside_any_run_is_answered_with_a_stop(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        _, process = await stage.session()
        process.say(*step_lines("stray"), boundary_line("stray", "gate-9"))
        answer = process.answers()["gate-9"]
        assert isinstance(answer, dict)
        assert answer["continue"] is False


async def test_an_abort_at_the_gate_interrupts_and_answers_nothing(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        session_id, run_id, process = await stage.running(decider=DeciderRequest())
        process.step("a", "gate-1")
        view = stage.engine.abort_run(LOCAL, run_id, reason="enough")
        assert view.state is RunState.ABORTING
        assert "gate-1" not in process.answers()
        interrupt = process.sent[-1]
        assert interrupt["request"] == {"subtype": "interrupt"}
        process.say({"type": "control_cancel_request", "request_id": "gate-1"})
        process.end_turn("aborted_tools")
        assert stage.engine.get_run(LOCAL, run_id).state is RunState.ABORTED
        assert stage.engine.get_session(LOCAL, session_id).state is SessionState.IDLE
        assert stage.engine.abort_run(LOCAL, run_id, reason="").state is RunState.ABORTED


async def test_continue_sends_a_neutral_text_after_a_stop_and_wants_a_prompt_after_a_completion(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        _, run_id, process = await stage.running(stop_rules=ONE_STEP)
        process.step("a", "gate-1")
        process.end_turn("hook_stopped")
        second = await stage.engine.continue_run(LOCAL, ContinueRun(run_id=run_id, stop_rules=()))
        assert process.prompts() == ["go", "Continue."]
        assert second.spec.prompt_synthesized
        assert second.spec.continued_from == run_id
        process.take_prompt()
        process.end_turn("completed", "done")
        with pytest.raises(StepRailError, match="NOT_LATEST_RUN"):
            await stage.engine.continue_run(LOCAL, ContinueRun(run_id=run_id))
        with pytest.raises(StepRailError, match="PROMPT_INVALID"):
            await stage.engine.continue_run(LOCAL, ContinueRun(run_id=second.run_id))
        third = await stage.engine.continue_run(LOCAL, ContinueRun(run_id=second.run_id, prompt="more"))
        assert third.spec.stop_rules == ()


async def test_a_second_run_on_a_busy_session_is_refused_and_names_the_live_one(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        session_id, run_id, _ = await stage.running()
        with pytest.raises(StepRailError, match="SESSION_BUSY") as refused:
            await stage.engine.start_run(LOCAL, StartRun(session_id=session_id, prompt="x"))
        assert refused.value.metadata["active_run_id"] == run_id


async def test_closing_a_busy_session_needs_force_and_ends_its_process(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        session_id, run_id, process = await stage.running()
        with pytest.raises(StepRailError, match="SESSION_BUSY"):
            await stage.engine.close_session(LOCAL, session_id, force=False)
        view = await stage.engine.close_session(LOCAL, session_id, force=True)
        assert view.state is SessionState.CLOSED
        assert process.exited
        assert stage.engine.get_run(LOCAL, run_id).state is RunState.ABORTED
        with pytest.raises(StepRailError, match="SESSION_CLOSED"):
            await stage.engine.start_run(LOCAL, StartRun(session_id=session_id, prompt="x"))


async def test_a_prompt_too_large_to_be_shown_whole_is_kept_as_a_blob(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        session_id, _ = await stage.session()
        prompt = "long prompt " * 10_000
        run = await stage.engine.start_run(LOCAL, StartRun(session_id=session_id, prompt=prompt))
        part = run_message(run, stage.engine.now()).spec.prompt.parts[0]
        assert part.full_size == len(prompt)
        assert len(part.text) < len(prompt)
        parts = [data async for data, *_ in stage.engine.read_blob(LOCAL, part.blob_id, 0)]
        assert b"".join(parts).decode() == prompt


async def test_what_needs_a_journal_that_cannot_be_read_is_refused_as_such(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        session_id, run_id, process = await stage.running()
        process.step("a", "gate-1")
        stage.store.unreadable = True
        with pytest.raises(StepRailError, match="JOURNAL_UNAVAILABLE"):
            stage.engine.steps(LOCAL, run_id, 0, 1)
        follower = stage.engine.watch_session(LOCAL, session_id, 0, "")
        with pytest.raises(StepRailError, match="JOURNAL_UNAVAILABLE"):
            await follower.next(1)
        follower.close()
