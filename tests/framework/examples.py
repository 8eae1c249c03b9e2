"""Runs the programs of `examples/python` as a user would: processes of their own, with some Python and some daemon."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from tests.framework.terminal import Screen, on_a_terminal

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = sorted(path.stem for path in (ROOT / "examples" / "python").glob("*.py"))
#: Seconds that an example may take on a busy machine.
LIMIT = 45


def script(*replies: dict[str, Any]) -> str:
    """Give a prompt that is a script of one turn for the built-in agent. JSON is YAML."""
    return "#!scripted\n" + json.dumps({"turns": [{"replies": list(replies)}]})


class Examples:
    """The examples, run by one Python in one directory. `source` is where their files are."""

    def __init__(self, python: str, environment: Mapping[str, str], cwd: Path, source: Path | None = None) -> None:
        self.python = python
        self.environment = {**environment, "PYTHONUNBUFFERED": "1"}
        self.cwd = cwd
        self.source = source or ROOT / "examples" / "python"

    def run(self, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run one to its end, without a terminal."""
        return subprocess.run(
            self._command(name, *arguments),
            env=self.environment,
            cwd=self.cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )

    def on_a_terminal(self, name: str, *arguments: str) -> AbstractContextManager[Screen]:
        """Run one as the foreground of a terminal of its own."""
        return on_a_terminal(self._command(name, *arguments), environment=self.environment, cwd=self.cwd)

    @contextlib.contextmanager
    def serving(self, *arguments: str) -> Iterator[StreamServer]:
        """Run the web service on a free port; within, it listens."""
        process = subprocess.Popen(
            self._command("stream_server", "--port", "0", *arguments),
            env=self.environment,
            cwd=self.cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            if not line:
                raise AssertionError(f"the service did not start: {process.communicate(timeout=LIMIT)[1]}")
            with contextlib.closing(StreamServer(process, int(line.rpartition(":")[2].partition("/")[0]))) as server:
                yield server
        finally:
            process.terminate()
            try:
                process.communicate(timeout=LIMIT)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
                raise

    def _command(self, name: str, *arguments: str) -> list[str]:
        return [self.python, str(self.source / f"{name}.py"), *arguments]


class StreamServer:
    """A web service that runs."""

    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self.process = process
        self.port = port
        self._streams: list[Stream] = []

    def close(self) -> None:
        """Leave every stream."""
        for stream in self._streams:
            stream.leave()

    def post(
        self,
        body: object,
        *,
        kind: str = "application/json",
        host: str = "localhost",
        first: str = "POST /runs HTTP/1.1",
    ) -> Stream:
        """Send a request, whose body is made JSON unless it is bytes; gives what comes back."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=LIMIT)
        head = f"{first}\r\nHost: {host}:{self.port}\r\nContent-Type: {kind}\r\nContent-Length: {len(data)}\r\n\r\n"
        connection.sendall(head.encode() + data)
        self._streams.append(Stream(connection))
        return self._streams[-1]


class Stream:
    """The answer to a request. Closing it leaves."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._file = connection.makefile("rb")
        self.status = int(self._file.readline().split()[1])
        self.headers = {name.lower(): value.strip() for name, _, value in self._header_lines()}

    def _header_lines(self) -> Iterator[tuple[str, str, str]]:
        while line := self._file.readline().decode().strip():
            yield line.partition(":")

    def events(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Give name and data of each event until the stream ends."""
        fields: dict[str, str] = {}
        for line in self._file:
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name:
                fields[name] = value
            elif "data" in fields:
                yield fields["event"], json.loads(fields["data"])
                fields = {}

    def until(self, name: str) -> dict[str, Any]:
        """Give the data of the first event of a name."""
        for found, data in self.events():
            if found == name:
                return data
        raise AssertionError(f"the stream ended without {name}")

    def line(self) -> str:
        """Give the next line as it is."""
        return self._file.readline().decode().rstrip("\n")

    def body(self) -> Any:
        """Give the JSON of an answer that is no stream."""
        return json.loads(self._file.read())

    def leave(self) -> None:
        """Close the connection."""
        self._file.close()
        self._connection.close()
