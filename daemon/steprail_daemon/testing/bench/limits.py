"""The least that any program of the daemon's kind has to do, each role a process of its own beside the bench's agent.

The agent's stdout is stdin here and the agent's stdin is stdout, like the pipes that the daemon holds. A role starts
the agent by writing a line, and writes what it measured of itself to the file `--report`, as JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sqlite3
import sys
import time
from pathlib import Path
from typing import Any

import click

from steprail_daemon.drivers.claude.wire import UserLine, read_line
from steprail_daemon.drivers.framing import LineFramer
from steprail_daemon.testing.bench.agent import BOUNDARY_MARK

#: As the daemon reads an agent that is alone.
FLOOD_READ_BYTES = 128 * 1024
ECHO_READ_BYTES = 64 * 1024
LINE_BYTES = 64 * 1024 * 1024
#: Size of the row that is committed: what the daemon commits for a step of the bench, rounded.
ROW_BYTES = 1500
_START = b"\n"
_ID_MARK = b'"request_id":"'


@click.group()
def main() -> None:
    """Be one of the limits."""


@main.command("parse")
@click.option("--count", type=int, required=True)
@click.option("--report", type=Path, required=True)
def parse(count: int, report: Path) -> None:
    """Read and parse to types, and nothing else, until COUNT results of tools were seen."""
    loop = asyncio.new_event_loop()
    framer = LineFramer(LINE_BYTES)
    seen = 0

    def on_readable() -> None:
        nonlocal seen
        data = os.read(0, FLOOD_READ_BYTES)
        for line in framer.feed(data):
            if type(line) is bytes and type(read_line(line)) is UserLine:
                seen += 1
        if seen >= count or not data:
            loop.stop()

    loop.add_reader(0, on_readable)
    os.write(1, _START)
    before = _cpu_seconds()
    loop.run_forever()
    ended_ns = time.monotonic_ns()
    _write(report, {"ended_ns": ended_ns, "cpu_s": _cpu_seconds() - before, "count": seen})
    loop.close()


@main.command("echo")
@click.option("--commit", type=Path, default=None, help="commit a row to this SQLite file before each answer")
@click.option("--loop", "on_loop", is_flag=True, help="read in a callback of an event loop instead of a blocking read")
def echo(commit: Path | None, on_loop: bool) -> None:
    """Answer each boundary at once, or after one commit."""
    insert = None if commit is None else _open_row_store(commit)
    if on_loop:
        _echo_on_loop()
        return
    os.write(1, _START)
    number = 0
    while data := os.read(0, ECHO_READ_BYTES):
        if BOUNDARY_MARK in data:
            if insert is not None:
                number += 1
                insert("INSERT INTO rows VALUES (?, ?)", (number, _ROW))
            os.write(1, answer_to(data))


_ROW = bytes(range(256)) * (ROW_BYTES // 256) + bytes(ROW_BYTES % 256)


def _open_row_store(path: Path) -> Any:
    path.unlink(missing_ok=True)
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("CREATE TABLE rows (number INTEGER PRIMARY KEY, data BLOB NOT NULL)")
    return connection.execute


def _echo_on_loop() -> None:
    loop = asyncio.new_event_loop()

    def on_readable() -> None:
        data = os.read(0, ECHO_READ_BYTES)
        if BOUNDARY_MARK in data:
            os.write(1, answer_to(data))
        elif not data:
            loop.stop()

    loop.add_reader(0, on_readable)
    os.write(1, _START)
    loop.run_forever()
    loop.close()


def answer_to(data: bytes) -> bytes:
    """Give the answer that lets the agent go on, to the boundary in `data`."""
    start = data.index(_ID_MARK) + len(_ID_MARK)
    request_id = data[start : data.index(b'"', start)]
    return (
        b'{"type":"control_response","response":{"subtype":"success","request_id":"'
        + request_id
        + b'","response":{}}}\n'
    )


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _write(path: Path, report: dict[str, Any]) -> None:
    part = path.with_suffix(".part")
    part.write_text(json.dumps(report))
    part.replace(path)


if __name__ == "__main__":
    sys.exit(main())
