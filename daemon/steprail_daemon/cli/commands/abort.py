"""`steprail abort`."""

from __future__ import annotations

import click

from steprail_daemon.cli.ending import end_run
from steprail_daemon.cli.options import ending_options


@click.command()
@ending_options
def command(*, run_id: str, reason: str, address: str | None, as_json: bool) -> None:
    """Cut a run off.

    It returns once that is recorded; `watch` shows the end.
    """
    end_run(address, lambda daemon: daemon.abort_run(run_id, reason), "is being aborted", as_json=as_json)
