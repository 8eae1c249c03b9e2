"""`steprail doctor`."""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING, NoReturn

import click

from steprail_daemon.cli.live import plural
from steprail_daemon.cli.options import address_option, config_options, json_option
from steprail_daemon.cli.output import readable_lines, say_json

if TYPE_CHECKING:
    from steprail_daemon.cli.doctor.findings import Case, Finding

_COLOURS = {"OK": "green", "NOTE": "cyan", "WARNING": "yellow", "PROBLEM": "red", "NOT_TRIED": "magenta"}
_WIDTH = 9


@click.command()
@click.argument("names", metavar="[AGENT]...", nargs=-1)
@click.option("--no-try", is_flag=True, help="Look at agents only; start none.")
@config_options
@address_option
@json_option
def command(
    *,
    names: tuple[str, ...],
    no_try: bool,
    config: str | None,
    state_dir: str | None,
    settings: tuple[tuple[str, str], ...],
    address: str | None,
    as_json: bool,
) -> None:
    """Find out what is wrong, and say what to do about it.

    It looks at the configuration, the state directory, what the daemon needs of this machine, a daemon if one answers,
    and each AGENT, by default all of the configuration. Each agent is also tried: started through a daemon of its own,
    in a temporary directory and with a home of its own, it makes one step with a scripted model on this machine, and is
    held there. That needs no login and asks nobody. Status 1 if something is a problem.
    """
    # Here and not above: `doctor --help` needs none of it.
    from steprail_daemon.cli.call import connect  # noqa: PLC0415
    from steprail_daemon.cli.configuration import named_address, own_address  # noqa: PLC0415
    from steprail_daemon.cli.doctor.configuration import unusable  # noqa: PLC0415
    from steprail_daemon.cli.doctor.findings import Case, not_tried  # noqa: PLC0415
    from steprail_daemon.config.load import ConfigError, load_config  # noqa: PLC0415

    told = _Told(as_json=as_json)
    named = named_address(address)
    try:
        loaded = load_config(dict(settings), os.environ, path=config, state_directory=state_dir)
    except ConfigError as error:
        for finding in unusable(error):
            told(finding)
        told(not_tried("all else", "it needs a configuration that can be used", "correct that first"))
        told.end()
    known = loaded.config.agents
    for name in names:
        if name not in known:
            text = f"the configuration names no agent {name!r}; it names: {', '.join(sorted(known))}"
            raise click.BadParameter(text, param_hint="AGENT")
    case = Case(
        loaded,
        os.environ,
        named or own_address(loaded),
        connect,
        agents=tuple(dict.fromkeys(names)) or tuple(known),
        named=bool(names),
        address_named=named is not None,
        trying=not no_try,
    )
    _run(case, told)
    told.end()


def _run(case: Case, told: _Told) -> None:
    """Examine, unless it is left by a signal; then nothing that was started is there any more.

    Raises:
        click.exceptions.Exit: it was left.
    """
    from steprail_daemon.cli.doctor.examination import examine  # noqa: PLC0415
    from steprail_daemon.cli.leaving import run_clean  # noqa: PLC0415

    status = run_clean(lambda: examine(case, told))
    if status:
        raise click.exceptions.Exit(status)


class _Told:
    """Prints findings as they come, and counts them."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._counts: Counter[str] = Counter()

    def __call__(self, finding: Finding) -> None:
        self._counts[finding.mark.name] += 1
        if self._as_json:
            say_json({"finding": finding.plain()})
            return
        mark = click.style(f"{finding.mark.value:<{_WIDTH}}", fg=_COLOURS[finding.mark.name])
        first, *further = readable_lines(f"{finding.about}: {finding.text}")
        click.echo(f"{mark}  {first}")
        for line in [*further, *([f"-> {finding.advice}"] if finding.advice else [])]:
            click.echo(f"{'':{_WIDTH}}  {line}")

    def end(self) -> NoReturn:
        """Sum up, and end the command: with 1 if something is a problem.

        Raises:
            click.exceptions.Exit: always.
        """
        problems = self._counts["PROBLEM"]
        if not self._as_json:
            parts = [plural(problems, "problem") if problems else "no problems"]
            parts += [plural(count, "warning")] if (count := self._counts["WARNING"]) else []
            click.echo(", ".join(parts))
        raise click.exceptions.Exit(1 if problems else 0)
