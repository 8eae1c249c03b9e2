"""How shells complete words: the scripts, and what they ask for. click has the most of it.

Imported only by who prints a script or completes a word.
"""

from __future__ import annotations

import os
from typing import ClassVar, Final

from click.shell_completion import (
    BashComplete,
    CompletionItem,
    ShellComplete,
    add_completion_class,
    get_completion_class,
    split_arg_string,
)

SHELLS: Final = ("bash", "zsh", "fish")
#: What a script sets, and by which click knows that it is to complete a word.
VARIABLE: Final = "_STEPRAIL_COMPLETE"
_BREAKS: Final = "=:"
_BASH: Final = """\
%(complete_func)s() {
    local IFS=$'\\n' type value
    COMPREPLY=()
    while IFS=, read -r type value; do
        case $type in
            dir) compopt -o dirnames ;;
            file) compopt -o default ;;
            open) compopt -o nospace; COMPREPLY+=("$value") ;;
            plain) COMPREPLY+=("$value") ;;
        esac
    done < <(COMP_TYPED="${COMP_LINE:0:COMP_POINT}" %(complete_var)s=bash_complete "$1" 2>/dev/null)
}

complete -o nosort -F %(complete_func)s %(prog_name)s
"""


class Bash(BashComplete):
    """Bash takes `steps=3` for three words, and replaces only the last of them.

    click's own script hands over words, which cannot be put together again; this one hands over the line.
    """

    source_template: ClassVar[str] = _BASH

    def source(self) -> str:
        """Give the script. It needs Bash 4.4, which is not looked for: the script may be for another machine."""
        return ShellComplete.source(self)

    def get_completion_args(self) -> tuple[list[str], str]:
        """Give the words before the one that is typed, and that one."""
        line = os.environ.get("COMP_TYPED", "")
        words = split_arg_string(line)[1:]
        incomplete = words.pop() if words and not line[-1:].isspace() else ""
        self._cut = max(incomplete.rfind(sign) for sign in _BREAKS) + 1
        return words, incomplete

    def format_completion(self, item: CompletionItem) -> str:
        """Give the kind and what replaces the word that Bash sees."""
        return f"{item.type},{str(item.value)[self._cut :]}"


add_completion_class(Bash, "bash")


def script(shell: str, name: str) -> str:
    """Give the script of a shell for a command of this name, which is looked for in the PATH when a word is typed."""
    from steprail_daemon.cli.main import cli  # noqa: PLC0415 - it imports its commands, one of which needs this

    kind = get_completion_class(shell)
    assert kind is not None, shell
    return kind(cli, {}, name, VARIABLE).source()
