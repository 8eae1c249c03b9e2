"""`steprail pending`."""

from __future__ import annotations

import click

from steprail_daemon.cli.call import call
from steprail_daemon.cli.client import Daemon
from steprail_daemon.cli.options import address_option, json_option
from steprail_daemon.cli.output import say_json, table
from steprail_daemon.cli.pending import row_of, step_of


@click.command()
@address_option
@json_option
def command(*, address: str | None, as_json: bool) -> None:
    """List what waits for somebody, nearest deadline first.

    `allow` and `deny` answer permissions, `answer` and `deny` questions, `decide` decides.
    """

    async def list_pending(daemon: Daemon) -> None:
        items = await daemon.list_pending()
        if as_json:
            for item in items:
                say_json({"pending": item})
            return
        rows = [row_of(item, await step_of(daemon, item)) for item in items]
        table(["KIND", "ID", "RUN", "WHAT", "TIME LEFT"], rows)

    call(address, list_pending)
