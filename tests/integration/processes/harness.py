"""Runs the real parent process over the test worker, and talks with the worker; every wait has a bound."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.framework import liveness

HERE = Path(__file__).parent
AGENT = [sys.executable, "-S", str(HERE / "agent.py")]
WORKER = [sys.executable, str(HERE / "worker_main.py")]
BOUND = 20.0
END_BOUND = 2.0

Event = dict[str, Any]


class Harness:
    """A parent with its worker. On leaving it is ended, and everything with its mark killed, whatever the test did."""

    def __init__(
        self,
        instance: str = "",
        *,
        options: Sequence[str] = (),
        worker: Sequence[str] = (),
        command: Sequence[str] | None = None,
        before: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.instance = instance or f"test-{uuid.uuid4().hex}"
        argv = [*before, sys.executable, "-m", "steprail_daemon.parent", "--instance", self.instance]
        argv += ["--log-format", "console", *options, "--", *(command or [*WORKER, *worker])]
        self.process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **(environment or {})},
        )
        self._buffer = b""
        self._partial: dict[str, str] = {}
        self._seen: list[Event] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()
        for pid in liveness.marked(f"{self.instance}."):
            os.kill(pid, signal.SIGKILL)
        stderr = self.process.stderr
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        assert stderr is not None
        self.process.stdin.close()
        self.process.stdout.close()
        if kind is not None:
            sys.stderr.write(stderr.read().decode())
        stderr.close()

    def _end(self) -> None:
        """End in order where that works: orphans without a mark are known to nobody but the parent."""
        self.process.send_signal(signal.SIGCONT)
        self.process.terminate()
        try:
            self.process.wait(END_BOUND)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(BOUND)

    def tell(self, do: str, **fields: object) -> None:
        """Give the worker a command."""
        assert self.process.stdin is not None
        os.write(self.process.stdin.fileno(), json.dumps({"do": do, **fields}).encode() + b"\n")

    def expect(self, event: str, seconds: float = BOUND, **fields: object) -> Event:
        """Wait for the next such event, whatever else happens before; what is passed over stays to be expected."""
        return self.expect_one(
            lambda e: e["event"] == event and fields.items() <= e.items(), seconds, f"{event} {fields}"
        )

    def expect_one(self, is_it: Callable[[Event], bool], seconds: float = BOUND, name: str = "event") -> Event:
        deadline = time.monotonic() + seconds
        examined = 0
        while True:
            for position in range(examined, len(self._seen)):
                if is_it(self._seen[position]):
                    return self._seen.pop(position)
            examined = len(self._seen)
            self._seen += self._read(deadline, name)

    def said(self, name: str, key: str) -> Any:
        """Wait for the line of a CLI that has a key; give its value."""
        said = self.expect_one(
            lambda event: event["event"] == "said" and event["name"] == name and key in event["line"],
            name=f"{name} says {key}",
        )
        return said["line"][key]

    def output(self, name: str) -> str:
        """Wait for the end of a CLI's stdout; give all of it."""
        self.expect("stdout_eof", name=name)
        return "".join(event["text"] for event in self._seen if event["event"] == "stdout" and event["name"] == name)

    def spawn(self, name: str, *arguments: str, **fields: object) -> Event:
        """Start the test's CLI and wait until it runs."""
        self.tell("spawn", name=name, argv=[*AGENT, *arguments], **fields)
        return self.expect("spawned", name=name)

    def exit_code(self, seconds: float = BOUND) -> int:
        """Wait for the parent's exit."""
        return self.process.wait(seconds)

    def _read(self, deadline: float, name: str) -> list[Event]:
        assert self.process.stdout is not None
        descriptor = self.process.stdout.fileno()
        if not select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))[0]:
            raise AssertionError(f"no {name} in time; instead {self._seen}")
        data = os.read(descriptor, 1 << 16)
        if not data:
            raise AssertionError(f"the worker's output ended before {name}; it was {self._seen}")
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        events = [json.loads(line) for line in lines]
        for event in events[:]:
            if event["event"] == "stdout":
                events += self._lines(event["name"], event["text"])
        return events

    def _lines(self, name: str, text: str) -> list[Event]:
        *lines, self._partial[name] = (self._partial.get(name, "") + text).split("\n")
        said = [json.loads(line) for line in lines if line.startswith("{")]
        return [{"event": "said", "name": name, "line": line} for line in said]
