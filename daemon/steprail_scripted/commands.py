"""Shell commands, run as the CLI runs them: through `/bin/sh`, in the CLI's own process group."""

import shlex
import subprocess
import threading
from pathlib import Path
from typing import Any

from steprail_scripted.model import ToolResult

COMMAND_LIMIT = 3_600.0
"""Seconds a command may take, unless the call says otherwise in `timeout`."""
PIPE_GRACE = 5.0
"""Seconds that a command's children may keep its pipes open after its time is up."""
ABORTED = "Command execution aborted"


class CommandRunner:
    """Runs the one command of a turn that may run at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: subprocess.Popen[bytes] | None = None
        self._aborted = threading.Event()

    def run(self, args: dict[str, Any], cwd: Path) -> ToolResult:
        """Run a command to its end: until every process that holds its pipes has let go of them."""
        words = [args["command"], *(shlex.quote(str(word)) for word in args.get("args") or [])]
        command = " ".join(words)
        if args.get("background"):
            return self._start_background(command, cwd)
        limit = float(args.get("timeout") or COMMAND_LIMIT)
        with self._lock:
            if self._aborted.is_set():
                return _failed(ABORTED, output=None, code=None)
            process = self._running = _shell(command, cwd, subprocess.PIPE, new_session=False)
        try:
            out, err = _collect(process, limit)
        except subprocess.TimeoutExpired:
            return _failed(f"Command timed out after {limit:g} s", output=None, code=None)
        finally:
            with self._lock:
                self._running = None
        if self._aborted.is_set():
            return _failed(ABORTED, output=None, code=None)
        return _completed(command, process.returncode, out, err)

    def abort(self) -> None:
        """Ask the shell to end. Its children are not asked, and their pipes are waited for, as with the CLI."""
        with self._lock:
            self._aborted.set()
            if self._running is not None:
                self._running.terminate()

    def _start_background(self, command: str, cwd: Path) -> ToolResult:
        process = _shell(command, cwd, subprocess.DEVNULL, new_session=True)
        threading.Thread(target=process.wait, daemon=True).start()
        return ToolResult("run_command", success=True, output=f"$ {command}\nStarted in background, PID {process.pid}")


def _shell(command: str, cwd: Path, out: int, *, new_session: bool) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        ["/bin/sh", "-c", command],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=out,
        start_new_session=new_session,
    )


def _collect(process: subprocess.Popen[bytes], limit: float) -> tuple[str, str]:
    try:
        out, err = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        process.terminate()
        try:
            process.communicate(timeout=PIPE_GRACE)
        except subprocess.TimeoutExpired:
            process.kill()
        raise
    return out.decode(errors="replace"), err.decode(errors="replace")


def _completed(command: str, code: int, out: str, err: str) -> ToolResult:
    output = "\n".join([f"$ {command}", *(text for text in (out, err) if text)])
    if code == 0:
        return ToolResult("run_command", success=True, output=output)
    return _failed(err.strip() or f"Command exited with code {code}", output, code)


def _failed(error: str, output: str | None, code: int | None) -> ToolResult:
    return ToolResult("run_command", success=False, output=output, error=error, kind="operational", exit_code=code)
