"""`steprail journal verify`."""

from __future__ import annotations

from pathlib import Path

import click

from steprail_daemon.cli.configuration import load
from steprail_daemon.cli.options import config_options, json_option
from steprail_daemon.cli.output import say_json
from steprail_daemon.cli.problems import Problem


@click.group()
def command() -> None:
    """Look after the journal."""


@command.command()
@click.argument("file", required=False, type=click.Path(path_type=Path))
@config_options
@json_option
def verify(
    *,
    file: Path | None,
    config: str | None,
    state_dir: str | None,
    settings: tuple[tuple[str, str], ...],
    as_json: bool,
) -> None:
    """Check a journal file, by default that of the state directory.

    It only reads; a daemon may be using the file. Status 1 if anything is wrong.
    """
    path = file or load(config, state_dir, settings).state_directory / "journal.db"
    # Here and not above: what checks a journal is large, and `journal --help` needs none of it.
    from steprail_daemon.daemon import JournalError, verify_journal  # noqa: PLC0415

    try:
        report = verify_journal(path)
    except JournalError as error:
        raise Problem(error.message) from None
    counts = {
        "sessions": report.sessions,
        "runs": report.runs,
        "events": report.events,
        "batches": report.batches,
        "blobs": report.blobs,
        "wire_bytes": report.wire_bytes,
    }
    problems = [f"{problem.place}: {problem.message}" for problem in report.problems]
    if as_json:
        say_json({"file": str(path), **counts, "problems": problems, "more_problems": report.more_problems})
    else:
        click.echo(f"{path}: " + ", ".join(f"{name.replace('_', ' ')} {count}" for name, count in counts.items()))
        for line in problems:
            click.echo(f"  {line}")
        more = f", and {report.more_problems} more" if report.more_problems else ""
        click.echo(f"{len(problems)} problems{more}" if problems else "no problems")
    if problems:
        raise click.exceptions.Exit(1)
