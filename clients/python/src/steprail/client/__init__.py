"""The client, in two forms with the same methods: `Client` for asyncio, and `SyncClient`, which blocks.

async with Client() as client:
    run = await client.run("Fix the failing test", agent="claude", cwd="/home/me/project", stop_when=[steps(3)])

with SyncClient() as client:
    run = client.run("Fix the failing test", agent="claude", cwd="/home/me/project", stop_when=[steps(3)]).wait()
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from steprail.client._backoff import Lost, Retry
from steprail.client._client import Client
from steprail.client._control import Control
from steprail.client._credentials import Tls
from steprail.client._decide import Allow, Decision, Deny, Instead
from steprail.client._live import LiveRun
from steprail.client._rules import (
    all_of,
    any_of,
    cost,
    duration,
    expression,
    failures,
    finish,
    none_of,
    repeats,
    steps,
    tokens,
    tool,
)

if TYPE_CHECKING:
    from steprail.client._blocking.client import SyncClient
    from steprail.client._blocking.control import SyncControl
    from steprail.client._blocking.live import SyncRun

__all__ = [
    "Allow",
    "Client",
    "Control",
    "Decision",
    "Deny",
    "Instead",
    "LiveRun",
    "Lost",
    "Retry",
    "SyncClient",
    "SyncControl",
    "SyncRun",
    "Tls",
    "all_of",
    "any_of",
    "cost",
    "duration",
    "expression",
    "failures",
    "finish",
    "none_of",
    "repeats",
    "steps",
    "tokens",
    "tool",
]

#: Loaded when they are asked for: half of the programs that use this package never do.
_BLOCKING = {"SyncClient": "client", "SyncControl": "control", "SyncRun": "live"}


def __getattr__(name: str) -> object:
    """Load the blocking form."""
    if name not in _BLOCKING:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(f"{__name__}._blocking.{_BLOCKING[name]}"), name)
    return found
