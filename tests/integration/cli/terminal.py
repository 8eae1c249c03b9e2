"""The command line on a terminal of its own."""

from contextlib import AbstractContextManager

from tests.framework import terminal
from tests.framework.daemon import STEPRAIL
from tests.framework.terminal import Screen
from tests.integration.cli.conftest import Steprail


def on_a_terminal(steprail: Steprail, *arguments: str, program: str = STEPRAIL) -> AbstractContextManager[Screen]:
    """Run a command as the foreground of a terminal of its own, without colours."""
    environment = {**steprail.environment, "NO_COLOR": "1"}
    return terminal.on_a_terminal([program, *arguments], environment=environment, cwd=steprail.cwd)
