"""Options that several commands take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from steprail_daemon.cli.nearly import RUN
from steprail_daemon.cli.offers import directories, files, offers

F = TypeVar("F", bound=Callable[..., Any])


class Assignment(click.ParamType[tuple[str, str]]):
    """A KEY=VALUE."""

    name = "KEY=VALUE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        """Split at the first `=`."""
        if isinstance(value, tuple):
            return value
        key, equals, text = str(value).partition("=")
        if not key or not equals:
            self.fail(f"{value!r} is not of the form KEY=VALUE, such as limits.max_steps=50", param, ctx)
        return key, text


def config_options(function: F) -> F:
    """Add `--config`, `--state-dir` and `--set`."""
    for option in (
        click.option(
            "settings", "--set", type=Assignment(), multiple=True, help="Override a key, such as limits.max_steps=50."
        ),
        click.option(
            "--state-dir", metavar="DIR", shell_complete=directories, help="Directory of the journal, homes and lock."
        ),
        click.option("--config", metavar="FILE", shell_complete=files, help="Configuration file."),
    ):
        function = option(function)
    return function


def address_option(function: F) -> F:
    """Add `--address`."""
    help_text = (
        "Where the daemon listens, such as unix:/run/steprail/steprail.sock or 127.0.0.1:7443; by default "
        "$STEPRAIL_ADDRESS. Over TCP $STEPRAIL_TOKEN_FILE and $STEPRAIL_TLS_ROOTS are needed too."
    )
    return click.option("--address", metavar="ADDRESS", help=help_text)(function)


def json_option(function: F) -> F:
    """Add `--json`."""
    return click.option("as_json", "--json", is_flag=True, help="Print one JSON object a line.")(function)


def permissions_option(function: F) -> F:
    """Add `--permissions`."""
    help_text = (
        "What is answered when the agent asks for permission: ask, the default, asks on this terminal, or says how to "
        "answer where there is none; allow and deny answer at once."
    )
    choice = click.Choice(("ask", "allow", "deny"))
    return click.option("--permissions", type=choice, default="ask", help=help_text)(function)


def ending_options(function: F) -> F:
    """Add what the commands take that end a run: RUN, `--reason`, `--address` and `--json`."""
    function = click.option("--reason", default="", help="Why, for people.")(address_option(json_option(function)))
    return click.argument("run_id", metavar="RUN", type=RUN, shell_complete=offers("live runs"))(function)
