"""`steprail journal verify`."""

from __future__ import annotations

from pathlib import Path

import click

from steprail_daemon.cli.options import config_options


@click.group()
def command() -> None:
    """Look after the journal."""


@command.command()
@click.argument("file", required=False, type=click.Path(path_type=Path))
@config_options
def verify(
    *, file: Path | None, config: str | None, state_dir: str | None, settings: tuple[tuple[str, str], ...]
) -> None:
    """Check a journal file, by default that of the state directory. A daemon may be using it."""
    del file, config, state_dir, settings, load
