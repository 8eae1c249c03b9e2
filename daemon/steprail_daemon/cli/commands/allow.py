"""`steprail allow`."""

from __future__ import annotations

import json

import click

from steprail_daemon.cli.asked import resolved_words
from steprail_daemon.cli.call import call
from steprail_daemon.cli.client import Daemon
from steprail_daemon.cli.offers import offers
from steprail_daemon.cli.options import address_option, json_option
from steprail_daemon.cli.output import say_json
from steprail_daemon.cli.pending import find, say


@click.command()
@click.argument("permission_id", metavar="PERMISSION", shell_complete=offers("permissions"))
@click.option("--session", is_flag=True, help="Also every later call of this tool with these arguments.")
@click.option("replacement", "--command", metavar="TEXT", help="Run this command instead, where the agent can.")
@click.option("--arguments", metavar="JSON", help="Call the tool with these arguments instead, where the agent can.")
@click.option("--reason", default="", help="Why, for people.")
@address_option
@json_option
def command(
    *,
    permission_id: str,
    session: bool,
    replacement: str | None,
    arguments: str | None,
    reason: str,
    address: str | None,
    as_json: bool,
) -> None:
    """Allow a tool call that waits for permission.

    PERMISSION is the id that `run`, `watch` and `pending` show. It is allowed once, unless told otherwise.
    """
    if session + (replacement is not None) + (arguments is not None) > 1:
        raise click.UsageError("--session, --command and --arguments exclude each other")
    instead = {} if replacement is None else {"command": replacement}
    if arguments is not None:
        instead["arguments_json"] = _object(arguments)

    async def allow(daemon: Daemon) -> None:
        item = await find(daemon, permission_id, "permission")
        resolved = await daemon.answer_permission(
            item["run_id"],
            permission_id,
            "allow_session" if session else "allow_once",
            instead=instead or None,
            reason=reason,
        )
        if as_json:
            say_json({"permission_resolved": resolved})
        else:
            say(permission_id, resolved_words(resolved))

    call(address, allow)


def _object(text: str) -> str:
    """Give arguments as they are if they are an object in JSON."""
    try:
        found = json.loads(text)
    except ValueError as error:
        raise click.BadParameter(f"it is no JSON: {error}; accepted: an object", param_hint="--arguments") from None
    if not isinstance(found, dict):
        raise click.BadParameter(f"found {text!r}; accepted: an object in JSON", param_hint="--arguments")
    return text
