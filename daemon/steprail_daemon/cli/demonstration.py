"""The demonstration: a workspace, a scripted model, and this command line run as anybody would run it.

Each command is a process of its own and is shown before it runs. What the closing lines claim is read from the `--json`
output of commands and counted by the model's endpoint; where something is not as it should be, the demonstration fails.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import anyio
import click

from steprail_daemon.cli.problems import Problem
from steprail_daemon.cli.reach import listens
from steprail_daemon.cli.rehearsal import Room, ScriptedModel, scripted_model
from steprail_daemon.cli.serving import START_LIMIT

_FETCH_LIMIT = 660.0
_BETWEEN_LOOKS = 0.1
_COMMAND_LIMIT = 120.0
_END_LIMIT = 120.0
_PROMPT = "Look around, leave a note, and read it back."
_FILES = {"README.txt": "A small workspace.\n", "data/numbers.csv": "number,square\n2,4\n3,9\n"}


class Demonstration:
    """Plays in a directory. Everything it starts has ended when `play` returns or raises."""

    def __init__(self, directory: Path) -> None:
        self._room = Room(directory)

    async def play(self) -> None:
        """Play it.

        Raises:
            Problem: something was not as it should be.
        """
        room = self._room
        (room.workspace / "note.txt").unlink(missing_ok=True)
        for name, content in _FILES.items():
            path = room.workspace / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        binary = await _fetch()
        async with scripted_model() as model:
            environment = {"pass": [], "set": model.environment}
            room.write_config("claude", {"command": [str(binary)], "environment": environment})
            self._echo("serve &")
            async with room.daemon(_END_LIMIT):
                summary = await self._conversation(model)
            click.echo("\nThe daemon was told to end (SIGTERM); it drained and ended with 0.")
            _expect("nothing listens any more", not await listens(room.address))
            await self._steprail("journal", "verify")
        click.secho("\nWhat happened", bold=True)
        for line in summary:
            click.echo(f"  {line}")

    async def _conversation(self, model: ScriptedModel) -> list[str]:
        """Stop a run, look at it, continue it; gives what happened in figures."""
        await self._wait_for_the_agent()
        await self._steprail("agents")
        begun = time.monotonic()
        await self._steprail("run", "-C", str(self._room.workspace), "--stop-when", "steps=1", _PROMPT, status=10)
        stopped = (await self._json("runs"))[0]["run"]
        at_stop = await _asked(model)
        await self._steprail("show", stopped["run_id"])
        before = await _asked(model)
        await self._steprail("continue", stopped["run_id"])
        last = (await self._json("runs"))[0]["run"]["run_id"]
        ended = (await self._json("show", last))[0]["run"]
        seconds = time.monotonic() - begun
        return self._judge(stopped, ended, [at_stop, before, await _asked(model)], seconds)

    def _judge(self, stopped: dict[str, Any], ended: dict[str, Any], requests: list[int], seconds: float) -> list[str]:
        at_stop, before, after = requests
        note = self._room.workspace / "note.txt"
        _expect("the first run is STOPPED", stopped["state"] == "RUN_STATE_STOPPED")
        _expect("it was stopped exactly", stopped["stop_reason"].get("exact") is True)
        _expect("it has one step", stopped["step_count"] == "1")
        _expect("the model was asked once", (at_stop, before) == (1, 1))
        _expect("the second run is COMPLETED", ended["state"] == "RUN_STATE_COMPLETED")
        _expect("it continues the first", ended["continued_from"] == stopped["run_id"])
        _expect("the note is there", note.is_file())
        return [
            f"stopped after {stopped['step_count']} step; the model had been asked {at_stop} time",
            f"while it was stopped: {before - at_stop} requests to the model",
            f"continued: {ended['step_count']} more steps with {after - before} more requests, {after} in all",
            f"the agent's note: {note.read_text().strip()}",
            f"{seconds:.1f} s from the first command to the last; no account, no model but the scripted one",
        ]

    # Commands

    def _echo(self, words: str) -> None:
        click.echo()
        click.secho(f"$ steprail {words}", bold=True)

    async def _steprail(self, *arguments: str, status: int = 0) -> None:
        """Show a command and run it; its output is ours."""
        self._echo(" ".join(f'"{word}"' if " " in word else word for word in arguments))
        code = (await self._run(arguments, output=None)).returncode
        _expect(f"steprail {arguments[0]} ends with {status}, not {code}", code == status)

    async def _json(self, *arguments: str) -> list[dict[str, Any]]:
        """Run a command for its `--json`, which is not shown."""
        done = await self._run((*arguments, "--json"), output=subprocess.PIPE)
        said = done.stderr.decode(errors="replace").strip()
        _expect(f"steprail {arguments[0]} --json ends with 0: {said}", done.returncode == 0)
        return [json.loads(line) for line in done.stdout.splitlines()]

    async def _run(self, arguments: tuple[str, ...], output: int | None) -> subprocess.CompletedProcess[bytes]:
        room = self._room
        try:
            with anyio.fail_after(_COMMAND_LIMIT):
                return await anyio.run_process(
                    [*_steprail(), *arguments],
                    cwd=room.directory,
                    env=room.environment,
                    stdout=output,
                    stderr=output,
                    check=False,
                )
        except TimeoutError:
            raise Problem(f"steprail {arguments[0]} did not end within {_COMMAND_LIMIT:.0f} s") from None

    async def _wait_for_the_agent(self) -> None:
        """Wait until the daemon has asked Claude Code for its version, so that what is shown is the whole story."""
        deadline = time.monotonic() + START_LIMIT
        while not (await self._json("agents"))[0]["agent"].get("available"):
            _expect(f"the agent is available within {START_LIMIT:.0f} s", time.monotonic() < deadline)
            # No call tells when an agent becomes available, so the list is asked for again.
            await anyio.sleep(_BETWEEN_LOOKS)


async def _fetch() -> Path:
    """Give the tested Claude Code, fetching it at the first time."""
    click.echo("Claude Code: looking for the tested version (it is fetched with npm at the first time) ...")
    argv = [sys.executable, "-P", "-m", "steprail_daemon.testing.claude_binary"]
    try:
        with anyio.fail_after(_FETCH_LIMIT):
            done = await anyio.run_process(argv, check=False)
    except TimeoutError:
        raise Problem(f"Claude Code could not be fetched within {_FETCH_LIMIT:.0f} s") from None
    if done.returncode != 0:
        raise Problem(f"Claude Code cannot be had: {done.stderr.decode(errors='replace').strip()}")
    return Path(done.stdout.decode().strip())


async def _asked(model: ScriptedModel) -> int:
    """Give how often the model was asked so far, as its endpoint counted."""
    return (await model.requests()).count("main")


def _steprail() -> list[str]:
    """Give the installed command: the script beside this Python, or the same as a module."""
    script = Path(sys.executable).with_name("steprail")
    return [str(script)] if script.exists() else [sys.executable, "-P", "-m", "steprail_daemon.cli"]


def _expect(what: str, holds: bool) -> None:
    if not holds:
        raise Problem(f"the demonstration went wrong, this does not hold: {what}")
