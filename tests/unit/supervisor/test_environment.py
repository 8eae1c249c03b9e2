"""What an agent's environment holds, and what it never holds."""

from __future__ import annotations

import pytest

from steprail_daemon.supervisor import build_environment
from steprail_daemon.supervisor.environment import EnvironmentRefused

DAEMON = {
    "PATH": "/bin",
    "HOME": "/home/me",
    "LANG": "C.UTF-8",
    "LC_TIME": "de_DE.UTF-8",
    "XDG_CONFIG_HOME": "/home/me/.config",
    "ANTHROPIC_API_KEY": "secret",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "LD_PRELOAD": "/tmp/evil.so",
    "STEPRAIL_TOKEN_FILE": "/etc/token",
    "STEPRAIL_PROCESS": "outer.1",
    "PYTHONPATH": "/tmp",
}


def test_only_the_base_is_inherited() -> None:
    assert build_environment(source=DAEMON) == {
        "PATH": "/bin",
        "HOME": "/home/me",
        "LANG": "C.UTF-8",
        "LC_TIME": "de_DE.UTF-8",
        "XDG_CONFIG_HOME": "/home/me/.config",
    }


def test_configured_names_are_passed_where_the_daemon_has_them() -> None:
    environment = build_environment(["ANTHROPIC_API_KEY", "OPENAI_API_KEY"], source=DAEMON)
    assert environment["ANTHROPIC_API_KEY"] == "secret"
    assert "OPENAI_API_KEY" not in environment


def test_set_values_win() -> None:
    environment = build_environment(["ANTHROPIC_API_KEY"], {"HOME": "/isolated", "ANTHROPIC_API_KEY": "x"}, DAEMON)
    assert (environment["HOME"], environment["ANTHROPIC_API_KEY"]) == ("/isolated", "x")


def test_without_a_source_the_daemon_s_own_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    monkeypatch.setenv("A_SECRET", "x")
    environment = build_environment()
    assert environment["TZ"] == "Europe/Berlin"
    assert "A_SECRET" not in environment


@pytest.mark.parametrize("name", ["LD_PRELOAD", "LD_LIBRARY_PATH", "DYLD_INSERT_LIBRARIES"])
def test_loader_variables_are_refused_even_when_configured(name: str) -> None:
    with pytest.raises(
        EnvironmentRefused, match=f"^agents.a.environment.pass: variable '{name}' belongs to the dynamic"
    ):
        build_environment([name], source=DAEMON, field="agents.a.environment")
    with pytest.raises(EnvironmentRefused, match=f"^environment.set: variable '{name}' belongs to the dynamic loader"):
        build_environment(set_values={name: "x"}, source=DAEMON)


def test_the_daemon_s_own_variables_are_refused_even_when_configured() -> None:
    with pytest.raises(EnvironmentRefused, match="belongs to the daemon"):
        build_environment(["STEPRAIL_TOKEN_FILE"], source=DAEMON)


@pytest.mark.parametrize("name", ["", "A=B", "A\0B"])
def test_what_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(EnvironmentRefused, match="is no name"):
        build_environment(set_values={name: "x"}, source=DAEMON)


def test_a_value_with_a_nul_is_refused() -> None:
    with pytest.raises(EnvironmentRefused, match="has a value with a NUL"):
        build_environment(set_values={"A": "x\0"}, source=DAEMON)
