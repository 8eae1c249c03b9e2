"""What the cases share: a daemon as it is built with agents as they are, a client, and what the agents leave behind."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio
import grpc.aio
from google.protobuf.duration_pb2 import Duration
from prometheus_client.parser import text_string_to_metric_families
from tests.framework.daemon import FAKE_CLAUDE, Daemon, short_directory
from tests.framework.metrics import get, samples

from steprail.client import Client
from steprail.v1 import decisions_pb2, events_pb2, runs_pb2, runs_pb2_grpc, sessions_pb2_grpc

QUEUED, RUNNING = events_pb2.RUN_STATE_QUEUED, events_pb2.RUN_STATE_RUNNING
AWAITING_DECISION = events_pb2.RUN_STATE_AWAITING_DECISION
AWAITING_PERMISSION = events_pb2.RUN_STATE_AWAITING_PERMISSION
STOPPING, ABORTING = events_pb2.RUN_STATE_STOPPING, events_pb2.RUN_STATE_ABORTING
COMPLETED, STOPPED = events_pb2.RUN_STATE_COMPLETED, events_pb2.RUN_STATE_STOPPED
ABORTED, FAILED = events_pb2.RUN_STATE_ABORTED, events_pb2.RUN_STATE_FAILED
TERMINAL = frozenset({COMPLETED, STOPPED, ABORTED, FAILED})

CONTINUE, STOP = decisions_pb2.DECISION_ACTION_CONTINUE, decisions_pb2.DECISION_ACTION_STOP
STEPS_ONLY = runs_pb2.CONTROL_EVENTS_STEPS

SCRIPTED = [sys.executable, "-m", "steprail_scripted"]
RECORDER = [sys.executable, "-S", "-E", str(Path(__file__).with_name("recorder.py"))]
#: File in its workspace that gets the input of an agent that is recorded.
INPUT = "agent-input"

#: Bound on what another process does and no call of ours waits for.
WAIT = 20.0


def seconds(value: float) -> Duration:
    """Give a span."""
    span = Duration()
    span.FromNanoseconds(round(value * 1e9))
    return span


def client_decides(timeout: float | None = None, **more: Any) -> decisions_pb2.Decider:
    """Give a decider that is a client; `timeout` in seconds."""
    span = None if timeout is None else seconds(timeout)
    return decisions_pb2.Decider(mode=decisions_pb2.DECIDER_MODE_CLIENT, timeout=span, **more)


def script(*replies: dict[str, Any], **more: Any) -> str:
    """Give a prompt that is a script of one turn; `more` are members of the script. JSON is YAML."""
    return "#!scripted\n" + json.dumps({"turns": [{"replies": list(replies)}], **more})


def command(text: str, **more: Any) -> dict[str, Any]:
    """Give a reply that runs one command."""
    return {"text": "run it", "calls": [{"run_command": {"command": text}}], **more}


def read(path: str = "notes.txt", **more: Any) -> dict[str, Any]:
    """Give a reply that reads one file."""
    return {"text": "look", "calls": [{"read_file": {"path": path}}], **more}


def says(text: str, **more: Any) -> dict[str, Any]:
    """Give a reply that ends the turn."""
    return {"text": text, **more}


def agent(name: str, *, driver: str = "scripted", command: Sequence[str] = (), mode: str = "bypass") -> str:
    """Give an agent's part of the configuration."""
    parts = f"command = {json.dumps(list(command))}\n" if command else ""
    return f'[agents.{name}]\ndriver = "{driver}"\n{parts}home = "isolated"\npermission_mode = "{mode}"\n'


def recorded(path: str, program: Sequence[str]) -> list[str]:
    """Give the command of an agent whose input is kept in a file; a relative one is in its workspace."""
    return [*RECORDER, path, *program]


class PlayedDaemon(Daemon):
    """A daemon whose agents are the built-in one and the one that speaks Claude Code's protocol."""

    def __init__(self, root: Path, *, settings: str = "", environment: dict[str, str] | None = None) -> None:
        super().__init__(root, FAKE_CLAUDE, settings=settings, environment=environment)

    @property
    def environment(self) -> dict[str, str]:
        """What it runs with; the side port is any free one."""
        return {**super().environment, "STEPRAIL_SERVER__HTTP": "127.0.0.1:0"}

    def metric(self, name: str, **labels: str) -> float:
        """Give the value of a metric, 0 for one that was never observed."""
        found = re.findall(r"metrics and probes on (http://[0-9.]+:\d+)", self.log.read_text())
        status, text = get(f"{found[-1]}/metrics")
        assert status == 200
        values = samples(text_string_to_metric_families(text))
        return values.get((f"steprail_{name}", frozenset(labels.items())), 0.0)

    def crash(self) -> None:
        """Let the parent process be killed; whatever it leaves is left."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(WAIT)


class Stage:
    """A daemon, a client of it, and a directory for its agents to work in."""

    def __init__(self, daemon: PlayedDaemon, client: Client, channel: grpc.aio.Channel, workspace: Path) -> None:
        self.daemon = daemon
        self.client = client
        self.runs = runs_pb2_grpc.RunServiceStub(channel)
        self.sessions = sessions_pb2_grpc.SessionServiceStub(channel)
        self.workspace = workspace

    async def session(self, agent: str = "scripted", **more: Any) -> str:
        """Make a session and give its id."""
        return (await self.client.create_session(agent, str(self.workspace), **more)).session_id

    async def run(self, session_id: str, prompt: str, **more: Any) -> runs_pb2.Run:
        """Start a run and wait for its end."""
        return await self.ended((await self.client.start_run(session_id, prompt, **more)).run_id)

    async def queue(self, session_id: str, prompt: str) -> runs_pb2.Run:
        """Start a run that may wait for its turn."""
        request = self.client.start_request(session_id, prompt)
        request.queue = runs_pb2.QUEUE_MODE_QUEUE
        return (await self.runs.StartRun(request, timeout=WAIT)).run

    async def ended(self, run_id: str, timeout: float = WAIT) -> runs_pb2.Run:
        """Wait for the end of a run, which must come."""
        run = await self.client.wait_run(run_id, timeout=timeout)
        assert run.state in TERMINAL, run
        return run

    async def asked(self, run_id: str) -> runs_pb2.Run:
        """Wait until a run waits for somebody, which it must."""
        run = await self.client.wait_run(run_id, until=runs_pb2.WAIT_UNTIL_NEEDS_ATTENTION, timeout=WAIT)
        assert run.state in (AWAITING_DECISION, AWAITING_PERMISSION), run
        return run

    async def pending(self, session_id: str) -> list[runs_pb2.PendingItem]:
        """Give what waits for somebody in a session."""
        reply = await self.runs.ListPending(runs_pb2.ListPendingRequest(session_id=session_id), timeout=WAIT)
        return list(reply.items)

    async def until(self, run_id: str, body: str) -> events_pb2.Event:
        """Watch a run until an event of a kind comes."""
        async for event in self.client.watch_run(run_id):
            if event.WhichOneof("body") == body:
                return event
        raise AssertionError(f"the run ended without {body}\n{self.daemon.log.read_text()}")

    async def events(self, run_id: str) -> list[events_pb2.Event]:
        """Give every event of a run that ends."""
        with anyio.fail_after(WAIT):
            return [event async for event in self.client.watch_run(run_id)]

    def agents(self) -> set[int]:
        """Give the processes that work in this directory."""
        found = set()
        for pid in self.daemon.descendants():
            try:
                if Path(f"/proc/{pid}/cwd").readlink() == self.workspace:
                    found.add(pid)
            except OSError:
                continue
        return found

    def written(self) -> list[dict[str, Any]]:
        """Give the lines that the daemon has written to the recorded agent of this workspace."""
        lines = (self.workspace / INPUT).read_bytes().split(b"\n")
        return [json.loads(line) for line in lines if line.strip()]

    def conversation(self, agent_session_id: str) -> list[dict[str, Any]]:
        """Give what the built-in agent's model has been given and has said in a session, from the agent's own store."""
        (path,) = self.daemon.state.rglob(f"{agent_session_id}.jsonl")
        records = [json.loads(line) for line in path.read_text().splitlines()]
        return [record["message"] for record in records if record["kind"] == "message"]

    async def said(self, session_id: str) -> list[dict[str, Any]]:
        """Give the conversation of a session."""
        return self.conversation((await self.client.get_session(session_id)).agent_session_id)

    async def replies(self, session_id: str) -> int:
        """Count how often the built-in agent's model has answered in a session."""
        return sum(message["role"] == "assistant" for message in await self.said(session_id))


def model_calls(path: Path) -> list[dict[str, Any]]:
    """Give what the other agent wrote down about its calls of the model."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def kinds(events: Sequence[events_pb2.Event]) -> list[str]:
    """Give the kinds of events."""
    return [str(event.WhichOneof("body")) for event in events]


def bodies(events: Sequence[events_pb2.Event], kind: str) -> list[Any]:
    """Give the bodies of one kind."""
    return [getattr(event, kind) for event in events if event.WhichOneof("body") == kind]


def gapless(events: Sequence[events_pb2.Event]) -> bool:
    """Whether every event is there once, as far as one session did nothing else meanwhile."""
    return [event.seq for event in events] == list(range(events[0].seq, events[0].seq + len(events)))


@asynccontextmanager
async def play(daemon: PlayedDaemon, name: str = "play") -> AsyncIterator[Stage]:
    """Give a client of a daemon that runs, and a directory."""
    workspace = daemon.workspace / name
    workspace.mkdir(exist_ok=True)
    (workspace / "notes.txt").write_text("remember the milk\n")
    async with Client(daemon.address) as client, grpc.aio.insecure_channel(daemon.address) as channel:
        yield Stage(daemon, client, channel, workspace)


@contextmanager
def daemon_of_its_own(
    settings: str = "", *, extra: Callable[[Path], str] = lambda _: "", environment: dict[str, str] | None = None
) -> Iterator[PlayedDaemon]:
    """Make a daemon for one test, not started yet; `extra` gives settings that need the directory."""
    with short_directory() as directory:
        daemon = PlayedDaemon(
            directory, settings=settings + agent("scripted") + extra(directory), environment=environment
        )
        try:
            yield daemon
        finally:
            if daemon.log.exists():
                daemon.stop()
