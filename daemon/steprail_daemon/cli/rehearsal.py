"""A daemon of one's own in a directory of one's own, and a scripted model, to see an agent at work without an account.

What is started here has ended when its context is left, and ends by itself if we are killed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

from steprail_daemon.cli.problems import Problem
from steprail_daemon.cli.serving import START_LIMIT, end, last_lines, start_serve, wait_until_it_listens
from steprail_daemon.config.values import quote

_CALL_LIMIT = 10.0
_MODEL_END_LIMIT = 10.0


@dataclass(frozen=True)
class ScriptedModel:
    """A Messages API on loopback that follows a script, in a process of its own."""

    port: int

    @property
    def environment(self) -> dict[str, str]:
        """What Claude Code needs to ask this model and no other."""
        return {"ANTHROPIC_BASE_URL": f"http://127.0.0.1:{self.port}", "ANTHROPIC_API_KEY": "none"}

    async def requests(self) -> list[str]:
        """Give the kind of each request so far, in order; `main` asks for a message of the script.

        Raises:
            Problem: the model does not answer.
        """
        try:
            return [str(request["kind"]) for request in await anyio.to_thread.run_sync(self._read)]
        except (OSError, ValueError) as error:
            raise Problem(f"the scripted model does not tell its requests: {error}") from None

    def _read(self) -> list[dict[str, Any]]:
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with direct.open(f"http://127.0.0.1:{self.port}/_steprail/requests", timeout=_CALL_LIMIT) as answer:
            found: list[dict[str, Any]] = json.load(answer)
            return found


@asynccontextmanager
async def scripted_model() -> AsyncIterator[ScriptedModel]:
    """Serve the script `demo`, whose first steps call tools.

    Raises:
        Problem: it does not start, or cannot be ended.
    """
    argv = [sys.executable, "-P", "-m", "steprail_daemon.testing.messages_endpoint", "--script", "demo"]
    process = _popen([*argv, "--owner", str(os.getpid())])
    assert process.stdout is not None
    with process.stdout:
        try:
            yield ScriptedModel(await _port(process))
        finally:
            with anyio.CancelScope(shield=True):
                await end(process, _MODEL_END_LIMIT)


def _popen(argv: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True)


async def _port(process: subprocess.Popen[bytes]) -> int:
    assert process.stdout is not None
    try:
        with anyio.fail_after(START_LIMIT):
            await anyio.wait_readable(process.stdout)
        # It writes one line in one piece.
        return int(json.loads(process.stdout.readline())["port"])
    except TimeoutError:
        raise Problem(f"the scripted model did not start within {START_LIMIT:.0f} s") from None
    except ValueError:
        raise Problem("the scripted model did not start") from None


class Room:
    """A directory with all that a daemon needs, and the environment in which commands find that daemon."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.workspace = directory / "workspace"
        self.state = directory / "state"
        self.address = f"unix:{directory}/steprail.sock"
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("STEPRAIL_")},
            "STEPRAIL_CONFIG": str(directory / "steprail.toml"),
            "STEPRAIL_STATE_DIR": str(self.state),
            "STEPRAIL_ADDRESS": self.address,
        }

    def write_config(self, agent: str, keys: Mapping[str, object], more: str = "") -> None:
        """Write a configuration with one agent, at home in the state directory and free in all that it does.

        `keys` are further ones of the agent. `more` is TOML that comes after all.
        """
        server = {"listen": [self.address], "workspace_roots": [str(self.workspace)], "http": ""}
        agent_keys = {"home": "isolated", "permission_mode": "bypass", **keys}
        (self.directory / "steprail.toml").write_text(
            f"version = 1\n[server]\n{_toml_lines(server)}[agents.{agent}]\n{_toml_lines(agent_keys)}{more}"
        )

    def identity(self, token: str) -> str:
        """Give TOML by which a token is that of an admin, for a client whose environment has one of another daemon."""
        file = self.directory / "tokens"
        file.touch(mode=0o600)
        file.write_text(token)
        return "[[identities]]\n" + _toml_lines({"name": "rehearsal", "token_file": str(file), "role": "admin"})

    @asynccontextmanager
    async def daemon(self, end_limit: float) -> AsyncIterator[int]:
        """Run the daemon, give the id of its parent process, and drain it at the end, within `end_limit` seconds.

        Raises:
            Problem: it does not start, or does not end with 0. To a problem of whoever uses it, its last lines are
                added.
        """
        log = self.directory / "daemon.log"
        process = start_serve([], log, environment=self.environment, cwd=self.directory)
        try:
            await wait_until_it_listens(self.address, process, log)
            yield process.pid
        except Problem as problem:
            raise Problem(f"{problem.message}\nthe daemon's last lines:\n{last_lines(log)}") from None
        finally:
            with anyio.CancelScope(shield=True):
                await end(process, end_limit)
        if process.returncode != 0:
            raise Problem(f"the daemon ended with {process.returncode}, not 0; its last lines:\n{last_lines(log)}")


def _toml_lines(keys: Mapping[str, object]) -> str:
    return "".join(f"{key} = {_toml(value)}\n" for key, value in keys.items())


def _toml(value: object) -> str:
    """Write a text, or a list or a mapping of them, as TOML."""
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{quote(key)} = {_toml(held)}' for key, held in value.items())} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return quote(str(value))
