"""What `stop` and `abort` do: ask for the end of a run, and say what came of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import click

from steprail_daemon.cli.call import call
from steprail_daemon.cli.client import Daemon, Message
from steprail_daemon.cli.live import has_ended, state_of
from steprail_daemon.cli.output import say_json


def end_run(address: str | None, ask: Callable[[Daemon], Awaitable[Message]], said: str, *, as_json: bool) -> None:
    """Ask a daemon by `ask`, which gives the run, and print it; `said` follows the id of a run that has not ended yet.

    Raises:
        Problem: nothing listens, or it refused.
    """

    async def do(daemon: Daemon) -> None:
        run = await ask(daemon)
        if as_json:
            say_json({"run": run})
        elif has_ended(run):
            click.echo(f"{run['run_id']} has ended: {state_of(run).lower()}")
        else:
            click.echo(f"{run['run_id']} {said}")

    call(address, do)
