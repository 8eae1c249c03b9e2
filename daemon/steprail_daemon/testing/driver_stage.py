"""The stage of the driver conformance kit: the real engine and the real parent process, around one rig's agent."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.abc

from steprail.v1 import events_pb2, runs_pb2, steps_pb2
from steprail_daemon.core.backoff import BackoffSettings
from steprail_daemon.core.errors import StepRailError
from steprail_daemon.core.model import (
    MILLISECOND,
    SECOND,
    TERMINAL_STATES,
    Capabilities,
    QueueMode,
    RunState,
    SessionState,
    StepCountRule,
    StopRule,
)
from steprail_daemon.core.shutdown import parse_ladder
from steprail_daemon.core.stops.expressions import (
    Evaluation,
    Expression,
    ExpressionProblem,
    ExpressionResult,
    ExpressionsUnavailable,
)
from steprail_daemon.core.views import RunView, SessionView
from steprail_daemon.drivers.registry import DRIVERS
from steprail_daemon.engine.agents import Agents
from steprail_daemon.engine.arrivals import Arrivals
from steprail_daemon.engine.drain import Drain
from steprail_daemon.engine.engine import Engine
from steprail_daemon.engine.facade import LOCAL, ContinueRun, CreateSession, Facade, StartRun, Subscription
from steprail_daemon.engine.rate_limits import RateLimits
from steprail_daemon.engine.settings import EngineSettings
from steprail_daemon.engine.system import SystemClock, SystemIds
from steprail_daemon.engine.world import World
from steprail_daemon.journal import record
from steprail_daemon.journal.memory import MemoryStore
from steprail_daemon.service.translate import WireEncoders
from steprail_daemon.testing.driver_parent import Parentage
from steprail_daemon.testing.driver_rig import AGENT, WAIT, Rig, Work
from steprail_daemon.testing.driver_tap import Tap, TappedLauncher

#: Longest line that the stage takes from an agent, in bytes.
LINE_BYTES: Final = 4 << 20
#: How long a rate limit that states no time is waited out.
BACKOFF_NS: Final = 300 * MILLISECOND

_HOUR: Final = 3600 * SECOND
_KILL: Final = parse_ladder(["kill"])


class _NoExpressions:
    """Evaluates nothing: no check of the kit has an expression."""

    async def check(self, _expressions: Sequence[Expression]) -> list[ExpressionProblem]:
        raise ExpressionsUnavailable("the kit has no expressions")

    async def evaluate(self, _evaluation: Evaluation) -> list[ExpressionResult]:
        raise ExpressionsUnavailable("the kit has no expressions")


class Stage:
    """What a check works with: the facade, the rig, the tap on the agent's stdout, and ways to wait, all bounded."""

    def __init__(self, facade: Facade, rig: Rig, tap: Tap, parents: Parentage, workspace: Path) -> None:
        self.facade = facade
        self.rig = rig
        self.tap = tap
        self.parents = parents
        self.workspace = workspace

    @property
    def capabilities(self) -> Capabilities:
        """What the driver says that the agent can do."""
        return DRIVERS[self.rig.driver].capabilities

    # --- sessions and runs ------------------------------------------------------------------------------------------

    async def session(self, **fields: Any) -> str:
        """Make a session whose agent is ready, and give its id; `fields` are of `CreateSession`."""
        session_id = await self.new_session(**fields)
        await self.until_session(session_id, SessionState.IDLE)
        return session_id

    async def new_session(self, **fields: Any) -> str:
        """Make a session without waiting for its agent."""
        request = CreateSession(agent=AGENT, cwd=str(self.workspace), **fields)
        return (await self.facade.create_session(LOCAL, request)).session_id

    async def start(self, session_id: str, work: Work, **fields: Any) -> str:
        """Start a run and give its id; `fields` are of `StartRun`."""
        request = StartRun(session_id=session_id, prompt=self.rig.prompt(work), **fields)
        return (await self.facade.start_run(LOCAL, request)).run_id

    async def run(self, session_id: str, work: Work, **fields: Any) -> RunView:
        """Start a run and give it as it ended."""
        return await self.ended(await self.start(session_id, work, **fields))

    async def queued(self, session_id: str, work: Work) -> RunView:
        """Start a run that may have to wait before it begins, and give it as it ended."""
        return await self.run(session_id, work, queue=QueueMode.QUEUE)

    async def go_on(self, run_id: str, work: Work, **fields: Any) -> RunView:
        """Continue a run, without its rules and decider unless `fields` say otherwise, and give it as it ended."""
        fields = {"stop_rules": (), "inherit_decider": False, **fields}
        request = ContinueRun(run_id=run_id, prompt=self.rig.prompt(work), **fields)
        return await self.ended((await self.facade.continue_run(LOCAL, request)).run_id)

    async def ended(self, run_id: str) -> RunView:
        """Wait for the end of a run, which must come."""
        view = await self.facade.wait_run(LOCAL, run_id, attention=False, timeout_ns=round(WAIT * SECOND))
        assert view.state in TERMINAL_STATES, f"the run did not end within {WAIT:g} s: {view}"
        return view

    async def asked(self, run_id: str, state: RunState) -> RunView:
        """Wait until a run waits for somebody in this state."""
        view = await self.facade.wait_run(LOCAL, run_id, attention=True, timeout_ns=round(WAIT * SECOND))
        assert view.state is state, f"the run is not {state.name}: {view}"
        return view

    def get(self, run_id: str) -> RunView:
        """Give a run as it stands."""
        return self.facade.get_run(LOCAL, run_id)

    def get_session(self, session_id: str) -> SessionView:
        """Give a session as it stands."""
        return self.facade.get_session(LOCAL, session_id)

    # --- what happened ----------------------------------------------------------------------------------------------

    async def events(self, run_id: str) -> list[events_pb2.Event]:
        """Give all events of a run that ends."""
        async with aclosing(_events(self.facade.watch_run(LOCAL, run_id, 0, ""))) as events:
            return [event async for event in events]

    async def until(self, run_id: str, kind: str) -> events_pb2.Event:
        """Wait until a run has an event whose body is of a kind, such as `tool_start`, and give the first."""
        async with aclosing(_events(self.facade.watch_run(LOCAL, run_id, 0, ""))) as events:
            async for event in events:
                if event.WhichOneof("body") == kind:
                    return event
        raise AssertionError(f"the run ended without {kind}: {self.get(run_id)}")

    async def until_session(self, session_id: str, state: SessionState) -> None:
        """Wait until a session is in a state."""
        async with aclosing(_events(self.facade.watch_session(LOCAL, session_id, 0, ""))) as events:
            async for _ in events:
                if self.get_session(session_id).state is state:
                    return
        raise AssertionError(f"the session ended: {self.get_session(session_id)}")

    def steps(self, run_id: str) -> list[steps_pb2.Step]:
        """Give the steps of a run."""
        stored = self.facade.steps(LOCAL, run_id, 0, 1000)
        return [events_pb2.Event.FromString(one.event).step_end.step for one in stored]

    # --- the agent --------------------------------------------------------------------------------------------------

    async def requested(self, number: int) -> None:
        """Wait until the model got its request of this number."""
        with anyio.fail_after(WAIT):
            await self.rig.request(number)

    async def quiet(self, seconds: float) -> None:
        """See that the model gets no request for so long."""
        before = self.rig.requests()
        with anyio.move_on_after(seconds):
            await self.rig.request(before + 1)
        assert self.rig.requests() == before, f"request {self.rig.requests()} was made where none may be"

    def exit_of_agent(self) -> tuple[int | None, int | None]:
        """Give exit code and signal of the agent that was started last and is gone."""
        status = self.tap.exits[-1]
        return status.code, status.signal

    def kill(self) -> None:
        """Kill the agent, and nothing that it started."""
        os.kill(self.tap.pid, signal.SIGKILL)

    async def usable(self, session_id: str, *, requests: int = 2) -> RunView:
        """See that a session does its work: one step and an end, with so many requests."""
        before = self.rig.requests()
        run = await self.run(session_id, Work(output="again", text="It works."))
        assert (run.state, run.text, run.step_count) == (RunState.COMPLETED, "It works.", 1), run
        assert self.rig.requests() == before + requests
        return run


async def _events(subscription: Subscription) -> AsyncGenerator[events_pb2.Event, None]:
    """Give events as they come, recorded ones first."""
    try:
        while True:
            part = await subscription.next(round(WAIT * SECOND))
            assert part is not None, f"nothing happened within {WAIT:g} s"
            for event in runs_pb2.WatchRunResponse.FromString(part.wire).events:
                yield event
    except StopAsyncIteration:
        return
    finally:
        subscription.close()


async def refusal(call: Awaitable[object]) -> StepRailError:
    """Give what a call is refused with, which it must be."""
    try:
        await call
    except StepRailError as error:
        return error
    raise AssertionError("it was not refused")


def steps_rule(at_least: int) -> StopRule:
    """Give a rule that stops after so many steps."""
    return StopRule("steps", StepCountRule(at_least))


def _settings(rig: Rig, directory: Path) -> EngineSettings:
    return EngineSettings(
        agents=(rig.agent(),),
        workspace_roots=(os.path.realpath(directory),),
        max_sessions=8,
        max_processes=8,
        max_steps=100,
        hard_timeout_ns=_HOUR,
        decision_timeout_ns=_HOUR,
        permission_timeout_ns=_HOUR,
        stop_timeout_ns=10 * SECOND,
        abort_timeout_ns=10 * SECOND,
        start_timeout_ns=30 * SECOND,
        idle_timeout_ns=_HOUR,
        line_bytes=LINE_BYTES,
        prompt_bytes=1 << 20,
        ladder=parse_ladder(["end:2s", "eof:3s", "term:3s", "kill"]),
        backoff=BackoffSettings(BACKOFF_NS, 5 * SECOND),
    )


@asynccontextmanager
async def stage(parents: Parentage, rig: Rig, directory: Path) -> AsyncIterator[Stage]:
    """Set the stage. At the end every session is closed and none of its processes is left."""
    workspace = directory / "work"
    workspace.mkdir(parents=True, exist_ok=True)
    settings = _settings(rig, directory)
    crashes: list[Exception] = []
    async with anyio.create_task_group() as tasks:

        def crash(error: Exception) -> None:
            crashes.append(error)
            tasks.cancel_scope.cancel()

        tap = Tap()
        engine = _engine(settings, TappedLauncher(parents.link, tap), tasks, crash)
        play = Stage(engine, rig, tap, parents, workspace)
        try:
            yield play
            for runner in engine.runners():
                await _close(play, runner.view.session_id)
            assert parents.agents() == set(), "a closed session left processes"
        finally:
            with anyio.CancelScope(shield=True):
                for process in tap.processes:
                    await process.shut_down(_KILL)
            tasks.cancel_scope.cancel()
    if crashes:
        raise AssertionError("a bug would have ended the daemon") from crashes[0]


async def _close(play: Stage, session_id: str) -> None:
    with anyio.fail_after(WAIT):
        view = await play.facade.close_session(LOCAL, session_id, force=True)
    assert view.state is SessionState.CLOSED


def _engine(
    settings: EngineSettings,
    launcher: TappedLauncher,
    tasks: anyio.abc.TaskGroup,
    crash: Callable[[Exception], None],
) -> Engine:
    def start_task(function: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        tasks.start_soon(function, name=name)

    clock = SystemClock()
    agents = Agents(settings, DRIVERS, launcher, start_task)
    world = World(
        settings=settings,
        store=MemoryStore(),
        records=record,
        encoders=WireEncoders(),
        clock=clock,
        ids=SystemIds(),
        launcher=launcher,
        drivers=DRIVERS,
        loop=asyncio.get_running_loop(),
        start_task=start_task,
        require_agent=agents.require,
        version_of=agents.version_of,
        rules=_NoExpressions(),
        rate_limits=RateLimits(settings, clock, lambda: 0.0),
        arrivals=Arrivals(),
        crash=crash,
    )
    engine = Engine(world, agents)
    engine.drainer = Drain(world, engine, window_ns=60 * SECOND, stop_budget_ns=settings.stop_timeout_ns)
    return engine
