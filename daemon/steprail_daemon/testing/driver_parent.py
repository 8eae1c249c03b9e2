"""The real parent process for a worker that it did not start: this process, a test's.

The parent starts a stub as its worker. The stub hands the control socket on to us and lives until we hang up; then the
parent ends everything that is left, as it does at any worker's end.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

import anyio
import anyio.to_thread

from steprail_daemon.parent import procfs
from steprail_daemon.supervisor import ParentLink

_STUB: Final = """
import socket, sys
with socket.socket(socket.AF_UNIX) as us:
    us.settimeout(30)
    us.connect(chr(0) + sys.argv[1])
    socket.send_fds(us, [b"x"], [int(sys.argv[-1])])
    socket.socket(fileno=int(sys.argv[-1])).close()
    us.settimeout(None)
    us.recv(1)
"""
_START_S: Final = 20.0
_END_S: Final = 20.0


class Parentage:
    """A parent process that runs, and the link to it, through which agents are started. Stages take turns with it."""

    def __init__(self, instance: str, link: ParentLink) -> None:
        self.instance = instance
        self.link = link

    def agents(self) -> set[int]:
        """Give the living processes of agents and of what they started: all with the parent's mark but the stub."""
        stub = f"{self.instance}.1"
        found = set()
        for pid, process in procfs.scan().items():
            if process.is_alive:
                mark = procfs.mark(pid)
                if mark.startswith(f"{self.instance}.") and mark != stub:
                    found.add(pid)
        return found


@asynccontextmanager
async def parentage() -> AsyncIterator[Parentage]:
    """Start a parent process and become its worker; at the end it is gone, and with it all that it started.

    Raises:
        TimeoutError: it did not start within 20 s.
    """
    instance = f"kit-{uuid.uuid4().hex[:16]}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0{instance}")
        listener.listen(1)
        listener.setblocking(False)
        argv = [sys.executable, "-m", "steprail_daemon.parent", "--instance", instance, "--log-format", "console"]
        worker = [sys.executable, "-I", "-S", "-c", _STUB, instance]
        process = await anyio.to_thread.run_sync(
            partial(subprocess.Popen, [*argv, "--", *worker], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        )
        try:
            with anyio.fail_after(_START_S):
                await anyio.wait_readable(listener)
                stub, _ = listener.accept()
                stub.setblocking(False)
                await anyio.wait_readable(stub)
            with stub:
                _, descriptors, _, _ = socket.recv_fds(stub, 1, 1)
                os.set_blocking(descriptors[0], False)
                link = ParentLink(descriptors[0], asyncio.get_running_loop())
                try:
                    yield Parentage(instance, link)
                finally:
                    link.close()
        except BaseException:
            process.terminate()
            raise
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(_reap, process)


def _reap(process: subprocess.Popen[Any]) -> None:
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(_END_S)
        raise
