"""What is installed to run the packages is a part of what they are tested with: the same versions, the same hashes."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
REQUIREMENTS = ROOT / "requirements"
DAEMON, CLIENT = ROOT / "pyproject.toml", ROOT / "clients" / "python" / "pyproject.toml"


def pins(name: str) -> dict[str, tuple[str, frozenset[str]]]:
    """Give version, with its marker if any, and hashes of each package in a requirements file."""
    blocks = re.split(r"^(?=[a-z0-9])", (REQUIREMENTS / name).read_text(), flags=re.MULTILINE)
    found = (re.match(r"([a-z0-9-]+)==(.*?) *\\", block) for block in blocks)
    return {
        match[1]: (match[2], frozenset(re.findall(r"sha256:[0-9a-f]{64}", match.string)))
        for match in found
        if match is not None
    }


def needed(names: list[str]) -> set[str]:
    """Give everything that packages need, by what is installed here; our own client is no part of it."""
    found: set[str] = set()
    while names:
        name = names.pop().lower().replace("_", "-")
        if name in found or name == "steprail":
            continue
        found.add(name)
        requirements = [Requirement(text) for text in distribution(name).requires or ()]
        names += [item.name for item in requirements if item.marker is None or item.marker.evaluate({"extra": ""})]
    return found


@pytest.mark.parametrize(("name", "projects"), [("runtime.txt", (DAEMON, CLIENT)), ("client.txt", (CLIENT,))])
def test_the_requirements_to_run_are_those_of_the_lock_and_no_others(name: str, projects: tuple[Path, ...]) -> None:
    locked, everything = pins(name), pins("dev.txt")
    declared = [
        Requirement(text).name
        for project in projects
        for text in tomllib.loads(project.read_text())["project"]["dependencies"]
    ]
    assert set(locked) == needed(declared), "run `make lock`"
    assert locked == {package: everything[package] for package in locked}, "run `make lock`"
    assert all(hashes for _, hashes in locked.values())
