"""Layers, their order, and where each value came from."""

import sys
from pathlib import Path

import pytest
from tests.unit.config.conftest import USER, Loader

from steprail_daemon.config import load, places
from steprail_daemon.config.load import ConfigError, LoadedConfig, load_config
from steprail_daemon.config.schema import Agent, AgentEnvironment

SECOND = 1_000_000_000


def described(loaded: LoadedConfig, key: str) -> tuple[str, str]:
    return next((entry.value, entry.source) for entry in loaded.describe() if entry.key == key)


def test_without_anything_the_built_in_defaults_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    loaded = load_config({}, {"XDG_RUNTIME_DIR": "/run/user/7", "XDG_CONFIG_HOME": str(tmp_path)}, uid=USER)
    config = loaded.config
    assert config.server.listen == ("unix:/run/user/7/steprail/steprail.sock",)
    assert config.server.workspace_roots == (str(tmp_path),)
    builtin = (sys.executable, "-P", "-m", "steprail_scripted")
    assert config.agents == {
        "claude": Agent(command=("claude",), environment=AgentEnvironment(pass_=("ANTHROPIC_API_KEY",))),
        "autohand": Agent("autohand", ("autohand",), environment=AgentEnvironment(pass_=())),
        "scripted": Agent("scripted", builtin, environment=AgentEnvironment(pass_=())),
    }
    assert (config.limits.max_steps, config.limits.hard_timeout_ns) == (200, 6 * 3600 * SECOND)
    assert (config.limits.line_bytes, config.limits.prompt_bytes) == (64 << 20, 16 << 20)
    assert config.processes.worker_backoff_ns == (SECOND // 2, 30 * SECOND)
    assert {entry.source for entry in loaded.describe()} == {"default"}


def test_root_serves_on_the_system_socket(loader: Loader) -> None:
    assert load_config({}, loader.environ, uid=0).config.server.listen == ("unix:/run/steprail/steprail.sock",)


def test_a_flag_wins_over_the_environment_and_the_environment_over_the_file(loader: Loader) -> None:
    text = "[limits]\nmax_steps = 1\nstop_timeout = '1s'\nabort_timeout = '1s'\n"
    environ = {"STEPRAIL_LIMITS__STOP_TIMEOUT": "2s", "STEPRAIL_LIMITS__ABORT_TIMEOUT": "2s"}
    loaded = loader.load(text, environ=environ, flags={"limits.abort_timeout": "3s"})
    assert described(loaded, "limits.max_steps") == ("1", f"{loader.file}:2")
    assert described(loaded, "limits.stop_timeout") == ('"2s"', "environment STEPRAIL_LIMITS__STOP_TIMEOUT")
    assert described(loaded, "limits.abort_timeout") == ('"3s"', "flag")
    assert described(loaded, "limits.decision_timeout") == ('"10m"', "default")


def test_the_environment_reaches_agents_of_the_file_by_name(loader: Loader) -> None:
    environ = {
        "STEPRAIL_AGENTS__MY_CLAUDE__COMMAND": "/opt/claude --verbose",
        "STEPRAIL_AGENTS__MY_CLAUDE__ENVIRONMENT__PASS": "A, B",
        "STEPRAIL_AGENTS__MY_CLAUDE__ENVIRONMENT__SET": "C=1, D=x=y",
    }
    loaded = loader.load('[agents.my-claude]\ndriver = "claude"\n', environ=environ)
    agent = loaded.config.agents["my-claude"]
    assert agent.command == ("/opt/claude", "--verbose")
    assert agent.environment == AgentEnvironment(pass_=("A", "B"), set_={"C": "1", "D": "x=y"})


def test_agents_of_the_file_replace_the_built_in_one(loader: Loader) -> None:
    loaded = loader.load('[agents.coder]\ndriver = "claude"\n')
    assert list(loaded.config.agents) == ["coder"]
    assert loaded.config.agents["coder"].command == ("claude",)


def test_what_an_agent_does_not_name_follows_from_its_driver(loader: Loader) -> None:
    agents = loader.load('[agents.demo]\ndriver = "scripted"\n[agents.a]\ndriver = "autohand"\n').config.agents
    assert agents["demo"].command == (sys.executable, "-P", "-m", "steprail_scripted")
    assert agents["a"].command == ("autohand",)
    assert agents["demo"].environment.pass_ == agents["a"].environment.pass_ == ()


def test_variables_without_a_double_underscore_are_not_taken_for_keys(loader: Loader) -> None:
    environ = {"STEPRAIL_ADDRESS": "unix:/x", "STEPRAIL_PROCESS": "a.1", "STEPRAIL_SERVICE_HOST": "10.0.0.1"}
    assert loader.load(environ=environ).config == loader.load().config


def test_addresses_and_roots_take_variables(loader: Loader, tmp_path: Path) -> None:
    text = '[server]\nlisten = ["unix:${SOCKETS}/a.sock"]\nworkspace_roots = ["$HOME"]\n'
    loaded = loader.load(text, environ={"SOCKETS": "/run/x"})
    assert loaded.config.server.listen == ("unix:/run/x/a.sock",)
    assert loaded.config.server.workspace_roots == (str(tmp_path),)


def test_roots_are_resolved_through_symlinks(loader: Loader, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    loaded = loader.load('[server]\nworkspace_roots = ["link"]\n')
    assert loaded.config.server.workspace_roots == (str(tmp_path / "real"),)


def test_values_of_variables_for_agents_are_not_described(loader: Loader) -> None:
    loaded = loader.load('[agents.claude.environment]\nset = { KEY = "sk-secret" }\n')
    assert described(loaded, "agents.claude.environment.set")[0] == '{ KEY = "(hidden)" }'
    assert "sk-secret" not in str(loaded.describe())


def test_the_file_is_looked_for_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    environ = {"XDG_CONFIG_HOME": str(tmp_path / "home")}
    assert load.find_file(None, environ) is None or load.find_file(None, environ) == Path("/etc/steprail/config.toml")
    in_home = tmp_path / "home" / "steprail" / "config.toml"
    in_home.parent.mkdir(parents=True)
    in_home.touch()
    assert load.find_file(None, environ) == in_home
    here = tmp_path / "steprail.toml"
    here.touch()
    assert load.find_file(None, environ) == here
    named = tmp_path / "named.toml"
    named.touch()
    assert load.find_file(None, {**environ, "STEPRAIL_CONFIG": str(named)}) == named
    assert load.find_file(here, {**environ, "STEPRAIL_CONFIG": str(named)}) == here


def test_a_named_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config({}, {"STEPRAIL_CONFIG": str(tmp_path / "no.toml")}, uid=USER)
    assert str(caught.value) == f"environment STEPRAIL_CONFIG: there is no file {tmp_path / 'no.toml'}"


def test_the_state_directory_follows_flag_variable_and_user(loader: Loader, tmp_path: Path) -> None:
    environ = {**loader.environ, "STEPRAIL_STATE_DIR": "/srv/state"}
    assert load_config({}, environ, state_directory="/flag", uid=USER).state_directory == Path("/flag")
    assert load_config({}, environ, uid=USER).state_directory == Path("/srv/state")
    assert places.state_directory({"XDG_STATE_HOME": "/home/x/state"}, USER) == Path("/home/x/state/steprail")
    assert places.state_directory({}, USER) == Path.home() / ".local/state/steprail"
    assert places.state_directory({"XDG_STATE_HOME": "/home/x/state"}, 0) == Path("/var/lib/steprail")
