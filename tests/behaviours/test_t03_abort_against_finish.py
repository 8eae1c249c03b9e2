"""T3, abort against finish: whenever an abort comes, it returns, hits the run it names, and the run ends once."""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from tests.behaviours.stage import (
    ABORTED,
    ABORTING,
    COMPLETED,
    CONTINUE,
    FAILED,
    QUEUED,
    STOP,
    STOPPED,
    TERMINAL,
    Stage,
    bodies,
    client_decides,
    command,
    read,
    says,
    script,
)

from steprail.errors import FailedPrecondition
from steprail.v1 import runs_pb2, sessions_pb2

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(150)]

SESSIONS = 5
ROUNDS = 30
#: Bound on the answer to an abort, in seconds; it is committed, nothing else is waited for.
ANSWER_SECONDS = 5.0
NEXT = script(says("the next one"))

SHAPES: dict[str, Callable[[], str]] = {
    "text": lambda: script(says("at once")),
    "slow text": lambda: script(says("later", delay=0.05)),
    "steps": lambda: script(read(), read(), says("done")),
    "command": lambda: script(command("exec sleep 0.05"), says("done")),
    "dies": lambda: script(read(), says("gone", faults=[{"at": "turn_end", "exit": 0}])),
    "dies at the gate": lambda: script(read(faults=[{"at": "step_end", "exit": 1}]), says("never")),
}


class Race:
    """One run that is aborted at some moment, with another one behind it in the queue."""

    def __init__(self, stage: Stage, session_id: str, seed: int) -> None:
        self.stage = stage
        self.session_id = session_id
        self.random = random.Random(seed)
        self.shape = self.random.choice(list(SHAPES))
        self.decides = self.random.random() < 0.4
        self.end = 0

    async def go(self) -> None:
        """Let it race and judge the outcome."""
        decider: dict[str, Any] = {"decider": client_decides()} if self.decides else {}
        started = await self.stage.client.start_run(self.session_id, SHAPES[self.shape](), **decider)
        behind = await self.stage.queue(self.session_id, NEXT)
        async with anyio.create_task_group() as group:
            if self.decides:
                group.start_soon(self.decide, started.run_id)
            await self.moment(started.run_id)
            with anyio.fail_after(ANSWER_SECONDS):
                said = await self.stage.client.abort_run(started.run_id)
            assert said.state in TERMINAL | {ABORTING}
            run = await self.stage.ended(started.run_id)
            group.cancel_scope.cancel()
        self.end = run.state
        await self.judge(run, said)
        await self.see_next(behind.run_id, run)

    async def moment(self, run_id: str) -> None:
        """Wait for the moment of the abort: at once, after some event, or after a while."""
        way = self.random.randrange(4)
        if way == 1:
            wanted, seen = self.random.randrange(1, 14), 0
            async for _ in self.stage.client.watch_run(run_id):
                seen += 1
                if seen >= wanted:
                    break
        elif way > 1:
            await anyio.sleep(self.random.random() * 0.12)

    async def decide(self, run_id: str) -> None:
        """Decide whatever is asked, as long as somebody asks."""
        while True:
            run = await self.stage.client.wait_run(run_id, until=runs_pb2.WAIT_UNTIL_NEEDS_ATTENTION, timeout=10)
            if run.state in TERMINAL:
                return
            if run.HasField("pending_decision"):
                action = self.random.choice((CONTINUE, CONTINUE, STOP))
                # It may cross the abort; then it is refused.
                with contextlib.suppress(FailedPrecondition):
                    await self.stage.client.submit_decision(run_id, run.pending_decision.step_id, action)

    async def judge(self, run: runs_pb2.Run, said: runs_pb2.Run) -> None:
        """See that the run ended as it may, once, and that another abort gives it back."""
        allowed = {ABORTED, COMPLETED, STOPPED} if self.decides else {ABORTED, COMPLETED}
        if self.shape.startswith("dies"):
            allowed |= {FAILED}
        assert run.state in allowed, (self.shape, run)
        assert said.state not in TERMINAL or said.state == run.state
        with anyio.fail_after(ANSWER_SECONDS):
            again = await self.stage.client.abort_run(run.run_id)
        assert (again.run_id, again.state) == (run.run_id, run.state)
        events = await self.stage.events(run.run_id)
        assert [end.state for end in bodies(events, "agent_end")] == [run.state]
        changes = [change.state for change in bodies(events, "run_state_changed")]
        assert [state for state in changes if state in TERMINAL] == [run.state]
        assert events[-1].WhichOneof("body") == "agent_end"

    async def see_next(self, run_id: str, before: runs_pb2.Run) -> None:
        """See that the run behind it was not hit: it went on by itself, or was held and released."""
        if before.state in (STOPPED, FAILED):
            assert (await self.stage.client.get_run(run_id)).state == QUEUED
            await self.stage.sessions.ReleaseQueue(
                sessions_pb2.ReleaseQueueRequest(session_id=self.session_id), timeout=ANSWER_SECONDS
            )
        after = await self.stage.ended(run_id)
        assert (after.state, after.text) == (COMPLETED, "the next one"), (self.shape, after)


async def test_whenever_an_abort_comes_it_returns_and_the_run_ends_once_and_the_next_one_is_not_hit(
    stage: Stage,
) -> None:
    """T3: 150 seeded races; ten thousand go through the core's state machine in tests/unit/core."""

    ends: Counter[int] = Counter()

    async def races(number: int) -> None:
        session_id = await stage.session()
        for round_no in range(ROUNDS):
            seed = number * ROUNDS + round_no
            race = Race(stage, session_id, seed)
            try:
                with anyio.fail_after(30):
                    await race.go()
            except Exception as error:
                error.add_note(f"seed {seed}: {race.shape}, {'decided by a client' if race.decides else 'no decider'}")
                raise
            ends[race.end] += 1

    async with anyio.create_task_group() as group:
        for number in range(SESSIONS):
            group.start_soon(races, number)
    assert ends.total() == SESSIONS * ROUNDS
    assert min(ends[ABORTED], ends[COMPLETED]) >= 10, ends


async def test_an_abort_of_a_run_that_ended_gives_its_state_and_changes_nothing(stage: Stage) -> None:
    """T3: after the end, whatever the end was, and with another run live in the session."""
    session_id = await stage.session()
    done = await stage.run(session_id, script(says("done")))
    live = await stage.client.start_run(session_id, script(read(), says("later")), decider=client_decides())
    pending = (await stage.asked(live.run_id)).pending_decision
    for _ in range(3):
        assert (await stage.client.abort_run(done.run_id)).state == COMPLETED
    assert (await stage.client.get_run(live.run_id)).pending_decision.step_id == pending.step_id
    await stage.client.submit_decision(live.run_id, pending.step_id, CONTINUE)
    assert (await stage.ended(live.run_id)).text == "later"
