"""What a command line for a shell would run, as far as that can be told without running it.

For rules about permissions. This is no shell: what it is not sure of it says it cannot tell, and a rule that allows
must not match then.
"""

from __future__ import annotations

import re
import shlex

import msgspec

#: Tokens of `shlex` that end one command and begin another.
_ENDS = re.compile(r"[;&|()\n]+")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=.*", re.DOTALL)
#: Substitutions run commands from within a word; a shell's own words and functions change what others mean.
_SUBSTITUTES = ("$(", "`", "<(", ">(", "${")
_KEYWORDS = frozenset({"if", "then", "else", "elif", "fi", "for", "while", "until", "do", "done", "case", "esac"})
_KEYWORDS_TOO = frozenset({"function", "select", "time", "coproc", "{", "}", "!", "[["})


class CommandLine(msgspec.Struct, frozen=True):
    """The commands of a line, each as its words. `clear` is false if it may run others than these."""

    commands: tuple[tuple[str, ...], ...]
    clear: bool


def split(text: str) -> CommandLine:
    """Split a command line at `;`, `&`, `|` and line breaks, and each command into words, as a POSIX shell would.

    Quotes are taken off. Unbalanced quotes, substitutions, here-documents and a shell's own words make it unclear.
    """
    clear = not any(sign in text for sign in _SUBSTITUTES) and "<<" not in text
    reader = shlex.shlex(text.replace("\r", "\n"), posix=True, punctuation_chars=";&|()\n")
    reader.whitespace = " \t"
    reader.whitespace_split = True
    reader.commenters = ""
    commands: list[tuple[str, ...]] = []
    words: list[str] = []
    try:
        for token in reader:
            if _ENDS.fullmatch(token):
                if words:
                    commands.append(tuple(words))
                words = []
                clear = clear and "(" not in token and ")" not in token
            else:
                words.append(token)
    except ValueError:
        clear = False
    if words:
        commands.append(tuple(words))
    if any(command[0] in _KEYWORDS or command[0] in _KEYWORDS_TOO for command in commands):
        clear = False
    return CommandLine(tuple(commands), clear and bool(commands))


def begins_with(command: tuple[str, ...], prefix: tuple[str, ...]) -> bool:
    """Whether a command begins with these words."""
    return command[: len(prefix)] == prefix


def without_assignments(command: tuple[str, ...]) -> tuple[str, ...]:
    """Leave out variables that are set before the command's name."""
    for at, word in enumerate(command):
        if _ASSIGNMENT.fullmatch(word) is None:
            return command[at:]
    return ()
