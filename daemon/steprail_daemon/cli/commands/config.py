"""`steprail config check` and `steprail config print`."""

from __future__ import annotations

import click

from steprail_daemon.cli.configuration import load
from steprail_daemon.cli.options import config_options, json_option
from steprail_daemon.cli.output import say_json


@click.group()
def command() -> None:
    """Check the configuration, or print what is in force."""


@command.command()
@config_options
def check(*, config: str | None, state_dir: str | None, settings: tuple[tuple[str, str], ...]) -> None:
    """Report everything that is wrong with the configuration."""
    loaded = load(config, state_dir, settings)
    click.echo(f"{loaded.path or 'no file, built-in defaults'}: no problems")


@command.command("print")
@config_options
@json_option
def show(*, config: str | None, state_dir: str | None, settings: tuple[tuple[str, str], ...], as_json: bool) -> None:
    """Print each value in force and where it came from."""
    loaded = load(config, state_dir, settings)
    described = loaded.describe()
    if as_json:
        for setting in described:
            say_json({"key": setting.key, "value": setting.value, "source": setting.source})
        return
    click.echo(f"# file: {loaded.path or 'none'}\n# state directory: {loaded.state_directory}")
    for setting in described:
        click.echo(f"{setting.key} = {setting.value}" + click.style(f"  # {setting.source}", dim=True))
