"""Entry of the command line. Only click is imported before it is known which command is meant."""

from __future__ import annotations

import os
from importlib import import_module

import click

# In the order of the help. A command's file is named like it, but `continue`, which Python does not allow.
COMMANDS = (
    "serve",
    "run",
    "continue",
    "watch",
    "stop",
    "abort",
    "decide",
    "show",
    "runs",
    "sessions",
    "close",
    "agents",
    "config",
    "journal",
    "demo",
    "version",
)


class LazyGroup(click.Group):
    """Imports the file of a command when the command is wanted."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Give the names, in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command."""
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"steprail_daemon.cli.commands.{cmd_name.replace('continue', 'continue_run')}")
        command: click.Command = module.command
        return command


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Run coding agents, stop them exactly at a step boundary, and go on.

    The exit status of commands that follow a run: 0 COMPLETED, 10 STOPPED, 11 ABORTED, 1 FAILED or any error, 2 wrong
    usage.
    """
    if os.environ.get("NO_COLOR"):
        ctx.color = False


def main() -> None:
    """Run the command line and exit."""
    cli(prog_name="steprail")
