"""How checks are made and told, and what ends the examination."""

import json
import threading
from collections.abc import Callable
from pathlib import Path

import anyio
import click
import pytest
from click.testing import CliRunner
from tests.unit.cli.doctor.conftest import MakeCase, lines

from steprail_daemon import examine
from steprail_daemon.cli.doctor import agents, examination, looks
from steprail_daemon.cli.doctor.findings import Case, Finding, Tell, ok
from steprail_daemon.cli.main import cli


def examined(monkeypatch: pytest.MonkeyPatch, case: Case, *checks: Callable[[Case, Tell], None]) -> list[Finding]:
    found: list[Finding] = []
    monkeypatch.setattr(examination, "CHECKS", checks)
    anyio.run(examination.examine, case, found.append)
    return found


def test_a_check_that_fails_is_a_finding_and_the_others_are_made(
    make: MakeCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(case: Case, tell: Tell) -> None:
        raise KeyError("x")

    def fine(case: Case, tell: Tell) -> None:
        tell(ok("fine", "yes"))

    found = examined(monkeypatch, make(), broken, fine)
    assert [(finding.mark.value, finding.text) for finding in found] == [
        ("problem", "the check broken failed: KeyError: 'x'"),
        ("ok", "yes"),
    ]


def test_a_check_that_hangs_is_a_finding(make: MakeCase, monkeypatch: pytest.MonkeyPatch) -> None:
    free = threading.Event()

    def hanging(case: Case, tell: Tell) -> None:
        free.wait()

    monkeypatch.setattr(looks, "LIMIT", 0.01)
    try:
        (found,) = examined(monkeypatch, make(), hanging)
    finally:
        free.set()
    assert found.text == "the check hanging did not end within 0.01 s"


def test_agents_are_not_looked_for_where_a_path_of_the_configuration_hangs(
    make: MakeCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = threading.Event()
    monkeypatch.setattr(examine, "engine_settings", lambda *_: free.wait())
    try:
        found = lines(agents.agents, make(environ={"STEPRAIL_PROCESSES__START_TIMEOUT": "10ms"}))
    finally:
        free.set()
    said = "a look at server.workspace_roots did not end within 0.01 s"
    assert found == [f"not tried: what they would be given cannot be told: {said}"]


def test_output_that_cannot_be_written_ends_it(make: MakeCase) -> None:
    def full(_finding: Finding) -> None:
        raise click.ClickException("the output cannot be written")

    with pytest.raises(click.ClickException):
        anyio.run(examination.examine, make(), full)


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Be in an empty directory, with a configuration that a test may overwrite."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STEPRAIL_CONFIG", str(tmp_path / "steprail.toml"))
    monkeypatch.setenv("STEPRAIL_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.delenv("STEPRAIL_ADDRESS", raising=False)
    (tmp_path / "steprail.toml").write_text("version = 1\n")
    return tmp_path


def test_every_problem_of_the_configuration_is_told_with_what_to_do(alone: Path) -> None:
    (alone / "steprail.toml").write_text("[limits]\nmax_steps = 0\n[logging]\nlevel = 3\n")
    result = CliRunner().invoke(cli, ["doctor"])
    assert (result.exit_code, result.stderr) == (1, "")
    lines = result.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["problem", "->", "problem", "->", "not", "->", "2"]
    assert "limits.max_steps" in lines[0]
    assert lines[1] == "           -> correct it; `steprail config check` tells what is wrong with the configuration"
    found = [json.loads(line)["finding"] for line in CliRunner().invoke(cli, ["doctor", "--json"]).stdout.splitlines()]
    assert [each["mark"] for each in found] == ["PROBLEM", "PROBLEM", "NOT_TRIED"]
    assert all(each["advice"] for each in found)


def test_a_configuration_file_that_is_not_there_is_a_problem_and_no_traceback(alone: Path) -> None:
    result = CliRunner().invoke(cli, ["doctor", "--config", "/nowhere"])
    assert (result.exit_code, result.stderr) == (1, "")
    assert result.stdout.startswith("problem    configuration: flag --config: there is no file /nowhere\n")


def test_an_agent_that_nobody_configured_is_wrong_usage(alone: Path) -> None:
    result = CliRunner().invoke(cli, ["doctor", "mine"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "the configuration names no agent 'mine'; it names: autohand, claude, scripted" in result.stderr


@pytest.mark.parametrize("arguments", [["--nonsense"], ["--address", "nonsense"], ["--set", "x"]])
def test_wrong_usage_of_the_doctor_has_status_2(alone: Path, arguments: list[str]) -> None:
    assert CliRunner().invoke(cli, ["doctor", *arguments]).exit_code == 2
