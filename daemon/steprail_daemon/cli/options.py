"""What several commands take: where the configuration is, and where the daemon listens."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

import click

from steprail_daemon.cli.problems import ConfigProblem
from steprail_daemon.config.load import ConfigError, LoadedConfig, load_config

F = TypeVar("F", bound=Callable[..., Any])


class Assignment(click.ParamType[tuple[str, str]]):
    """A KEY=VALUE."""

    name = "KEY=VALUE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        """Split at the first `=`."""
        if isinstance(value, tuple):
            return value
        key, equals, text = str(value).partition("=")
        if not key or not equals:
            self.fail(f"{value!r} is not of the form KEY=VALUE, such as limits.max_steps=50", param, ctx)
        return key, text


def config_options(function: F) -> F:
    """Add `--config`, `--state-dir` and `--set`."""
    for option in (
        click.option(
            "settings", "--set", type=Assignment(), multiple=True, help="Override a key, such as limits.max_steps=50."
        ),
        click.option("--state-dir", metavar="DIR", help="Directory of the journal, homes and lock."),
        click.option("--config", metavar="FILE", help="Configuration file."),
    ):
        function = option(function)
    return function


def address_option(function: F) -> F:
    """Add `--address`."""
    help_text = "Where the daemon listens, such as unix:/run/steprail/steprail.sock; by default $STEPRAIL_ADDRESS."
    return click.option("--address", metavar="ADDRESS", help=help_text)(function)


def json_option(function: F) -> F:
    """Add `--json`."""
    return click.option("as_json", "--json", is_flag=True, help="Print one JSON object a line.")(function)


def load(
    config: str | None = None, state_dir: str | None = None, settings: tuple[tuple[str, str], ...] = ()
) -> LoadedConfig:
    """Load the configuration.

    Raises:
        ConfigProblem: with everything that is wrong with it.
    """
    try:
        return load_config(dict(settings), os.environ, path=config, state_directory=state_dir)
    except ConfigError as error:
        problems = "\n".join(f"  {problem}" for problem in error.problems)
        raise ConfigProblem(f"the configuration cannot be used:\n{problems}") from None


def named_address(flag: str | None) -> str | None:
    """Give the address that a flag or $STEPRAIL_ADDRESS names, if one does."""
    return flag or os.environ.get("STEPRAIL_ADDRESS") or None


def find_address(flag: str | None) -> str:
    """Give the address to use: the one that is named, else the first that the configuration listens on."""
    return named_address(flag) or load().config.server.listen[0]
