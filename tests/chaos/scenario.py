"""One client that does a bit of everything, goes on whenever its daemon comes back, and remembers what it saw."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import anyio
import grpc
import grpc.aio
from tests.chaos.failing import FailingDaemon

from steprail.client._channel import open_channel
from steprail.v1 import (
    decisions_pb2,
    events_pb2,
    rules_pb2,
    runs_pb2,
    runs_pb2_grpc,
    sessions_pb2,
    sessions_pb2_grpc,
)

T = TypeVar("T")

#: Longest wait for one thing.
WAIT = 40.0
#: What a call fails with when the daemon dies or is not there; anything else is an answer.
_AWAY = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.UNKNOWN)

ENDED = frozenset(
    {
        events_pb2.RUN_STATE_COMPLETED,
        events_pb2.RUN_STATE_STOPPED,
        events_pb2.RUN_STATE_ABORTED,
        events_pb2.RUN_STATE_FAILED,
    }
)
_READ = "{read_file: {path: notes.txt}}"


def script(mark: str, *replies: str) -> runs_pb2.Prompt:
    """Make a prompt that tells the agent what to do; `mark` is found in what the agent was written."""
    text = "\n".join([f"#!scripted\n# {mark}\nturns:\n- replies:", *(f"  - {{{reply}}}" for reply in replies)])
    return runs_pb2.Prompt(parts=[runs_pb2.PromptPart(text=text)])


class Scenario:
    """Drives one session; `seen` is every event that it was ever sent, by sequence number."""

    def __init__(self, daemon: FailingDaemon, name: str) -> None:
        self.daemon = daemon
        self.name = name
        self.seen: dict[int, bytes] = {}
        self.epoch = ""
        self.session_id = ""
        self.marks: dict[str, str] = {}
        self._news = anyio.Event()
        self._running: set[str] = set()
        channel = open_channel(daemon.address)
        self._channel = channel
        self._sessions = sessions_pb2_grpc.SessionServiceStub(channel)
        self._runs = runs_pb2_grpc.RunServiceStub(channel)

    async def play(self) -> None:
        """Do it all, then check."""
        with anyio.fail_after(3 * WAIT):
            async with anyio.create_task_group() as tasks:
                self.session_id = (await self._create()).session_id
                tasks.start_soon(self._watch)
                await self._act()
                tasks.cancel_scope.cancel()
            await self._check()
        await self._channel.close()

    async def _act(self) -> None:
        first = await self._start("first", stop_after=1)
        await self._to_its_end(first)
        await self._to_its_end(await self._continue("second", first))
        hanging = await self._start("third", "text: one, hang: true")
        await self._under_way(hanging)
        abort = runs_pb2.AbortRunRequest(run_id=hanging, request_id=f"{self.name} abort")
        await self._call(lambda: self._runs.AbortRun(abort, timeout=WAIT))
        await self._to_its_end(hanging)
        await self._to_its_end(await self._start("last"))
        close = sessions_pb2.CloseSessionRequest(
            session_id=self.session_id, force=True, request_id=f"{self.name} close"
        )
        await self._call(lambda: self._sessions.CloseSession(close, timeout=WAIT))

    # --- calls, each made until it is answered, under the same request id -------------------------------------------

    async def _call(self, call: Callable[[], Any]) -> Any:
        with anyio.fail_after(WAIT):
            while True:
                try:
                    return await call()
                except grpc.aio.AioRpcError as error:
                    if error.code() not in _AWAY:
                        raise
                await self._back()

    async def _back(self) -> None:
        """Wait until the daemon answers again, and look whether it claims that anything lives that does not."""
        await self.daemon.answering()
        if not self.session_id:
            return
        try:
            runs = await self._runs.ListRuns(runs_pb2.ListRunsRequest(session_id=self.session_id), timeout=WAIT)
        except grpc.aio.AioRpcError:
            return
        live = [run for run in runs.runs if run.state not in ENDED and run.state != events_pb2.RUN_STATE_QUEUED]
        assert len(live) <= self.daemon.agents(), f"live without an agent: {live}"

    async def _create(self) -> sessions_pb2.Session:
        request = sessions_pb2.CreateSessionRequest(
            agent="scripted", cwd=str(self.daemon.workspace), request_id=f"{self.name} create"
        )
        answer = await self._call(lambda: self._sessions.CreateSession(request, timeout=WAIT))
        session: sessions_pb2.Session = answer.session
        return session

    async def _start(self, mark: str, *replies: str, stop_after: int = 0) -> str:
        rules = (
            [rules_pb2.StopRule(id="r", step_count=rules_pb2.StepCountRule(at_least=stop_after))] if stop_after else []
        )
        request = runs_pb2.StartRunRequest(
            session_id=self.session_id,
            prompt=script(f"{self.name} {mark}", *(replies or (f"text: one, calls: [{_READ}]", "text: done"))),
            stop_rules=rules,
            request_id=f"{self.name} {mark}",
        )
        return self._marked(mark, await self._call(lambda: self._runs.StartRun(request, timeout=WAIT)))

    async def _continue(self, mark: str, run_id: str) -> str:
        write = "{write_file: {path: out.txt, contents: x}}"
        request = runs_pb2.ContinueRunRequest(
            run_id=run_id,
            prompt=script(f"{self.name} {mark}", f"text: two, calls: [{write}]", "text: done"),
            stop_rules=rules_pb2.StopRuleSet(),
            decider=decisions_pb2.Decider(mode=decisions_pb2.DECIDER_MODE_CLIENT),
            request_id=f"{self.name} {mark}",
        )
        return self._marked(mark, await self._call(lambda: self._runs.ContinueRun(request, timeout=WAIT)))

    def _marked(self, mark: str, answer: Any) -> str:
        self.marks[mark] = answer.run.run_id
        return self.marks[mark]

    async def _run(self, run_id: str) -> runs_pb2.Run:
        answer = await self._call(lambda: self._runs.GetRun(runs_pb2.GetRunRequest(run_id=run_id), timeout=WAIT))
        run: runs_pb2.Run = answer.run
        return run

    async def _to_its_end(self, run_id: str) -> None:
        """Wait until a run has ended, and answer what it asks meanwhile."""
        request = runs_pb2.WaitRunRequest(run_id=run_id, until=runs_pb2.WAIT_UNTIL_NEEDS_ATTENTION)
        request.timeout.FromSeconds(10)
        while True:
            answer = await self._call(lambda: self._runs.WaitRun(request, timeout=WAIT))
            if answer.run.state in ENDED:
                return
            await self._answer(answer.run)

    async def _answer(self, run: runs_pb2.Run) -> None:
        for permission in run.pending_permissions:
            reply = runs_pb2.AnswerPermissionRequest(
                run_id=run.run_id,
                permission_id=permission.permission_id,
                answer=decisions_pb2.PERMISSION_ANSWER_ALLOW_ONCE,
                request_id=permission.permission_id[-40:],
            )
            await self._maybe_late(partial(self._runs.AnswerPermission, reply, timeout=WAIT))
        if run.HasField("pending_decision"):
            decision = runs_pb2.SubmitDecisionRequest(
                run_id=run.run_id,
                step_id=run.pending_decision.step_id,
                action=decisions_pb2.DECISION_ACTION_CONTINUE,
                request_id=run.pending_decision.step_id[-40:],
            )
            await self._maybe_late(lambda: self._runs.SubmitDecision(decision, timeout=WAIT))

    async def _maybe_late(self, call: Callable[[], Any]) -> None:
        """Answer something that the daemon's death may have closed."""
        try:
            await self._call(call)
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.FAILED_PRECONDITION:
                raise

    # --- the stream -------------------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        while True:
            request = sessions_pb2.WatchSessionRequest(
                session_id=self.session_id, after_seq=len(self.seen), epoch=self.epoch if self.seen else ""
            )
            try:
                async for response in self._sessions.WatchSession(request):
                    self._take(response)
                return
            except grpc.aio.AioRpcError as error:
                if error.code() not in _AWAY:
                    raise
            await self.daemon.answering()

    def _take(self, response: sessions_pb2.WatchSessionResponse) -> None:
        if response.HasField("heartbeat"):
            self.epoch = response.heartbeat.epoch
        for event in response.events:
            assert event.seq == len(self.seen) + 1
            self.seen[event.seq] = event.SerializeToString(deterministic=True)
            if event.WhichOneof("body") == "run_state_changed":
                if event.run_state_changed.state != events_pb2.RUN_STATE_QUEUED:
                    self._running.add(event.run_id)
                self._news.set()
                self._news = anyio.Event()

    async def _under_way(self, run_id: str) -> None:
        with anyio.fail_after(WAIT):
            while run_id not in self._running:
                await self._news.wait()

    # --- what must hold at the end ----------------------------------------------------------------------------------

    async def _check(self) -> None:
        events = await self._all_events()
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        for event in events:
            seen = self.seen.get(event.seq)
            assert seen in (None, event.SerializeToString(deterministic=True)), f"event {event.seq} is another"
        assert max(self.seen, default=0) <= len(events)
        self._check_prompts(await self._check_runs(events))

    async def _all_events(self) -> list[events_pb2.Event]:
        request = sessions_pb2.WatchSessionRequest(session_id=self.session_id)
        found: list[events_pb2.Event] = []
        with anyio.fail_after(WAIT):
            async for response in self._sessions.WatchSession(request):
                found.extend(response.events)
        return found

    async def _check_runs(self, events: list[events_pb2.Event]) -> dict[str, runs_pb2.Run]:
        runs = (
            await self._call(lambda: self._runs.ListRuns(runs_pb2.ListRunsRequest(session_id=self.session_id)))
        ).runs
        assert {run.run_id for run in runs} == set(self.marks.values()), "a run was lost, or carried out twice"
        ends = Counter(event.run_id for event in events if event.HasField("agent_end"))
        steps = Counter(event.run_id for event in events if event.HasField("step_end"))
        decided = Counter(event.run_id for event in events if event.HasField("decision_recorded"))
        for run in runs:
            assert run.state in ENDED
            assert ends[run.run_id] == 1, f"run {run.run_id} has {ends[run.run_id]} ends"
            assert steps[run.run_id] == run.step_count
            assert decided[run.run_id] <= run.step_count
        last = next(run for run in runs if run.run_id == self.marks["last"])
        session = await self._call(
            lambda: self._sessions.GetSession(sessions_pb2.GetSessionRequest(session_id=self.session_id))
        )
        assert session.session.state == events_pb2.SESSION_STATE_CLOSED
        if last.state != events_pb2.RUN_STATE_COMPLETED:
            # It was itself cut off; nothing else may keep a run from being carried out.
            assert last.failure.reason == "DAEMON_RESTARTED", last
            assert self.daemon.lines("fired")
        return {run.run_id: run for run in runs}

    def _check_prompts(self, runs: dict[str, runs_pb2.Run]) -> None:
        writes = self.daemon.lines("writes")
        for mark, run_id in self.marks.items():
            given = sum(f"# {self.name} {mark}\\n" in line for line in writes)
            # What came to its end was asked of the agent; any other run may have been cut off before.
            least = int(runs[run_id].state in (events_pb2.RUN_STATE_COMPLETED, events_pb2.RUN_STATE_STOPPED))
            assert least <= given <= 1, f"prompt {mark} was given {given} times"
