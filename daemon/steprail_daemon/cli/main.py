"""Entry of the command line. Only click is imported before it is known which command is meant."""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from steprail_daemon.cli.problems import LEFT
from steprail_daemon.cli.stdout import fill_standard_descriptors, guard_stdout

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

# In the order of the help, each with its first sentence, so that the help imports none of them. A command's file is
# named like it, but `continue`, which Python does not allow.
COMMANDS = {
    "serve": "Run the daemon in the foreground until SIGTERM or Ctrl-C.",
    "run": "Start a run and show it as it happens.",
    "continue": "Go on after a run that has ended, on the same conversation.",
    "watch": "Show a run, or all runs of a session, as they happen.",
    "stop": "Ask a run to stop at its next step boundary.",
    "abort": "Cut a run off.",
    "decide": "Decide about a step that waits.",
    "pending": "List what waits for somebody, nearest deadline first.",
    "allow": "Allow a tool call that waits for permission.",
    "deny": "Deny a tool call that waits for permission, or decline a question.",
    "answer": "Answer a question of the agent.",
    "steer": "Give a text to the agent while it works.",
    "show": "Print a run and its steps.",
    "runs": "List runs, newest first.",
    "sessions": "List sessions, newest first.",
    "close": "End a session and its processes.",
    "agents": "List the agents, and whether they can be used.",
    "drain": "Take the daemon out of service: no new runs, then its end.",
    "doctor": "Find out what is wrong, and say what to do about it.",
    "config": "Check the configuration, or print what is in force.",
    "journal": "Look after the journal.",
    "completion": "Print the script with which a shell completes the words of this command.",
    "demo": "Show one stopped and continued run on this machine, without any account.",
    "version": "Print the version of this program.",
}


class LazyGroup(click.Group):
    """Imports the file of a command when that command is wanted."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; left by Ctrl-C it has the status of one that the signal ended, and nothing is said."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise click.exceptions.Exit(LEFT) from None

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Give the names, in the order of the help."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"steprail_daemon.cli.commands.{cmd_name.replace('continue', 'continue_run')}")
        command: click.Command = module.command
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Give the commands and options that begin like this, without importing any command."""
        from steprail_daemon.cli.offers import items  # noqa: PLC0415 - only a shell that completes needs it

        return items(COMMANDS.items(), incomplete) + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def _tell_version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    """Do what the command `version` does, and end."""
    del param
    if value:
        command = cli.get_command(ctx, "version")
        assert command is not None
        ctx.invoke(command, as_json=False)
        ctx.exit()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_tell_version, help="Print the version."
)
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Run coding agents, stop them exactly at a step boundary, and go on.

    The exit status of commands that follow a run: 0 COMPLETED, 10 STOPPED, 11 ABORTED, 1 FAILED or any error, 2 wrong
    usage.
    """
    if os.environ.get("NO_COLOR"):
        ctx.color = False


def _prepare_to_complete() -> None:
    """See that nothing but words gets to whoever types, and that Bash is served in our way."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    import_module("steprail_daemon.cli.shells")


def main() -> None:
    """Run the command line and exit."""
    fill_standard_descriptors()
    if os.environ.get("_STEPRAIL_COMPLETE"):
        _prepare_to_complete()
    guard_stdout()
    cli(prog_name="steprail")
