"""`steprail show`."""

from __future__ import annotations

import click

from steprail_daemon.cli.call import call_with_daemon
from steprail_daemon.cli.client import Daemon
from steprail_daemon.cli.follow import can_go_on
from steprail_daemon.cli.live import end_lines, has_ended, prompt_of, state_of, step_lines
from steprail_daemon.cli.nearly import RUN
from steprail_daemon.cli.offers import offers
from steprail_daemon.cli.options import address_option, json_option
from steprail_daemon.cli.output import readable_lines, say_json, shorten


@click.command()
@click.argument("run_id", metavar="RUN", type=RUN, shell_complete=offers("runs"))
@address_option
@json_option
def command(*, run_id: str, address: str | None, as_json: bool) -> None:
    """Print a run and its steps."""

    async def show(daemon: Daemon) -> None:
        run = await daemon.get_run(run_id)
        steps = await daemon.list_steps(run_id)
        if as_json:
            say_json({"run": run})
            for step in steps:
                say_json({"step": step})
            return
        click.secho(f"run {run['run_id']} of session {run['session_id']}", bold=True)
        words = "worded by the daemon" if run.get("prompt_synthesized") else "prompt"
        click.echo(f"{words}: {shorten(prompt_of(run), 300)}")
        if run.get("continued_from"):
            click.echo(f"continues {run['continued_from']}")
        for step in steps:
            for line in step_lines(step):
                click.echo(line)
        for line in readable_lines(run.get("text", "")):
            click.echo(line)
        goes_on = has_ended(run) and await can_go_on(daemon, run)
        for line in end_lines(run, goes_on=goes_on) if has_ended(run) else [state_of(run).lower().replace("_", " ")]:
            click.echo(line)

    call_with_daemon(address, show, looks=True)
