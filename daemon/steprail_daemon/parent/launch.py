"""Starting programs that die with the parent, and saying exactly why one could not be started."""

# Without pathlib, which would cost this process half a megabyte.
# ruff: noqa: PTH

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import resource
import subprocess
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_STDOUT_PIPE = 1 << 20
# Linux gives a user 64 MiB of pipe memory, beyond which every new pipe of that user shrinks to two pages. Half is
# enough.
_MOST_LARGE_PIPES = 32
_SHEBANG_DEPTH = 5
_PROBE_LIMIT = 10.0

# Does what `setpriv --pdeathsig KILL` does, where that is missing. It undoes what Python itself changed: ignored
# signals and LC_CTYPE. The parent may have died before prctl; then nobody would send the signal any more.
_WRAPPER = """
import ctypes, os, _signal, sys
ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)
parent, keep_ctype, program = sys.argv[1:4]
if os.getppid() != int(parent):
    os._exit(127)
if keep_ctype == "0":
    os.environ.pop("LC_CTYPE", None)
for number in (_signal.SIGPIPE, _signal.SIGXFSZ):
    _signal.signal(number, _signal.SIG_DFL)
os.execv(program, sys.argv[4:])
"""


class Pipes:
    """The ends of a CLI's standard streams that are not its own; `kept_stdin` is a duplicate of `stdin`."""

    __slots__ = ("kept_stdin", "stderr", "stdin", "stdout")

    def __init__(self, stdin: int, kept_stdin: int, stdout: int, stderr: int) -> None:
        self.stdin = stdin
        self.kept_stdin = kept_stdin
        self.stdout = stdout
        self.stderr = stderr


class Launcher:
    """Starts programs under a death signal, through setpriv or a wrapper of our own."""

    def __init__(self, path: str) -> None:
        self._setpriv = _find_setpriv(path)
        self._soft_files, hard_files = resource.getrlimit(resource.RLIMIT_NOFILE)
        # One descriptor per CLI stays here; programs that use select(2) would break with more than they expect.
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard_files, hard_files))

    def start_worker(
        self, argv: Sequence[str], environment: Mapping[str, str], control: int
    ) -> subprocess.Popen[bytes]:
        """Start the worker with our own standard streams and one more descriptor.

        Raises:
            OSError: it could not be started.
        """
        program = find_program(argv[0], environment, os.getcwd())
        command = self._wrap(program, argv, environment)
        return subprocess.Popen(command, env=environment, pass_fds=(control,), start_new_session=True)

    def start_cli(
        self, argv: Sequence[str], environment: Mapping[str, str], cwd: str, *, large_pipe: bool
    ) -> tuple[subprocess.Popen[bytes], Pipes]:
        """Start a CLI with pipes.

        Raises:
            OSError: it could not be started; `errno` and `strerror` say why.
        """
        check_directory(cwd)
        program = find_program(argv[0], environment, cwd)
        with contextlib.ExitStack() as theirs, contextlib.ExitStack() as ours:
            stdin_read, stdin_write = _pipe(theirs, ours)
            kept_stdin = os.dup(stdin_write)
            ours.callback(os.close, kept_stdin)
            stdout_write, stdout_read = _pipe(theirs, ours, reading=True)
            stderr_write, stderr_read = _pipe(theirs, ours, reading=True)
            if large_pipe:
                with contextlib.suppress(OSError):
                    fcntl.fcntl(stdout_read, fcntl.F_SETPIPE_SZ, _STDOUT_PIPE)
            popen = subprocess.Popen(
                self._wrap(program, argv, environment),
                env=environment,
                cwd=cwd,
                stdin=stdin_read,
                stdout=stdout_write,
                stderr=stderr_write,
                start_new_session=True,
            )
            self._restore_limit(popen.pid)
            ours.pop_all()
        return popen, Pipes(stdin_write, kept_stdin, stdout_read, stderr_read)

    def _wrap(self, program: str, argv: Sequence[str], environment: Mapping[str, str]) -> list[str]:
        if self._setpriv:
            return [self._setpriv, "--pdeathsig", "KILL", "--", program, *argv[1:]]
        keep_ctype = "1" if "LC_CTYPE" in environment else "0"
        wrapper = [sys.executable, "-I", "-S", "-c", _WRAPPER, str(os.getpid()), keep_ctype, program]
        return [*wrapper, program, *argv[1:]]

    def _restore_limit(self, pid: int) -> None:
        with contextlib.suppress(OSError):
            _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (self._soft_files, hard))


def may_have_large_pipe(living: int) -> bool:
    """Whether one more CLI beside `living` ones may ask for a large stdout pipe."""
    return living < _MOST_LARGE_PIPES


def check_directory(path: str) -> None:
    """Check that a program can be started in a directory.

    Raises:
        OSError: it is missing, no directory, or closed to us.
    """
    try:
        os.stat(os.path.join(path, "."))
    except OSError as error:
        raise OSError(error.errno, f"working directory {path!r}: {os.strerror(error.errno or 0)}") from error
    if not os.access(path, os.X_OK):
        raise OSError(errno.EACCES, f"working directory {path!r}: {os.strerror(errno.EACCES)}")


def find_program(name: str, environment: Mapping[str, str], cwd: str) -> str:
    """Give the path of the file that the kernel would run for `name` in this environment and directory.

    Raises:
        OSError: there is none, or it cannot be run; `errno` is what exec would give.
    """
    if "/" in name:
        path = os.path.join(cwd, name)
        _check_program(path)
        return path
    search = environment.get("PATH", os.defpath)
    denied = None
    for directory in search.split(":"):
        path = os.path.join(cwd, directory, name)
        try:
            _check_program(path)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                denied = denied or error
            continue
        return path
    if denied is not None:
        raise denied
    raise OSError(errno.ENOENT, f"program {name!r} was not found in PATH {search!r}")


def _check_program(path: str, depth: int = 0) -> None:
    try:
        is_file = _is_file(path)
    except OSError as error:
        raise OSError(error.errno, f"program {path!r}: {os.strerror(error.errno or 0)}") from error
    if not is_file or not os.access(path, os.X_OK):
        raise OSError(errno.EACCES, f"program {path!r} is not an executable file")
    _check_interpreter(path, depth)


def _is_file(path: str) -> bool:
    return os.stat(path).st_mode & 0o170000 == 0o100000


def _check_interpreter(path: str, depth: int) -> None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return  # executable and not readable is allowed
    try:
        head = os.read(descriptor, 256)
    finally:
        os.close(descriptor)
    if not head.startswith(b"#!"):
        if b"\0" not in head:
            # setpriv, like a shell, would feed it to /bin/sh; the kernel says this.
            raise OSError(errno.ENOEXEC, f"program {path!r} is a text without a '#!' line")
        return
    words = head[2:].split(b"\n")[0].split()
    if not words or depth >= _SHEBANG_DEPTH:
        raise OSError(errno.ENOEXEC, f"program {path!r} has a '#!' line that leads nowhere")
    try:
        _check_program(os.fsdecode(words[0]), depth + 1)
    except OSError as error:
        raise OSError(error.errno, f"interpreter of {path!r}: {error.strerror}") from error


def _find_setpriv(path: str) -> str:
    """Find a setpriv that can set the death signal; empty if there is none (that of BusyBox cannot)."""
    for directory in path.split(":"):
        candidate = os.path.join(directory or ".", "setpriv")
        if not os.access(candidate, os.X_OK):
            continue
        probe = [candidate, "--pdeathsig", "KILL", "--", candidate, "--version"]
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            done = subprocess.run(
                probe, stdin=subprocess.DEVNULL, capture_output=True, timeout=_PROBE_LIMIT, check=False
            )
            if done.returncode == 0:
                return os.path.abspath(candidate)
    return ""


def _pipe(theirs: contextlib.ExitStack, ours: contextlib.ExitStack, *, reading: bool = False) -> tuple[int, int]:
    """Make a pipe; give the CLI's end, which is closed in any case, and ours, which is kept where all goes well."""
    read, write = os.pipe2(os.O_CLOEXEC)
    mine, other = (read, write) if reading else (write, read)
    theirs.callback(os.close, other)
    ours.callback(os.close, mine)
    os.set_blocking(mine, False)
    return other, mine
