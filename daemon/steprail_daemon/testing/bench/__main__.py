"""`python -m steprail_daemon.testing.bench`: measures, prints the table, and fails if a target is missed."""

from __future__ import annotations

import json
import os
import platform
import sqlite3
import sys
import tempfile
import time
from pathlib import Path

import click
import grpc

from steprail_daemon.testing.bench.crowded import CrowdedBench
from steprail_daemon.testing.bench.decisions import DecisionBench
from steprail_daemon.testing.bench.events import EventBench
from steprail_daemon.testing.bench.figures import QUICK, WHOLE, Size
from steprail_daemon.testing.bench.history import HistoryBench
from steprail_daemon.testing.bench.idle import IdleBench
from steprail_daemon.testing.bench.starts import StartBench
from steprail_daemon.testing.bench.table import Row, in_order, render, to_json

_DECISIONS = {"3": "rule", "4": "memory", "5": "client"}
_EVENTS = frozenset({"1", "2", "7"})
_IDLE = frozenset({"8", "9", "11"})
_ALL = tuple(str(number) for number in range(1, 13))


@click.command()
@click.option("numbers", "--row", type=click.Choice(_ALL), multiple=True, help="Only this row; may be repeated.")
@click.option("--quick", is_flag=True, help="One small round: shows that everything runs, its figures mean little.")
@click.option("json_file", "--json", type=click.Path(dir_okay=False, path_type=Path), help="Write all figures there.")
@click.option("--strict", is_flag=True, help="End with 1 if a target is missed. For a machine that is quiet.")
def main(*, numbers: tuple[str, ...], quick: bool, json_file: Path | None, strict: bool) -> None:
    """Measure the daemon beside the least that the same work costs on this machine.

    Whatever the figures, it fails if an event is missing, out of order, or not in the journal.
    """
    begun = time.monotonic()
    wanted = frozenset(numbers or _ALL)
    machine = describe_machine()
    click.echo(machine)
    size = QUICK if quick else WHOLE
    with tempfile.TemporaryDirectory(prefix="steprail-bench-") as directory:
        rows = in_order(measure(Path(directory), size, wanted), wanted)
    click.echo(render(rows))
    click.echo(f"{time.monotonic() - begun:.0f} s")
    if json_file is not None:
        json_file.write_text(json.dumps({"machine": machine, "rows": to_json(rows)}, indent=1) + "\n")
    missed = [row.number for row in rows if row.missed]
    if missed:
        click.echo(f"missed: {', '.join(missed)}", err=True)
        sys.exit(1 if strict else 0)


def measure(directory: Path, size: Size, wanted: frozenset[str]) -> list[Row]:
    """Measure the wanted rows and those that come with them, what writes most to the disk last."""
    kinds = frozenset(kind for number, kind in _DECISIONS.items() if number in wanted)

    def starts() -> list[Row]:
        return StartBench(directory, size, _say).rows() if "10" in wanted else []

    rows: list[Row] = []
    if wanted & _IDLE:
        rows += IdleBench(directory, size, _say).rows(sessions=bool(wanted & {"8", "9"}), meanwhile=starts)
    else:
        rows += starts()
    if wanted & _EVENTS:
        rows += EventBench(directory, size, _say).rows()
    if kinds:
        rows += DecisionBench(directory, size, _say, kinds).rows()
    if "6" in wanted:
        rows += CrowdedBench(directory, size, _say).rows()
    if "12" in wanted:
        rows += HistoryBench(directory, size, _say).rows()
    return rows


def _say(text: str) -> None:
    click.echo(text, err=True)


def describe_machine() -> str:
    """Say what the figures were measured on."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    model = names[0] if names else platform.machine()
    load = "/".join(f"{part:.1f}" for part in os.getloadavg())
    return (
        f"{os.cpu_count()} CPUs ({model}), load {load}, Linux {platform.release()}, "
        f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, grpcio {grpc.__version__}"
    )


if __name__ == "__main__":
    main()
