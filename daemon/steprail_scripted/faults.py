"""The faults that a script can switch on, and their execution at a named point."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, Protocol

POINTS = (
    "start",  # before agentStart
    "prompt",  # a prompt was answered, its turn has not started
    "turn_start",
    "model",  # before the model is asked
    "tool_start",
    "tool_end",
    "step",  # a step is complete, its stepEnd not yet sent
    "step_end",  # stepEnd was sent; with host-side stop the decision is awaited
    "message",  # the final text was sent
    "turn_end",  # before the events that end a turn
    "after_turn_end",
    "shutdown",  # before agentEnd
)

HANG_LIMIT = 86_400.0
"""Seconds after which even a hang ends: a forgotten agent does not stay for ever."""


class Orphan(NamedTuple):
    """A child that outlives its welcome: `sleep`, started in one or more of the ways that escape a cleanup."""

    seconds: float = 60.0
    setsid: bool = False
    ignore_term: bool = False
    double_fork: bool = False
    keep_stdout: bool = False
    pid_file: str | None = None


class Fault(NamedTuple):
    """One thing that goes wrong at a point. Exactly one of the fields after `at` is set."""

    at: str
    delay: float | None = None
    hang: str | None = None
    exit: int | None = None
    signal: str | None = None
    print: str | None = None
    stderr: str | None = None
    line_bytes: int | None = None
    json_line_bytes: int | None = None
    notify: tuple[str, dict[str, Any]] | None = None
    orphan: Orphan | None = None


class Victim(Protocol):
    """What a fault works on."""

    @property
    def workspace(self) -> Path:
        """The folder that relative paths start from."""
        ...

    def write_raw(self, line: str) -> None:
        """Put a line on stdout as it is."""
        ...

    def notify(self, method: str, params: dict[str, Any]) -> None:
        """Send a notification."""
        ...

    def flush(self) -> None:
        """Wait until what was written so far has left the process."""
        ...

    def freeze(self) -> None:
        """Stop serving: from now on neither input nor a signal that can be ignored has an effect."""
        ...


def strike(fault: Fault, victim: Victim, aborted: threading.Event) -> None:
    """Let a fault happen. A delay ends early when the turn is aborted; the caller looks at `aborted` afterwards."""
    if fault.delay is not None:
        aborted.wait(fault.delay)
    elif fault.hang is not None:
        _hang(fault.hang, victim)
    elif fault.exit is not None or fault.signal is not None:
        _leave(fault, victim)
    elif fault.orphan is not None:
        start_orphan(fault.orphan, victim.workspace)
    else:
        _say(fault, victim)


def _hang(scope: str, victim: Victim) -> None:
    if scope == "process":
        victim.freeze()
    threading.Event().wait(HANG_LIMIT)


def _leave(fault: Fault, victim: Victim) -> NoReturn:
    victim.flush()
    if fault.signal is not None:
        number = getattr(signal, f"SIG{fault.signal}")
        if number != signal.SIGKILL:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [number])
        _default(number)
        os.kill(os.getpid(), number)
        threading.Event().wait(HANG_LIMIT)
    os._exit(fault.exit or 0)


def _default(number: signal.Signals) -> None:
    """Give a signal its default action back, from any thread: Python's own call works in the main thread only."""
    if number in (signal.SIGKILL, signal.SIGSTOP):
        return
    # ctypes costs start-up time, so it is loaded only here.
    import ctypes  # noqa: PLC0415

    libc = ctypes.CDLL(None)
    libc.signal.argtypes = (ctypes.c_int, ctypes.c_void_p)
    libc.signal.restype = ctypes.c_void_p
    libc.signal(int(number), None)


def _say(fault: Fault, victim: Victim) -> None:
    if fault.print is not None:
        victim.write_raw(fault.print)
    elif fault.stderr is not None:
        sys.stderr.write(fault.stderr + "\n")
        sys.stderr.flush()
    elif fault.line_bytes is not None:
        victim.write_raw("x" * (fault.line_bytes - 1))
    elif fault.json_line_bytes is not None:
        victim.write_raw(json_line(fault.json_line_bytes))
    elif fault.notify is not None:
        victim.notify(*fault.notify)


def json_line(size: int) -> str:
    """Make a notification that is, with its line end, `size` bytes long (or the shortest there is)."""
    head = '{"jsonrpc":"2.0","method":"autohand.hook.notification","params":{"notificationType":"padding","message":"'
    tail = '"}}'
    return head + "x" * max(0, size - len(head) - len(tail) - 1) + tail


def start_orphan(orphan: Orphan, workspace: Path) -> None:
    """Start the child. Its process id, if asked for, is in `pid_file` when this returns."""
    ignore = "trap '' TERM; " if orphan.ignore_term else ""
    record = 'echo $$ > "$1.part" && mv "$1.part" "$1"; ' if orphan.pid_file else ""
    body = f'{ignore}{record}exec sleep "$0"'
    arguments = [str(orphan.seconds), str(workspace / orphan.pid_file) if orphan.pid_file else ""]
    argv = ["/bin/sh", "-c", body, *arguments]
    if orphan.setsid:
        argv = ["setsid", *argv]
    if orphan.double_fork:
        argv = ["/bin/sh", "-c", '"$@" &', "sh", *argv]
    child = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=None if orphan.keep_stdout else subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    if orphan.double_fork:
        child.wait(timeout=10)
    if orphan.pid_file:
        _await_file(workspace / orphan.pid_file)


def _await_file(path: Path) -> None:
    for _ in range(1_000):
        if path.exists():
            return
        threading.Event().wait(0.01)
