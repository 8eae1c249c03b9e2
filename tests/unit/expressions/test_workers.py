"""The engine over workers that are played by the test: what it asks, and what it makes of silence, noise and death."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import anyio
import pytest
from tests.unit.expressions.views import PERMISSION, VIEW

from steprail_daemon.core.shutdown import Ladder, RungKind
from steprail_daemon.core.stops.expressions import (
    Evaluation,
    Expression,
    ExpressionKind,
    ExpressionOutcome,
    ExpressionProblem,
    ExpressionResult,
    ExpressionsUnavailable,
    RuleEngine,
)
from steprail_daemon.expressions.frames import frame
from steprail_daemon.expressions.messages import view_pb2, worker_pb2
from steprail_daemon.expressions.ports import WorkerHandlers
from steprail_daemon.expressions.workers import ExpressionLimits, ExpressionWorkers

pytestmark = pytest.mark.anyio

MATCHED = ExpressionResult(ExpressionOutcome.MATCHED)
READY = worker_pb2.Reply(ready=worker_pb2.Ready())
QUICK = ExpressionLimits(workers=1, reply_seconds=0.05, request_seconds=0.5, start_seconds=0.05)

Play = Callable[["FakeWorker", worker_pb2.Request], None]


class Status:
    """How a process ended."""

    def __init__(self, code: int | None, signal: int | None = None) -> None:
        self.code = code
        self.signal = signal


class FakeWorker:
    """A worker's process: gives every request to `play`."""

    def __init__(self, handlers: WorkerHandlers, play: Play) -> None:
        self.handlers = handlers
        self.requests: list[worker_pb2.Request] = []
        self.ladders: list[Ladder] = []
        self._play = play

    def write(self, data: bytes) -> None:
        request = worker_pb2.Request.FromString(data[4:])
        self.requests.append(request)
        self._play(self, request)

    async def shut_down(self, ladder: Ladder, end: Callable[[], None] | None = None) -> None:
        self.ladders.append(ladder)

    def tell(self, reply: worker_pb2.Reply) -> None:
        self.handlers.on_stdout(frame(reply.SerializeToString()))

    def die(self, code: int = 1) -> None:
        self.handlers.on_stdout_eof()
        self.handlers.on_exit(Status(code))


class FakeLauncher:
    """Starts fake workers; each takes the next of `plays`, the last one for ever."""

    def __init__(self, *plays: Play, ready: bool = True) -> None:
        self.started: list[FakeWorker] = []
        self.argv: list[str] = []
        self._plays = plays
        self._ready = ready

    async def spawn(
        self, argv: Sequence[str], environment: Mapping[str, str], cwd: str, handlers: WorkerHandlers
    ) -> FakeWorker:
        self.argv = list(argv)
        worker = FakeWorker(handlers, self._plays[min(len(self.started), len(self._plays) - 1)])
        self.started.append(worker)
        if self._ready:
            worker.tell(READY)
        return worker


class BrokenLauncher:
    """Starts nothing."""

    async def spawn(
        self, argv: Sequence[str], environment: Mapping[str, str], cwd: str, handlers: WorkerHandlers
    ) -> FakeWorker:
        raise FileNotFoundError(2, "no such program")


def matches(worker: FakeWorker, request: worker_pb2.Request) -> None:
    """Say that every source matches, or that nothing is wrong with it."""
    for index in range(len(request.sources)):
        reply = worker_pb2.Reply(id=request.id, index=index)
        if request.HasField("view"):
            reply.result.outcome = worker_pb2.OUTCOME_MATCHED
        else:
            reply.checked.SetInParent()
        worker.tell(reply)


def says_nothing(worker: FakeWorker, request: worker_pb2.Request) -> None:
    pass


def dies(worker: FakeWorker, request: worker_pb2.Request) -> None:
    worker.die()


def babbles(worker: FakeWorker, request: worker_pb2.Request) -> None:
    worker.handlers.on_stdout(b"Traceback (most recent call last)")


def passes_its_bound(worker: FakeWorker, request: worker_pb2.Request) -> None:
    """Lose the child over a source that is called 'slow'; answer the others up to it."""
    for index, source in enumerate(request.sources):
        reply = worker_pb2.Reply(id=request.id, index=index)
        if source == "slow":
            reply.passed.bound = "over the bound: time"
            worker.tell(reply)
            return
        reply.result.outcome = worker_pb2.OUTCOME_MATCHED
        worker.tell(reply)


def kinds(ladder: Ladder) -> list[RungKind]:
    return [rung.kind for rung in ladder.rungs]


async def evaluate(engine: RuleEngine, *sources: str) -> list[ExpressionResult]:
    return await engine.evaluate(Evaluation(VIEW, sources))


async def test_the_worker_is_told_its_bounds_and_started_on_first_need_only() -> None:
    launcher = FakeLauncher(matches)
    engine = ExpressionWorkers(launcher, ExpressionLimits(cpu_ms=20, memory_bytes=1 << 28), python=["python"])
    assert launcher.started == []
    assert await evaluate(engine, "a", "b") == [MATCHED, MATCHED]
    assert await evaluate(engine, "c") == [MATCHED]
    assert launcher.argv == [
        "python", "-m", "steprail_daemon.expressions.worker", "--cpu-ms", "20", "--memory", str(1 << 28)
    ]  # fmt: skip
    assert len(launcher.started) == 1


async def test_nothing_to_evaluate_needs_no_worker() -> None:
    launcher = FakeLauncher(matches)
    engine = ExpressionWorkers(launcher)
    assert (await evaluate(engine), await engine.check([]), launcher.started) == ([], [], [])


async def test_the_window_is_sent_until_a_source_is_known_not_to_read_it() -> None:
    launcher = FakeLauncher(matches)
    engine = ExpressionWorkers(launcher)
    await evaluate(engine, "a")
    await evaluate(engine, "a")
    await evaluate(engine, "a", "new")
    views = [view_pb2.StopView.FromString(request.view) for request in launcher.started[0].requests]
    assert [len(view.steps) for view in views] == [2, 0, 2]


async def test_a_permission_is_asked_as_its_own_kind() -> None:
    launcher = FakeLauncher(matches)
    engine = ExpressionWorkers(launcher)
    assert await engine.evaluate(Evaluation(PERMISSION, ("tool == 'Bash'",))) == [MATCHED]
    assert launcher.started[0].requests[0].kind == worker_pb2.KIND_PERMISSION_RULE


async def test_problems_come_in_the_order_of_the_expressions_with_their_fields() -> None:
    def finds(worker: FakeWorker, request: worker_pb2.Request) -> None:
        for index, source in enumerate(request.sources):
            reply = worker_pb2.Reply(id=request.id, index=index)
            reply.checked.problems.add(line=1, column=2, message=f"bad {source}")
            worker.tell(reply)

    engine = ExpressionWorkers(FakeLauncher(finds))
    problems = await engine.check(
        [
            Expression("rules[0].cel", "a", ExpressionKind.PERMISSION_RULE),
            Expression("rules[1].cel", "x" * 2049),
            Expression("rules[2].cel", "c"),
            Expression("rules[3].cel", "\ud800"),
        ]
    )
    assert problems == [
        ExpressionProblem("rules[0].cel", 1, 2, "bad a"),
        ExpressionProblem("rules[1].cel", None, None, "it has 2049 bytes; accepted are 1 to 2048"),
        ExpressionProblem("rules[2].cel", 1, 2, "bad c"),
        ExpressionProblem("rules[3].cel", None, None, "it holds half of a surrogate pair; accepted is Unicode text"),
    ]
    assert str(problems[0]) == "rules[0].cel:1:2: bad a"
    assert str(problems[1]) == "rules[1].cel: it has 2049 bytes; accepted are 1 to 2048"


async def test_what_comes_after_a_source_that_passed_its_bound_is_asked_again() -> None:
    launcher = FakeLauncher(passes_its_bound)
    engine = ExpressionWorkers(launcher)
    over = ExpressionResult(ExpressionOutcome.UNKNOWN, "over the bound: time")
    assert await evaluate(engine, "a", "slow", "b", "slow") == [MATCHED, over, MATCHED, over]
    assert [list(request.sources) for request in launcher.started[0].requests] == [
        ["a", "slow", "b", "slow"],
        ["b", "slow"],
    ]


async def test_a_worker_that_dies_once_costs_nothing_but_time() -> None:
    launcher = FakeLauncher(dies, matches)
    engine = ExpressionWorkers(launcher)
    assert await evaluate(engine, "a", "b") == [MATCHED, MATCHED]
    assert len(launcher.started) == 2


async def test_an_expression_over_which_two_workers_die_is_unknown_and_the_next_is_evaluated() -> None:
    launcher = FakeLauncher(dies, dies, matches)
    engine = ExpressionWorkers(launcher)
    how = "over the bound: the process that evaluated it broke (it ended with exit code 1)"
    assert await evaluate(engine, "a", "b") == [ExpressionResult(ExpressionOutcome.UNKNOWN, how), MATCHED]


async def test_a_worker_that_died_idle_is_not_asked() -> None:
    launcher = FakeLauncher(matches)
    engine = ExpressionWorkers(launcher)
    await evaluate(engine, "a")
    launcher.started[0].die()
    assert await evaluate(engine, "b") == [MATCHED]
    assert [len(worker.requests) for worker in launcher.started] == [1, 1]


async def test_silence_is_bounded_and_the_silent_are_killed() -> None:
    launcher = FakeLauncher(says_nothing)
    engine = ExpressionWorkers(launcher, QUICK)
    assert await evaluate(engine, "a") == [
        ExpressionResult(ExpressionOutcome.UNKNOWN, "over the bound: no answer within 0.05 s")
    ]
    assert [kinds(worker.ladders[0]) for worker in launcher.started] == [[RungKind.KILL]] * 2


async def test_all_waiting_together_is_bounded() -> None:
    limits = ExpressionLimits(workers=1, reply_seconds=60.0, request_seconds=0.05)
    engine = ExpressionWorkers(FakeLauncher(says_nothing), limits)
    late = ExpressionResult(ExpressionOutcome.UNKNOWN, "no answer within 0.05 s")
    assert await evaluate(engine, "a", "b") == [late, late]


async def test_a_worker_that_speaks_otherwise_is_killed() -> None:
    launcher = FakeLauncher(babbles, matches)
    engine = ExpressionWorkers(launcher)
    assert await evaluate(engine, "a") == [MATCHED]
    assert [kinds(ladder) for ladder in launcher.started[0].ladders] == [[RungKind.KILL]]


@pytest.mark.parametrize("launcher", [BrokenLauncher(), FakeLauncher(matches, ready=False)])
async def test_without_a_process_nothing_is_checked_and_evaluations_are_unknown(
    launcher: FakeLauncher | BrokenLauncher,
) -> None:
    engine = ExpressionWorkers(launcher, QUICK)
    (result,) = await evaluate(engine, "a")
    assert result.outcome is ExpressionOutcome.UNKNOWN
    assert result.text.startswith("no process to evaluate expressions could be started: ")
    with pytest.raises(ExpressionsUnavailable, match="no process to evaluate expressions could be started"):
        await engine.check([Expression("cel", "true")])


async def test_a_worker_that_is_never_ready_is_killed() -> None:
    launcher = FakeLauncher(matches, ready=False)
    await evaluate(ExpressionWorkers(launcher, QUICK), "a")
    assert [kinds(ladder) for ladder in launcher.started[0].ladders] == [[RungKind.KILL]]


async def test_an_expression_that_cannot_be_checked_in_time_is_refused() -> None:
    engine = ExpressionWorkers(FakeLauncher(passes_its_bound))
    assert await engine.check([Expression("cel", "slow")]) == [
        ExpressionProblem("cel", None, None, "it cannot be checked: over the bound: time")
    ]


async def test_the_answer_to_a_request_whose_asker_left_is_not_taken_for_another() -> None:
    kept: list[worker_pb2.Request] = []

    def late(worker: FakeWorker, request: worker_pb2.Request) -> None:
        kept.append(request)
        if len(kept) == 2:
            stale = worker_pb2.Reply(id=kept[0].id)
            stale.result.outcome = worker_pb2.OUTCOME_ERROR
            worker.tell(stale)
            matches(worker, request)

    launcher = FakeLauncher(late)
    engine = ExpressionWorkers(launcher)
    with anyio.move_on_after(0.02):
        await evaluate(engine, "a")
    assert await evaluate(engine, "b") == [MATCHED]
    assert len(launcher.started) == 1


async def test_each_of_two_at_once_has_a_worker_and_a_third_waits() -> None:
    held: list[tuple[FakeWorker, worker_pb2.Request]] = []
    both = anyio.Event()

    def holds(worker: FakeWorker, request: worker_pb2.Request) -> None:
        held.append((worker, request))
        if len(held) == 2:
            both.set()
        elif len(held) > 2:
            matches(worker, request)

    launcher = FakeLauncher(holds)
    engine = ExpressionWorkers(launcher, ExpressionLimits(workers=2))
    results: list[list[ExpressionResult]] = []

    async def ask() -> None:
        results.append(await evaluate(engine, "a"))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(ask)
            await both.wait()
            for worker, request in held[:2]:
                matches(worker, request)
    assert results == [[MATCHED]] * 3
    assert len(launcher.started) == 2


async def test_closing_ends_idle_workers_in_order_and_nothing_starts_afterwards() -> None:
    launcher = FakeLauncher(matches)
    engine = ExpressionWorkers(launcher)
    await evaluate(engine, "a")
    await engine.close()
    assert [kinds(ladder) for ladder in launcher.started[0].ladders] == [[RungKind.EOF, RungKind.KILL]]
    assert await evaluate(engine, "a") == [ExpressionResult(ExpressionOutcome.UNKNOWN, "the daemon is ending")]
    assert len(launcher.started) == 1
