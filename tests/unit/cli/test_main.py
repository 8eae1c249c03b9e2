"""The command line as a whole: its help, what it imports, what it refuses."""

import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from steprail_daemon.cli.main import COMMANDS, cli

HEAVY = ("grpc", "google.protobuf", "steprail.v1", "asyncio", "anyio", "msgspec", "structlog")


def imported_by(*arguments: str) -> set[str]:
    """Run the command line in a process of its own and give the modules that it imported."""
    code = (
        "import json, sys\n"
        "from steprail_daemon.cli.main import cli\n"
        "try: cli(sys.argv[1:])\n"
        "except SystemExit as ended: assert not ended.code, ended.code\n"
        "print(json.dumps(sorted(sys.modules)), file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=30, check=True
    )
    modules: list[str] = json.loads(done.stderr)
    return set(modules)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["version"],
        ["--version"],
        ["config", "print", "--help"],
        ["completion", "bash"],
        ["doctor", "--help"],
    ],
)
def test_a_command_that_calls_no_daemon_imports_nothing_heavy(arguments: list[str]) -> None:
    assert imported_by(*arguments).isdisjoint(HEAVY)


def test_the_version_is_told_without_reading_the_configuration() -> None:
    assert imported_by("version").isdisjoint({"steprail_daemon.config.load", "tomllib"})


def test_the_help_imports_no_command() -> None:
    assert not [name for name in imported_by("--help") if name.startswith("steprail_daemon.cli.commands.")]


def test_ctrl_c_leaves_any_command_silently_with_the_status_of_the_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    def waits() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "get_command", lambda ctx, name: waits)
    result = CliRunner().invoke(cli, ["version"])
    assert (result.exit_code, result.output) == (130, "")


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_says_in_the_list_what_it_says_of_itself(name: str) -> None:
    command = cli.get_command(None, name)  # type: ignore[arg-type] # the context is not used
    assert command is not None
    assert command.help is not None
    assert command.help.splitlines()[0] == COMMANDS[name]


def test_the_help_lists_every_command() -> None:
    result = CliRunner().invoke(cli, ["--help"])
    assert result.exit_code == 0
    listed = [line.split()[0] for line in result.output.partition("Commands:\n")[2].splitlines() if line[2:3].strip()]
    assert listed == list(COMMANDS)


@pytest.mark.parametrize("arguments", [["nonsense"], ["run"], ["version", "--nonsense"], ["serve", "--set", "x"]])
def test_wrong_usage_has_status_2(arguments: list[str]) -> None:
    assert CliRunner().invoke(cli, arguments).exit_code == 2


def test_version_is_that_of_the_package() -> None:
    result = CliRunner().invoke(cli, ["version", "--json"])
    assert json.loads(result.output) == {"version": version("steprail-daemon")}
    assert CliRunner().invoke(cli, ["version"]).output == f"steprail {version('steprail-daemon')}\n"
    assert CliRunner().invoke(cli, ["--version"]).output == f"steprail {version('steprail-daemon')}\n"


def test_the_demonstration_leaves_a_directory_alone_that_is_not_empty(tmp_path: Path) -> None:
    (tmp_path / "steprail.toml").write_text("mine")
    result = CliRunner().invoke(cli, ["demo", "--directory", str(tmp_path)])
    said = f"steprail: {tmp_path} is not empty; --directory takes a directory that is new or empty\n"
    assert (result.exit_code, result.stderr) == (1, said)
    assert [path.name for path in tmp_path.iterdir()] == ["steprail.toml"]
    assert (tmp_path / "steprail.toml").read_text() == "mine"
    result = CliRunner().invoke(cli, ["demo", "--directory", str(tmp_path / "steprail.toml")])
    assert (result.exit_code, len(result.stderr.splitlines())) == (1, 1)


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Be in an empty directory, with no configuration but what a test writes."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STEPRAIL_CONFIG", str(tmp_path / "steprail.toml"))
    monkeypatch.setenv("STEPRAIL_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    (tmp_path / "steprail.toml").write_text("version = 1\n")
    return tmp_path


def test_config_check_names_the_file_and_every_problem(alone: Path) -> None:
    result = CliRunner().invoke(cli, ["config", "check"])
    assert (result.exit_code, result.output) == (0, f"{alone / 'steprail.toml'}: no problems\n")
    (alone / "steprail.toml").write_text("[limits]\nmax_steps = 0\n[logging]\nlevel = 3\n")
    result = CliRunner().invoke(cli, ["config", "check"])
    assert result.exit_code == 78
    lines = result.stderr.splitlines()
    assert lines[0] == "steprail: the configuration cannot be used:"
    assert [line.split(":")[2].strip() for line in lines[1:]] == ["limits.max_steps", "logging.level"]


def test_config_print_shows_where_each_value_came_from(alone: Path) -> None:
    result = CliRunner().invoke(cli, ["config", "print", "--set", "limits.max_steps=7", "--json"])
    settings = {line["key"]: (line["value"], line["source"]) for line in map(json.loads, result.output.splitlines())}
    assert settings["limits.max_steps"] == ("7", "flag")
    assert settings["version"] == ("1", f"{alone / 'steprail.toml'}:1")
    assert settings["drain.grace"] == ('"90s"', "default")
    lines = CliRunner().invoke(cli, ["config", "print"]).output.splitlines()
    assert f"# state directory: {alone / 'state'}" in lines
    assert 'drain.grace = "90s"  # default' in lines


def test_serve_with_a_wrong_configuration_has_status_78_and_makes_nothing(alone: Path) -> None:
    result = CliRunner().invoke(cli, ["serve", "--listen", "example.com:1"])
    assert result.exit_code == 78
    assert 'flag: server.listen: entry 1: "example.com" is no IP address' in result.stderr
    assert not (alone / "state").exists()
