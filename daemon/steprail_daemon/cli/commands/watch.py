"""`steprail watch`."""

from __future__ import annotations

from contextlib import nullcontext

import click

from steprail_daemon.cli.asked import how_to_answer
from steprail_daemon.cli.call import call
from steprail_daemon.cli.client import Daemon, Message
from steprail_daemon.cli.follow import can_go_on, output_for, show_end, status_of
from steprail_daemon.cli.live import has_ended
from steprail_daemon.cli.offers import offers
from steprail_daemon.cli.options import address_option, json_option
from steprail_daemon.cli.problems import Refused


@click.command()
@click.argument("name", metavar="RUN|SESSION", shell_complete=offers("runs", "sessions"))
@address_option
@json_option
def command(*, name: str, address: str | None, as_json: bool) -> None:
    """Show a run, or all runs of a session, as they happen.

    What has happened already is shown first. It ends with the run, with its exit status, or once the session is closed.
    Ctrl-C ends the watching and nothing else. It answers nothing: `allow`, `deny` and `answer` do.
    """

    async def watch(daemon: Daemon) -> int:
        output = output_for(as_json=as_json)

        def happened(event: Message, *, live: bool) -> None:
            output.happened(event)
            if live and not as_json and (how := how_to_answer(event)):
                output.note(how)

        try:
            run = await daemon.get_run(name)
        except Refused as refusal:
            if refusal.reason != "RUN_NOT_FOUND":
                raise
            async with output.shown():
                async for event in daemon.watch_session(name):
                    happened(event, live=True)
            return 0
        output.began(run)
        live = not has_ended(run)
        async with output.shown() if live else nullcontext():
            async for event in daemon.watch_run(name):
                happened(event, live=live)
        run = await daemon.get_run(name)
        await show_end(daemon, run, output, goes_on=live or await can_go_on(daemon, run))
        return status_of(run)

    raise click.exceptions.Exit(call(address, watch))
