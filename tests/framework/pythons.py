"""The Pythons of this machine that the packages declare."""

from __future__ import annotations

import functools
import shutil
import subprocess
import sys
from collections.abc import Iterator

DECLARED = ("3.11", "3.12", "3.13", "3.14")

_TELL = "import ensurepip, sys, venv; print(f'{sys.version_info.major}.{sys.version_info.minor}')"
_SECONDS = 30


@functools.cache
def found() -> dict[str, str]:
    """Give the program of each declared version that is here and can make environments; ours is always among them."""
    programs: dict[str, str] = {}
    for version in DECLARED:
        works = (program for program in _candidates(version) if _says(program, "-c", _TELL) == version)
        program = next(works, None)
        if program is not None:
            programs[version] = program
    return programs


def _candidates(version: str) -> Iterator[str]:
    if f"{sys.version_info.major}.{sys.version_info.minor}" == version:
        yield f"{sys.base_prefix}/bin/python{version}"
    on_path = shutil.which(f"python{version}")
    if on_path is not None:
        yield on_path
    # What pyenv has is on the PATH only as far as a version is chosen.
    if shutil.which("pyenv") is not None:
        for name in _says("pyenv", "versions", "--bare").split():
            if name.startswith(f"{version}."):
                yield f"{_says('pyenv', 'prefix', name)}/bin/python{version}"


def _says(*command: str) -> str:
    """Give what a program says, nothing where it fails or is not there."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
