"""A client of bare calls with a directory for agents, and a neighbour: a run of another session, undisturbed."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

import grpc.aio
from tests.behaviours.stage import (
    AWAITING_DECISION,
    AWAITING_PERMISSION,
    COMPLETED,
    CONTINUE,
    TERMINAL,
    WAIT,
    PlayedDaemon,
    client_decides,
    read,
    says,
    script,
    seconds,
)

from steprail.v1 import (
    admin_pb2_grpc,
    events_pb2,
    runs_pb2,
    runs_pb2_grpc,
    sessions_pb2,
    sessions_pb2_grpc,
)


class Scene:
    """Bare calls to a daemon, and a directory for agents to work in."""

    def __init__(self, daemon: PlayedDaemon, channel: grpc.aio.Channel, name: str, *, tcp: str = "") -> None:
        self.daemon = daemon
        self.channel = channel
        #: Where the same daemon is on TCP; empty if it is not.
        self.tcp = tcp
        self.workspace = daemon.workspace / name
        self.workspace.mkdir()
        (self.workspace / "notes.txt").write_text("remember the milk\n")
        self.sessions = sessions_pb2_grpc.SessionServiceStub(channel)
        self.runs = runs_pb2_grpc.RunServiceStub(channel)
        self.admin = admin_pb2_grpc.AdminServiceStub(channel)
        self._made: list[str] = []

    def session_request(self, agent: str = "scripted", **more: Any) -> sessions_pb2.CreateSessionRequest:
        """Give a request for a session in this scene's directory."""
        return sessions_pb2.CreateSessionRequest(**{"agent": agent, "cwd": str(self.workspace), **more})

    def create(self, agent: str = "scripted", **more: Any) -> Awaitable[sessions_pb2.CreateSessionResponse]:
        """Ask for a session."""
        return self.sessions.CreateSession(self.session_request(agent, **more), timeout=WAIT)

    async def session(self, agent: str = "scripted", **more: Any) -> str:
        """Make a session, which ends with the scene."""
        session_id = (await self.create(agent, **more)).session.session_id
        self._made.append(session_id)
        return session_id

    async def get_session(self, session_id: str) -> sessions_pb2.Session:
        """Give a session as it is."""
        request = sessions_pb2.GetSessionRequest(session_id=session_id)
        return (await self.sessions.GetSession(request, timeout=WAIT)).session

    def start(self, session_id: str, prompt: str, **more: Any) -> Awaitable[runs_pb2.StartRunResponse]:
        """Ask for a run."""
        request = runs_pb2.StartRunRequest(session_id=session_id, prompt=text_prompt(prompt), **more)
        return self.runs.StartRun(request, timeout=WAIT)

    async def started(self, session_id: str, prompt: str, **more: Any) -> str:
        """Start a run and give its id."""
        return (await self.start(session_id, prompt, **more)).run.run_id

    async def ended(self, run_id: str) -> runs_pb2.Run:
        """Wait for the end of a run, which must come."""
        request = runs_pb2.WaitRunRequest(run_id=run_id, timeout=seconds(WAIT))
        run = (await self.runs.WaitRun(request, timeout=2 * WAIT)).run
        assert run.state in TERMINAL, run
        return run

    async def ran(self, session_id: str, prompt: str, **more: Any) -> runs_pb2.Run:
        """Start a run and wait for its end."""
        return await self.ended(await self.started(session_id, prompt, **more))

    async def asked(self, run_id: str) -> runs_pb2.Run:
        """Wait until a run waits for somebody, which it must."""
        request = runs_pb2.WaitRunRequest(
            run_id=run_id, until=runs_pb2.WAIT_UNTIL_NEEDS_ATTENTION, timeout=seconds(WAIT)
        )
        run = (await self.runs.WaitRun(request, timeout=2 * WAIT)).run
        assert run.state in (AWAITING_DECISION, AWAITING_PERMISSION), run
        return run

    async def held(self, session_id: str) -> runs_pb2.Run:
        """Start a run and let it wait at its first boundary."""
        return await self.asked(
            await self.started(session_id, script(read(), says("let go")), decider=client_decides())
        )

    def decide(self, run: runs_pb2.Run, step_id: str = "", **more: Any) -> Awaitable[runs_pb2.SubmitDecisionResponse]:
        """Decide about the step that waits, or about another."""
        request = runs_pb2.SubmitDecisionRequest(
            run_id=run.run_id, step_id=step_id or run.pending_decision.step_id, **more
        )
        return self.runs.SubmitDecision(request, timeout=WAIT)

    async def goes_on(self, run: runs_pb2.Run) -> None:
        """See that a run which waits at its first boundary is unharmed."""
        await self.decide(run, action=CONTINUE)
        assert (await self.ended(run.run_id)).state == COMPLETED

    async def suspended(self, session_id: str) -> None:
        """Wait until a session has no process any more."""
        request = sessions_pb2.WatchSessionRequest(session_id=session_id)
        async for message in self.sessions.WatchSession(request, timeout=WAIT):
            states = [event.session_state_changed.state for event in message.events]
            if events_pb2.SESSION_STATE_SUSPENDED in states:
                return

    async def session_without_conversation(self) -> str:
        """Make a session whose agent has gone and whose conversation nobody has any more."""
        session_id = await self.session()
        await self.ran(session_id, script(says("x", faults=[{"at": "after_turn_end", "exit": 0}])))
        await self.suspended(session_id)
        stored = list(self.daemon.state.rglob(f"{(await self.get_session(session_id)).agent_session_id}*"))
        assert stored
        for path in stored:
            path.unlink()
        return session_id

    async def events(self, run_id: str) -> list[events_pb2.Event]:
        """Give every event of a run that has ended."""
        call = self.runs.WatchRun(runs_pb2.WatchRunRequest(run_id=run_id), timeout=WAIT)
        return [event async for message in call for event in message.events]

    async def leave(self) -> None:
        """Close what was made."""
        for session_id in self._made:
            request = sessions_pb2.CloseSessionRequest(session_id=session_id, force=True)
            await self.sessions.CloseSession(request, timeout=WAIT)


def text_prompt(text: str) -> runs_pb2.Prompt:
    """Give a prompt of one text."""
    return runs_pb2.Prompt(parts=[runs_pb2.PromptPart(text=text)])


class Neighbour:
    """A run of another session that is live all the time: at a boundary, and a step further each time it is asked."""

    def __init__(self, scene: Scene, run: runs_pb2.Run) -> None:
        self._scene = scene
        self._run = run

    @classmethod
    async def move_in(cls, scene: Scene, steps: int) -> Neighbour:
        """Begin a run of so many steps, which ends of itself after the last."""
        prompt = script(*[read() for _ in range(steps)], says("undisturbed"))
        run_id = await scene.started(await scene.session(), prompt, decider=client_decides())
        return cls(scene, await scene.asked(run_id))

    async def goes_on(self) -> None:
        """Let it take a step, which it must."""
        before = self._run.step_count
        await self._scene.decide(self._run, action=CONTINUE)
        self._run = await self._scene.asked(self._run.run_id)
        assert self._run.step_count == before + 1

    async def completes(self) -> None:
        """Let it come to its end."""
        while self._run.state not in TERMINAL:
            await self._scene.decide(self._run, action=CONTINUE)
            request = runs_pb2.WaitRunRequest(
                run_id=self._run.run_id, until=runs_pb2.WAIT_UNTIL_NEEDS_ATTENTION, timeout=seconds(WAIT)
            )
            self._run = (await self._scene.runs.WaitRun(request, timeout=2 * WAIT)).run
            assert self._run.state in {*TERMINAL, AWAITING_DECISION}
        assert (self._run.state, self._run.text) == (COMPLETED, "undisturbed")
