"""The daemon under measurement: started as `steprail serve` starts it, with an agent of the bench, on a unix socket."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import grpc
import msgspec

from steprail.v1 import (
    agents_pb2,
    agents_pb2_grpc,
    events_pb2,
    rules_pb2,
    runs_pb2,
    runs_pb2_grpc,
    sessions_pb2,
    sessions_pb2_grpc,
)
from steprail_daemon.cli.commands.serve import parent_argv, prepare_state
from steprail_daemon.config.load import load_config
from steprail_daemon.parent.family import workers
from steprail_daemon.testing.bench.footprint import cpu_seconds
from steprail_daemon.testing.bench.processes import (
    AGENT_ARGV,
    PATIENCE,
    ReportPipe,
    finish,
    module_argv,
    read_report,
    run,
    running,
)

#: A rule that never matches here.
NEVER = rules_pb2.StopRule(id="never", step_count=rules_pb2.StepCountRule(at_least=1_000_000))

_WORKER = "steprail_daemon.daemon"
_MEMORY_WORKER = "steprail_daemon.testing.bench.memory_worker"
_AGENT = "bench"


class Flood(msgspec.Struct, frozen=True, kw_only=True):
    """A flood as it was measured: from the agent's first write until the last event was counted, and the daemon's CPU.

    `after_seq` is the cursor before its first event, `messages` how many messages brought the events.
    """

    seconds: float
    cpu_s: float
    after_seq: int
    messages: int


class Rig:
    """A daemon that serves. Most is measured in one session: `session_id`, or a new one where that is empty."""

    def __init__(
        self, directory: Path, parent: subprocess.Popen[bytes], channel: grpc.Channel, session_id: str = ""
    ) -> None:
        self.directory = directory
        self.address = _address(directory)
        self._parent = parent
        self._sessions = sessions_pb2_grpc.SessionServiceStub(channel)
        self._runs = runs_pb2_grpc.RunServiceStub(channel)
        self._watch_bytes: Any = channel.unary_stream("/steprail.v1.SessionService/WatchSession")
        self._agents = agents_pb2_grpc.AgentServiceStub(channel)
        self._session_id = session_id
        self._epoch = ""

    @property
    def session_id(self) -> str:
        """The session, made when it is first asked for."""
        if not self._session_id:
            self._session_id = self.create_session()
        return self._session_id

    @property
    def journal(self) -> Path:
        """The journal's file."""
        return self.directory / "state" / "journal.db"

    def create_session(self, agent: str = _AGENT) -> str:
        """Make a session and wait until its agent takes prompts."""
        request = sessions_pb2.CreateSessionRequest(agent=agent, cwd=str(self.directory))
        session_id = self._sessions.CreateSession(request, timeout=PATIENCE).session.session_id
        watch = self._watch(session_id)
        try:
            for response in watch:
                if any(event.session_state_changed.state == events_pb2.SESSION_STATE_IDLE for event in response.events):
                    return session_id
        finally:
            watch.cancel()
        raise RuntimeError("the session's stream ended before its agent was ready")

    def close_session(self, session_id: str) -> None:
        """Close a session; its agent ends."""
        self._sessions.CloseSession(sessions_pb2.CloseSessionRequest(session_id=session_id), timeout=PATIENCE)

    def wait_probed(self) -> None:
        """Wait until every agent was asked for its version."""
        self._agents.ListAgents(agents_pb2.ListAgentsRequest(), timeout=PATIENCE)

    def processes(self) -> list[int]:
        """Give the daemon's own processes: parent and worker, without agents."""
        return [self._parent.pid, *workers(self._parent.pid)]

    def cpu_seconds(self) -> float:
        """CPU time that parent and worker used so far, without agents."""
        return sum(map(cpu_seconds, self.processes()))

    def start_run(self, prompt: dict[str, Any], *, with_rule: bool = False, session_id: str = "") -> str:
        """Start a run and give its id."""
        request = runs_pb2.StartRunRequest(
            session_id=session_id or self.session_id,
            prompt=runs_pb2.Prompt(parts=[runs_pb2.PromptPart(text=json.dumps(prompt))]),
            stop_rules=[NEVER] if with_rule else [],
        )
        return self._runs.StartRun(request, timeout=PATIENCE).run.run_id

    def wait_completed(self, run_id: str) -> None:
        """Wait until a run has ended.

        Raises:
            RuntimeError: it is not COMPLETED.
        """
        request = runs_pb2.WaitRunRequest(run_id=run_id)
        request.timeout.FromSeconds(int(PATIENCE))
        run = self._runs.WaitRun(request, timeout=PATIENCE).run
        if run.state != events_pb2.RUN_STATE_COMPLETED:
            raise RuntimeError(f"the run is {events_pb2.RunState.Name(run.state)}: {run.failure} {run.stop_reason}")

    def session(self, session_id: str = "") -> sessions_pb2.Session:
        """Give the session, or another one, as it is."""
        request = sessions_pb2.GetSessionRequest(session_id=session_id or self.session_id)
        return self._sessions.GetSession(request, timeout=PATIENCE).session

    @contextmanager
    def watching(
        self, count: int, report: Path, *, after_seq: int, epoch: str, watchers: int
    ) -> Iterator[subprocess.Popen[bytes]]:
        """Run a process that follows the session after `after_seq` until each watcher saw `count` results of tools."""
        argv = module_argv(
            "client",
            "watch",
            f"--address={self.address}",
            f"--session={self.session_id}",
            f"--after-seq={after_seq}",
            f"--epoch={epoch}",
            f"--count={count}",
            f"--watchers={watchers}",
            f"--report={report}",
        )
        with running(argv, stdout=subprocess.PIPE) as client:
            assert client.stdout is not None
            if client.stdout.readline() != b"ready\n":
                raise RuntimeError("the watching client could not begin")
            yield client

    def flood(self, count: int, write: str, watchers: int = 1) -> Flood:
        """Let the agent write `count` results while clients count them."""
        seen = self.directory / "seen"
        session = self.session()
        watching = self.watching(count, seen, after_seq=session.last_seq, epoch=session.epoch, watchers=watchers)
        with watching as client, closing(ReportPipe(self.directory / "written")) as written:
            before = self.cpu_seconds()
            run_id = self.start_run({"mode": "flood", "count": count, "write": write, "report": str(written.path)})
            agent_report = written.read()
            finish(client, "the watching client")
            cpu_s = self.cpu_seconds() - before
        self.wait_completed(run_id)
        client_report = read_report(seen)
        return Flood(
            seconds=(client_report["ended_ns"] - agent_report["begun_ns"]) / 1e9,
            cpu_s=cpu_s,
            after_seq=session.last_seq,
            messages=client_report["messages"],
        )

    @contextmanager
    def flooding(self, session_id: str) -> Iterator[None]:
        """Let the agent of another session write as much as is taken for as long as the block lasts.

        Raises:
            RuntimeError: it wrote nothing, or not all of it was recorded.
        """
        flag = self.directory / "flooding"
        flag.touch()
        session = self.session(session_id)
        with closing(ReportPipe(self.directory / "flooded")) as report:
            prompt = {"mode": "flood", "write": "chunk", "while": str(flag), "report": str(report.path)}
            run_id = self.start_run(prompt, session_id=session_id)
            try:
                self._wait_flooded(session)
                yield
            finally:
                flag.unlink()
            count = report.read()["count"]
        self.wait_completed(run_id)
        recorded = self.session(session_id).last_seq - session.last_seq
        if not 0 < count <= recorded:
            raise RuntimeError(f"the flood wrote {count} results, {recorded} events were recorded")

    def _wait_flooded(self, session: sessions_pb2.Session) -> None:
        watch = self._watch(session.session_id, session.last_seq, session.epoch)
        try:
            for response in watch:
                if any(event.HasField("tool_end") for event in response.events):
                    return
        finally:
            watch.cancel()
        raise RuntimeError("the session's stream ended before the flood came")

    def resume(self, after_seq: int) -> float:
        """Follow the session from a cursor until the first events came; gives how long that took, in seconds.

        What the client does to decode them is left out.

        Raises:
            RuntimeError: others than those after the cursor came.
        """
        epoch = self._epoch or self.session().epoch
        self._epoch = epoch
        begun = time.monotonic()
        request = sessions_pb2.WatchSessionRequest(session_id=self.session_id, after_seq=after_seq, epoch=epoch)
        watch = self._watch_bytes(request.SerializeToString(), timeout=PATIENCE)
        try:
            for message in watch:
                seconds = time.monotonic() - begun
                response = sessions_pb2.WatchSessionResponse.FromString(message)
                if response.events:
                    if response.events[0].seq != after_seq + 1:
                        raise RuntimeError(f"event {response.events[0].seq} came after the cursor {after_seq}")
                    return seconds
        finally:
            watch.cancel()
        raise RuntimeError(f"the session's stream ended without an event after {after_seq}")

    def _watch(self, session_id: str, after_seq: int = 0, epoch: str = "") -> Any:
        request = sessions_pb2.WatchSessionRequest(session_id=session_id, after_seq=after_seq, epoch=epoch)
        return self._sessions.WatchSession(request, timeout=PATIENCE)

    def replay(self, count: int, after_seq: int, watchers: int) -> float:
        """Let clients read `count` recorded results each; gives the daemon's CPU time in seconds."""
        seen = self.directory / "seen"
        epoch = self.session().epoch
        before = self.cpu_seconds()
        with self.watching(count, seen, after_seq=after_seq, epoch=epoch, watchers=watchers) as client:
            finish(client, "the watching client")
        cpu_s = self.cpu_seconds() - before
        read_report(seen)
        return cpu_s

    def steps(self, count: int, gap_ns: int) -> list[int]:
        """Let the agent work through steps under a rule that never matches; gives its waits in nanoseconds."""
        with closing(ReportPipe(self.directory / "waits")) as report:
            run_id = self.start_run(_steps(count, gap_ns, report.path), with_rule=True)
            waits: list[int] = report.read()["waits_ns"]
        self.wait_completed(run_id)
        return waits

    def steps_with_client(self, count: int, gap_ns: int) -> list[int]:
        """Let the agent work through steps that a client decides about; gives its waits in nanoseconds."""
        report = self.directory / "waits"
        argv = module_argv("client", "decide", f"--address={self.address}", f"--session={self.session_id}")
        prompt = json.dumps(_steps(count, gap_ns, report))
        run([*argv, f"--prompt={prompt}"], "the deciding client", stdout=subprocess.DEVNULL)
        waits: list[int] = read_report(report)["waits_ns"]
        return waits


def _steps(count: int, gap_ns: int, report: Path) -> dict[str, Any]:
    return {"mode": "steps", "count": count, "gap_ns": gap_ns, "report": str(report)}


@contextmanager
def serving(
    directory: Path,
    *,
    memory: bool = False,
    synchronous: str = "normal",
    agents: Mapping[str, tuple[str, Sequence[str]]] = MappingProxyType({}),
    session_id: str = "",
) -> Iterator[Rig]:
    """Run a daemon for as long as the block lasts; afterwards it is drained and its journal closed.

    `agents` are drivers and commands of agents beside that of the bench, by name. With `session_id` a session is
    taken up that a daemon in the same directory had before.
    """
    directory.mkdir(exist_ok=bool(session_id))
    log = directory / "log"
    with (
        log.open("wb") as stderr,
        running(_argv(directory, _config(directory, synchronous, agents), memory=memory), stderr=stderr) as parent,
        grpc.insecure_channel(_address(directory)) as channel,
    ):
        try:
            grpc.channel_ready_future(channel).result(timeout=30)
            yield Rig(directory, parent, channel, session_id)
        except Exception as error:
            error.add_note(f"The daemon's log ends with:\n{log.read_text()[-4000:]}")
            raise
        finally:
            parent.send_signal(signal.SIGTERM)
            parent.wait(PATIENCE)


def _argv(directory: Path, text: str, *, memory: bool) -> list[str]:
    state = directory / "state"
    config = directory / "steprail.toml"
    config.write_text(text)
    loaded = load_config({}, {}, path=config, state_directory=state)
    argv = parent_argv(loaded, (), prepare_state(state))
    return [_MEMORY_WORKER if memory and word == _WORKER else word for word in argv]


def _config(directory: Path, synchronous: str, agents: Mapping[str, tuple[str, Sequence[str]]]) -> str:
    text = f"""
version = 1
[server]
listen = [{json.dumps(_address(directory))}]
workspace_roots = [{json.dumps(str(directory.parent))}]
max_sessions = 1000
max_processes = 1000
[limits]
max_steps = 1000000
[journal]
synchronous = "{synchronous}"
[drain]
window = "1s"
stop_budget = "0s"
[logging]
level = "warning"
format = "console"
"""
    for name, (driver, command) in {_AGENT: ("claude", AGENT_ARGV), **agents}.items():
        text += f"""
[agents.{name}]
driver = "{driver}"
command = {json.dumps(list(command))}
home = "isolated"
"""
    return text


def _address(directory: Path) -> str:
    return f"unix:{directory}/socket/s"
