"""`steprail demo`."""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

from steprail_daemon.cli.demonstration import Demonstration


@click.command()
@click.option("--directory", metavar="DIR", type=click.Path(path_type=Path), help="Play there, and keep what is made.")
def command(*, directory: Path | None) -> None:
    """Show one stopped and continued run on this machine, without any account.

    The real Claude Code, in the version that is tested, works against a scripted model on loopback. It is fetched with
    npm at the first time and kept in the user's cache. Everything else happens in a temporary directory.
    """
    if directory is not None:
        directory.mkdir(parents=True, exist_ok=True)
        Demonstration(directory.resolve()).play()
        return
    with tempfile.TemporaryDirectory(prefix="steprail-demo-") as temporary:
        Demonstration(Path(temporary).resolve()).play()
