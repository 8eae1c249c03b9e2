"""Examples with the real Claude Code, which they run unless they are told another agent."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio.to_thread
import pytest
from tests.e2e.conftest import stage
from tests.framework.examples import Examples

from steprail_daemon.testing.messages_endpoint import Script, Step, Tool

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

STEPS = [
    Step(text=f"Step {number}.", tools=(Tool("Bash", {"command": f"echo {number} >> count"}, f"toolu_{number}"),))
    for number in (1, 2)
]


async def test_claude_is_stopped_looked_at_and_goes_on(directory: Path, claude: Path) -> None:
    async with stage(directory, claude, Script(STEPS)) as play:
        examples = Examples(sys.executable, play.daemon.environment, play.daemon.workspace)
        done = await anyio.to_thread.run_sync(examples.run, "stop_look_continue", "Count.")
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith('step 1: Step 1.\n  > Bash {"command":"echo 1 >> count"}\n')
        assert "stopped: Completed steps of the run: 1, limit 1.\n" in done.stdout
        assert "RUN_STATE_COMPLETED after 1 steps: " in done.stdout
        assert play.model_requests == 3
    assert (examples.cwd / "count").read_text() == "1\n2\n"


#: What comes of an answer: exit status, what the commands wrote, requests to the model.
ANSWERED = {"yes": (0, "1\n2\n", 3), "no": (10, "1\n", 1)}


@pytest.mark.parametrize("answer", ANSWERED)
async def test_claude_is_reviewed_step_by_step(answer: str, directory: Path, claude: Path) -> None:
    async with stage(directory, claude, Script(STEPS)) as play:
        examples = Examples(sys.executable, play.daemon.environment, play.daemon.workspace)
        done = await anyio.to_thread.run_sync(examples.run, "review_steps", "Count.", "--answer", answer)
        assert done.stderr == ""
        assert (done.returncode, (examples.cwd / "count").read_text(), play.model_requests) == ANSWERED[answer]


async def test_a_batch_knows_what_claude_costs(directory: Path, claude: Path) -> None:
    async with stage(directory, claude, Script(STEPS)) as play:
        examples = Examples(sys.executable, play.daemon.environment, play.daemon.workspace)
        done = await anyio.to_thread.run_sync(examples.run, "batch", "Count.", ".")
        assert (done.returncode, done.stderr) == (0, "")
        assert "completed    2 steps" in done.stdout
        assert "unknown" not in done.stdout
