"""`steprail doctor` with the real Claude Code: its gate holds, and it has a login where we say that it has one."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.framework.daemon import STEPRAIL

from steprail_daemon.testing.claude_binary import VERSION

LIMIT = 120
KEY = "sk-ant-not-a-key"
LOGIN = {"accessToken": KEY, "refreshToken": KEY, "expiresAt": 1}
#: Nothing but the question for the login; nobody listens at the address.
ENVIRONMENT = {
    "ANTHROPIC_BASE_URL": "http://127.0.0.1:9",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_TELEMETRY": "1",
}


def examine(directory: Path, claude: Path, *arguments: str, **variables: str) -> tuple[int, dict[str, Any]]:
    """Give the status and the findings about Claude Code."""
    (directory / "tmp").mkdir(exist_ok=True)
    passed = ", ".join(f'"{name}"' for name in variables)
    (directory / "steprail.toml").write_text(
        f'[server]\nlisten = ["unix:{directory}/s.sock"]\nworkspace_roots = ["{directory}"]\n'
        f'[agents.claude]\ncommand = ["{claude}"]\nenvironment.pass = [{passed}]\n'
    )
    done = subprocess.run(
        [STEPRAIL, "doctor", "--json", *arguments],
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(directory),
            "TMPDIR": str(directory / "tmp"),
            "STEPRAIL_CONFIG": str(directory / "steprail.toml"),
            "STEPRAIL_STATE_DIR": str(directory / "state"),
            **variables,
        },
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.stderr == ""
    assert KEY not in done.stdout
    findings = [json.loads(line)["finding"] for line in done.stdout.splitlines()]
    return done.returncode, {finding["about"]: finding for finding in findings}


@pytest.mark.timeout(240)
def test_the_gate_is_found_to_hold_and_nothing_is_left(directory: Path, claude: Path) -> None:
    status, found = examine(directory, claude)
    gate, start = found["agent claude, gate"], found["agent claude, start"]
    assert (status, gate["mark"], gate["text"]) == (0, "OK", "held at its first step: 0 requests while stopped")
    assert gate["requests_while_stopped"] == 0
    assert VERSION in found["agent claude"]["text"]
    assert 0 < start["start_seconds"] < 60
    assert start["memory_bytes"] > 50 << 20
    assert sorted(path.name for path in directory.iterdir()) == ["steprail.toml", "tmp"]
    assert list((directory / "tmp").iterdir()) == []


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("variables", "file", "content"),
    [
        ({}, "", None),
        ({"ANTHROPIC_API_KEY": KEY}, "", None),
        ({"ANTHROPIC_AUTH_TOKEN": KEY}, "", None),
        ({"CLAUDE_CODE_OAUTH_TOKEN": KEY}, "", None),
        ({"CLAUDE_CODE_USE_BEDROCK": "1"}, "", None),
        ({}, ".claude/.credentials.json", {"claudeAiOauth": {**LOGIN, "scopes": ["user:inference"]}}),
        ({}, ".claude/.credentials.json", {"claudeAiOauth": {**LOGIN, "scopes": ["user:profile"]}}),
        ({}, ".claude/.credentials.json", {"claudeAiOauth": LOGIN}),
        ({}, ".claude.json", {"primaryApiKey": KEY}),
        ({}, ".claude/settings.json", {"apiKeyHelper": "true"}),
        ({}, ".claude/settings.json", {"env": {"ANTHROPIC_API_KEY": KEY}}),
        ({}, ".claude/settings.json", {}),
    ],
    ids=str,
)
def test_a_login_is_seen_where_claude_code_sees_one(
    directory: Path, claude: Path, variables: dict[str, str], file: str, content: Any
) -> None:
    if file:
        (directory / file).parent.mkdir(exist_ok=True)
        (directory / file).write_text(json.dumps(content))
    status, found = examine(directory, claude, "--no-try", **variables)
    said = subprocess.run(
        [str(claude), "auth", "status"],
        env={"PATH": os.environ["PATH"], "HOME": str(directory), **ENVIRONMENT, **variables},
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    login = found["agent claude, login"]
    assert (status, login["mark"] in {"OK", "NOTE"}) == (0, json.loads(said.stdout)["loggedIn"]), (login, said.stdout)
