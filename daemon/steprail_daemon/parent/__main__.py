"""Entry of the parent process: becomes the reaper of its descendants, takes the lock, supervises."""

# Without pathlib, which would cost this process half a megabyte.
# ruff: noqa: PTH

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import sys

from steprail_daemon.parent.launch import Launcher
from steprail_daemon.parent.log import Log
from steprail_daemon.parent.loop import Loop
from steprail_daemon.parent.options import USAGE, UsageError, read_options
from steprail_daemon.parent.supervise import EX_CONFIG, Parent

_PR_SET_CHILD_SUBREAPER = 36
_EX_USAGE = 64


def main(arguments: list[str]) -> int:
    """Run the parent process; gives its exit code."""
    try:
        options = read_options(arguments)
    except UsageError as error:
        os.write(2, f"{error}\n\n{USAGE}".encode())
        return _EX_USAGE
    log = Log(as_json=options.log_json)
    try:
        _become_subreaper()
        lock = _lock(options.lock) if options.lock else -1
    except OSError as error:
        log.warning("cannot start", error=error.strerror)
        return EX_CONFIG
    try:
        return Parent(options, Loop(), Launcher(os.environ.get("PATH", os.defpath)), log).run()
    finally:
        if lock >= 0:
            os.close(lock)


def _become_subreaper() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"cannot become the reaper of orphans: {os.strerror(number)}")


def _lock(path: str) -> int:
    """Hold `path` locked until this process ends, so that no second parent takes our processes for leftovers."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise OSError(error.errno, f"cannot open the lock {path!r}: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        holder = os.read(descriptor, 32).decode(errors="replace").strip()
        os.close(descriptor)
        if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
            raise OSError(error.errno, f"cannot lock {path!r}: {error.strerror}") from error
        raise OSError(error.errno, f"{path!r} is held by process {holder or 'unknown'}") from error
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return descriptor


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
