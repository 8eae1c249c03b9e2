"""`steprail demo` with the real Claude Code, as `make demo` runs it."""

import os
import re
import subprocess
from pathlib import Path

import pytest
from tests.framework.daemon import STEPRAIL, short_directory

from steprail_daemon.testing.claude_binary import ensure_claude


@pytest.mark.timeout(240)
def test_the_demonstration_stops_exactly_and_goes_on(tmp_path: Path) -> None:
    ensure_claude()
    with short_directory() as directory:
        environment = {**os.environ, "STEPRAIL_ADDRESS": "unix:/nowhere", "STEPRAIL_LIMITS__NONSENSE": "1"}
        done = subprocess.run(
            [STEPRAIL, "demo", "--directory", str(directory)],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, ""), done.stdout
        assert "\x1b" not in done.stdout
        commands = re.findall(r"^\$ steprail (\S+)", done.stdout, re.MULTILINE)
        assert commands == ["serve", "agents", "run", "show", "continue", "journal"]
        summary = done.stdout.partition("What happened\n")[2].splitlines()
        assert summary[:4] == [
            "  stopped after 1 step; the model had been asked 1 time",
            "  while it was stopped: 0 requests to the model",
            "  continued: 2 more steps with 3 more requests, 4 in all",
            "  the agent's note: written by a scripted model",
        ]
        assert sorted(path.name for path in directory.iterdir()) == [
            "daemon.log",
            "state",
            "steprail.toml",
            "workspace",
        ]
