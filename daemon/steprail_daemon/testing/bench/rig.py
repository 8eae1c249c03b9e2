"""The daemon under measurement: started as `steprail serve` starts it, with an agent of the bench, on a unix socket."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import grpc
import msgspec

from steprail.v1 import events_pb2, rules_pb2, runs_pb2, runs_pb2_grpc, sessions_pb2, sessions_pb2_grpc
from steprail_daemon.cli.commands.serve import parent_argv, prepare_state
from steprail_daemon.config.load import load_config
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
    """A daemon that serves, with one session."""

    def __init__(self, directory: Path, parent: subprocess.Popen[bytes], channel: grpc.Channel) -> None:
        self.directory = directory
        self.address = _address(directory)
        self._parent = parent
        self._sessions = sessions_pb2_grpc.SessionServiceStub(channel)
        self._runs = runs_pb2_grpc.RunServiceStub(channel)
        self.session_id = self.create_session()

    @property
    def journal(self) -> Path:
        """The journal's file."""
        return self.directory / "state" / "journal.db"

    def create_session(self) -> str:
        """Make a session and wait until its agent takes prompts."""
        request = sessions_pb2.CreateSessionRequest(agent=_AGENT, cwd=str(self.directory))
        session_id = self._sessions.CreateSession(request, timeout=PATIENCE).session.session_id
        watch = self._sessions.WatchSession(sessions_pb2.WatchSessionRequest(session_id=session_id), timeout=PATIENCE)
        try:
            for response in watch:
                if any(event.session_state_changed.state == events_pb2.SESSION_STATE_IDLE for event in response.events):
                    return session_id
        finally:
            watch.cancel()
        raise RuntimeError("the session's stream ended before its agent was ready")

    def cpu_seconds(self) -> float:
        """CPU time that parent and worker used so far, without agents."""
        pids = [self._parent.pid, *(pid for pid in _children(self._parent.pid) if _is_worker(pid))]
        return sum(_cpu_seconds(pid) for pid in pids)

    def start_run(self, prompt: dict[str, Any], *, with_rule: bool = False) -> str:
        """Start a run and give its id."""
        request = runs_pb2.StartRunRequest(
            session_id=self.session_id,
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

    def session(self) -> sessions_pb2.Session:
        """Give the session as it is."""
        return self._sessions.GetSession(
            sessions_pb2.GetSessionRequest(session_id=self.session_id), timeout=PATIENCE
        ).session

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
def serving(directory: Path, *, memory: bool = False, synchronous: str = "normal") -> Iterator[Rig]:
    """Run a daemon for as long as the block lasts; afterwards it is drained and its journal closed."""
    directory.mkdir()
    log = directory / "log"
    with (
        log.open("wb") as stderr,
        running(_argv(directory, memory=memory, synchronous=synchronous), stderr=stderr) as parent,
        grpc.insecure_channel(_address(directory)) as channel,
    ):
        try:
            grpc.channel_ready_future(channel).result(timeout=30)
            yield Rig(directory, parent, channel)
        except Exception as error:
            error.add_note(f"The daemon's log ends with:\n{log.read_text()[-4000:]}")
            raise
        finally:
            parent.send_signal(signal.SIGTERM)
            parent.wait(PATIENCE)


def _argv(directory: Path, *, memory: bool, synchronous: str) -> list[str]:
    state = directory / "state"
    config = directory / "steprail.toml"
    config.write_text(_config(directory, synchronous))
    loaded = load_config({}, {}, path=config, state_directory=state)
    argv = parent_argv(loaded, (), prepare_state(state))
    return [_MEMORY_WORKER if memory and word == _WORKER else word for word in argv]


def _config(directory: Path, synchronous: str) -> str:
    return f"""
version = 1
[server]
listen = [{json.dumps(_address(directory))}]
workspace_roots = [{json.dumps(str(directory))}]
[limits]
max_steps = 1000000
[journal]
synchronous = "{synchronous}"
[drain]
window = "1s"
stop_budget = "0s"
[agents.{_AGENT}]
driver = "claude"
command = {json.dumps(AGENT_ARGV)}
[logging]
level = "warning"
format = "console"
"""


def _address(directory: Path) -> str:
    return f"unix:{directory}/socket/s"


def _children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _is_worker(pid: int) -> bool:
    return b"--control-fd" in Path(f"/proc/{pid}/cmdline").read_bytes()


def _cpu_seconds(pid: int) -> float:
    # After the name, which is in parentheses and may hold anything; utime and stime are fields 14 and 15.
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
