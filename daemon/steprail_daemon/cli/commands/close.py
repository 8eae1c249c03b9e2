"""`steprail close`."""

from __future__ import annotations

import click

from steprail_daemon.cli.call import call
from steprail_daemon.cli.client import Daemon
from steprail_daemon.cli.nearly import SESSION
from steprail_daemon.cli.offers import offers
from steprail_daemon.cli.options import address_option, json_option
from steprail_daemon.cli.output import say_json


@click.command()
@click.argument("session_id", metavar="SESSION", type=SESSION, shell_complete=offers("open sessions"))
@click.option("--force", is_flag=True, help="Abort a live run first, instead of refusing.")
@address_option
@json_option
def command(*, session_id: str, force: bool, address: str | None, as_json: bool) -> None:
    """End a session and its processes.

    Its history stays; no run can be started or continued on it any more.
    """

    async def close(daemon: Daemon) -> None:
        session = await daemon.close_session(session_id, force=force)
        if as_json:
            say_json({"session": session})
        else:
            click.echo(f"{session_id} is {str(session.get('state', '')).removeprefix('SESSION_STATE_').lower()}")

    call(address, close)
