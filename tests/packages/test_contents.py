"""What is in the packages: all that they need, and nothing else; the same wherever they are built."""

from __future__ import annotations

import email.message
import email.parser
import hashlib
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from tests.framework.pythons import DECLARED, found
from tests.packages.conftest import PIP_SECONDS, ROOT, Built, user_environment

pytestmark = pytest.mark.timeout(300)

CLIENT, DAEMON = ROOT / "clients" / "python", ROOT


def tracked(directory: str) -> set[str]:
    """Give the files of the repository below a directory, by their place in it."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", directory],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    return {name.removeprefix(f"{directory}/") for name in listed.stdout.split("\0") if name}


def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def metadata(wheel: Path) -> email.message.Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return email.parser.Parser().parsestr(archive.read(name).decode())


def info(wheel: Path, *files: str) -> set[str]:
    name = "-".join(wheel.name.split("-")[:2])
    return {f"{name}.dist-info/{file}" for file in ("METADATA", "RECORD", "WHEEL", "licenses/LICENSE", *files)}


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_this_machine_has_a_python_that_is_declared() -> None:
    assert found()


def test_the_wheel_of_the_client_has_its_package_and_nothing_else(built: Built) -> None:
    package = tracked("clients/python/src")
    assert names(built.client) == package | info(built.client)
    assert {Path(name).suffix for name in package} == {".json", ".py", ".pyi", ".typed"}
    needed = {
        "steprail/py.typed",
        "steprail/v1/runs_pb2.py",
        "steprail/v1/runs_pb2.pyi",
        "steprail/v1/runs_pb2_grpc.py",
    }
    assert package >= needed | {"steprail/client/service_config.json", "steprail/client/_blocking/client.py"}


def test_the_wheel_of_the_daemon_has_its_two_packages_and_nothing_else(built: Built) -> None:
    packages = tracked("daemon") - {"README.md"}
    assert names(built.daemon) == packages | info(built.daemon, "entry_points.txt")
    assert {Path(name).suffix for name in packages} == {".mjs", ".proto", ".py", ".pyi", ".sh", ".typed"}
    needed = {
        "steprail_daemon/py.typed",
        "steprail_scripted/py.typed",
        "steprail_daemon/expressions/messages/view_pb2.py",
        "steprail_daemon/testing/bench/idle.sh",
        "steprail_daemon/testing/bench/rule.mjs",
    }
    assert packages >= needed
    assert {name.partition("/")[0] for name in packages} == {"steprail_daemon", "steprail_scripted"}


def test_no_file_of_a_package_names_the_machine_that_built_it(built: Built) -> None:
    told = [str(ROOT).encode(), str(Path.home()).encode() + b"/", str(built.directory).encode()]
    for wheel in (built.client, built.daemon):
        with zipfile.ZipFile(wheel) as archive:
            found = [name for name in archive.namelist() if any(text in archive.read(name) for text in told)]
        assert found == []


@pytest.mark.parametrize("side", ["client", "daemon"])
def test_the_metadata_says_what_the_project_says(side: str, built: Built) -> None:
    wheel, directory = {"client": (built.client, CLIENT), "daemon": (built.daemon, DAEMON)}[side]
    project = tomllib.loads((directory / "pyproject.toml").read_text())["project"]
    said = metadata(wheel)
    assert (said["Name"], said["Version"]) == (project["name"], project["version"])
    assert said["Summary"] == project["description"]
    assert said["Requires-Python"] == ">=3.11"
    assert said["License-Expression"] == "Apache-2.0"
    assert said.get_all("License-File") == ["LICENSE"]
    assert said["Description-Content-Type"] == "text/markdown"
    readme = (directory / project["readme"]).read_text()
    assert said.get_payload() == readme
    # Where a package is shown, what lies beside its page in the repository is not there.
    assert [target for target in re.findall(r"\]\(([^)]*)\)", readme) if not target.startswith("#")] == []
    classifiers = said.get_all("Classifier", [])
    declared = [found[1] for text in classifiers if (found := re.fullmatch(r".* :: Python :: (3\.\d+)", text))]
    assert declared == list(DECLARED)
    assert "Typing :: Typed" in classifiers
    # There is none yet that would lead anywhere.
    assert (said.get_all("Project-URL"), said["Home-page"], said["Download-URL"]) == (None, None, None)


def test_the_two_packages_are_of_one_version_and_the_daemon_wants_that_client(built: Built) -> None:
    client, daemon = metadata(built.client), metadata(built.daemon)
    assert client["Version"] == daemon["Version"]
    assert f"steprail=={client['Version']}" in daemon.get_all("Requires-Dist", [])
    assert not any("steprail" in text for text in client.get_all("Requires-Dist", []))
    assert (client.get_all("Provides-Extra"), daemon.get_all("Provides-Extra")) == (None, ["testing"])


SOURCES = {
    "steprail": ({"src/steprail"}, {".gitignore", "LICENSE", "PKG-INFO", "README.md", "pyproject.toml"}),
    "steprail_daemon": (
        {"daemon/steprail_daemon", "daemon/steprail_scripted"},
        {".gitignore", "CHANGELOG.md", "LICENSE", "PKG-INFO", "daemon/README.md", "pyproject.toml"},
    ),
}


@pytest.mark.parametrize("name", SOURCES)
def test_a_source_archive_has_the_sources_and_gives_the_same_wheel(name: str, built: Built, tmp_path: Path) -> None:
    archive, wheel = built.one(f"{name}-*.tar.gz"), built.one(f"{name}-*.whl")
    directories, files = SOURCES[name]
    with tarfile.open(archive) as content:
        members = {member.name.partition("/")[2] for member in content.getmembers() if member.isfile()}
    assert {member for member in members if not member.startswith(tuple(f"{where}/" for where in directories))} == files
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run(
        [*pip, "--wheel-dir", str(tmp_path), str(archive)],
        cwd=tmp_path,
        env=user_environment(),
        capture_output=True,
        timeout=PIP_SECONDS,
        check=True,
    )
    (again,) = tmp_path.glob("*.whl")
    assert (again.name, digest(again)) == (wheel.name, digest(wheel))


@pytest.mark.parametrize("name", SOURCES)
def test_a_build_at_another_time_by_somebody_else_gives_the_same_bytes(name: str, built: Built, tmp_path: Path) -> None:
    archive = built.one(f"{name}-*.tar.gz")
    with tarfile.open(archive) as content:
        content.extractall(tmp_path, filter="data")
    (tree,) = tmp_path.iterdir()
    for path in tree.rglob("*.py"):
        os.utime(path, (1_000_000_000, 1_000_000_000))
        path.chmod(0o600)
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--directory", str(tmp_path / "again")],
        cwd=tree,
        env=user_environment(),
        capture_output=True,
        timeout=PIP_SECONDS,
        check=True,
    )
    again = {path.name: digest(path) for path in (tmp_path / "again").iterdir()}
    assert again == {path.name: digest(path) for path in built.directory.glob(f"{name}-*")}
