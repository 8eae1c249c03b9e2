"""A CLI for tests. The first argument names what it does; each line it prints is JSON."""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path


def say(**fields: object) -> None:
    os.write(1, json.dumps(fields).encode() + b"\n")


def ignore_signals() -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def wait_forever() -> None:
    while True:
        signal.pause()


def stay(keep: tuple[int, ...] = ()) -> None:
    """What every child becomes: deaf, and holding no pipe but those to keep."""
    ignore_signals()
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in {0, 1, 2} - set(keep):
        os.dup2(null, descriptor)
    wait_forever()


def fork(then: Callable[[], None]) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            then()
        finally:
            os._exit(0)
    return pid


def in_new_session() -> None:
    os.setsid()
    stay()


def detached(then: Callable[[], None]) -> int:
    """Fork twice, in a session of its own; give the number of the one that stays."""
    read, write = os.pipe()

    def between() -> None:
        os.setsid()
        os.write(write, str(fork(then)).encode())

    middle = fork(between)
    os.close(write)
    pid = int(os.read(read, 32))
    os.close(read)
    os.waitpid(middle, 0)
    return pid


def exec_scrubbed(keep_stdout: bool) -> None:
    """Become a program with an empty environment: no mark."""
    os.execve(sys.executable, [sys.executable, "-S", __file__, "stay", *(["1"] if keep_stdout else [])], {})


def scrubbed(keep_stdout: bool = False) -> int:
    return detached(lambda: exec_scrubbed(keep_stdout))


def family() -> list[int]:
    return [fork(stay), fork(in_new_session), detached(stay), fork(lambda: exec_scrubbed(False))]


def do_stay(*keep: str) -> None:
    stay(tuple(int(descriptor) for descriptor in keep))


def do_echo(log: str = "") -> None:
    """Echo stdin; note an EOF in a file."""
    say(ready=True)
    while data := os.read(0, 1 << 16):
        os.write(1, data)
    if log:
        Path(log).write_text("EOF")


def do_family(log: str = "") -> None:
    ignore_signals()
    say(ready=True, children=family())
    do_echo(log)
    wait_forever()


def do_leave(code: str) -> None:
    """Exit with a family left behind."""
    say(ready=True, children=family())
    sys.exit(int(code))


def scrubbed_in_new_session() -> None:
    os.setsid()
    exec_scrubbed(False)


def do_scrubbed_child() -> None:
    """Have a child that only its parent's number ties to us."""
    read, write = os.pipe2(os.O_CLOEXEC)
    child = fork(scrubbed_in_new_session)
    os.close(write)
    os.read(read, 1)  # its exec closes the other end
    say(ready=True, children=[child])
    do_echo()


def do_scrubbed_orphan() -> None:
    say(ready=True, children=[scrubbed()])
    do_echo()


def do_hold_stdout(code: str) -> None:
    """Exit while an orphan, which nothing ties to us, keeps stdout open."""
    say(ready=True, children=[scrubbed(keep_stdout=True)])
    sys.exit(int(code))


def orphan() -> None:
    fork(lambda: None)


def do_brood(count: str, code: str) -> None:
    """Leave many short-lived grandchildren to whoever adopts them."""
    for _ in range(int(count)):
        middle = fork(orphan)
        os.waitpid(middle, 0)
    sys.exit(int(code))


def do_count(fifo: str) -> None:
    """Read stdin only once something was written to a FIFO; say how much it was."""
    say(ready=True)
    Path(fifo).read_bytes()
    total = 0
    while data := os.read(0, 1 << 16):
        total += len(data)
    say(total=total)


def do_flood(size: str) -> None:
    data = b"x" * (1 << 16)
    left = int(size)
    while left:
        left -= os.write(1, data[: min(left, len(data))])


def do_stderr(size: str) -> None:
    data = b"." * int(size) + b"the end"
    while data:
        data = data[os.write(2, data) :]


def do_deaf(fifo: str = "") -> None:
    """Close stdin and go on until a FIFO is written to."""
    os.close(0)
    say(ready=True)
    if fifo:
        Path(fifo).read_bytes()


def do_show(*arguments: str) -> None:
    say(
        environment=dict(os.environ),
        cwd=str(Path.cwd()),
        session=os.getsid(0) == os.getpid(),
        descriptors=sorted(int(entry.name) for entry in Path("/proc/self/fd").iterdir()),
        arguments=arguments,
        files=resource.getrlimit(resource.RLIMIT_NOFILE),
    )


def do_exit(code: str) -> None:
    sys.exit(int(code))


def do_goodbye() -> None:
    """Exit with 5 on the line that says so."""
    ignore_signals()
    say(ready=True)
    while data := os.read(0, 1 << 16):
        if b"goodbye" in data:
            sys.exit(5)


globals()[f"do_{sys.argv[1].replace('-', '_')}"](*sys.argv[2:])
