"""The asynchronous client.

async with Client() as client:
    session = await client.create_session(agent="claude", cwd="/home/me/project")
    run = await client.start_run(session.session_id, "Fix the failing test", stop_rules=[steps(3)])
    async for event in client.watch_run(run.run_id):
        ...
"""

from __future__ import annotations

from steprail.client._client import Client
from steprail.client._control import Control
from steprail.client._credentials import Tls
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

__all__ = [
    "Client",
    "Control",
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
