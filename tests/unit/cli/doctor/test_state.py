"""What the doctor says of the state directory."""

import fcntl
from pathlib import Path

import pytest
from tests.unit.cli.doctor.conftest import MakeCase, lines, told

from steprail_daemon.cli.doctor import state

MOUNTS = """22 1 0:20 / / rw,relatime shared:1 - ext4 /dev/vda rw
23 22 0:21 / /proc rw - proc proc rw
30 22 0:40 / /srv rw - nfs4 server:/x rw
31 30 0:41 / /srv/local\\040disk rw - xfs /dev/vdb rw
32 22 0:42 / /over rw - ext4 /dev/vdc rw
33 22 0:43 / /over rw - 9p host rw
broken
"""


def test_a_directory_that_is_there_or_can_be_made_is_fine_and_is_not_made(make: MakeCase, tmp_path: Path) -> None:
    assert lines(state.writable, make(state=tmp_path)) == [f"ok: {tmp_path} can be written"]
    new = tmp_path / "a" / "b"
    assert lines(state.writable, make(state=new)) == [f"ok: {new} is not there yet and can be made"]
    assert not (tmp_path / "a").exists()


def test_one_that_cannot_be_made_or_written_is_a_problem_with_the_place_that_is_in_the_way(
    make: MakeCase, tmp_path: Path
) -> None:
    # Not even root makes something in /proc.
    (found,) = told(state.writable, make(state=Path("/proc/steprail")))
    assert found.text == "/proc/steprail cannot be made, as /proc cannot be written: No such file or directory"
    assert "--state-dir" in found.advice
    assert lines(state.writable, make(state=Path("/proc"))) == [
        "problem: /proc cannot be written: No such file or directory"
    ]
    (tmp_path / "file").touch()
    assert lines(state.writable, make(state=tmp_path / "file")) == [f"problem: {tmp_path}/file is no directory"]


def test_space_is_told_and_little_of_it_is_a_warning_and_none_a_problem(
    make: MakeCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = make()
    monkeypatch.setattr(state, "LITTLE_SPACE", 0)
    monkeypatch.setattr(state, "NO_SPACE", 0)
    (fine,) = told(state.space, case)
    assert (fine.mark.value, fine.text.endswith(" MiB are free")) == ("ok", True)
    assert int(fine.figures["free_bytes"]) >= 0
    monkeypatch.setattr(state, "LITTLE_SPACE", 1 << 62)
    assert [finding.mark.value for finding in told(state.space, case)] == ["warning"]
    monkeypatch.setattr(state, "NO_SPACE", 1 << 62)
    assert [finding.mark.value for finding in told(state.space, case)] == ["problem"]


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/lib/x", "ext4"),
        ("/proc/1", "proc"),
        ("/srv", "nfs4"),
        ("/srv/x", "nfs4"),
        ("/srvx", "ext4"),
        ("/srv/local disk/x", "xfs"),
        ("/over/x", "9p"),
    ],
)
def test_the_file_system_is_that_of_the_last_and_innermost_mount(path: str, kind: str) -> None:
    assert state.file_system_of(Path(path), MOUNTS) == kind


def test_a_network_file_system_is_a_warning_and_a_local_one_is_nothing(
    make: MakeCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = state.file_system_of(make().loaded.state_directory.parent, Path("/proc/self/mountinfo").read_text())
    monkeypatch.setattr(state, "_NETWORK", {"nfs"})
    assert lines(state.file_system, make()) == []
    monkeypatch.setattr(state, "_NETWORK", {kind})
    (found,) = lines(state.file_system, make())
    assert found.startswith(f"warning: it lies on a network file system ({kind})")


def test_the_daemon_that_uses_it_is_named(make: MakeCase, tmp_path: Path) -> None:
    assert lines(state.use, make(state=tmp_path)) == ["ok: no daemon uses it"]
    with (tmp_path / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write("4711\n")
        lock.flush()
        assert lines(state.use, make(state=tmp_path)) == ["ok: a daemon uses it, process 4711"]
    # Somebody who looks too is no daemon.
    with (tmp_path / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        assert lines(state.use, make(state=tmp_path)) == ["ok: no daemon uses it"]
