"""`steprail runs`."""

from __future__ import annotations

import click

from steprail_daemon.cli.call import call_with_daemon
from steprail_daemon.cli.client import Daemon
from steprail_daemon.cli.live import prompt_of, state_of
from steprail_daemon.cli.nearly import SESSION
from steprail_daemon.cli.offers import offers
from steprail_daemon.cli.options import address_option, json_option
from steprail_daemon.cli.output import say_json, shorten, table


@click.command()
@click.option(
    "--session",
    "session_id",
    metavar="SESSION",
    type=SESSION,
    shell_complete=offers("sessions"),
    help="Only runs of this session.",
)
@address_option
@json_option
def command(*, session_id: str | None, address: str | None, as_json: bool) -> None:
    """List runs, newest first."""

    async def list_runs(daemon: Daemon) -> None:
        runs = await daemon.list_runs(session_id or "")
        if as_json:
            for run in runs:
                say_json({"run": run})
            return
        rows = [
            [
                run["run_id"],
                state_of(run),
                str(run.get("step_count", 0)),
                str(run.get("create_time", ""))[:19].replace("T", " "),
                shorten(prompt_of(run), 50),
            ]
            for run in runs
        ]
        table(["RUN", "STATE", "STEPS", "MADE (UTC)", "PROMPT"], rows)

    call_with_daemon(address, list_runs, looks=True)
