"""What tests of refusals share: a daemon with a neighbour at work, a client of bare calls, and what a status carries."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from google.protobuf import any_pb2
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2
from tests.behaviours import impatient_worker
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
from tests.framework.daemon import children_of, short_directory

from steprail.v1 import (
    admin_pb2_grpc,
    events_pb2,
    runs_pb2,
    runs_pb2_grpc,
    sessions_pb2,
    sessions_pb2_grpc,
)

#: gRPC refuses to hand on longer trailing metadata.
TRAILER_BYTES = 8192
_DETAILS = "grpc-status-details-bin"
_KINDS: Mapping[str, type[Message]] = {
    name: getattr(error_details_pb2, name)
    for name in ("ErrorInfo", "BadRequest", "ResourceInfo", "QuotaFailure", "PreconditionFailure", "RetryInfo")
}

IDENTITIES = (("looker", "viewer", "default"), ("doer", "operator", "default"), ("stranger", "operator", "elsewhere"))


def token_of(name: str) -> str:
    """Give the token of an identity."""
    return f"the-token-of-{name}-0123456789"


def bearer(name: str) -> tuple[tuple[str, str], ...]:
    """Give the metadata of a call that an identity makes."""
    return (("authorization", f"Bearer {token_of(name)}"),)


def identities(directory: Path) -> str:
    """Give the identities' part of the configuration; their tokens are written into the directory."""
    parts = []
    for name, role, tenant in IDENTITIES:
        file = directory / f"token-{name}"
        file.touch(mode=0o600)
        file.write_text(token_of(name))
        parts.append(f'[[identities]]\nname = "{name}"\nrole = "{role}"\ntenant = "{tenant}"\ntoken_file = "{file}"\n')
    return "".join(parts)


def free_port() -> int:
    """Give a port of loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


# --- what a refused call carries ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Refused:
    """A refused call, or a refused message of a stream: its code, its text, and its details by their kinds."""

    code: grpc.StatusCode
    message: str
    reason: str
    domain: str
    metadata: Mapping[str, str]
    details: Mapping[str, Any]

    @property
    def retry_after(self) -> float:
        """Seconds to wait."""
        nanoseconds: int = self.details["RetryInfo"].retry_delay.ToNanoseconds()
        return nanoseconds / 1e9


async def refused(call: Awaitable[object]) -> Refused:
    """Give what a call is refused with; it must be refused."""
    try:
        answer = await call
    except grpc.aio.AioRpcError as error:
        return refusal_of(error)
    raise AssertionError(f"it was not refused: {answer}")


async def stream_refused(call: grpc.aio.UnaryStreamCall[Any, Any]) -> Refused:
    """Give what a stream is refused with, whatever came before."""
    try:
        async for _ in call:
            pass
    except grpc.aio.AioRpcError as error:
        return refusal_of(error)
    raise AssertionError("it was not refused")


def refusal_of(error: grpc.aio.AioRpcError) -> Refused:
    """Read the status of a call."""
    trailers = error.trailing_metadata()
    found = None if trailers is None else trailers.get(_DETAILS)
    assert isinstance(found, bytes), f"without details: {error}"
    assert len(found) < TRAILER_BYTES
    status = status_pb2.Status.FromString(found)
    assert (status.code, status.message) == (error.code().value[0], error.details())
    details = _by_kind(status.details)
    info = details.pop("ErrorInfo")
    return Refused(error.code(), status.message, info.reason, info.domain, dict(info.metadata), details)


def rejection_of(rejected: runs_pb2.ControlRejected) -> Refused:
    """Read the answer to a message of an open stream; the domain is understood."""
    code = next(code for code in grpc.StatusCode if code.value[0] == rejected.code)
    details = _by_kind(rejected.details)
    return Refused(code, rejected.message, rejected.reason, "steprail", dict(rejected.metadata), details)


def _by_kind(packed: Any) -> dict[str, Any]:
    details: dict[str, Any] = {}
    for one in packed:
        assert isinstance(one, any_pb2.Any)
        kind = one.type_url.rpartition(".")[2]
        detail = _KINDS[kind]()
        assert one.Unpack(detail)
        assert kind not in details
        details[kind] = detail
    return details


# --- a client -------------------------------------------------------------------------------------------------------


class Scene:
    """Bare calls to a daemon, and a directory for agents to work in."""

    def __init__(self, daemon: RefusingDaemon, channel: grpc.aio.Channel, name: str) -> None:
        self.daemon = daemon
        self.channel = channel
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


class RefusingDaemon(PlayedDaemon):
    """A daemon on its socket and, with identities, on TCP too."""

    def __init__(self, root: Path, *, settings: str = "", max_sessions: int = 64, tcp: bool = False) -> None:
        super().__init__(root, settings=settings + (identities(root) if tcp else ""))
        self.tcp = f"127.0.0.1:{free_port()}" if tcp else ""
        self._max_sessions = max_sessions

    @property
    def environment(self) -> dict[str, str]:
        """What it runs with."""
        more = {"STEPRAIL_SERVER__MAX_SESSIONS": str(self._max_sessions)}
        if self.tcp:
            more["STEPRAIL_SERVER__LISTEN"] = f"{self.address},{self.tcp}"
        return {**super().environment, **more}


class ImpatientDaemon(RefusingDaemon):
    """A daemon whose worker waits for less long; see `impatient_worker`."""

    async def start(self) -> None:
        """Start the built parent process with that worker, and wait until it answers."""
        self.state.mkdir(mode=0o700)
        worker = [sys.executable, "-P", impatient_worker.__file__]
        worker += ["--state-dir", str(self.state), "--config", str(self.config)]
        parent = [sys.executable, "-P", "-m", "steprail_daemon.parent", f"--instance={self.root.name}"]
        parent += [f"--lock={self.state / 'lock'}", "--", *worker]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: ASYNC220 - its end is waited for by `stop`, which is not async
                parent, env=self.environment, stdout=log, stderr=log
            )
        await self.answering()

    def worker_pid(self) -> int:
        """Find the worker below the parent process."""
        for pid in children_of(self.pid):
            if impatient_worker.__file__.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                return pid
        raise AssertionError(f"there is no worker\n{self.log.read_text()}")


@dataclass(frozen=True)
class Site:
    """A daemon that many cases share, and who lives there beside them."""

    daemon: RefusingDaemon
    channel: grpc.aio.Channel
    neighbour: Neighbour

    @asynccontextmanager
    async def scene(self, name: str) -> AsyncIterator[Scene]:
        """Give a scene, and see after it that the neighbour was not disturbed and the worker is the same."""
        scene = Scene(self.daemon, self.channel, name)
        worker = self.daemon.worker_pid()
        try:
            yield scene
            await self.neighbour.goes_on()
            assert self.daemon.worker_pid() == worker
        finally:
            await scene.leave()


@asynccontextmanager
async def open_site(make: Callable[[Path], RefusingDaemon], steps: int) -> AsyncIterator[Site]:
    """Start a daemon with a neighbour who can be asked to take `steps` steps; at the end he completes."""
    with short_directory() as directory:
        daemon = make(directory)
        try:
            await daemon.start()
            async with grpc.aio.insecure_channel(daemon.address) as channel:
                home = Scene(daemon, channel, "neighbour")
                neighbour = await Neighbour.move_in(home, steps + 1)
                yield Site(daemon, channel, neighbour)
                await neighbour.completes()
                await home.leave()
            assert daemon.stop() == 0
        finally:
            if daemon.log.exists():
                daemon.stop()
