"""The packages as `make build` makes them, and environments in which nothing else of this project is."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.framework.pythons import found

ROOT = Path(__file__).resolve().parents[2]
#: Seconds that pip may take for one thing, with a slow network.
PIP_SECONDS = 240
SECONDS = 60


def user_environment() -> dict[str, str]:
    """Give the variables of a user who knows nothing of this tree."""
    ours = ("PYTHON", "STEPRAIL", "VIRTUAL_ENV", "MYPY", "PYTEST", "COV", "SOURCE_DATE_EPOCH", "MAKE", "MFLAGS")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}


class Built:
    """A directory of wheels and source archives."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def one(self, pattern: str) -> Path:
        (path,) = self.directory.glob(pattern)
        return path

    @property
    def client(self) -> Path:
        return self.one("steprail-*.whl")

    @property
    def daemon(self) -> Path:
        return self.one("steprail_daemon-*.whl")


class Installed:
    """An environment of its own, outside the tree, and an empty directory to run things in."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.bin = directory / "venv" / "bin"
        self.python = str(self.bin / "python")
        self.cwd = directory / "empty"
        self.cwd.mkdir(parents=True)
        self.environment = user_environment()

    def make(self, python: str, requirements: Path, *wheels: Path) -> Installed:
        """Make it with a Python, and install what is locked, by its hashes, and then the wheels alone."""
        self._succeed(python, "-m", "venv", str(self.directory / "venv"))
        self.install(requirements)
        self._pip("--no-deps", *map(str, wheels))
        return self

    def install(self, requirements: Path) -> None:
        """Install more of what is locked."""
        self._pip("--require-hashes", "--requirement", str(requirements))

    def copy(self, directory: Path) -> Installed:
        """Give a copy, into which more can be installed. Its commands are those of the original, its Python is not."""
        copied = Installed(directory)
        shutil.copytree(self.directory / "venv", directory / "venv", symlinks=True)
        return copied

    def run(
        self, *command: str, cwd: Path | None = None, seconds: float = SECONDS, extra: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command of the environment, or its Python with `-c` and `-m`."""
        program = self.python if command[0].startswith("-") else str(self.bin / command[0])
        arguments = command if command[0].startswith("-") else command[1:]
        return subprocess.run(
            [program, *arguments],
            env={**self.environment, **(extra or {})},
            cwd=cwd or self.cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )

    def distributions(self) -> dict[str, str]:
        """Give the version of everything that is installed, pip aside."""
        done = self.run("-m", "pip", "list", "--format", "json", "--disable-pip-version-check")
        return {entry["name"]: entry["version"] for entry in json.loads(done.stdout) if entry["name"] not in BUNDLED}

    def _pip(self, *arguments: str) -> None:
        self._succeed(self.python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments)

    def _succeed(self, *command: str) -> None:
        done = subprocess.run(
            command,
            env=self.environment,
            cwd=self.directory,
            capture_output=True,
            text=True,
            timeout=PIP_SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout}{done.stderr}"


#: What `python -m venv` puts into an empty environment; from 3.12 on it is pip alone.
BUNDLED = ("pip", "setuptools")


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The packages, built as a release is."""
    directory = tmp_path_factory.mktemp("dist")
    assert ROOT not in directory.parents
    subprocess.run(
        ["make", "build", f"VENV={sys.prefix}", f"DIST={directory}"],
        cwd=ROOT,
        env=user_environment(),
        capture_output=True,
        timeout=PIP_SECONDS,
        check=True,
    )
    return Built(directory)


@pytest.fixture(scope="session", params=found())
def version(request: pytest.FixtureRequest) -> str:
    """A Python that is here."""
    return str(request.param)


@pytest.fixture(scope="session")
def daemon_side(version: str, built: Built, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Both packages, as they are installed where a daemon runs."""
    made = Installed(tmp_path_factory.mktemp(f"daemon-{version}-"))
    return made.make(found()[version], ROOT / "requirements" / "runtime.txt", built.client, built.daemon)


@pytest.fixture(scope="session")
def client_side(version: str, built: Built, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The client alone."""
    made = Installed(tmp_path_factory.mktemp(f"client-{version}-"))
    return made.make(found()[version], ROOT / "requirements" / "client.txt", built.client)
