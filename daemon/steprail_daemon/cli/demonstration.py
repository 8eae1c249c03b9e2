"""The demonstration: a workspace, a scripted model, and this command line run as anybody would run it.

Each command is a process of its own and is shown before it runs. What the closing lines claim is read from the `--json`
output of commands and counted by the model's endpoint; where something is not as it should be, the demonstration fails.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from steprail_daemon.cli.problems import Problem

_FETCH_LIMIT = 660.0
_START_LIMIT = 60.0
_COMMAND_LIMIT = 120.0
_END_LIMIT = 120.0
_PROMPT = "Look around, leave a note, and read it back."
_FILES = {"README.txt": "A small workspace.\n", "data/numbers.csv": "number,square\n2,4\n3,9\n"}


class Demonstration:
    """Plays in a directory. Everything it starts has ended when `play` returns or raises."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._workspace = directory / "workspace"
        self._state = directory / "state"
        self._socket = directory / "steprail.sock"
        self._port = 0
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("STEPRAIL_")},
            "STEPRAIL_CONFIG": str(directory / "steprail.toml"),
            "STEPRAIL_STATE_DIR": str(self._state),
            "STEPRAIL_ADDRESS": f"unix:{self._socket}",
        }

    def play(self) -> None:
        """Play it.

        Raises:
            Problem: something was not as it should be.
        """
        (self._workspace / "note.txt").unlink(missing_ok=True)
        for name, content in _FILES.items():
            path = self._workspace / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        binary = self._fetch()
        with contextlib.ExitStack() as stack:
            self._port = stack.enter_context(self._endpoint())
            self._write_config(binary)
            with self._daemon():
                summary = self._conversation()
            click.echo("\nThe daemon was told to end (SIGTERM); it drained and ended with 0.")
            _expect("nothing listens any more", not _answers(self._socket))
            self._steprail("journal", "verify")
        click.secho("\nWhat happened", bold=True)
        for line in summary:
            click.echo(f"  {line}")

    def _conversation(self) -> list[str]:
        """Stop a run, look at it, continue it; gives what happened in figures."""
        self._wait_for_the_agent()
        self._steprail("agents")
        begun = time.monotonic()
        self._steprail("run", "-C", str(self._workspace), "--stop-when", "steps=1", _PROMPT, status=10)
        stopped = self._json("runs")[0]["run"]
        at_stop = self._model_requests()
        self._steprail("show", stopped["run_id"])
        before = self._model_requests()
        self._steprail("continue", stopped["run_id"])
        ended = self._json("show", self._json("runs")[0]["run"]["run_id"])[0]["run"]
        seconds = time.monotonic() - begun
        return self._judge(stopped, ended, [at_stop, before, self._model_requests()], seconds)

    def _judge(self, stopped: dict[str, Any], ended: dict[str, Any], requests: list[int], seconds: float) -> list[str]:
        at_stop, before, after = requests
        note = self._workspace / "note.txt"
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

    # What is started

    def _fetch(self) -> Path:
        """Give the tested Claude Code, fetching it at the first time."""
        click.echo("Claude Code: looking for the tested version (it is fetched with npm at the first time) ...")
        argv = [sys.executable, "-P", "-m", "steprail_daemon.testing.claude_binary"]
        try:
            done = subprocess.run(argv, capture_output=True, text=True, timeout=_FETCH_LIMIT, check=False)
        except subprocess.TimeoutExpired:
            raise Problem(f"Claude Code could not be fetched within {_FETCH_LIMIT:.0f} s") from None
        if done.returncode != 0:
            raise Problem(f"Claude Code cannot be had: {done.stderr.strip()}")
        return Path(done.stdout.strip())

    @contextlib.contextmanager
    def _endpoint(self) -> Iterator[int]:
        """Serve the scripted model; gives its port."""
        argv = [sys.executable, "-P", "-m", "steprail_daemon.testing.messages_endpoint", "--script", "demo"]
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, start_new_session=True)
        with _ended(process):
            yield int(json.loads(_first_line(process))["port"])

    @contextlib.contextmanager
    def _daemon(self) -> Iterator[None]:
        """Run the daemon, and drain it at the end."""
        log = self._directory / "daemon.log"
        self._echo("serve &")
        with log.open("wb") as file:
            process = subprocess.Popen(
                [*_steprail(), "serve", "--owner", str(os.getpid())],
                cwd=self._directory,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        try:
            with _ended(process):
                _wait_for_socket(self._socket, process)
                yield
            _expect(f"the daemon ended with 0, not {process.returncode}", process.returncode == 0)
        except Problem as problem:
            tail = "".join(f"  {line}\n" for line in log.read_text(errors="replace").splitlines()[-15:])
            raise Problem(f"{problem.message}\nthe daemon's last lines:\n{tail}") from None

    def _write_config(self, binary: Path) -> None:
        environment = {"ANTHROPIC_BASE_URL": f"http://127.0.0.1:{self._port}", "ANTHROPIC_API_KEY": "demo"}
        pairs = ", ".join(f"{name} = {json.dumps(value)}" for name, value in environment.items())
        (self._directory / "steprail.toml").write_text(
            "version = 1\n"
            "[server]\n"
            f"listen = [{json.dumps(f'unix:{self._socket}')}]\n"
            f"workspace_roots = [{json.dumps(str(self._workspace))}]\n"
            'http = ""\n'
            "[agents.claude]\n"
            f"command = [{json.dumps(str(binary))}]\n"
            'home = "isolated"\n'
            'permission_mode = "bypass"\n'
            f"environment = {{ pass = [], set = {{ {pairs} }} }}\n"
        )

    # Commands

    def _echo(self, words: str) -> None:
        click.echo()
        click.secho(f"$ steprail {words}", bold=True)

    def _steprail(self, *arguments: str, status: int = 0) -> None:
        """Show a command and run it; its output is ours."""
        self._echo(" ".join(f'"{word}"' if " " in word else word for word in arguments))
        try:
            code = subprocess.run(
                [*_steprail(), *arguments],
                cwd=self._directory,
                env=self._environment,
                timeout=_COMMAND_LIMIT,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            raise Problem(f"steprail {arguments[0]} did not end within {_COMMAND_LIMIT:.0f} s") from None
        _expect(f"steprail {arguments[0]} ends with {status}, not {code}", code == status)

    def _json(self, *arguments: str) -> list[dict[str, Any]]:
        """Run a command for its `--json`, which is not shown."""
        done = subprocess.run(
            [*_steprail(), *arguments, "--json"],
            cwd=self._directory,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=_COMMAND_LIMIT,
            check=False,
        )
        _expect(f"steprail {arguments[0]} --json ends with 0: {done.stderr.strip()}", done.returncode == 0)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def _wait_for_the_agent(self) -> None:
        """Wait until the daemon has asked Claude Code for its version, so that what is shown is the whole story."""
        pause, deadline = threading.Event(), time.monotonic() + _START_LIMIT
        while not self._json("agents")[0]["agent"].get("available"):
            _expect(f"the agent is available within {_START_LIMIT:.0f} s", time.monotonic() < deadline)
            pause.wait(0.1)

    def _model_requests(self) -> int:
        """Give how often the model was asked so far, as its endpoint counted."""
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with direct.open(f"http://127.0.0.1:{self._port}/_steprail/requests", timeout=10) as answer:
            return sum(request["kind"] == "main" for request in json.load(answer))


def _steprail() -> list[str]:
    """Give the installed command: the script beside this Python, or the same as a module."""
    script = Path(sys.executable).with_name("steprail")
    return [str(script)] if script.exists() else [sys.executable, "-P", "-m", "steprail_daemon.cli"]


def _expect(what: str, holds: bool) -> None:
    if not holds:
        raise Problem(f"the demonstration went wrong, this does not hold: {what}")


@contextlib.contextmanager
def _ended(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Own a process: SIGTERM at the end, SIGKILL if that does not help."""
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_END_LIMIT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _first_line(process: subprocess.Popen[bytes]) -> bytes:
    assert process.stdout is not None
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        if not selector.select(_START_LIMIT):
            raise Problem(f"the scripted model did not start within {_START_LIMIT:.0f} s")
    return process.stdout.readline()


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0


def _wait_for_socket(path: Path, process: subprocess.Popen[bytes]) -> None:
    pause, deadline = threading.Event(), time.monotonic() + _START_LIMIT
    while not _answers(path):
        _expect("the daemon starts", process.poll() is None)
        _expect(f"the daemon listens within {_START_LIMIT:.0f} s", time.monotonic() < deadline)
        # Nothing wakes a waiter for a socket that another process makes, so it is tried again.
        pause.wait(0.05)
