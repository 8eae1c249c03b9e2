"""What the daemon needs of the kernel and its limits."""

from __future__ import annotations

import ctypes
import platform
import resource
from pathlib import Path
from typing import Final

from steprail_daemon.cli.doctor.findings import Case, Check, Tell, ok, problem, warning
from steprail_daemon.cli.state_lock import lock_holder

_ABOUT: Final = "machine"
_PR_GET_CHILD_SUBREAPER: Final = 37
#: Descriptors of the worker: one for each standard stream of an agent; and its own files, sockets and connections.
PER_AGENT: Final = 3
OWN: Final = 128


def kernel(case: Case, tell: Tell) -> None:
    """What is used of it: orphans come to the parent process, which finds whose they are in /proc."""
    del case
    system = f"{platform.system()} {platform.release()}, Python {platform.python_version()}"
    answer = ctypes.c_int()
    if ctypes.CDLL(None).prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(answer), 0, 0, 0) != 0:
        text = f"{system}: the kernel, or a sandbox, does not let a process take in orphans (PR_SET_CHILD_SUBREAPER)"
        tell(problem(_ABOUT, text, "run the daemon on Linux 3.4 or later, outside of a sandbox that forbids prctl"))
    elif not Path("/proc/self/environ").exists():
        text = f"{system}: /proc is not mounted, so that what agents start cannot be found and ended"
        tell(problem(_ABOUT, text, "mount proc on /proc"))
    else:
        tell(ok(_ABOUT, system))


def descriptors(case: Case, tell: Tell) -> None:
    """Whether all agents that are configured can have their pipes. The daemon raises its own limit to the hard one."""
    most = case.loaded.config.server.max_processes
    holder, limit = _limit_of(case)
    needed = OWN + PER_AGENT * most
    whose = f"of the daemon, process {holder}" if holder else "here"
    text = f"{limit} descriptors (hard limit of RLIMIT_NOFILE {whose})"
    if limit >= needed:
        tell(ok(_ABOUT, f"{text} are enough for server.max_processes = {most}"))
        return
    possible = max(0, (limit - OWN) // PER_AGENT)
    advice = f"raise the limit to {needed} (LimitNOFILE= of systemd, ulimit -Hn), or lower server.max_processes"
    tell(warning(_ABOUT, f"{text} are enough for about {possible} of server.max_processes = {most}", advice))


def _limit_of(case: Case) -> tuple[str, int]:
    """Give the daemon that uses the state directory and its limit; our own, which one would inherit, without one."""
    try:
        holder = lock_holder(case.loaded.state_directory / "lock")
        lines = Path(f"/proc/{int(holder)}/limits").read_text().splitlines()
        hard = next(line for line in lines if line.startswith("Max open files")).split()[4]
        return holder, int(hard)
    except (OSError, ValueError, StopIteration):
        return "", resource.getrlimit(resource.RLIMIT_NOFILE)[1]


CHECKS: Final[tuple[Check, ...]] = (kernel, descriptors)
