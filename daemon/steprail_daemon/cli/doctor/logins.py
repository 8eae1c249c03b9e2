"""How each kind of agent shows that it has a login, without a request to anybody. No secret is kept or told."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from steprail_daemon.cli.doctor.findings import Finding, note, ok, problem, warning
from steprail_daemon.config.schema import SCRIPTED

if TYPE_CHECKING:
    from steprail_daemon.examine import AgentFound

#: From what the finding is about, and the agent.
Login = Callable[[str, "AgentFound"], Finding]

#: Variables with which Claude Code has a login, in the order in which it goes by them.
_CLAUDE_KEYS: Final = ("ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN")
#: Variables with which it asks a cloud instead, whose own credentials only a request would show.
_CLAUDE_CLOUDS: Final = tuple(
    f"CLAUDE_CODE_USE_{name}"
    for name in ("BEDROCK", "VERTEX", "FOUNDRY", "MANTLE", "ANTHROPIC_AWS", "ANTHROPIC_GOOGLE_CLOUD")
)
#: What a login with claude.ai must be for.
_CLAUDE_SCOPE: Final = "user:inference"
#: Largest file that is read, in bytes.
_MOST: Final = 16 << 20


def claude(about: str, agent: AgentFound) -> Finding:
    """Claude Code: variables, the file of a login with claude.ai or the Console, what settings add.

    As `claude auth status` of 2.1.332 sees it, which writes to the home and is not run for that. With an isolated home
    it is started without settings.
    """
    environment = agent.environment
    home = environment.get("HOME", "")
    directory = Path(environment.get("CLAUDE_CONFIG_DIR") or Path(home) / ".claude")
    settings = {} if agent.isolated else _json(directory / "settings.json")
    variables = {**_mapping(settings, "env"), **environment}
    cloud = next((name for name in _CLAUDE_CLOUDS if variables.get(name) not in {None, "", "0", "false"}), "")
    if cloud:
        text = f"{cloud} is set: whether the cloud's credentials are right only a request would show"
        return note(about, text, "start a run to see")
    key = next((name for name in _CLAUDE_KEYS if variables.get(name)), "")
    if key:
        return ok(about, f"by ${key}; whether it is right only a request would show")
    if settings.get("apiKeyHelper"):
        return ok(about, f"by apiKeyHelper of {directory / 'settings.json'}")
    login = _mapping(_json(directory / ".credentials.json"), "claudeAiOauth")
    scopes = login.get("scopes")
    if login.get("accessToken") and isinstance(scopes, list) and _CLAUDE_SCOPE in scopes:
        return _claude_ai(about, directory / ".credentials.json", login)
    for file in (directory / ".claude.json", Path(home) / ".claude.json"):
        if _json(file).get("primaryApiKey"):
            return ok(about, f"by the key in {file}; whether it is right only a request would show")
    text = f"none is seen, neither a variable ({', '.join(_CLAUDE_KEYS)}) nor a file in {directory}"
    advice = f"log in with `claude` and HOME={home}, or set one of the variables where the daemon is started"
    return warning(about, text, f"{advice} and name it in environment.pass of the agent")


def _claude_ai(about: str, file: Path, login: Mapping[str, Any]) -> Finding:
    expires = login.get("expiresAt")
    expired = isinstance(expires, int | float) and expires / 1000 < time.time()
    if expired and not login.get("refreshToken"):
        return problem(about, f"the one in {file} has expired", "log in again with `claude`")
    return ok(about, f"by {file}; whether it is right only a request would show")


def autohand(about: str, agent: AgentFound) -> Finding:
    """Autohand CLI: `auth.token` in its configuration, without which it does not start. Seen on 0.8.2."""
    environment = agent.environment
    home = environment.get("HOME", "")
    file = Path(environment.get("AUTOHAND_HOME") or Path(home) / ".autohand") / "config.json"
    if _mapping(_json(file), "auth").get("token"):
        return ok(about, f"by auth.token of {file}; whether it is right only a request would show")
    return warning(about, f"there is no auth.token in {file}", f"log in with `autohand` and HOME={home}")


def scripted(about: str, agent: AgentFound) -> Finding:
    """The built-in agent asks nobody."""
    del agent
    return ok(about, "it needs none")


LOGINS: Final[Mapping[str, Login]] = {"claude": claude, "autohand": autohand, SCRIPTED: scripted}


def _json(file: Path) -> Mapping[str, Any]:
    """Give the object in a file; empty if there is none that can be read."""
    try:
        if file.stat().st_size > _MOST:
            return {}
        content = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _mapping(content: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = content.get(name)
    return found if isinstance(found, dict) else {}
