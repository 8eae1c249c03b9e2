"""A stage for the engine: a real core, codec, encoder and memory store; a process and a parent that are fakes.

The fake process records what was written to it and says what a test puts into its mouth, as Claude Code would say it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec

from steprail.v1 import events_pb2, runs_pb2
from steprail_daemon.core.model import SECOND, PermissionMode
from steprail_daemon.core.shutdown import Ladder, Rung, RungKind
from steprail_daemon.core.stops.expressions import (
    Evaluation,
    Expression,
    ExpressionOutcome,
    ExpressionProblem,
    ExpressionResult,
)
from steprail_daemon.core.views import RunView
from steprail_daemon.drivers.registry import DRIVERS
from steprail_daemon.engine.agents import Agents
from steprail_daemon.engine.arrivals import Arrivals
from steprail_daemon.engine.drain import Drain
from steprail_daemon.engine.engine import Engine
from steprail_daemon.engine.facade import LOCAL, CreateSession, StartRun
from steprail_daemon.engine.ports import ProcessHandlers
from steprail_daemon.engine.rate_limits import RateLimits
from steprail_daemon.engine.recovery import recover
from steprail_daemon.engine.runner import SessionRunner
from steprail_daemon.engine.settings import AgentSettings, EngineSettings
from steprail_daemon.engine.system import SystemClock, SystemIds
from steprail_daemon.engine.world import World
from steprail_daemon.journal import record
from steprail_daemon.journal.memory import MemoryStore
from steprail_daemon.journal.store import Batch, BatchRefused, JournalError
from steprail_daemon.service.translate import WireEncoders
from steprail_daemon.supervisor import ExitStatus

WAIT = 5.0


class FakeRules:
    """Evaluates expressions by what a test says of their sources: a result, or an event to wait for and a result."""

    def __init__(self) -> None:
        self.results: dict[str, ExpressionResult] = {}
        self.waits: dict[str, asyncio.Event] = {}
        self.seen: list[Evaluation] = []

    async def check(self, expressions: Sequence[Expression]) -> list[ExpressionProblem]:
        """Find nothing wrong but with `bad`."""
        return [
            ExpressionProblem(expression.field, 1, 5, "undeclared reference")
            for expression in expressions
            if expression.source == "bad"
        ]

    async def evaluate(self, evaluation: Evaluation) -> list[ExpressionResult]:
        """Give what a test said; NOT_MATCHED by default."""
        self.seen.append(evaluation)
        for source in evaluation.sources:
            if source in self.waits:
                with anyio.fail_after(WAIT):
                    await self.waits[source].wait()
        nothing = ExpressionResult(ExpressionOutcome.NOT_MATCHED)
        return [self.results.get(source, nothing) for source in evaluation.sources]


class FakeProcess:
    """An agent that says what it is told to say."""

    def __init__(self, argv: tuple[str, ...], handlers: ProcessHandlers, diary: list[str]) -> None:
        self.argv = argv
        self.handlers = handlers
        self.diary = diary
        self.read_size = 0
        self.pid = 4711
        self.stderr_tail = b""
        self.sent: list[dict[str, Any]] = []
        self.paused = False
        self.gone = asyncio.Event()
        self.ladder: Ladder | None = None
        self.exited = False
        #: Does not die by itself when it is ended; a test ends it.
        self.lingers = False
        #: Not even the kill is confirmed.
        self.immortal = False

    def write(self, data: bytes) -> None:
        """Note what was written."""
        for line in data.splitlines():
            message = json.loads(line)
            self.sent.append(message)
            self.diary.append(f"write {message['type']}")

    def close_stdin(self) -> None:
        """Note the EOF."""
        self.diary.append("eof")

    def pause_reading(self) -> None:
        """Note that nobody reads."""
        self.paused = True

    def resume_reading(self) -> None:
        """Note that somebody reads."""
        self.paused = False

    async def shut_down(self, ladder: Ladder, end: Callable[[], None] | None = None) -> None:
        """Die at the first rung, unless told otherwise."""
        self.ladder = ladder
        self.diary.append("ladder")
        if self.lingers:
            with anyio.fail_after(WAIT):
                await self.gone.wait()
        elif not self.immortal:
            self.exit(signal=15)

    def say(self, *messages: Mapping[str, object]) -> None:
        """Write lines to the daemon."""
        self.handlers.on_stdout(b"".join(json.dumps(message).encode() + b"\n" for message in messages))

    def exit(self, code: int | None = None, signal: int | None = None) -> None:
        """End."""
        if not self.exited:
            self.exited = True
            self.gone.set()
            self.handlers.on_stdout_eof()
            self.handlers.on_exit(ExitStatus(code, signal))

    # What Claude Code says.

    def handshake(self, *, gate: bool = True) -> None:
        """Answer `initialize`."""
        request = next(message for message in self.sent if message["type"] == "control_request")
        answer = {"claude_code_version": "2.1.332", "hooks_applied": gate, "hook_on_failure_supported": gate}
        self.say(
            {
                "type": "control_response",
                "response": {"subtype": "success", "request_id": request["request_id"], "response": answer},
            }
        )

    def take_prompt(self) -> None:
        """Confirm the latest prompt."""
        prompt = [message for message in self.sent if message["type"] == "user"][-1]
        self.say(
            {"type": "command_lifecycle", "command_uuid": prompt["uuid"], "state": "started"},
            {"type": "system", "subtype": "init", "model": "claude-test", "session_id": "s"},
        )

    def step(self, name: str, request_id: str) -> None:
        """Call one tool, give its result, and wait at the boundary."""
        self.say(*step_lines(name), boundary_line(name, request_id))

    def ask_permission(self, tool: str, arguments: Mapping[str, object], request_id: str) -> None:
        """Ask for leave to use a tool."""
        request = {"subtype": "can_use_tool", "tool_name": tool, "input": dict(arguments), "tool_use_id": "toolu_p"}
        self.say({"type": "control_request", "request_id": request_id, "request": request})

    def end_turn(self, reason: str, text: str = "") -> None:
        """Say the `result`."""
        self.say(
            {
                "type": "result",
                "subtype": "success",
                "is_error": False,
                "terminal_reason": reason,
                "result": text,
                "usage": {"input_tokens": 10, "output_tokens": 2},
                "total_cost_usd": 0.5,
            }
        )

    def prompts(self) -> list[object]:
        """Give the texts of the prompts that came."""
        return [message["message"]["content"] for message in self.sent if message["type"] == "user"]

    def answers(self) -> dict[str, object]:
        """Give the answers that came, by request."""
        return {
            message["response"]["request_id"]: message["response"].get("response")
            for message in self.sent
            if message["type"] == "control_response"
        }


def step_lines(name: str) -> list[dict[str, object]]:
    """Give the lines of a message with one tool call and of its result."""
    call = {"type": "tool_use", "id": f"toolu_{name}", "name": "Bash", "input": {"command": name}}
    result = {"type": "tool_result", "tool_use_id": f"toolu_{name}", "content": f"output of {name}", "is_error": False}
    message = {"id": f"msg_{name}", "role": "assistant", "model": "claude-test", "content": [call]}
    return [
        {"type": "assistant", "message": message, "parent_tool_use_id": None},
        {"type": "user", "message": {"role": "user", "content": [result]}, "parent_tool_use_id": None},
    ]


def boundary_line(name: str, request_id: str) -> dict[str, object]:
    """Give the line by which the CLI waits."""
    calls = [{"tool_name": "Bash", "tool_input": {}, "tool_use_id": f"toolu_{name}"}]
    payload = {"hook_event_name": "PostToolBatch", "tool_calls": calls}
    request = {"subtype": "hook_callback", "callback_id": "PostToolBatch", "input": payload}
    return {"type": "control_request", "request_id": request_id, "request": request}


class WatchedStore(MemoryStore):
    """A store that notes its commits, and refuses them on demand."""

    def __init__(self, diary: list[str]) -> None:
        super().__init__()
        self.diary = diary
        self.broken = False
        self.unreadable = False
        self.refuses_as_malformed = False
        self.refusals = 0

    def append(self, batch: Batch) -> None:
        """Commit, or refuse."""
        if self.refuses_as_malformed:
            raise BatchRefused("malformed")
        if self.broken:
            self.refusals += 1
            raise JournalError("disk full")
        super().append(batch)
        self.diary.append("commit")

    def read(self, session_no: int, after_seq: int, max_bytes: int) -> list[Batch]:
        """Read, or refuse."""
        if self.unreadable:
            raise JournalError("input/output error")
        return super().read(session_no, after_seq, max_bytes)

    def records(self, session_no: int) -> Iterator[tuple[int, bytes]]:
        """Read, or refuse."""
        if self.unreadable:
            raise JournalError("input/output error")
        return super().records(session_no)


class FakeLauncher:
    """Starts fake processes, or refuses to."""

    def __init__(self, diary: list[str]) -> None:
        self.diary = diary
        self.processes: list[FakeProcess] = []
        self.refuse: OSError | None = None
        self.started = asyncio.Event()

    async def spawn(
        self, argv: tuple[str, ...], environment: Mapping[str, str], cwd: str, handlers: ProcessHandlers
    ) -> FakeProcess:
        """Start one; a question for the version is answered at once."""
        if self.refuse is not None:
            raise self.refuse
        process = FakeProcess(argv, handlers, self.diary)
        if "--version" in argv:
            asyncio.get_running_loop().call_soon(handlers.on_stdout, b"2.1.332 (Claude Code)\n")
            asyncio.get_running_loop().call_soon(process.exit, 0)
            return process
        self.processes.append(process)
        self.started.set()
        return process

    async def next_process(self) -> FakeProcess:
        """Wait for the next start and its handshake request."""
        with anyio.fail_after(WAIT):
            await self.started.wait()
            self.started.clear()
            process = self.processes[-1]
            while not process.sent:
                await anyio.lowlevel.checkpoint()
        return process


class Stage:
    """Everything a test of the engine needs."""

    def __init__(
        self,
        directory: Path,
        store: WatchedStore,
        diary: list[str],
        tasks: anyio.abc.TaskGroup,
        *,
        idle_timeout_ns: int,
        prompt_timeout_ns: int,
        max_processes: int,
        **settings: Any,
    ) -> None:
        self.directory = directory
        self.store = store
        self.diary = diary
        self.launcher = FakeLauncher(diary)
        agent = AgentSettings(
            name="claude",
            driver="claude",
            command=("/bin/true",),
            environment={"PATH": "/bin"},
            isolated_home="",
            model="",
            permission_mode=PermissionMode.BYPASS,
            checksum="",
        )
        defaults = EngineSettings(
            agents=(agent,),
            workspace_roots=(str(directory),),
            max_sessions=4,
            max_processes=max_processes,
            max_steps=100,
            hard_timeout_ns=3600 * SECOND,
            decision_timeout_ns=600 * SECOND,
            stop_timeout_ns=30 * SECOND,
            abort_timeout_ns=10 * SECOND,
            start_timeout_ns=5 * SECOND,
            idle_timeout_ns=idle_timeout_ns,
            prompt_timeout_ns=prompt_timeout_ns,
            line_bytes=1 << 20,
            prompt_bytes=1 << 20,
            ladder=Ladder((Rung(RungKind.EOF, SECOND), Rung(RungKind.TERM, SECOND), Rung(RungKind.KILL, 0))),
            journal_patience_ns=SECOND // 10,
            journal_retry_ns=SECOND // 100,
        )
        self.settings = msgspec.structs.replace(defaults, **settings)

        def start_task(function: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
            tasks.start_soon(function, name=name)

        self.crashes: list[Exception] = []
        self.rules = FakeRules()
        self.agents = Agents(self.settings, DRIVERS, self.launcher, start_task)
        self.world = World(
            settings=self.settings,
            store=store,
            records=record,
            encoders=WireEncoders(),
            clock=SystemClock(),
            ids=SystemIds(),
            launcher=self.launcher,
            drivers=DRIVERS,
            loop=asyncio.get_running_loop(),
            start_task=start_task,
            require_agent=self.agents.require,
            version_of=self.agents.version_of,
            rules=self.rules,
            rate_limits=RateLimits(self.settings, SystemClock(), lambda: 0.0),
            arrivals=Arrivals(),
            crash=self.crashes.append,
        )
        self.engine = Engine(self.world, self.agents)
        self.drain = self.engine.drainer = Drain(
            self.world, self.engine, window_ns=60 * SECOND, stop_budget_ns=self.settings.stop_timeout_ns
        )

    async def end(self, *, window_ns: int, longest_end_ns: int, stop_budget_ns: int = 0) -> None:
        """Drain, as the daemon does at its end."""
        self.drain = self.engine.drainer = Drain(
            self.world, self.engine, window_ns=window_ns, stop_budget_ns=stop_budget_ns
        )
        self.drain.begin()
        await self.drain.run(longest_end_ns=longest_end_ns, hurry=asyncio.Event())

    def recover(self) -> None:
        """Take up what the store has, as a new life of the daemon does."""
        for runner in recover(self.world):
            self.engine.add(runner)

    def runner(self, session_id: str) -> SessionRunner:
        """Find the runner of a session."""
        return next(runner for runner in self.engine.runners() if runner.view.session_id == session_id)

    async def session(self) -> tuple[str, FakeProcess]:
        """Make a session whose agent is ready."""
        view = await self.engine.create_session(LOCAL, CreateSession(agent="claude", cwd=str(self.directory)))
        process = await self.launcher.next_process()
        process.handshake()
        return view.session_id, process

    async def start(self, session_id: str, prompt: str = "go", **fields: object) -> RunView:
        """Start a run."""
        return await self.engine.start_run(LOCAL, StartRun(session_id=session_id, prompt=prompt, **fields))  # type: ignore[arg-type]

    async def running(self, **fields: object) -> tuple[str, str, FakeProcess]:
        """Make a session with a run that its agent has taken up; gives session, run and process."""
        session_id, process = await self.session()
        run = await self.engine.start_run(LOCAL, StartRun(session_id=session_id, prompt="go", **fields))  # type: ignore[arg-type]
        process.take_prompt()
        return session_id, run.run_id, process

    def events(self, session_id: str) -> list[events_pb2.Event]:
        """Give every event that the store has of a session."""
        wire = b"".join(batch.wire for batch in self.store.read(self.runner(session_id).session_no, 0, 1 << 30))
        return list(runs_pb2.WatchRunResponse.FromString(wire).events)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Let the loop run until something holds, within bounds."""
        with anyio.fail_after(WAIT):
            while not condition():  # noqa: ASYNC110 - conditions of a synchronous engine, which no event announces
                await anyio.sleep(0.001)


@asynccontextmanager
async def engine_stage(
    directory: Path,
    store: WatchedStore | None = None,
    *,
    idle_timeout_ns: int = 3600 * SECOND,
    prompt_timeout_ns: int = 30 * SECOND,
    max_processes: int = 4,
    **settings: Any,
) -> AsyncIterator[Stage]:
    """Set the stage, and end what tasks are left. `settings` are of the engine."""
    diary: list[str] = store.diary if store is not None else []
    async with anyio.create_task_group() as tasks:
        stage = Stage(
            directory,
            store or WatchedStore(diary),
            diary,
            tasks,
            idle_timeout_ns=idle_timeout_ns,
            prompt_timeout_ns=prompt_timeout_ns,
            max_processes=max_processes,
            **settings,
        )
        yield stage
        assert stage.crashes == []
        tasks.cancel_scope.cancel()
