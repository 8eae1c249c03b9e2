"""A host for the built-in agent: starts it as a process and talks to it line by line. Every wait has a bound."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

WAIT = 20.0
Message = dict[str, Any]


class Host:
    """One agent. `script` is put into a file; JSON is YAML."""

    def __init__(
        self,
        workspace: Path,
        home: Path,
        script: Mapping[str, Any] | str | None = None,
        *flags: str,
        environment: Mapping[str, str] | None = None,
        argv: Sequence[str] | None = None,
    ) -> None:
        self.workspace = workspace
        extra: list[str] = []
        if script is not None:
            path = workspace.parent / f"script-{time.monotonic_ns()}.yaml"
            path.write_text(script if isinstance(script, str) else json.dumps(script))
            extra = ["--script", str(path)]
        arguments = list(argv) if argv is not None else ["--mode", "rpc", "--path", str(workspace)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "steprail_scripted", *arguments, *flags, *extra],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(home),
                "STEPRAIL_SCRIPTED_HOME": str(home),
                **(environment or {}),
            },
        )
        self.seen: list[Message] = []
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._number = 0
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Host:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait(WAIT)
        self._reader.join(WAIT)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert stream is not None
            if not stream.closed:
                try:
                    stream.close()
                except BrokenPipeError:
                    continue  # what was not written need not be

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def line(self, timeout: float = WAIT) -> bytes | None:
        """Give the next line of stdout, `None` at its end."""
        return self._lines.get(timeout=timeout)

    def message(self, timeout: float = WAIT) -> Message:
        """Give the next line as a message."""
        line = self.line(timeout)
        assert line is not None, f"stdout ended; stderr: {self.errors()}"
        message: Message = json.loads(line)
        self.seen.append(message)
        return message

    def until(self, wanted: str | Callable[[Message], bool], timeout: float = WAIT) -> Message:
        """Read up to a notification, by method without the prefix, or by a test."""
        fits = wanted if callable(wanted) else lambda message: message.get("method") == f"autohand.{wanted}"
        deadline = time.monotonic() + timeout
        while True:
            message = self.message(max(0.001, deadline - time.monotonic()))
            if fits(message):
                return message

    def write(self, data: bytes) -> None:
        """Write to stdin as it is."""
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def send(self, method: str, **params: Any) -> int:
        """Send a request; the result is its id."""
        self._number += 1
        self.write(request(self._number, method, params))
        return self._number

    def ask(self, method: str, **params: Any) -> Any:
        """Send a request and read up to its answer: the result, or the error as it is."""
        number = self.send(method, **params)
        answer = self.until(lambda message: message.get("id") == number)
        return answer["result"] if "result" in answer else answer["error"]

    def turn(self, message: str, **params: Any) -> list[Message]:
        """Run a turn to its end and give its notifications."""
        begin = len(self.seen)
        assert self.ask("prompt", message=message, **params) == {"success": True}
        self.until("turnEnd")
        return [seen for seen in self.seen[begin:] if "method" in seen]

    def close_input(self) -> None:
        """End stdin."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        self.process.send_signal(number)

    def rest(self) -> list[bytes]:
        """Read up to the end of stdout."""
        return list(iter(self.line, None))

    def exit_code(self, timeout: float = WAIT) -> int:
        """Wait for the end of the process."""
        return self.process.wait(timeout)

    def errors(self) -> str:
        """Give what a process that has ended said on stderr."""
        assert self.process.stderr is not None
        self.process.wait(WAIT)
        return self.process.stderr.read().decode()


class Starting:
    """A pipe with a name: a command that begins with `command` has begun when `wait` returns."""

    command = "echo > started; "

    def __init__(self, workspace: Path) -> None:
        self._path = workspace / "started"
        os.mkfifo(self._path)

    def wait(self) -> None:
        """Wait for the command, within the time limit of the test."""
        self._path.read_text()


def request(number: int | str, method: str, params: Mapping[str, Any] | None = None) -> bytes:
    """Encode a request."""
    message = {"jsonrpc": "2.0", "id": number, "method": f"autohand.{method}", "params": params or {}}
    return json.dumps(message).encode() + b"\n"


def params(messages: Sequence[Message], method: str) -> list[Message]:
    """Pick the parameters of one kind of notification."""
    return [message["params"] for message in messages if message.get("method") == f"autohand.{method}"]


def methods(messages: Sequence[Message]) -> list[str]:
    """Give the methods in order, without the prefix."""
    return [str(message["method"]).removeprefix("autohand.") for message in messages if "method" in message]
