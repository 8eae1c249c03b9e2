"""Where the client looks for the daemon."""

import os
from pathlib import Path

import pytest

from steprail.client import Client


def test_a_given_address_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPRAIL_ADDRESS", "unix:/named.sock")

    assert Client("unix:/given.sock").address == "unix:/given.sock"


@pytest.mark.parametrize(
    ("user", "environment", "address"),
    [
        (1000, {"STEPRAIL_ADDRESS": "unix:/named.sock"}, "unix:/named.sock"),
        (0, {"XDG_RUNTIME_DIR": "/run/user/0"}, "unix:/run/steprail/steprail.sock"),
        (1000, {"XDG_RUNTIME_DIR": "/custom"}, "unix:/custom/steprail/steprail.sock"),
        (4_000_000_000, {"STEPRAIL_STATE_DIR": "/state"}, "unix:/state/steprail.sock"),
        (4_000_000_000, {"XDG_STATE_HOME": "/home/state"}, "unix:/home/state/steprail/steprail.sock"),
        (4_000_000_000, {"HOME": "/home/user"}, "unix:/home/user/.local/state/steprail/steprail.sock"),
    ],
)
def test_else_the_environment_and_the_user_tell(
    monkeypatch: pytest.MonkeyPatch, user: int, environment: dict[str, str], address: str
) -> None:
    for name in ("STEPRAIL_ADDRESS", "STEPRAIL_STATE_DIR", "XDG_RUNTIME_DIR", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(os, "geteuid", lambda: user)

    assert Client().address == address


def test_without_the_variable_the_directory_that_it_would_name_is_used_if_it_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("STEPRAIL_ADDRESS", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(Path, "is_dir", lambda path: str(path) == "/run/user/1000")

    assert Client().address == "unix:/run/user/1000/steprail/steprail.sock"
