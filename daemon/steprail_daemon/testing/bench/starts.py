"""Row 10: from the request for a session until its agent takes prompts, against the bare process and its first line.

The agent is the built-in one. The daemon's time has the handshake in it, which begins with that line, and the way of
the news to the client.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from steprail_daemon.config.schema import SCRIPTED_COMMAND
from steprail_daemon.core.model import PermissionMode
from steprail_daemon.drivers.base import LaunchSpec
from steprail_daemon.drivers.registry import DRIVERS
from steprail_daemon.testing.bench.figures import Figures, Size
from steprail_daemon.testing.bench.processes import finish, running
from steprail_daemon.testing.bench.rig import Rig, serving
from steprail_daemon.testing.bench.table import Better, Goal, Row

_START = Goal(1.3, 1.1, Better.LOWER)
_AGENT = "scripted"
_BARE = "until its first line, bare"


class StartBench:
    """Measures in `directory`. `say` is told what is going on."""

    def __init__(self, directory: Path, size: Size, say: Callable[[str], None]) -> None:
        self._directory = directory
        self._size = size
        self._say = say
        self._figures = Figures()

    def rows(self) -> list[Row]:
        """Measure by turns. The first start of each, which reads its program from the disk, is left out."""
        home = self._directory / "bare-home"
        home.mkdir()
        with serving(self._directory / "starts", agents={_AGENT: (_AGENT, SCRIPTED_COMMAND)}) as rig:
            self._bare(home)
            self._session(rig)
            for number in range(self._size.rounds):
                self._say(f"starts: round {number + 1} of {self._size.rounds}")
                turns = [(self._bare(home), self._session(rig)) for _ in range(self._size.starts)]
                self._figures.note(_BARE, median(bare for bare, _ in turns) * 1000)
                self._figures.note("session", median(session for _, session in turns) * 1000)
        return [self._figures.row("10", "session start, built-in agent", "ms", "session", _BARE, _START)]

    def _bare(self, home: Path) -> float:
        spec = LaunchSpec(
            command=SCRIPTED_COMMAND,
            cwd=str(self._directory),
            agent_session_id="",
            resume=False,
            model="",
            permission_mode=PermissionMode.ASK,
            isolated_home=str(home),
        )
        plan = DRIVERS[_AGENT].plan(spec)
        environment = {"PATH": os.environ.get("PATH", os.defpath), **plan.environment}
        begun = time.monotonic()
        with running(
            plan.argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, cwd=self._directory
        ) as agent:
            assert agent.stdin is not None
            assert agent.stdout is not None
            if not agent.stdout.readline():
                raise RuntimeError("the built-in agent ended without a line")
            seconds = time.monotonic() - begun
            agent.stdin.close()
            finish(agent, "the built-in agent")
        return seconds

    @staticmethod
    def _session(rig: Rig) -> float:
        begun = time.monotonic()
        session_id = rig.create_session(_AGENT)
        seconds = time.monotonic() - begun
        rig.close_session(session_id)
        return seconds
