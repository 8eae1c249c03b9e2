"""How a login shows, without a request and without a secret in what is told."""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.doctor.test_agents import agent

from steprail_daemon.cli.doctor.findings import Finding
from steprail_daemon.cli.doctor.logins import LOGINS

SECRET = "sk-ant-not-to-be-told"
UNSURE = "whether it is right only a request would show"


def look(
    home: Path, variables: Mapping[str, str] | None = None, *, driver: str = "claude", isolated: bool = False
) -> Finding:
    environment = {"HOME": str(home), **(variables or {})}
    found = LOGINS[driver]("x", agent(driver=driver, environment=environment, isolated=isolated))
    assert SECRET not in f"{found.text} {found.advice} {found.plain()}"
    return found


def write(file: Path, content: Any) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content if isinstance(content, str) else json.dumps(content))


@pytest.mark.parametrize("name", ["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"])
def test_a_variable_is_a_login_of_claude_unless_it_is_empty(tmp_path: Path, name: str) -> None:
    found = look(tmp_path, {name: SECRET})
    assert (found.mark.value, found.text) == ("ok", f"by ${name}; {UNSURE}")
    assert look(tmp_path, {name: ""}).mark.value == "warning"


def test_without_any_it_says_how_to_log_in_and_where(tmp_path: Path) -> None:
    found = look(tmp_path)
    assert found.mark.value == "warning"
    assert f"nor a file in {tmp_path}/.claude" in found.text
    assert f"HOME={tmp_path}" in found.advice


def test_the_file_of_a_login_counts_while_it_can_be_renewed_or_has_not_expired(tmp_path: Path) -> None:
    file = tmp_path / ".claude" / ".credentials.json"
    now = time.time() * 1000
    scopes = ["user:inference"]
    login = {"accessToken": SECRET, "refreshToken": SECRET, "expiresAt": now - 1, "scopes": scopes}
    write(file, {"claudeAiOauth": login})
    assert (look(tmp_path).mark.value, look(tmp_path).text) == ("ok", f"by {file}; {UNSURE}")
    write(file, {"claudeAiOauth": {"accessToken": SECRET, "expiresAt": now - 1, "scopes": scopes}})
    assert (look(tmp_path).mark.value, look(tmp_path).text) == ("problem", f"the one in {file} has expired")
    write(file, {"claudeAiOauth": {"accessToken": SECRET, "expiresAt": now + 60_000, "scopes": scopes}})
    assert look(tmp_path).mark.value == "ok"
    write(file, {"claudeAiOauth": {"accessToken": SECRET, "scopes": ["user:profile"]}})
    assert look(tmp_path).mark.value == "warning"


@pytest.mark.parametrize("content", ["", "{", "[]", '{"claudeAiOauth": 1}'])
def test_a_file_that_is_none_is_no_login(tmp_path: Path, content: str) -> None:
    write(tmp_path / ".claude" / ".credentials.json", content)
    assert look(tmp_path).mark.value == "warning"


def test_keys_in_files_of_claude_are_a_login(tmp_path: Path) -> None:
    write(tmp_path / ".claude.json", {"primaryApiKey": SECRET})
    assert look(tmp_path).text.startswith(f"by the key in {tmp_path}/.claude.json")
    write(tmp_path / "elsewhere" / ".claude.json", {"primaryApiKey": SECRET})
    (tmp_path / ".claude.json").unlink()
    assert look(tmp_path, {"CLAUDE_CONFIG_DIR": str(tmp_path / "elsewhere")}).mark.value == "ok"


def test_settings_count_in_the_users_home_only(tmp_path: Path) -> None:
    settings = tmp_path / ".claude" / "settings.json"
    write(settings, {"apiKeyHelper": f"echo {SECRET}"})
    assert look(tmp_path).text == f"by apiKeyHelper of {settings}"
    assert look(tmp_path, isolated=True).mark.value == "warning"
    write(settings, {"env": {"ANTHROPIC_API_KEY": SECRET}})
    assert look(tmp_path).text.startswith("by $ANTHROPIC_API_KEY")


def test_of_a_cloud_it_cannot_be_told(tmp_path: Path) -> None:
    found = look(tmp_path, {"CLAUDE_CODE_USE_BEDROCK": "1", "ANTHROPIC_API_KEY": SECRET})
    assert (found.mark.value, found.text.partition(":")[0]) == ("note", "CLAUDE_CODE_USE_BEDROCK is set")
    assert look(tmp_path, {"CLAUDE_CODE_USE_BEDROCK": "0"}).mark.value == "warning"


def test_autohand_wants_a_token_in_its_configuration(tmp_path: Path) -> None:
    assert look(tmp_path, driver="autohand").text == f"there is no auth.token in {tmp_path}/.autohand/config.json"
    write(tmp_path / ".autohand" / "config.json", {"auth": {"token": SECRET}})
    assert look(tmp_path, driver="autohand").mark.value == "ok"
    assert look(tmp_path, {"AUTOHAND_HOME": str(tmp_path / "other")}, driver="autohand").mark.value == "warning"


def test_the_built_in_agent_needs_none(tmp_path: Path) -> None:
    assert look(tmp_path, driver="scripted").mark.value == "ok"
