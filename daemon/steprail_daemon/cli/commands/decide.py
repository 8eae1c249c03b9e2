"""`steprail decide`."""

from __future__ import annotations

import click

from steprail_daemon.cli.call import call
from steprail_daemon.cli.client import Daemon
from steprail_daemon.cli.live import decision_words
from steprail_daemon.cli.nearly import RUN
from steprail_daemon.cli.offers import offers
from steprail_daemon.cli.options import address_option, json_option
from steprail_daemon.cli.output import say_json
from steprail_daemon.cli.problems import Problem


@click.command()
@click.argument("run_id", metavar="RUN", type=RUN, shell_complete=offers("live runs"))
@click.argument("action", type=click.Choice(["continue", "stop"]))
@click.option("--step", required=True, type=click.IntRange(min=1), help="Number of the step that is meant.")
@click.option("--reason", default="", help="Why, for people.")
@address_option
@json_option
def command(*, run_id: str, action: str, step: int, reason: str, address: str | None, as_json: bool) -> None:
    """Decide about a step that waits.

    The number keeps a decision from reaching a later step than the one you have seen.
    """

    async def decide(daemon: Daemon) -> None:
        found = next((each for each in await daemon.list_steps(run_id) if str(each.get("number")) == str(step)), None)
        if found is None:
            raise Problem(f"{run_id} has completed no step {step}")
        decision = await daemon.decide(run_id, found["step_id"], go_on=action == "continue", reason=reason)
        if as_json:
            say_json({"decision": decision})
        else:
            click.echo(f"step {step}: {decision_words(decision)}")

    call(address, decide)
