"""Clients that are asked by the facts, ahead of the events of their step."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.unit.engine.stage import (
    FakeProcess,
    Stage,
    WatchedStore,
    boundary_line,
    engine_stage,
    step_lines,
)

from steprail.v1 import decisions_pb2, events_pb2, steps_pb2
from steprail_daemon.core.errors import StepRailError
from steprail_daemon.core.model import SECOND, DecisionAction, PendingDecision, RunState
from steprail_daemon.engine.facade import LOCAL, DeciderRequest, Subscription
from steprail_daemon.journal.store import Batch, JournalError

pytestmark = pytest.mark.anyio
STEP_END = events_pb2.Event.STEP_END_FIELD_NUMBER


class Asked:
    """A run whose client wants no events, and who is asked at once."""

    def __init__(self, stage: Stage, session_id: str, run_id: str, process: FakeProcess) -> None:
        self.stage = stage
        self.session_id = session_id
        self.run_id = run_id
        self.process = process
        self.free = True
        self.questions: list[tuple[PendingDecision, steps_pb2.Step]] = []
        self.subscription: Subscription = stage.engine.watch_run(LOCAL, run_id, 0, "")

    async def catch_up(self) -> None:
        """Take all that there is, as a stream does that waits for more."""
        while self.subscription.last_seq < self.stage.runner(self.session_id).feed.last_seq:
            await self.subscription.next(SECOND)

    def can_be_asked(self) -> bool:
        return self.free

    def ask(self, pending: PendingDecision, step: bytes) -> None:
        self.stage.diary.append("ask")
        self.questions.append((pending, steps_pb2.Step.FromString(step)))

    def decide(self, action: DecisionAction | None = DecisionAction.CONTINUE, step_id: str = "") -> None:
        pending, _ = self.questions[-1]
        self.stage.engine.submit_decision(LOCAL, self.run_id, step_id or pending.step_id, action, reason="", error="")

    def bodies(self) -> list[str | None]:
        return [event.WhichOneof("body") for event in self.events() if event.run_id == self.run_id]

    def batches(self) -> list[Batch]:
        return self.stage.store.read(self.stage.runner(self.session_id).session_no, 0, 1 << 30)

    def events(self) -> list[events_pb2.Event]:
        events = self.stage.events(self.session_id)
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        return events


@asynccontextmanager
async def asked(directory: Path, store: WatchedStore | None = None) -> AsyncIterator[Asked]:
    async with engine_stage(directory, store) as stage:
        client = Asked(stage, *await stage.running(decider=DeciderRequest()))
        client.subscription.ask_at_once(client)
        await client.catch_up()
        stage.diary.clear()
        yield client
        client.subscription.close()


async def test_the_question_comes_after_the_facts_and_before_their_events(tmp_path: Path) -> None:
    async with asked(tmp_path) as client:
        client.process.step("a", "gate-1")
        assert client.stage.diary == ["commit", "ask"]
        assert "step_end" not in client.bodies()
        ((pending, step),) = client.questions
        await client.stage.until(lambda: "step_end" in client.bodies())
        (event,) = [event for event in client.events() if event.HasField("step_end")]
        assert event.step_end.step == step
        assert step.step_id == pending.step_id
        assert client.bodies()[-3:] == ["step_end", "decision_requested", "run_state_changed"]
        assert client.stage.diary == ["commit", "ask", "commit"]


async def test_an_answer_that_comes_at_once_is_written_before_the_events_which_are_then_committed_together(
    tmp_path: Path,
) -> None:
    async with asked(tmp_path) as client:
        client.process.step("a", "gate-1")
        client.decide()
        assert client.stage.diary == ["commit", "ask", "commit", "write control_response", "commit"]
        assert client.process.answers()["gate-1"] == {}
        assert client.stage.runner(client.session_id)._held is None
        expected = ["step_end", "decision_requested", "run_state_changed", "decision_recorded", "run_state_changed"]
        assert client.bodies()[-5:] == expected
        held, decided = client.events()[-5:-2], client.events()[-2:]
        assert len({event.time.ToNanoseconds() for event in held}) == 1
        assert held[0].time.ToNanoseconds() < decided[0].time.ToNanoseconds()
        assert {event.step_number for event in (*held, *decided)} == {1}
        assert held[0].time == held[0].step_end.step.end_time


async def test_each_step_is_asked_about_once_its_predecessor_was_taken(tmp_path: Path) -> None:
    async with asked(tmp_path) as client:
        for number in range(1, 4):
            client.process.step(f"x{number}", f"gate-{number}")
            client.decide()
            await client.catch_up()
        assert [step.number for _, step in client.questions] == [1, 2, 3]
        assert client.bodies().count("step_end") == 3


async def test_who_is_behind_or_busy_is_asked_by_the_events(tmp_path: Path) -> None:
    async with asked(tmp_path) as client:
        client.free = False
        client.process.step("a", "gate-1")
        assert client.questions == []
        assert client.bodies()[-3:] == ["step_end", "decision_requested", "run_state_changed"]
        client.free = True
        client.stage.engine.submit_decision(
            LOCAL, client.run_id, f"{client.run_id}.000001", DecisionAction.CONTINUE, reason="", error=""
        )
        client.process.step("b", "gate-2")
        assert client.questions == []
        assert client.bodies()[-3:] == ["step_end", "decision_requested", "run_state_changed"]


async def test_who_has_left_is_not_asked_and_nothing_is_held_for_it(tmp_path: Path) -> None:
    async with asked(tmp_path) as client:
        client.subscription.close()
        client.process.step("a", "gate-1")
        assert client.stage.diary == ["commit"]
        assert client.questions == []


async def test_a_step_that_an_event_shows_in_part_is_asked_about_with_its_events(tmp_path: Path) -> None:
    async with asked(tmp_path) as client:
        # Within what may be committed twice, counted in characters, and too long for a text of an event, in bytes.
        lines = step_lines("a")
        lines[1]["message"]["content"][0]["content"] = "€" * 30_000  # type: ignore[index]
        client.process.say(*lines)
        await client.catch_up()
        client.process.say(boundary_line("a", "gate-1"))
        assert client.questions == []
        await client.stage.until(lambda: "decision_requested" in client.bodies())
        (event,) = [event for event in client.events() if event.HasField("step_end")]
        blob_id = event.step_end.step.tool_results[0].output.blob_id
        assert client.stage.store.read_blob(blob_id, 0, 1) is not None


async def test_whoever_looks_at_the_steps_or_the_session_sees_what_was_held(tmp_path: Path) -> None:
    async with asked(tmp_path) as client:
        engine = client.stage.engine
        client.process.step("a", "gate-1")
        assert [step.number for step in engine.steps(LOCAL, client.run_id, 0, 5)] == [1]
        client.decide()
        await client.catch_up()
        client.process.step("b", "gate-2")
        assert client.bodies().count("step_end") == 1
        assert engine.get_session(LOCAL, client.session_id).last_seq == client.events()[-1].seq
        assert client.bodies().count("step_end") == 2
        assert client.bodies()[-1] == "run_state_changed"
        assert engine.get_run(LOCAL, client.run_id).state is RunState.AWAITING_DECISION


async def test_a_refused_decision_loses_nothing_that_was_held(tmp_path: Path) -> None:
    async with asked(tmp_path) as client:
        client.process.step("a", "gate-1")
        with pytest.raises(StepRailError, match="action"):
            client.decide(None)
        assert "step_end" not in client.bodies()
        client.decide()
        assert client.bodies()[-1] == "run_state_changed"
        assert client.bodies().count("step_end") == 1
        await client.catch_up()
        client.process.step("b", "gate-2")
        with pytest.raises(StepRailError, match="DECISION_NOT_PENDING"):
            client.decide(step_id="another")
        assert client.bodies().count("step_end") == 2


async def test_an_abort_while_asked_comes_after_the_events_of_the_question_and_answers_nothing(tmp_path: Path) -> None:
    async with asked(tmp_path) as client:
        client.process.step("a", "gate-1")
        client.stage.engine.abort_run(LOCAL, client.run_id, reason="")
        expected = ["step_end", "decision_requested", "run_state_changed", "run_state_changed"]
        assert client.bodies()[-4:] == expected
        assert client.stage.engine.get_run(LOCAL, client.run_id).state is RunState.ABORTING
        assert "gate-1" not in client.process.answers()
        with pytest.raises(StepRailError, match="DECISION_NOT_PENDING"):
            client.decide()


async def test_a_model_message_past_the_held_boundary_comes_after_the_events_of_the_question(tmp_path: Path) -> None:
    async with asked(tmp_path) as client:
        client.process.step("a", "gate-1")
        client.process.say(*step_lines("b"))
        # What was held is on record before what came next was even looked at.
        held = next(batch for batch in client.batches() if STEP_END in batch.kinds)
        assert len(held.kinds) == held.kinds.index(STEP_END) + 3
        bodies = client.bodies()
        assert bodies.index("step_end") < bodies.index("decision_requested") < bodies.index("agent_end")
        failure = client.stage.engine.get_run(LOCAL, client.run_id).failure
        assert failure is not None
        assert failure.reason == "GATE_LOST"


async def test_an_exit_while_asked_comes_after_the_events_of_the_question(tmp_path: Path) -> None:
    async with asked(tmp_path) as client:
        client.process.step("a", "gate-1")
        client.process.exit(1)
        held = next(batch for batch in client.batches() if STEP_END in batch.kinds)
        assert len(held.kinds) == held.kinds.index(STEP_END) + 3
        assert client.bodies()[-1] == "agent_end"
        assert client.stage.engine.get_run(LOCAL, client.run_id).state is RunState.FAILED


async def test_a_question_that_is_over_before_it_is_recorded_is_not_asked(tmp_path: Path) -> None:
    async with asked(tmp_path) as client:
        client.process.say(*step_lines("a"), boundary_line("a", "gate-1"), *step_lines("b"))
        assert client.questions == []
        assert client.bodies()[-1] == "agent_end"


# --- a journal that refuses, and crashes ------------------------------------------------------------------------------


async def test_while_the_journal_refuses_the_facts_nobody_is_asked(tmp_path: Path) -> None:
    async with asked(tmp_path) as client:
        client.stage.store.broken = True
        client.process.step("a", "gate-1")
        assert client.questions == []
        assert client.process.paused
        client.stage.store.broken = False
        await client.stage.until(lambda: "decision_requested" in client.bodies())


async def test_a_decision_whose_facts_the_journal_refuses_is_not_written_until_they_are_recorded(
    tmp_path: Path,
) -> None:
    async with asked(tmp_path) as client:
        client.process.step("a", "gate-1")
        client.stage.store.broken = True
        with pytest.raises(StepRailError, match="JOURNAL_UNAVAILABLE"):
            client.decide()
        assert "gate-1" not in client.process.answers()
        client.stage.store.broken = False
        await client.stage.until(lambda: client.process.answers().get("gate-1") == {})
        assert client.bodies().count("decision_recorded") == 1


async def test_while_the_journal_refuses_what_was_held_a_decision_is_refused_and_can_be_repeated(
    tmp_path: Path,
) -> None:
    async with asked(tmp_path) as client:
        client.process.step("a", "gate-1")
        client.stage.store.broken = True
        await client.stage.until(lambda: client.process.paused)
        with pytest.raises(StepRailError, match="JOURNAL_UNAVAILABLE"):
            client.decide()
        client.stage.store.broken = False
        await client.stage.until(lambda: not client.process.paused)
        client.decide()
        assert client.process.answers()["gate-1"] == {}
        assert client.bodies().count("decision_recorded") == 1


class DiesAfter(WatchedStore):
    """A store whose process is killed after so many commits, or never."""

    def __init__(self, diary: list[str], commits: int | None) -> None:
        super().__init__(diary)
        self.commits = commits

    def append(self, batch: Batch) -> None:
        """Commit, or die."""
        if self.commits == 0:
            raise JournalError("the process is gone")
        super().append(batch)
        if self.commits is not None:
            self.commits -= 1


class DiesBeforeEvents(WatchedStore):
    """A store whose process is killed when it is to commit events."""

    dying = False

    def heir(self, commits: int | None = None) -> DiesAfter:
        """Give the store of the next process, with what is committed; this one is gone for good.

        With `commits` that process dies too, after so many.
        """
        heir = DiesAfter([], commits)
        vars(heir).update(vars(self))
        self.broken = True
        return heir

    def append(self, batch: Batch) -> None:
        """Commit facts; die when their events come."""
        if self.dying and batch.kinds:
            raise JournalError("the process is gone")
        super().append(batch)


@pytest.mark.parametrize("answered", [False, True], ids=["while asked", "after the answer"])
async def test_a_crash_before_the_events_is_mended_by_making_them(tmp_path: Path, answered: bool) -> None:
    store = DiesBeforeEvents([])
    async with asked(tmp_path, store) as client:
        store.dying = True
        client.process.step("a", "gate-1")
        ((_, step),) = client.questions
        if answered:
            client.decide()
            assert client.process.answers()["gate-1"] == {}
        assert "step_end" not in client.bodies()
        heir = store.heir()
        async with engine_stage(tmp_path, heir) as after:
            after.recover()
            again = Asked(after, client.session_id, client.run_id, client.process)
            events = [event for event in again.events() if event.run_id == client.run_id]
            (ended,) = [event for event in events if event.HasField("step_end")]
            assert ended.step_end.step == step
            assert ended.time == step.end_time
            (decision,) = [event.decision_recorded.decision for event in events if event.HasField("decision_recorded")]
            source = decisions_pb2.DECISION_SOURCE_CLIENT if answered else decisions_pb2.DECISION_SOURCE_RESTART
            assert decision.source == source
            bodies = again.bodies()
            assert bodies.index("step_end") < bodies.index("decision_requested") < bodies.index("decision_recorded")
            assert bodies[-1] == "agent_end"
            count = len(events)
            async with engine_stage(tmp_path, heir) as third:
                third.recover()
                assert len([event for event in third.events(client.session_id) if event.run_id]) == count


async def test_a_crash_while_the_events_of_two_facts_are_made_again_loses_neither(tmp_path: Path) -> None:
    store = DiesBeforeEvents([])
    async with asked(tmp_path, store) as client:
        store.dying = True
        client.process.step("a", "gate-1")
        client.decide()
        heir = store.heir(commits=1)
        async with engine_stage(tmp_path, heir) as second:
            with pytest.raises(StepRailError, match="JOURNAL_UNAVAILABLE"):
                second.recover()
        heir.commits = None
        async with engine_stage(tmp_path, heir) as third:
            third.recover()
            bodies = Asked(third, client.session_id, client.run_id, client.process).bodies()
            assert bodies.count("step_end") == bodies.count("decision_recorded") == 1


async def test_a_stop_of_the_client_is_written_before_the_events_too(tmp_path: Path) -> None:
    async with asked(tmp_path) as client:
        client.process.step("a", "gate-1")
        client.decide(DecisionAction.STOP)
        assert client.stage.diary == ["commit", "ask", "commit", "write control_response", "commit"]
        assert client.stage.engine.get_run(LOCAL, client.run_id).state is RunState.STOPPING
        client.process.end_turn("hook_stopped")
        assert client.bodies()[-1] == "agent_end"
