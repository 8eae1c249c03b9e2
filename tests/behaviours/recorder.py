"""Stands before an agent and keeps what the daemon writes to it: `recorder.py FILE PROGRAM [ARGUMENT]...`.

The agent keeps this process's id, stdout and stderr; a child of it copies stdin into the file, then to the agent.
"""

from __future__ import annotations

import os
import sys


def copy(source: int, target: int, record: int) -> None:
    """Hand on what comes, recorded first, until there is no more of it."""
    while data := os.read(source, 1 << 16):
        os.write(record, data)
        view = memoryview(data)
        while view:
            view = view[os.write(target, view) :]


def main(path: str, command: list[str]) -> None:
    """Become the agent. Asked for a version it has no input to be kept."""
    if "--version" in command:
        os.execvp(command[0], command)
    ours, its = os.pipe()
    if os.fork() == 0:
        os.close(ours)
        os.close(1)
        record = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            copy(0, its, record)
        except BrokenPipeError:
            pass
        finally:
            os._exit(0)
    os.close(its)
    os.dup2(ours, 0)
    os.close(ours)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
