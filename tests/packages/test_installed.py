"""The installed packages, with each Python that is here: what is tested is what a user gets, and not the tree."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from tests.framework.daemon import Daemon, running_daemon
from tests.framework.examples import Examples, script
from tests.packages.conftest import ROOT, Built, Installed

# A daemon's environment is made within the time of the first test that uses it.
pytestmark = pytest.mark.timeout(600)

#: Modules that import what only the extra `testing` brings.
OF_THE_EXTRA = {"steprail_daemon.testing.store_model": "hypothesis"}

IMPORT_ALL = """
import importlib, json, pkgutil, sys
packages, failed, places = sys.argv[1:], {}, []
for name in packages:
    places.append(importlib.import_module(name).__path__[0])
    for found in pkgutil.walk_packages(sys.modules[name].__path__, f"{name}."):
        if found.name.rpartition(".")[2] != "__main__":
            try:
                importlib.import_module(found.name)
            except ImportError as error:
                failed[found.name] = error.name
loaded = sorted(name for name in sys.modules if name.partition(".")[0] in packages)
print(json.dumps({"failed": failed, "places": places, "path": sys.path, "loaded": loaded}))
"""


def locked(name: str) -> dict[str, str]:
    """Give name and version of everything in a requirements file."""
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", (ROOT / "requirements" / name).read_text(), re.MULTILINE))


def block(name: str, package: str) -> str:
    """Give the lines of a requirements file about one package, with its hashes."""
    found = re.search(rf"^{package}==.*?(?=^\S)", (ROOT / "requirements" / name).read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[0]


def modules_of(*wheels: Path) -> set[str]:
    """Give the modules of wheels, without those that are programs."""
    files: set[str] = set()
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            files |= {name for name in archive.namelist() if name.endswith(".py")}
    names = {name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for name in files}
    return {name for name in names if not name.endswith(".__main__")}


def version_of(wheel: Path) -> str:
    return wheel.name.split("-")[1]


def test_the_daemons_environment_has_what_is_locked_and_fits(daemon_side: Installed, built: Built) -> None:
    ours = {"steprail": version_of(built.client), "steprail-daemon": version_of(built.daemon)}
    installed = {name.lower().replace("_", "-"): number for name, number in daemon_side.distributions().items()}
    assert installed == {**locked("runtime.txt"), **ours}
    done = daemon_side.run("-m", "pip", "check", "--disable-pip-version-check")
    assert (done.returncode, done.stdout) == (0, "No broken requirements found.\n")


def test_every_module_of_the_daemon_is_there_and_none_comes_from_the_tree(
    daemon_side: Installed, version: str, built: Built
) -> None:
    packages = ("steprail", "steprail_daemon", "steprail_scripted")
    done = daemon_side.run("-c", IMPORT_ALL, *packages)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["failed"] == OF_THE_EXTRA
    site = daemon_side.directory / "venv" / "lib" / f"python{version}" / "site-packages"
    assert told["places"] == [str(site / name) for name in packages]
    assert not [entry for entry in told["path"] if Path(entry or daemon_side.cwd).is_relative_to(ROOT)]
    assert {*told["loaded"], *OF_THE_EXTRA} == modules_of(built.client, built.daemon)


def test_the_extra_for_tests_of_stores_brings_what_they_need(daemon_side: Installed, tmp_path: Path) -> None:
    with_extra = daemon_side.copy(tmp_path / "with-extra")
    requirements = tmp_path / "extra.txt"
    requirements.write_text(block("dev.txt", "hypothesis") + block("dev.txt", "sortedcontainers"))
    with_extra.install(requirements)
    done = with_extra.run("-c", f"import {', '.join(OF_THE_EXTRA)}")
    assert (done.returncode, done.stderr) == (0, "")
    wanted = "from importlib.metadata import requires; print([r for r in requires('steprail-daemon') if 'extra' in r])"
    (requirement,) = ast.literal_eval(with_extra.run("-c", wanted).stdout)
    number = with_extra.distributions()["hypothesis"]
    assert Requirement(requirement).specifier.contains(number)
    assert Requirement(requirement).name in OF_THE_EXTRA.values()


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("steprail", "version"), "steprail {version}"),
        (("steprail", "--version"), "steprail"),
        (("steprail", "--help"), "Usage: steprail"),
        (("steprail", "config", "check"), ""),
        (("steprail", "config", "print"), "version = 1"),
        (("steprail-scripted", "--version"), "0.8.2 (steprail-scripted)"),
        (("-m", "steprail_scripted", "--version"), "0.8.2 (steprail-scripted)"),
    ],
    ids=" ".join,
)
def test_the_commands_are_there(command: tuple[str, ...], said: str, daemon_side: Installed, built: Built) -> None:
    done = daemon_side.run(*command)
    assert (done.returncode, done.stderr) == (0, "")
    assert said.format(version=version_of(built.daemon)) in done.stdout
    assert str(ROOT) not in done.stdout


def test_the_demonstration_runs(daemon_side: Installed) -> None:
    # Claude Code is fetched into the user's cache at the first time.
    done = daemon_side.run("steprail", "demo", seconds=500)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "stopped after 1 step; the model had been asked 1 time" in done.stdout
    assert "while it was stopped: 0 requests to the model" in done.stdout
    assert list(daemon_side.cwd.iterdir()) == []


# The client, which is all that the examples have, with the daemon of the other environment.


@pytest.fixture(scope="module")
def daemon(daemon_side: Installed) -> Iterator[Daemon]:
    settings = '[agents.scripted]\ndriver = "scripted"\nhome = "isolated"\npermission_mode = "bypass"\n'
    with running_daemon(["true"], settings=settings, program=str(daemon_side.bin / "steprail")) as made:
        yield made


@pytest.fixture
def examples(daemon: Daemon, client_side: Installed, tmp_path: Path) -> Examples:
    """Copies of the examples, far from the tree."""
    source = tmp_path / "examples"
    shutil.copytree(ROOT / "examples" / "python", source, ignore=shutil.ignore_patterns("__pycache__"))
    workspace = daemon.workspace / tmp_path.name
    workspace.mkdir()
    (workspace / "notes.txt").write_text("remember the milk\n")
    environment = {**client_side.environment, "STEPRAIL_ADDRESS": daemon.address}
    return Examples(client_side.python, environment, workspace, source)


def test_the_client_needs_its_own_dependencies_alone(client_side: Installed, built: Built) -> None:
    installed = {name.lower().replace("_", "-"): number for name, number in client_side.distributions().items()}
    assert installed == {**locked("client.txt"), "steprail": version_of(built.client)}
    done = client_side.run("-m", "pip", "check", "--disable-pip-version-check")
    assert (done.returncode, done.stdout) == (0, "No broken requirements found.\n")
    told = json.loads(client_side.run("-c", IMPORT_ALL, "steprail").stdout)
    assert (told["failed"], set(told["loaded"])) == ({}, modules_of(built.client))
    assert not [path.name for path in client_side.bin.iterdir() if path.name.startswith("steprail")]


def test_stop_look_continue_runs(examples: Examples) -> None:
    done = examples.run("stop_look_continue", "Look around", "--agent", "scripted")
    assert (done.returncode, done.stderr) == (0, "")
    assert "stopped: Completed steps of the run: 1, limit 1." in done.stdout
    assert "RUN_STATE_COMPLETED after 2 steps" in done.stdout


def test_review_steps_runs(examples: Examples) -> None:
    done = examples.run("review_steps", "Look around", "--agent", "scripted", "--answer", "yes")
    assert (done.returncode, done.stderr) == (0, "")
    assert "RUN_STATE_COMPLETED after 3 steps" in done.stdout


def test_batch_runs(examples: Examples) -> None:
    prompt = script({"text": "42", "usage": {"input_tokens": 10, "output_tokens": 10, "cost_micro_usd": 400}})
    done = examples.run("batch", prompt, ".", ".", "--agent", "scripted")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("completed    0 steps  0.000400 USD  42") == 2


def test_stream_server_runs_and_stops_what_it_streams_when_it_is_ended(examples: Examples) -> None:
    with examples.serving("--agent", "scripted") as server:
        assert "agent_end" in [name for name, _ in server.post({"prompt": "Look around"}).events()]
        server.process.terminate()
        assert server.process.communicate(timeout=30) == ("", "")
        assert server.process.returncode == 0


# A program of a user is held against the types of the installed client.

USES_IT_WRONGLY = """
from steprail.client import Client, SyncClient, steps

async def main() -> None:
    async with Client() as client:
        await client.run("x", agent="claude", stop_wen=[steps(1)])
        run = await client.run("x", agent="claude", on_exit="explode")
        print(run.states)

def blocking(client: SyncClient) -> int:
    return client.run("x", agent="claude").wait()
"""


def typed(client: Installed, directory: Path) -> subprocess.CompletedProcess[str]:
    """Check the programs of a directory against what is installed in an environment, and not against the tree."""
    return subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--python-executable", client.python, "--no-color-output", "."],
        env={**client.environment, "MYPY_CACHE_DIR": str(directory / "cache")},
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def test_programs_are_checked_against_the_types_of_the_installed_client(client_side: Installed, tmp_path: Path) -> None:
    for path in (ROOT / "examples" / "python").glob("*.py"):
        shutil.copy(path, tmp_path)
    done = typed(client_side, tmp_path)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    (tmp_path / "wrong.py").write_text(USES_IT_WRONGLY)
    done = typed(client_side, tmp_path)
    assert done.returncode == 1
    assert 'wrong.py:6: error: Unexpected keyword argument "stop_wen" for "run" of "Client"' in done.stdout
    assert 'wrong.py:7: error: Argument "on_exit" to "run" of "Client" has incompatible type' in done.stdout


def test_with_the_stubs_of_protobuf_messages_are_checked_too(client_side: Installed, tmp_path: Path) -> None:
    # Without them a message may be anything to a type checker.
    with_stubs = client_side.copy(tmp_path / "with-stubs")
    requirements = tmp_path / "stubs.txt"
    requirements.write_text(block("dev.txt", "types-protobuf") + block("dev.txt", "types-grpcio"))
    with_stubs.install(requirements)
    programs = tmp_path / "programs"
    shutil.copytree(ROOT / "examples" / "python", programs, ignore=shutil.ignore_patterns("__pycache__"))
    done = typed(with_stubs, programs)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    (programs / "wrong.py").write_text(USES_IT_WRONGLY)
    done = typed(with_stubs, programs)
    found = re.findall(r"^(\S+): error: .*\[([a-z-]+)\]$", done.stdout, re.MULTILINE)
    wrong = ["call-arg", "arg-type", "attr-defined", "return-value"]
    assert found == [(f"wrong.py:{line}", kind) for line, kind in zip((6, 7, 8, 11), wrong, strict=True)], done.stdout
