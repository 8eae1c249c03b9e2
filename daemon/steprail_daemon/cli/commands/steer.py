"""`steprail steer`."""

from __future__ import annotations

import click

from steprail_daemon.cli.call import call
from steprail_daemon.cli.client import Daemon
from steprail_daemon.cli.nearly import RUN
from steprail_daemon.cli.offers import offers
from steprail_daemon.cli.options import address_option, json_option
from steprail_daemon.cli.output import say_json


@click.command()
@click.argument("run_id", metavar="RUN", type=RUN, shell_complete=offers("live runs"))
@click.argument("text")
@address_option
@json_option
def command(*, run_id: str, text: str, address: str | None, as_json: bool) -> None:
    """Give a text to the agent while it works.

    It returns once the text is accepted, which is not yet to be delivered; `watch` shows what becomes of it.
    """

    async def steer(daemon: Daemon) -> None:
        steer_id = await daemon.steer_run(run_id, text)
        if as_json:
            say_json({"steer_id": steer_id})
        else:
            click.echo(f"{run_id} takes the text as {steer_id}; `steprail watch {run_id}` shows whether it got there")

    call(address, steer)
