"""The configuration as commands need it: loaded, or only the daemon's address.

Imported only by commands that read it: a version or a help needs no TOML.
"""

from __future__ import annotations

import os
import re

import click

from steprail_daemon.cli.problems import ConfigProblem
from steprail_daemon.config.load import ConfigError, LoadedConfig, load_config

_ADDRESS = re.compile(r"unix:(//)?/[^/].*|(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}", re.DOTALL)

_LAST_PORT = 65535


def load(
    config: str | None = None,
    state_dir: str | None = None,
    settings: tuple[tuple[str, str], ...] = (),
    *,
    serves: bool = True,
) -> LoadedConfig:
    """Load the configuration. `serves`: a daemon is to be started where this command was.

    Raises:
        ConfigProblem: with everything that is wrong with it.
    """
    try:
        return load_config(dict(settings), os.environ, path=config, state_directory=state_dir, serves=serves)
    except ConfigError as error:
        problems = "\n".join(f"  {problem}" for problem in error.problems)
        raise ConfigProblem(f"the configuration cannot be used:\n{problems}") from None


def named_address(flag: str | None) -> str | None:
    """Give the address that a flag or $STEPRAIL_ADDRESS names, if one does.

    Raises:
        click.BadParameter: it is of no form that is accepted.
    """
    address = flag or os.environ.get("STEPRAIL_ADDRESS") or None
    if address is not None and not (_ADDRESS.fullmatch(address) and _has_port(address)):
        problem = (
            f"{address!r} is no address; accepted: unix: and an absolute path, as in unix:/run/steprail.sock, or a "
            "host with a port, as in 127.0.0.1:7443"
        )
        raise click.BadParameter(problem, param_hint="--address" if flag else "$STEPRAIL_ADDRESS")
    return address


def _has_port(address: str) -> bool:
    """Whether what stands after the last colon can be a port, where one is needed."""
    return address.startswith("unix:") or 0 < int(address.rpartition(":")[2]) <= _LAST_PORT


def find_address(flag: str | None) -> str:
    """Give the address to use: the one that is named, else what the configuration gives."""
    return named_address(flag) or own_address(load(serves=False))


def own_address(loaded: LoadedConfig) -> str:
    """Give the first socket that a configuration listens on, which needs no token, or its first address."""
    addresses = loaded.config.server.listen
    return next((address for address in addresses if address.startswith("unix:")), addresses[0])
