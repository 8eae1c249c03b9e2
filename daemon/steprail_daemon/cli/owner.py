"""Ties a process to the one that started it, so that nothing is left however that one ends."""

from __future__ import annotations

import ctypes
import os
import signal

from steprail_daemon.cli.problems import Problem

_PR_SET_PDEATHSIG = 1


def die_with(owner: int) -> None:
    """Have SIGTERM sent to us when the process that started us ends, however it ends. It survives exec.

    Raises:
        Problem: it has ended already.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != owner:
        raise Problem(f"process {owner}, which this one was to serve, is gone")
