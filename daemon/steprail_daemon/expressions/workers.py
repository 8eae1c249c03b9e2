"""The engine: checks and evaluates expressions in worker processes, which it starts on first need."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

import anyio
import msgspec

from steprail_daemon.core.stops.expression_view import ExpressionView
from steprail_daemon.core.stops.expressions import (
    MAX_SOURCE_BYTES,
    Evaluation,
    Expression,
    ExpressionKind,
    ExpressionOutcome,
    ExpressionProblem,
    ExpressionResult,
    ExpressionsUnavailable,
)
from steprail_daemon.expressions.client import Worker, WorkerGone
from steprail_daemon.expressions.encode import StepEncoder, encode_permission_view, encode_view
from steprail_daemon.expressions.frames import MAX_REQUEST_BYTES
from steprail_daemon.expressions.messages import worker_pb2
from steprail_daemon.expressions.ports import WorkerLauncher

#: A worker that breaks is not always the expression's doing; one that breaks twice over the same one is.
_ATTEMPTS = 2
_MAX_REMEMBERED = 4_096
#: A view's texts are bounded far below. What is left of the frame is for the sources.
MAX_VIEW_BYTES = MAX_REQUEST_BYTES - (1 << 20)

Build = Callable[[int], worker_pb2.Request]


class ExpressionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of evaluation.

    `cpu_ms` is the CPU time of one evaluation, in which a view is read and a source compiled too where they are new;
    `memory_bytes` the address space of the evaluating process. `reply_seconds` is how long one answer may take on the
    clock, and `request_seconds` how long all answers of one call may, the wait for a worker and its start included;
    they are passed where the machine stands still, not where an expression is slow.
    """

    cpu_ms: int = 50
    memory_bytes: int = 256 << 20
    workers: int = 2
    reply_seconds: float = 5.0
    request_seconds: float = 10.0
    start_seconds: float = 10.0


class ExpressionWorkers:
    """The `RuleEngine` of the daemon. Its workers are started by `launcher`, and ended by `close`.

    `environment` is what the workers' processes get; they need nothing but what Python needs.
    """

    def __init__(
        self,
        launcher: WorkerLauncher,
        limits: ExpressionLimits | None = None,
        *,
        environment: Mapping[str, str] | None = None,
        python: Sequence[str] = (sys.executable, "-P"),
    ) -> None:
        self._launcher = launcher
        self._limits = limits or ExpressionLimits()
        self._environment = environment or {}
        self._argv = [*python, "-m", "steprail_daemon.expressions.worker"]
        self._argv += ["--cpu-ms", str(self._limits.cpu_ms), "--memory", str(self._limits.memory_bytes)]
        self._free = anyio.Semaphore(self._limits.workers)
        self._idle: list[Worker] = []
        self._closed = False
        self._steps = StepEncoder()
        self._uses_steps: dict[str, bool] = {}

    async def check(self, expressions: Sequence[Expression]) -> list[ExpressionProblem]:
        """As `RuleEngine.check` says."""
        problems: list[ExpressionProblem] = []
        for kind in ExpressionKind:
            wanted = [expression for expression in expressions if expression.kind is kind]
            for expression, found in zip(wanted, await self._check(kind, wanted), strict=True):
                problems += [_problem(expression, item) for item in found]
        order = {expression.field: position for position, expression in enumerate(expressions)}
        return sorted(problems, key=lambda problem: order[problem.field])

    async def _check(self, kind: ExpressionKind, wanted: list[Expression]) -> list[list[worker_pb2.Problem]]:
        by_size = [_size_problem(expression.source) for expression in wanted]
        sources = [expression.source for expression, problem in zip(wanted, by_size, strict=True) if problem is None]

        def build(first: int) -> worker_pb2.Request:
            return worker_pb2.Request(kind=_KINDS[kind], sources=sources[first:])

        replies = iter(await self._ask(sources, build))
        return [_problems(next(replies)) if problem is None else [problem] for problem in by_size]

    async def evaluate(self, evaluation: Evaluation) -> list[ExpressionResult]:
        """As `RuleEngine.evaluate` says."""
        view, sources = evaluation.view, evaluation.sources
        if isinstance(view, ExpressionView):
            with_window = any(self._uses_steps.get(source, True) for source in sources)
            kind, data = worker_pb2.KIND_STOP_RULE, encode_view(view, self._steps, with_window=with_window)
        else:
            kind, data = worker_pb2.KIND_PERMISSION_RULE, encode_permission_view(view)

        if len(data) > MAX_VIEW_BYTES:
            text = f"over the bound: a view of {len(data)} bytes; the largest has {MAX_VIEW_BYTES}"
            return [ExpressionResult(ExpressionOutcome.UNKNOWN, text) for _ in sources]

        def build(first: int) -> worker_pb2.Request:
            return worker_pb2.Request(kind=kind, sources=sources[first:], view=data)

        return [_result(reply) for reply in await self._ask(sources, build)]

    async def close(self) -> None:
        """End every worker. What is being evaluated is UNKNOWN, and so is what is asked later."""
        self._closed = True
        while self._idle:
            await self._idle.pop().end()

    # Asking

    async def _ask(self, sources: Sequence[str], build: Build) -> list[worker_pb2.Reply | str]:
        """Give for each source the reply, or the words for why there is none."""
        answers: list[worker_pb2.Reply | str] = []
        attempts = 0
        with anyio.move_on_after(self._limits.request_seconds):
            while len(answers) < len(sources):
                before = len(answers)
                try:
                    async with self._worker() as worker:
                        await self._converse(worker, build(before), sources, answers)
                except _NoWorker as error:
                    answers += [str(error)] * (len(sources) - len(answers))
                except (WorkerGone, TimeoutError) as error:
                    attempts = attempts + 1 if len(answers) == before else 1
                    if attempts == _ATTEMPTS:
                        answers.append(_words(error, self._limits))
                        attempts = 0
        late = f"no answer within {self._limits.request_seconds:g} s"
        return answers + [late] * (len(sources) - len(answers))

    async def _converse(
        self,
        worker: Worker,
        request: worker_pb2.Request,
        sources: Sequence[str],
        answers: list[worker_pb2.Reply | str],
    ) -> None:
        """Send a request and take its replies, until the last or until one source cost the worker's child its life."""
        worker.ask(request)
        for _ in request.sources:
            try:
                reply = await worker.reply(self._limits.reply_seconds)
            except TimeoutError:
                await worker.kill()
                raise
            if reply.HasField("passed"):
                answers.append(reply.passed.bound)
                return
            self._remember(sources[len(answers)], reply.uses_steps)
            answers.append(reply)

    def _remember(self, source: str, uses_steps: bool) -> None:
        if len(self._uses_steps) >= _MAX_REMEMBERED:
            self._uses_steps.clear()
        self._uses_steps[source] = uses_steps

    @asynccontextmanager
    async def _worker(self) -> AsyncIterator[Worker]:
        """Give a worker of one's own: one that is idle, else a new one."""
        async with self._free:
            worker = await self._take()
            try:
                yield worker
            finally:
                if worker.alive and not self._closed:
                    self._idle.append(worker)
                else:
                    await worker.kill()

    async def _take(self) -> Worker:
        while self._idle:
            worker = self._idle.pop()
            if worker.alive:
                return worker
        if self._closed:
            raise _NoWorker("the daemon is ending")
        try:
            return await Worker.start(self._launcher, self._argv, self._environment, self._limits.start_seconds)
        except (OSError, TimeoutError, WorkerGone) as error:
            raise _NoWorker(f"no process to evaluate expressions could be started: {error}") from error


class _NoWorker(Exception):
    """There is no worker and none can be had."""


_KINDS = {
    ExpressionKind.STOP_RULE: worker_pb2.KIND_STOP_RULE,
    ExpressionKind.PERMISSION_RULE: worker_pb2.KIND_PERMISSION_RULE,
}


def _words(error: WorkerGone | TimeoutError, limits: ExpressionLimits) -> str:
    if isinstance(error, WorkerGone):
        return f"over the bound: the process that evaluated it broke ({error})"
    return f"over the bound: no answer within {limits.reply_seconds:g} s"


def _result(reply: worker_pb2.Reply | str) -> ExpressionResult:
    if isinstance(reply, str):
        return ExpressionResult(ExpressionOutcome.UNKNOWN, reply)
    return ExpressionResult(ExpressionOutcome(reply.result.outcome), reply.result.text)


def _problems(reply: worker_pb2.Reply | str) -> list[worker_pb2.Problem]:
    if not isinstance(reply, str):
        return list(reply.checked.problems)
    if reply.startswith("over the bound"):
        return [worker_pb2.Problem(message=f"it cannot be checked: {reply}")]
    raise ExpressionsUnavailable(reply)


def _problem(expression: Expression, problem: worker_pb2.Problem) -> ExpressionProblem:
    return ExpressionProblem(expression.field, problem.line or None, problem.column or None, problem.message)


def _size_problem(source: str) -> worker_pb2.Problem | None:
    """Say what is wrong with a source that is not worth sending."""
    try:
        size = len(source.encode())
    except UnicodeEncodeError:
        return worker_pb2.Problem(message="it holds half of a surrogate pair; accepted is Unicode text")
    if 1 <= size <= MAX_SOURCE_BYTES:
        return None
    return worker_pb2.Problem(message=f"it has {size} bytes; accepted are 1 to {MAX_SOURCE_BYTES}")
