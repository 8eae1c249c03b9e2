"""Tries an agent: starts it through a daemon of its own, lets it make one step, sees that it is held there, ends it.

It works in a temporary directory, with a home of its own and a scripted model on loopback, so that it needs no login
and asks nobody. How that is done with each kind of agent is in `TRIALS`, by driver.
"""

from __future__ import annotations

import json
import os
import secrets
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio

from steprail_daemon.cli.client import Daemon, Message
from steprail_daemon.cli.doctor import memory
from steprail_daemon.cli.doctor.looks import in_time, limit_words
from steprail_daemon.cli.live import has_ended, state_of
from steprail_daemon.cli.output import shorten
from steprail_daemon.cli.problems import Problem
from steprail_daemon.cli.processes import left_after, watched
from steprail_daemon.cli.rehearsal import Room, ScriptedModel, scripted_model
from steprail_daemon.cli.rules import ShortRule
from steprail_daemon.config.schema import SCRIPTED
from steprail_daemon.config.values import MAX_SOCKET_PATH
from steprail_daemon.parent import family

if TYPE_CHECKING:
    from steprail_daemon.examine import AgentFound

#: How long it is watched that an agent that was stopped does nothing, in seconds.
QUIET: Final = 1.0
#: What the steps of a trial may take beyond the start of the agent, in seconds.
_WORK_LIMIT: Final = 60.0
_END_LIMIT: Final = 30.0
_GONE_LIMIT: Final = 10.0
#: Of a directory in which one of ours has a socket, in bytes: what comes behind it has room in the socket's path.
_LONGEST_DIRECTORY: Final = MAX_SOCKET_PATH - len("/steprail-doctor-12345678/steprail.sock")
_ONE_STEP: Final = (ShortRule("steps", 1, "steps=1"),)
#: A daemon that goes down at once when it is told to, whatever its agent does.
_SHORT_END: Final = """[drain]
window = "0s"
stop_budget = "0s"
[limits]
abort_timeout = "2s"
stop_timeout = "10s"
[processes]
ladder = ["end:2s", "term:2s", "kill"]
"""
_SCRIPT: Final = """#!scripted
turns:
- replies:
  - text: I look at what is here.
    calls: [{list_tree: {path: .}}]
  - text: I go on, which must not happen.
    calls: [{write_file: {path: went-on.txt, contents: "it went on"}}]
"""


@dataclass(frozen=True)
class Trial:
    """How one kind of agent is tried.

    `prompt` makes it work a step with a tool, and more if nothing stops it. `asks_model`: it has to be given a model
    that is scripted, and its requests are counted. `gate_not_tried` says why its gate cannot be tried, if it cannot:
    then it is only started. `prepare` writes what its home needs; `environment` is what it gets beside.
    """

    prompt: str
    asks_model: bool = False
    gate_not_tried: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    prepare: Callable[[Path], None] = lambda _home: None


#: Port 9 is that of the protocol discard; nothing answers there, which is as good as no network.
_NOWHERE: Final = "http://127.0.0.1:9"


def _prepare_autohand(home: Path) -> None:
    """Give it a login, which it does not start without and believes where it cannot ask, and a model that is not there.

    Seen on 0.8.2.
    """
    off = {"enabled": False}
    content = {
        "provider": "openai",
        "openai": {"apiKey": "none", "baseUrl": f"{_NOWHERE}/v1", "model": "none"},
        "auth": {"token": "none"},
        "telemetry": off,
        "sync": off,
        "autoReport": off,
        "agent": {"autoMemory": False},
    }
    file = home / ".autohand" / "config.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(content))


TRIALS: Final[Mapping[str, Trial]] = {
    "claude": Trial("Look around, leave a note, and read it back.", asks_model=True),
    SCRIPTED: Trial(_SCRIPT),
    "autohand": Trial(
        "Say yes.",
        gate_not_tried="there is no scripted model for the driver autohand",
        environment=dict.fromkeys(("AUTOHAND_API_URL", "AUTOHAND_AUTH_URL", "AUTOHAND_AUTH_API_URL"), _NOWHERE),
        prepare=_prepare_autohand,
    ),
}


@dataclass(frozen=True)
class Observed:
    """What came of a trial.

    `start_seconds`: from the request for a run to the agent's taking it up; None if it did not. `run` is the run as it
    ended. `asked` are the requests for the model's messages in all, with one for the step, and `asked_on` requests of
    any kind that came after the stop; both None without a model that counts. `went_on`: something was done after the
    stop. `left`: processes of the agent that were still there after its end.
    """

    run: Message
    start_seconds: float | None
    memory: memory.Memory | None = None
    asked: int | None = None
    asked_on: int | None = None
    went_on: bool = False
    left: int = 0


async def rehearse(agent: AgentFound, trial: Trial, start_limit: float) -> Observed:
    """Try an agent; nothing is left of it, also if this is cancelled.

    Raises:
        Problem: the trial itself went wrong, or took too long.
    """
    limit = start_limit + _WORK_LIMIT
    try:
        made = await in_time(_directory)
    except TimeoutError:
        raise Problem(f"the directory for temporary files did not answer within {limit_words()}") from None
    with made as directory:
        try:
            with anyio.fail_after(limit):
                return await _in(Room(Path(directory)), agent, trial, start_limit)
        except TimeoutError:
            raise Problem(f"it did not come to its first step and its end within {limit:.0f} s") from None


async def _in(room: Room, agent: AgentFound, trial: Trial, start_limit: float) -> Observed:
    # Here and not above: it brings gRPC with it, and where that cannot be imported it is a finding.
    from steprail_daemon.cli.connection import open_daemon  # noqa: PLC0415

    async with _model(trial) as model:
        token = secrets.token_hex(16)
        _furnish(room, agent, trial, model, f'{room.identity(token)}{_SHORT_END}start_timeout = "{start_limit:g}s"\n')
        async with room.daemon(_END_LIMIT) as pid, open_daemon(room.address, token) as daemon:
            session = await daemon.create_session(agent.name, str(room.workspace), "")
            run, start_seconds = await _run(daemon, session["session_id"], trial)
            processes = [found for child in family.agents(pid) for found in memory.tree(child)]
            with watched(processes) as descriptors:
                used = memory.measure(processes)
                before = await model.requests() if model else []
                await anyio.sleep(QUIET)
                await daemon.close_session(session["session_id"], force=True)
                left = await left_after(descriptors, _GONE_LIMIT)
        # Only now is nobody left who could ask.
        after = await model.requests() if model else []
    return Observed(
        run,
        start_seconds,
        used,
        asked=after.count("main") if model else None,
        asked_on=len(after) - len(before) if model else None,
        went_on=(room.workspace / "went-on.txt").exists() or (room.workspace / "note.txt").exists(),
        left=left,
    )


@asynccontextmanager
async def _model(trial: Trial) -> AsyncIterator[ScriptedModel | None]:
    if not trial.asks_model:
        yield None
        return
    async with scripted_model() as model:
        yield model


def _furnish(room: Room, agent: AgentFound, trial: Trial, model: ScriptedModel | None, more: str) -> None:
    home, temporary = room.state / "homes" / agent.name, room.directory / "tmp"
    for directory in (room.workspace, home, temporary):
        directory.mkdir(parents=True, mode=0o700)
    trial.prepare(home)
    # What the configuration sets for the agent may lead it to a real model, so that nothing of it is taken but PATH.
    variables = {
        **trial.environment,
        **(model.environment if model else {}),
        "PATH": agent.environment.get("PATH", os.defpath),
        "TMPDIR": str(temporary),
        **{f"XDG_{kind}_HOME": str(home / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA", "STATE")},
    }
    keys = {
        "driver": agent.driver,
        "command": [agent.path, *agent.command[1:]],
        "environment": {"pass": [], "set": variables},
    }
    room.write_config(agent.name, keys, more)


async def _run(daemon: Daemon, session_id: str, trial: Trial) -> tuple[Message, float | None]:
    """Start a run and follow it to its end, or only until the agent took it up; gives it, and what the start took."""
    begun = time.monotonic()
    run = await daemon.start_run(session_id, trial.prompt, _ONE_STEP)
    start_seconds: float | None = None
    async for event in daemon.watch_run(run["run_id"]):
        if "agent_start" in event:
            start_seconds = time.monotonic() - begun
            if trial.gate_not_tried:
                return await daemon.abort_run(run["run_id"], "it was only to be started"), start_seconds
    return await daemon.get_run(run["run_id"]), start_seconds


def _directory() -> tempfile.TemporaryDirectory[str]:
    """Make a directory; not in the usual place if a socket there would have too long a path."""
    place = Path(tempfile.gettempdir()).resolve()
    if len(os.fsencode(place)) > _LONGEST_DIRECTORY:
        place = Path("/tmp")  # noqa: S108 - made private
    return tempfile.TemporaryDirectory(prefix="steprail-doctor-", dir=place)


def what_failed(run: Message) -> str:
    """Say how a run ended that was to be stopped."""
    failure: Mapping[str, Any] = run.get("failure", {})
    state = state_of(run).lower() if has_ended(run) else "not over"
    what = " ".join(part for part in (state, failure.get("reason", "")) if part)
    message = shorten(failure.get("message", ""), 400)
    return f"the run is {what}: {message}" if message else f"the run is {what}"
