"""`steprail stop`."""

from __future__ import annotations

import click

from steprail_daemon.cli.call import call
from steprail_daemon.cli.client import Daemon
from steprail_daemon.cli.live import has_ended, state_of
from steprail_daemon.cli.options import address_option, json_option
from steprail_daemon.cli.output import say_json


@click.command()
@click.argument("run_id", metavar="RUN")
@click.option("--reason", default="", help="Why, for people.")
@address_option
@json_option
def command(*, run_id: str, reason: str, address: str | None, as_json: bool) -> None:
    """Ask a run to stop at its next step boundary.

    It returns at once; `watch` shows the end. A run that comes to no boundary any more can still be COMPLETED.
    """

    async def stop(daemon: Daemon) -> None:
        run = await daemon.stop_run(run_id, reason)
        if as_json:
            say_json({"run": run})
        elif has_ended(run):
            click.echo(f"{run_id} has ended: {state_of(run).lower()}")
        else:
            click.echo(f"{run_id} stops at its next step boundary")

    call(address, stop)
