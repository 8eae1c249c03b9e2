"""The directory and the configuration of a trial, whatever the environment it is made in looks like."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from steprail_daemon.cli.doctor.trials import _directory
from steprail_daemon.cli.rehearsal import Room
from steprail_daemon.config.load import load_config


@pytest.mark.parametrize("length", [*range(60, 84), 120])
def test_a_socket_in_the_directory_of_a_trial_has_room_for_its_path(
    length: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with tempfile.TemporaryDirectory(prefix="r", dir="/tmp") as short:
        place = Path(short) / ("x" * (length - len(short) - 1))
        place.mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(place))
        with _directory() as name:
            room = Room(Path(name))
            room.workspace.mkdir()
            room.write_config("scripted", {})
            loaded = load_config({}, room.environment, path=Path(name) / "steprail.toml", state_directory=tmp_path)
    assert loaded.config.server.listen == (room.address,)


def test_what_a_trial_is_given_comes_back_from_its_configuration(tmp_path: Path) -> None:
    room = Room(tmp_path)
    room.workspace.mkdir()
    odd = '/bin\x7f:"\\\t\u00e9\U0001f600'
    room.write_config("scripted", {"command": [odd, "-P"], "environment": {"pass": [], "set": {"PATH": odd}}})
    loaded = load_config({}, room.environment, path=tmp_path / "steprail.toml", state_directory=tmp_path)
    agent = loaded.config.agents["scripted"]
    assert (agent.command, agent.environment.set_) == ((odd, "-P"), {"PATH": odd})
