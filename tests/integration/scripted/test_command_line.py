"""The command line: what it prints, what it refuses, and what it loads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.integration.scripted.conftest import Start


def run(*flags: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "steprail_scripted", *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=20, check=False, stdin=subprocess.DEVNULL)


def test_the_version_is_that_of_the_dialect() -> None:
    done = run("--version")
    assert (done.returncode, done.stdout) == (0, "0.8.2 (steprail-scripted)\n")


def test_the_flags_of_the_cli_are_accepted(start: Start) -> None:
    host = start(None, "--offline", "--yolo", "--temperature", "0.2", "--yolo=ls", "--thinking=none", "--yolo", "ls")
    assert host.ask("getState")["status"] == "idle"


def test_the_help_names_the_script() -> None:
    assert "--script FILE" in run("--help").stdout


@pytest.mark.parametrize("flag", ["--resume", "--loop-type", "--max-turns", "--permission-mode"])
def test_a_flag_the_cli_does_not_have_is_refused(flag: str) -> None:
    done = run(flag)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"error: unknown option '{flag}'\n")


def test_another_mode_or_a_missing_value_is_refused() -> None:
    assert "'rpc' only" in run("--mode", "acp").stderr
    assert run("--model").stderr == "error: option '--model' argument missing\n"


@pytest.mark.parametrize("folder", ["/", "/etc"])
def test_system_folders_are_no_workspaces(folder: str) -> None:
    assert "Workspace path is not allowed" in run("--path", folder).stdout


def test_a_wrong_script_ends_the_start_and_names_the_field(start: Start) -> None:
    host = start({"turns": [{"replies": [{"delay": "soon"}]}]}, ready=False)
    error = host.message()["error"]
    assert error["code"] == -32010
    assert error["message"] == "script.turns[0].replies[0].delay: found 'soon'; expected a number, 0 or more"
    assert host.exit_code() == 1


def test_a_home_that_cannot_be_written_ends_the_start(start: Start, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    host = start(None, "--home", str(tmp_path / "file"), ready=False)
    assert host.message()["error"]["code"] == -32010
    assert host.exit_code() == 1


def test_the_script_may_come_from_the_environment(start: Start, tmp_path: Path) -> None:
    (tmp_path / "env.yaml").write_text("model: from-script")
    host = start(None, environment={"STEPRAIL_SCRIPTED_SCRIPT": str(tmp_path / "env.yaml")})
    assert host.ask("getState")["model"] == "from-script"


def test_a_start_without_a_script_loads_nothing_slow() -> None:
    code = "import sys, steprail_scripted.cli; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        env={"PYTHONPATH": str(Path(__file__).parents[3] / "daemon")},
        capture_output=True,
        timeout=20,
        check=True,
    )
    loaded = set(done.stdout.decode().split())
    assert "steprail_scripted.agent" in loaded
    assert (
        not {"yaml", "asyncio", "argparse", "dataclasses", "inspect", "logging", "steprail_scripted.loading"} & loaded
    )
