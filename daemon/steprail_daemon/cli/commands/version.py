"""`steprail version`."""

from __future__ import annotations

from importlib.metadata import version

import click

from steprail_daemon.cli.options import json_option
from steprail_daemon.cli.output import say_json


@click.command()
@json_option
def command(*, as_json: bool) -> None:
    """Print the version of this program."""
    number = version("steprail-daemon")
    if as_json:
        say_json({"version": number})
    else:
        click.echo(f"steprail {number}")
