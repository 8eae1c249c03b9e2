"""Give one task to an agent in many directories, with limits on what each and all of them may cost.

    steprail serve                                   # in a directory above those that the agents are to work in
    python batch.py "Summarise this project" projects/* --agent claude --each 0.50 --total 5.00

A run is stopped at the first step boundary at which it has cost what it may, so it can be over by one step. So much is
set aside from what is left of `--total` before it starts; what it did not use is given back. Where nothing is left, the
other directories are not begun. A cost that is not known stops a run and counts as all that it might have spent; with
`--unknown-cost ignore` it goes on (the built-in agent `scripted` knows costs only from scripts). What goes wrong in one
directory is in its row of the table and ends no other. Exit status: 0 if every run completed, else 1.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path

from steprail import StepRailError
from steprail.client import Client, Retry, cost
from steprail.v1 import events_pb2, rules_pb2

MICRO = 1_000_000  # costs are in millionths of a US dollar


@dataclass
class Row:
    """What became of one directory. `cost` is None if it is unknown, which is not zero."""

    directory: Path
    outcome: str = "not begun"
    steps: int = 0
    cost: int | None = 0
    note: str = "nothing is left of --total"


class Batch:
    """The runs of one command line. `left` is the money that no run has, `lent` what is set aside for some."""

    def __init__(self, client: Client, options: argparse.Namespace) -> None:
        self.client = client
        self.options = options
        self.left = round(options.total * MICRO)
        self.lent = 0
        self.settled = asyncio.Condition()
        self.places = asyncio.Semaphore(options.at_once)

    async def work(self, row: Row) -> None:
        """Run in one directory, once there is a place and money for it."""
        async with self.places:
            async with self.settled:
                await self.settled.wait_for(lambda: self.left > 0 or not self.lent)
                limit = max(0, min(round(self.options.each * MICRO), self.left))
                self.left -= limit
                self.lent += limit
            try:
                if limit:
                    await self.run(row, limit)
            except (StepRailError, UnicodeError) as error:
                row.outcome = "failed"
                row.note = str(error)
            finally:
                spent = limit if row.cost is None else row.cost
                async with self.settled:
                    self.lent -= limit
                    self.left += limit - spent
                    self.settled.notify_all()

    async def run(self, row: Row, micro_usd: int) -> None:
        """Run and write down what came of it. The session is closed, so that its process does not stay."""
        rule = cost(micro_usd)
        rule.on_unknown = rules_pb2.OnUnknown.Value(f"ON_UNKNOWN_{self.options.unknown_cost.upper()}")
        session = await self.client.create_session(self.options.agent, str(row.directory.absolute()))
        row.cost = None  # from here on it may cost something
        try:
            run = await self.client.run(
                self.options.prompt,
                session=session,
                stop_when=[rule],
                permissions=lambda _: self.options.allow,
                on_exit="abort",
            )
            row.outcome = events_pb2.RunState.Name(run.state).removeprefix("RUN_STATE_").lower()
            row.steps = run.step_count
            row.note = run.failure.message or run.stop_reason.reason or run.text
            if run.cost.HasField("micro_usd") and run.cost.complete:
                row.cost = run.cost.micro_usd
        finally:
            await self.client.close_session(session.session_id, force=True)


async def main(options: argparse.Namespace) -> int:
    """Run in each directory and print a table; gives the exit status."""
    rows = [Row(directory) for directory in options.directories]
    async with Client(options.address) as client:
        agents = [agent.name for agent in await client.list_agents()]
        if options.agent not in agents:
            sys.exit(f"batch: the daemon has no agent {options.agent!r}; it has: {', '.join(agents)}")
        batch = Batch(client.with_options(retry=Retry(attempts=5)), options)
        async with asyncio.TaskGroup() as group:
            for row in rows:
                group.create_task(batch.work(row))
    for row in rows:
        spent = "unknown" if row.cost is None else f"{row.cost / MICRO:.6f} USD"
        note = "".join(letter if letter.isprintable() else " " for letter in row.note)[:80]
        # The name of a directory may be no text.
        name = str(row.directory).encode("utf-8", "backslashreplace").decode()
        print(f"{name:24} {row.outcome:10} {row.steps:3} steps {spent:>13}  {note}")
    return 0 if all(row.outcome == "completed" for row in rows) else 1


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Give one task to an agent in many directories.")
    parser.add_argument("prompt", help="what the agent is to do in each directory")
    parser.add_argument("directories", nargs="+", type=Path, metavar="DIR", help="a directory to do it in")
    parser.add_argument("--each", type=float, default=0.5, metavar="USD", help="what a run may cost (default: 0.5)")
    parser.add_argument("--total", type=float, default=5.0, metavar="USD", help="what all may cost (default: 5)")
    parser.add_argument("--at-once", type=int, default=4, metavar="N", help="runs side by side (default: 4)")
    parser.add_argument("--unknown-cost", choices=["stop", "ignore"], default="stop", help="(default: stop)")
    parser.add_argument("--agent", default="claude", help="an agent of the daemon's configuration (default: claude)")
    parser.add_argument("--address", help="where the daemon listens (default: $STEPRAIL_ADDRESS, or its usual socket)")
    parser.add_argument("--allow", action="store_true", help="allow what the agents ask permission for; else deny it")
    given = parser.parse_args()
    for name in ("each", "total", "at_once"):
        if not 1 / MICRO <= getattr(given, name) < float("inf"):
            parser.error(f"--{name.replace('_', '-')} is {getattr(given, name)}; accepted is a number above 0")
    return given


if __name__ == "__main__":
    try:
        sys.exit(asyncio.run(main(arguments())))
    except StepRailError as error:
        sys.exit(f"batch: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
