"""Fetching the program, with a stand-in for npm that packs what the test wants."""

from __future__ import annotations

import base64
import hashlib
import io
import platform
import subprocess
import sys
import tarfile
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from steprail_daemon.testing import claude_binary
from steprail_daemon.testing.claude_binary import RELEASES, ClaudeUnavailableError, Release, ensure

BINARY = b"#!/bin/sh\necho 'not really'\n"


class Npm:
    """A stand-in for npm on the PATH: `npm pack` copies a tarball and counts."""

    def __init__(self, folder: Path, *, member: str = "package/claude") -> None:
        self._count = folder / "count"
        tarball = folder / "package.tgz"
        with tarfile.open(tarball, "w:gz") as archive:
            info = tarfile.TarInfo(member)
            info.size = len(BINARY)
            archive.addfile(info, io.BytesIO(BINARY))
        self.release = Release(
            "@someone/something",
            "1.2.3",
            "sha512-" + base64.b64encode(hashlib.sha512(tarball.read_bytes()).digest()).decode(),
            hashlib.sha256(BINARY).hexdigest(),
        )
        self.say(f'echo "$2" >> {self._count}; cp {tarball} "$5/something-1.2.3.tgz"')
        self.bin = folder / "bin"

    def say(self, script: str) -> None:
        bin_folder = self._count.parent / "bin"
        bin_folder.mkdir(exist_ok=True)
        npm = bin_folder / "npm"
        npm.write_text(f"#!/bin/sh\n{script}\n")
        npm.chmod(0o755)

    @property
    def asked(self) -> list[str]:
        return self._count.read_text().splitlines() if self._count.exists() else []


@pytest.fixture
def npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Npm:
    npm = Npm(tmp_path)
    monkeypatch.setenv("PATH", f"{npm.bin}:/usr/bin:/bin")
    return npm


def test_the_binary_is_fetched_once_checked_and_runs(npm: Npm, tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    binary = ensure(npm.release, folder)
    assert binary.read_bytes() == BINARY
    assert subprocess.run([binary], capture_output=True, check=True).stdout == b"not really\n"
    assert ensure(npm.release, folder) == binary
    assert npm.asked == ["@someone/something@1.2.3"]
    assert sorted(path.name for path in folder.iterdir()) == ["checked.json", "claude", "lock"]


def test_many_at_once_fetch_it_once(npm: Npm, tmp_path: Path) -> None:
    found: list[Path] = []
    threads = [threading.Thread(target=lambda: found.append(ensure(npm.release, tmp_path / "c"))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert found == [tmp_path / "c" / "claude"] * 4
    assert len(npm.asked) == 1


def test_a_binary_that_was_changed_is_fetched_again(npm: Npm, tmp_path: Path) -> None:
    binary = ensure(npm.release, tmp_path / "c")
    binary.write_bytes(b"something else")
    assert ensure(npm.release, tmp_path / "c").read_bytes() == BINARY
    assert len(npm.asked) == 2


def test_a_tarball_that_is_not_the_pinned_one_is_refused_and_leaves_nothing(npm: Npm, tmp_path: Path) -> None:
    with pytest.raises(ClaudeUnavailableError, match="not sha512-other"):
        ensure(replace(npm.release, integrity="sha512-other"), tmp_path / "c")
    assert [path.name for path in (tmp_path / "c").iterdir()] == ["lock"]


def test_a_binary_that_is_not_the_pinned_one_is_refused(npm: Npm, tmp_path: Path) -> None:
    with pytest.raises(ClaudeUnavailableError, match="not 00ff"):
        ensure(replace(npm.release, binary_sha256="00ff"), tmp_path / "c")
    assert not (tmp_path / "c" / "claude").exists()


def test_a_package_without_the_binary_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    npm = Npm(tmp_path, member="package/other")
    monkeypatch.setenv("PATH", f"{npm.bin}:/usr/bin:/bin")
    with pytest.raises(ClaudeUnavailableError, match="holds no file package/claude"):
        ensure(npm.release, tmp_path / "c")


def test_what_npm_said_is_told(npm: Npm, tmp_path: Path) -> None:
    npm.say("echo 'no network' >&2; exit 4")
    with pytest.raises(ClaudeUnavailableError, match="ended with 4 and 0 files: no network"):
        ensure(npm.release, tmp_path / "c")


def test_npm_that_does_not_end_is_given_up(npm: Npm, tmp_path: Path) -> None:
    npm.say("exec sleep 30")
    with pytest.raises(ClaudeUnavailableError, match="did not end within"):
        ensure(npm.release, tmp_path / "c", timeout=0.2)


def test_no_npm_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ClaudeUnavailableError, match="npm is not on the PATH"):
        ensure(RELEASES["x86_64"], tmp_path / "c")


def test_another_machine_is_told_which_ones_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with pytest.raises(ClaudeUnavailableError, match=r"Linux on riscv64.*Linux on x86_64, Linux on aarch64"):
        claude_binary.ensure_claude()


def test_as_a_program_it_says_why_there_is_none(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "steprail_daemon.testing.claude_binary"]
    environment = {"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=20, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert "npm is not on the PATH" in done.stderr
