"""`steprail stop`."""

from __future__ import annotations

import click

from steprail_daemon.cli.ending import end_run
from steprail_daemon.cli.options import ending_options


@click.command()
@ending_options
def command(*, run_id: str, reason: str, address: str | None, as_json: bool) -> None:
    """Ask a run to stop at its next step boundary.

    It returns at once; `watch` shows the end. A run that comes to no boundary any more can still be COMPLETED.
    """
    end_run(address, lambda daemon: daemon.stop_run(run_id, reason), "stops at its next step boundary", as_json=as_json)
