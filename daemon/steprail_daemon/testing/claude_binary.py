"""The real Claude Code in the version that the tests were written against, fetched once and checked.

`python -m steprail_daemon.testing.claude_binary` prints the path of the native binary. It comes from the npm package of
the platform, which needs no Node to run, and is kept in the user's cache folder.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

VERSION: Final = "2.1.332"

_FETCH_TIMEOUT_S: Final = 600.0
_BLOCK: Final = 1 << 20
_MEMBER: Final = "package/claude"


class ClaudeUnavailableError(Exception):
    """The binary cannot be had; the message says why and what would help."""


@dataclass(frozen=True)
class Release:
    """One npm package. `integrity` is npm's own of the tarball; `binary_sha256` is None where it was not computed."""

    package: str
    version: str
    integrity: str
    binary_sha256: str | None


RELEASES: Final = {
    "x86_64": Release(
        "@anthropic-ai/claude-code-linux-x64",
        VERSION,
        "sha512-f4JWhzwYutJIHScC7/dYOPX6s28tt7ZADhsOi8zwOHq5fFPEuUeChh2NMfinSg0GrUckYxaeebC4h0DqiKzLcw==",
        "a2df1f41bb00250992926420d0063f89b127cb81abdd284dbefb80c50ff1d026",
    ),
    "aarch64": Release(
        "@anthropic-ai/claude-code-linux-arm64",
        VERSION,
        "sha512-BlHNEtK38KBPWU31F4lUSS9sHclCyfWbThT1CErvxxH8+XcljYLZlQwdyXBkTD62rw1TgfE1u1a+quMWS0NSJg==",
        None,
    ),
}


def ensure_claude() -> Path:
    """Give the path of the binary for this machine, fetching it first if it is not there.

    Raises:
        ClaudeUnavailableError: no such package for this machine, no npm, no network, or not what was pinned.
    """
    machine = platform.machine()
    release = RELEASES.get(machine)
    if release is None or platform.system() != "Linux":
        accepted = ", ".join(f"Linux on {name}" for name in RELEASES)
        raise ClaudeUnavailableError(
            f"no Claude Code is pinned for {platform.system()} on {machine}; there is {accepted}"
        )
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return ensure(release, cache / "steprail" / "agents" / "claude" / release.version)


def ensure(release: Release, folder: Path, timeout: float = _FETCH_TIMEOUT_S) -> Path:
    """Give the path of a release's binary in `folder`, fetching it within `timeout` seconds if it is not there.

    What was checked once is known by a stamp with size and time of change, so that a later call reads nothing.
    Processes that call it at the same time wait for the one that fetches.
    """
    binary = folder / "claude"
    if _stamped(binary, release):
        return binary
    folder.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + timeout
    with _locked(folder / "lock", deadline):
        if not _stamped(binary, release):
            _fetch(release, binary, deadline)
    return binary


def _stamp_of(binary: Path) -> Path:
    return binary.with_name("checked.json")


def _facts(binary: Path, release: Release) -> dict[str, object]:
    status = binary.stat()
    return {"integrity": release.integrity, "size": status.st_size, "mtime_ns": status.st_mtime_ns}


def _stamped(binary: Path, release: Release) -> bool:
    try:
        stamp = json.loads(_stamp_of(binary).read_text())
        return bool(stamp == _facts(binary, release))
    except (OSError, ValueError):
        return False


@contextmanager
def _locked(path: Path, deadline: float) -> Iterator[None]:
    pause = threading.Event()
    with path.open("w") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise ClaudeUnavailableError(f"another process holds {path} for too long") from None
                # Nothing wakes a waiter for a lock with a bound, so it is tried again.
                pause.wait(0.1)
            else:
                break
        yield


def _fetch(release: Release, binary: Path, deadline: float) -> None:
    with tempfile.TemporaryDirectory(dir=binary.parent, prefix="fetch-") as name:
        room = Path(name)
        tarball = _pack(release, room, deadline)
        _check_tarball(tarball, release)
        fresh = room / "claude"
        _extract(tarball, fresh, release)
        fresh.chmod(0o755)
        stamp = room / "stamp"
        stamp.write_text(json.dumps(_facts(fresh, release)))
        # The stamp comes last: without it the next call starts anew.
        fresh.replace(binary)
        stamp.replace(_stamp_of(binary))


def _pack(release: Release, room: Path, deadline: float) -> Path:
    npm = shutil.which("npm")
    if npm is None:
        raise ClaudeUnavailableError("npm is not on the PATH; it is needed to fetch Claude Code")
    wanted = f"{release.package}@{release.version}"
    argv = [npm, "pack", wanted, "--silent", "--pack-destination", str(room)]
    try:
        done = subprocess.run(
            argv,
            cwd=room,
            check=False,
            capture_output=True,
            text=True,
            timeout=max(1.0, deadline - time.monotonic()),
        )
    except subprocess.TimeoutExpired as error:
        raise ClaudeUnavailableError(f"npm pack {wanted} did not end within {error.timeout:.0f} s") from error
    tarballs = list(room.glob("*.tgz"))
    if done.returncode != 0 or len(tarballs) != 1:
        said = done.stderr.strip()[-500:]
        raise ClaudeUnavailableError(
            f"npm pack {wanted} ended with {done.returncode} and {len(tarballs)} files: {said}"
        )
    return tarballs[0]


def _check_tarball(tarball: Path, release: Release) -> None:
    with tarball.open("rb") as file:
        digest = hashlib.file_digest(file, "sha512").digest()
    found = "sha512-" + base64.b64encode(digest).decode()
    if found != release.integrity:
        raise ClaudeUnavailableError(f"{release.package} {release.version} is {found}, not {release.integrity}")


def _extract(tarball: Path, target: Path, release: Release) -> None:
    with tarfile.open(tarball) as archive:
        try:
            member = archive.extractfile(_MEMBER)
        except KeyError:
            member = None
        if member is None:
            raise ClaudeUnavailableError(f"{release.package} {release.version} holds no file {_MEMBER}")
        with member, target.open("wb") as file:
            found = _copy(member, file)
    if release.binary_sha256 not in (None, found):
        raise ClaudeUnavailableError(f"{_MEMBER} of {release.package} is sha256 {found}, not {release.binary_sha256}")


def _copy(source: IO[bytes], target: IO[bytes]) -> str:
    digest = hashlib.sha256()
    while block := source.read(_BLOCK):
        digest.update(block)
        target.write(block)
    return digest.hexdigest()


def main() -> int:
    """Print the path, or why there is none."""
    try:
        path = ensure_claude()
    except ClaudeUnavailableError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"{path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
