"""`steprail sessions`."""

from __future__ import annotations

import click

from steprail_daemon.cli.call import call_with_daemon
from steprail_daemon.cli.client import Daemon
from steprail_daemon.cli.options import address_option, json_option
from steprail_daemon.cli.output import say_json, table


@click.command()
@address_option
@json_option
def command(*, address: str | None, as_json: bool) -> None:
    """List sessions, newest first."""

    async def list_sessions(daemon: Daemon) -> None:
        sessions = await daemon.list_sessions()
        if as_json:
            for session in sessions:
                say_json({"session": session})
            return
        rows = [
            [
                session["session_id"],
                session.get("agent", ""),
                str(session.get("state", "")).removeprefix("SESSION_STATE_"),
                session.get("active_run_id") or "-",
                session.get("cwd", ""),
            ]
            for session in sessions
        ]
        table(["SESSION", "AGENT", "STATE", "LIVE RUN", "DIRECTORY"], rows)

    call_with_daemon(address, list_sessions, looks=True)
