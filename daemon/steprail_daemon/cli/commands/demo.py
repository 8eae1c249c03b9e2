"""`steprail demo`."""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

from steprail_daemon.cli.call import run_async
from steprail_daemon.cli.problems import Problem


@click.command()
@click.option(
    "--directory",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Play there, and keep what is made; new or empty.",
)
def command(*, directory: Path | None) -> None:
    """Show one stopped and continued run on this machine, without any account.

    The real Claude Code, in the version that is tested, works against a scripted model on loopback. It is fetched with
    npm at the first time and kept in the user's cache. Everything else happens in a temporary directory.
    """
    if directory is not None:
        _make_empty(directory)
        _play(directory)
        return
    with tempfile.TemporaryDirectory(prefix="steprail-demo-") as temporary:
        _play(Path(temporary))


def _play(directory: Path) -> None:
    # Here and not above: it brings what runs processes with it, which no help needs.
    from steprail_daemon.cli.demonstration import Demonstration  # noqa: PLC0415

    run_async(Demonstration(directory.resolve()).play)


def _make_empty(directory: Path) -> None:
    """Make the directory, or see that it is empty: what somebody keeps there must not be written over.

    Raises:
        Problem: it is not empty, or cannot be made or read.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        used = any(directory.iterdir())
    except OSError as error:
        raise Problem(f"the demonstration cannot use {directory}: {error.strerror}") from None
    if used:
        raise Problem(f"{directory} is not empty; --directory takes a directory that is new or empty")
