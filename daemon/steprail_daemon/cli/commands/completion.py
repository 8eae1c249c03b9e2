"""`steprail completion`."""

from __future__ import annotations

import click

from steprail_daemon.cli.shells import SHELLS, script


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def command(*, shell: str) -> None:
    """Print the script with which a shell completes the words of this command.

    For bash: `eval "$(steprail completion bash)"` in ~/.bashrc. For zsh: `eval "$(steprail completion zsh)"` in
    ~/.zshrc, after compinit. For fish: `steprail completion fish > ~/.config/fish/completions/steprail.fish`.
    """
    click.echo(script(shell, "steprail"), nl=False)
