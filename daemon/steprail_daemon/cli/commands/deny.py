"""`steprail deny`."""

from __future__ import annotations

import click

from steprail_daemon.cli.asked import question_resolved_words, resolved_words
from steprail_daemon.cli.call import call
from steprail_daemon.cli.client import Daemon
from steprail_daemon.cli.offers import offers
from steprail_daemon.cli.options import address_option, json_option
from steprail_daemon.cli.output import say_json
from steprail_daemon.cli.pending import find, kind_of, say
from steprail_daemon.cli.problems import Problem


@click.command()
@click.argument("asked", metavar="PERMISSION|QUESTION", shell_complete=offers("permissions", "questions"))
@click.option("--reason", default="", help="Why. The model may see it, where the agent passes it on.")
@address_option
@json_option
def command(*, asked: str, reason: str, address: str | None, as_json: bool) -> None:
    """Deny a tool call that waits for permission, or decline a question.

    The agent goes on and knows that it may not. The id is the one that `run`, `watch` and `pending` show.
    """

    async def deny(daemon: Daemon) -> None:
        item = await find(daemon, asked, "permission", "question")
        kind = kind_of(item)
        if kind == "permission":
            resolved = await daemon.answer_permission(item["run_id"], asked, "deny", reason=reason)
            words = resolved_words(resolved)
        elif reason:
            raise Problem(f"{asked} is a question, which is declined without a reason; leave --reason out")
        else:
            resolved = await daemon.answer_question(item["run_id"], asked, [])
            words = question_resolved_words(resolved)
        if as_json:
            say_json({f"{kind}_resolved": resolved})
        else:
            say(asked, words)

    call(address, deny)
