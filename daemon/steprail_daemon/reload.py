"""What SIGHUP does: reads the configuration again, takes up what can be taken up, and says what cannot."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from steprail_daemon.config.load import ConfigError, LoadedConfig, changed_keys
from steprail_daemon.config.schema import Config

log: Final = logging.getLogger("steprail")


class Part(NamedTuple):
    """Something that can be taken up.

    `keys` is the beginning of the keys that `apply` takes up, empty if it is about contents of files alone. `apply`
    gives what it did, in words, and raises `ValueError`, having changed nothing, if it cannot.
    """

    keys: str
    apply: Callable[[Config], str]


class Reload:
    """Takes up the configuration as it is now, each time that it is called.

    A configuration that cannot be used changes nothing.
    """

    def __init__(self, started_with: LoadedConfig, read: Callable[[], LoadedConfig], parts: Sequence[Part]) -> None:
        self._started_with = started_with
        self._read = read
        self._parts = parts

    def __call__(self) -> None:
        """Do it, and log what was done, what was not, and what needs a restart."""
        try:
            fresh = self._read()
        except ConfigError as error:
            log.error("reload: the configuration cannot be used, nothing was changed: %s", error)
            return
        for part in self._parts:
            try:
                log.info("reload: %s", part.apply(fresh.config))
            except ValueError as error:
                log.error("reload: kept as it was: %s", error)
        taken_up = tuple(part.keys for part in self._parts if part.keys)
        waiting = [key for key in changed_keys(self._started_with, fresh) if not key.startswith(taken_up)]
        if waiting:
            log.warning("reload: changed, and needs a restart: %s", ", ".join(waiting))
