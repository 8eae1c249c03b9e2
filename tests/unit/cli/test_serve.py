"""What `steprail serve` prepares, and the command line of the parent process that it becomes."""

import errno
import fcntl
import sys
from pathlib import Path

import pytest

from steprail_daemon.cli.commands.serve import parent_argv, prepare_state
from steprail_daemon.cli.problems import ConfigProblem
from steprail_daemon.cli.state_lock import lock_holder
from steprail_daemon.config.load import LoadedConfig
from steprail_daemon.config.schema import Config
from steprail_daemon.parent.options import read_options
from steprail_daemon.service.listen import CannotListen, make_room


def test_the_state_directory_is_made_for_its_owner_only(tmp_path: Path) -> None:
    state = tmp_path / "a" / "state"
    prepare_state(state)
    assert state.stat().st_mode & 0o777 == 0o700


def test_the_name_of_the_directorys_life_stays(tmp_path: Path) -> None:
    first = prepare_state(tmp_path / "one")
    assert len(first) == 16
    assert prepare_state(tmp_path / "one") == first
    assert prepare_state(tmp_path / "two") != first
    assert [path.name for path in (tmp_path / "one").iterdir()] == ["instance"]


def test_a_second_daemon_is_told_who_the_first_is(tmp_path: Path) -> None:
    with (tmp_path / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write("4711\n")
        lock.flush()
        with pytest.raises(ConfigProblem, match=f"another daemon, process 4711, uses the state directory {tmp_path}; "):
            prepare_state(tmp_path)
    assert lock_holder(tmp_path / "lock") == ""


def test_a_state_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigProblem, match=r"the state directory .*/file/state cannot be used: .*Not a directory"):
        prepare_state(tmp_path / "file" / "state")


def test_the_parent_understands_its_command_line(tmp_path: Path) -> None:
    loaded = LoadedConfig(Config(), {}, tmp_path / "c.toml", tmp_path)
    argv = parent_argv(loaded, (("limits.max_steps", "5"),), "abc")
    assert argv[:4] == [sys.executable, "-P", "-m", "steprail_daemon.parent"]
    options = read_options(argv[4:])
    assert (options.instance, options.lock, options.grace) == ("abc", str(tmp_path / "lock"), 90.0)
    assert (options.backoff_first, options.backoff_longest, options.log_json) == (0.5, 30.0, True)
    worker = [sys.executable, "-P", "-m", "steprail_daemon.daemon", "--state-dir", str(tmp_path)]
    assert options.worker == [*worker, "--config", str(tmp_path / "c.toml"), "--set", "limits.max_steps=5"]


def test_a_socket_that_cannot_be_made_is_told_in_a_sentence_alone(tmp_path: Path) -> None:
    path = tmp_path / "x.sock"
    path.touch()
    with pytest.raises(CannotListen) as caught:
        make_room(path)
    assert str(caught.value) == f"cannot listen on {path}: a file is there that is no socket; remove it"
    assert caught.value.errno == errno.EEXIST
