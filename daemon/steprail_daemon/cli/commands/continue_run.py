"""`steprail continue`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import click

from steprail_daemon.cli.call import call_with_daemon
from steprail_daemon.cli.client import Control, Daemon, Message
from steprail_daemon.cli.follow import Following, follow_asking, follow_new
from steprail_daemon.cli.nearly import RUN
from steprail_daemon.cli.offers import offers
from steprail_daemon.cli.options import address_option, json_option, permissions_option
from steprail_daemon.cli.rules import ShortRule, as_typed, rules_options


@click.command("continue")
@click.argument("run_id", metavar="RUN", type=RUN, shell_complete=offers("ended runs"))
@click.argument("prompt", required=False, default="")
@rules_options
@click.option("--same-rules", is_flag=True, help="Stop by the rules of the run before.")
@click.option("--ask", is_flag=True, help="Ask me at every step boundary whether to go on.")
@permissions_option
@address_option
@json_option
def command(
    *,
    run_id: str,
    prompt: str,
    stop_when: tuple[ShortRule, ...],
    same_rules: bool,
    ask: bool,
    permissions: str,
    address: str | None,
    as_json: bool,
) -> None:
    """Go on after a run that has ended, on the same conversation.

    Without PROMPT the agent is told to go on; after a COMPLETED run one is required. The rules are those given here:
    without any, nothing but the configured limits stops the new run. Ctrl-C as for `run`.
    """
    if same_rules and stop_when:
        raise click.UsageError("--same-rules and --stop-when exclude each other")

    rules = None if same_rules else stop_when

    async def go_on(daemon: Daemon) -> int:
        async def start() -> Message:
            with as_typed(stop_when):
                return await daemon.continue_run(run_id, prompt, rules)

        @asynccontextmanager
        async def start_asking() -> AsyncIterator[Control]:
            with as_typed(stop_when):
                async with daemon.control_continued(run_id, prompt, rules) as control:
                    yield control

        following = Following.by(daemon, permissions=permissions, as_json=as_json)
        if ask:
            return await follow_asking(following, start_asking)
        return await follow_new(following, start)

    raise click.exceptions.Exit(call_with_daemon(address, go_on))
