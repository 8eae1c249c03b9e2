"""The drivers by name: the only list."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from steprail_daemon.drivers.autohand.driver import AUTOHAND, SCRIPTED
from steprail_daemon.drivers.base import Driver
from steprail_daemon.drivers.claude.driver import ClaudeDriver

_ALL: Final[tuple[Driver, ...]] = (ClaudeDriver(), AUTOHAND, SCRIPTED)

#: Every driver, under the name that the configuration uses.
DRIVERS: Final[Mapping[str, Driver]] = MappingProxyType({driver.name: driver for driver in _ALL})
