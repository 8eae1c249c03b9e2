"""`steprail watch`."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass

import click

from steprail_daemon.cli.asked import how_to_answer
from steprail_daemon.cli.call import call
from steprail_daemon.cli.client import Daemon, Message
from steprail_daemon.cli.follow import can_go_on, output_for, show_end, status_of
from steprail_daemon.cli.live import has_ended
from steprail_daemon.cli.offers import offers
from steprail_daemon.cli.options import address_option, json_option
from steprail_daemon.cli.pending import id_of
from steprail_daemon.cli.problems import Refused


@dataclass(frozen=True)
class Waiting:
    """What waited for an answer at one moment, when the session's record went to `last_seq`."""

    last_seq: int
    ids: frozenset[str]

    @classmethod
    async def now(cls, daemon: Daemon, session_id: str) -> Waiting:
        """Look at a session."""
        session = await daemon.get_session(session_id)
        ids = frozenset(id_of(item) for item in await daemon.list_pending())
        return cls(int(session.get("last_seq", 0)), ids)

    def for_answer(self, event: Message) -> bool:
        """Whether an event asks what is not answered yet, as far as is known."""
        asked = event.get("permission_requested", {}).get("permission", {}).get("permission_id")
        asked = asked or event.get("question_requested", {}).get("question", {}).get("question_id")
        return asked is not None and (asked in self.ids or int(event.get("seq", self.last_seq + 1)) > self.last_seq)


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

        def happened(event: Message, waits: Waiting | None) -> None:
            output.happened(event)
            if waits is not None and waits.for_answer(event):
                output.note(how_to_answer(event))

        try:
            run = await daemon.get_run(name)
        except Refused as refusal:
            if refusal.reason != "RUN_NOT_FOUND" or name.startswith("run_"):
                raise
            waits = None if as_json else await Waiting.now(daemon, name)
            async with output.shown():
                async for event in daemon.watch_session(name):
                    happened(event, waits)
            return 0
        output.began(run)
        live = not has_ended(run)
        waits = await Waiting.now(daemon, run["session_id"]) if live and not as_json else None
        async with output.shown() if live else nullcontext():
            async for event in daemon.watch_run(name):
                happened(event, waits)
        run = await daemon.get_run(name)
        await show_end(daemon, run, output, goes_on=live or await can_go_on(daemon, run))
        return status_of(run)

    raise click.exceptions.Exit(call(address, watch))
