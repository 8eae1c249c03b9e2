"""The state directory: whether the journal can live there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from steprail_daemon.cli.doctor.findings import Case, Check, Tell, nearest, ok, problem, warning, why_not_writable
from steprail_daemon.cli.state_lock import lock_holder

_ABOUT: Final = "state directory"
_MIB: Final = 1 << 20
#: Free space below which the journal will soon refuse what agents do, in bytes, and below which it may by tomorrow.
NO_SPACE: Final = 64 * _MIB
LITTLE_SPACE: Final = 1024 * _MIB
#: Where the shared memory of SQLite's write-ahead log, and locks, are not what they are on a local disk.
_NETWORK: Final = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "ceph", "glusterfs", "afs", "fuse.sshfs"})
_AS_ITS_USER: Final = "run this as the user that the daemon runs as, or name another directory with --state-dir"


def writable(case: Case, tell: Tell) -> None:
    """Whether it can be written, or made."""
    directory = case.loaded.state_directory
    try:
        place = nearest(directory)
    except OSError as error:
        tell(problem(_ABOUT, f"{directory} cannot be looked at: {error.strerror}", _AS_ITS_USER))
        return
    if not place.is_dir():
        tell(problem(_ABOUT, f"{place} is no directory", "remove it, or name another directory with --state-dir"))
    elif why_not := why_not_writable(place):
        what = "cannot be written" if place == directory else f"cannot be made, as {place} cannot be written"
        tell(problem(_ABOUT, f"{directory} {what}: {why_not}", _AS_ITS_USER))
    elif place == directory:
        tell(ok(_ABOUT, f"{directory} can be written"))
    else:
        tell(ok(_ABOUT, f"{directory} is not there yet and can be made"))


def space(case: Case, tell: Tell) -> None:
    """How much room there is."""
    try:
        found = os.statvfs(nearest(case.loaded.state_directory))
    except OSError:
        return  # `writable` has told it
    if not found.f_blocks:
        return  # of a kind that has no blocks, and takes no files
    free = found.f_bavail * found.f_frsize
    text = f"{free / _MIB:,.0f} MiB are free"
    if free < NO_SPACE:
        advice = "make room: a daemon that cannot record anything takes no runs"
        tell(problem(_ABOUT, f"only {text}", advice))
    elif free < LITTLE_SPACE:
        tell(warning(_ABOUT, f"only {text}", "make room, or lower journal.retain.bytes and journal.retain.age"))
    else:
        tell(ok(_ABOUT, text, free_bytes=free))


def file_system(case: Case, tell: Tell) -> None:
    """Whether it is of a kind that the journal can rely on."""
    try:
        kind = file_system_of(nearest(case.loaded.state_directory), Path("/proc/self/mountinfo").read_text())
    except OSError:
        return  # `writable`, or the check of /proc, has told it
    if kind in _NETWORK:
        text = f"it lies on a network file system ({kind}), on which the journal's write-ahead log is not safe"
        tell(warning(_ABOUT, text, "put it on a local disk, with --state-dir or $STEPRAIL_STATE_DIR"))


def use(case: Case, tell: Tell) -> None:
    """Whether a daemon uses it."""
    try:
        holder = lock_holder(case.loaded.state_directory / "lock")
    except OSError as error:
        tell(problem(_ABOUT, f"its lock cannot be opened: {error.strerror}", _AS_ITS_USER))
        return
    tell(ok(_ABOUT, f"a daemon uses it, process {holder}" if holder else "no daemon uses it"))


def file_system_of(path: Path, mounts: str) -> str:
    """Give the kind of file system that a path is on, by the text of `mountinfo`; empty if that does not tell."""
    real = path.resolve()
    found, kind = Path(), ""
    for line in mounts.splitlines():
        mount, _, rest = line.partition(" - ")
        words = mount.split()
        if len(words) < 5 or not rest:
            continue
        place = Path(words[4].encode().decode("unicode_escape"))
        # A later line lies over an earlier one at the same place.
        if real.is_relative_to(place) and len(place.parts) >= len(found.parts):
            found, kind = place, rest.split()[0]
    return kind


CHECKS: Final[tuple[Check, ...]] = (writable, space, file_system, use)
