"""The configuration as commands need it: loaded, or only the daemon's address.

Imported only by commands that read it: a version or a help needs no TOML.
"""

from __future__ import annotations

import os
import re

import click

from steprail_daemon.cli.problems import ConfigProblem
from steprail_daemon.config.load import ConfigError, LoadedConfig, load_config

_SOCKET = re.compile(r"unix:(//)?/[^/].*", re.DOTALL)


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
    """Give the address that a flag or $STEPRAIL_ADDRESS names, if one does.

    Raises:
        click.BadParameter: it is of no form that is accepted.
    """
    address = flag or os.environ.get("STEPRAIL_ADDRESS") or None
    if address is not None and not _SOCKET.fullmatch(address):
        problem = f"{address!r} is no address; accepted: unix: and an absolute path, as in unix:/run/steprail.sock"
        raise click.BadParameter(problem, param_hint="--address" if flag else "$STEPRAIL_ADDRESS")
    return address


def find_address(flag: str | None) -> str:
    """Give the address to use: the one that is named, else the first that the configuration listens on."""
    return named_address(flag) or load().config.server.listen[0]
