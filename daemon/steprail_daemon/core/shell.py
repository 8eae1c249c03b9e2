"""What a command line for a shell would run, as far as that can be told without running it.

For rules about permissions. This is no shell: what it is not sure of it says it cannot tell, and a rule that allows
must not match then.
"""

from __future__ import annotations

import re

import msgspec

#: Longest line that is looked at, in characters; what a longer one runs cannot be told.
MAX_LINE = 65_536

#: Pieces of a line in the order in which they are looked for; what is none of them is a quote without its end.
_PIECE = re.compile(
    r"""(?P<blank>[ \t]+|\\\n)
    |(?P<both>&>>?)
    |(?P<end>[;&|()\r\n])
    |(?P<number>[0-9]*)(?P<redirection>>>|>\||>&|<>|<&|>|<)
    |'(?P<single>[^']*)'
    |"(?P<double>(?:[^"\\]|\\.)*)"
    |\\(?P<escaped>.)
    |(?P<plain>[^ \t;&|()\r\n<>'"\\]+)""",
    re.DOTALL | re.VERBOSE,
)
_COMMENT = re.compile(r"#[^\n]*")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\[.*\])?\+?=.*", re.DOTALL)
#: Substitutions run commands from within a word; a shell's own words and functions change what others mean.
_SUBSTITUTES = ("$(", "`", "<(", ">(", "${", "<<", "\0")
_KEYWORDS = frozenset({"if", "then", "else", "elif", "fi", "for", "while", "until", "do", "done", "case", "esac"})
_KEYWORDS_TOO = frozenset({"function", "select", "time", "coproc", "{", "}", "!", "[["})
#: Within double quotes a backslash takes away the meaning of these only.
_ESCAPE_IN_QUOTES = re.compile(r"\\([$`\"\\])|\\\n", re.DOTALL)
#: Where a redirection may go without reading or writing a file, also where it takes a descriptor.
_NOWHERE = re.compile(r"/dev/null")
_DESCRIPTOR = re.compile(r"/dev/null|[0-9]+-?|-")
#: Commands that run what their arguments say, and those whose arguments are a script.
_WRAPPERS = frozenset(
    {"builtin", "busybox", "chroot", "command", "doas", "env", "exec", "find", "ionice", "nice", "nohup", "parallel"}
)
_WRAPPERS_TOO = frozenset({"setsid", "stdbuf", "sudo", "timeout", "xargs"})
_SHELLS = frozenset(["ash", "bash", "dash", "ksh", "sh", "zsh"])
_SCRIPT_OPTION = re.compile(r"-[A-Za-z]*[cs][A-Za-z]*")
_EVALUATE = frozenset({".", "alias", "eval", "source", "trap"})

#: A word as it is run; None if only a shell can tell what becomes of it, be it no word or several.
Word = str | None


class CommandLine(msgspec.Struct, frozen=True):
    """The commands of a line, each as its words, without redirections.

    `clear` is false if it may run others than these; `redirected` says that a file is read or written by redirection.
    """

    commands: tuple[tuple[Word, ...], ...]
    clear: bool
    redirected: bool = False


class _Reader:
    """Puts pieces together: words, and commands of words."""

    __slots__ = ("_before_both", "_literal", "_named", "_parts", "_target", "_words", "clear", "commands", "redirected")

    def __init__(self) -> None:
        self.commands: list[tuple[Word, ...]] = []
        self.clear = True
        self.redirected = False
        self._words: list[Word] = []
        self._named = False
        self._parts: list[str] = []
        self._literal = True
        #: What the word is that comes next, if it is where a redirection goes to.
        self._target: re.Pattern[str] | None = None
        #: How many words came before `&>`, if that was there.
        self._before_both: int | None = None

    @property
    def within_word(self) -> bool:
        return bool(self._parts)

    def add(self, text: str, *, literal: bool = True) -> None:
        self._parts.append(text)
        self._literal = self._literal and literal

    def end_word(self) -> None:
        if not self._parts:
            return
        text, literal, target = "".join(self._parts), self._literal, self._target
        self._parts, self._literal, self._target = [], True, None
        if target is not None:
            self.redirected = self.redirected or not literal or target.fullmatch(text) is None
            return
        assigns = not self._named and _ASSIGNMENT.fullmatch(text) is not None
        self._named = not assigns
        self._words.append(text if literal or assigns else None)

    def redirect(self, harmless: re.Pattern[str]) -> None:
        self.end_word()
        self._target = harmless

    def redirect_both(self) -> None:
        """Take `&>`: a redirection to some shells, and the end of a command before a redirection to others."""
        self.redirect(_NOWHERE)
        if self._before_both is None:
            self._before_both = len(self._words)

    def end_command(self) -> None:
        self.end_word()
        if self._words:
            self.commands.append(tuple(self._words))
        if self._before_both is not None and len(self._words) > self._before_both:
            self.clear = False
        self._words = []
        self._named, self._target, self._before_both = False, None, None


def split(text: str) -> CommandLine:
    """Split a command line at `;`, `&`, `|` and line breaks, and each command into words, as a POSIX shell would.

    Quotes, comments and redirections are taken off. Unbalanced quotes, substitutions, here-documents and a shell's own
    words make it unclear, and so does a line longer than `MAX_LINE`. The time is bounded by the length.
    """
    if len(text) > MAX_LINE:
        return CommandLine((), clear=False)
    reader = _Reader()
    reader.clear = not any(sign in text for sign in _SUBSTITUTES)
    at = 0
    while at < len(text):
        if text[at] == "#" and not reader.within_word:
            at = _end_of(_COMMENT, text, at)
            continue
        piece = _PIECE.match(text, at)
        if piece is None:
            reader.clear = False
            break
        _take(reader, piece)
        at = piece.end()
    reader.end_command()
    if any(command[0] in _KEYWORDS or command[0] in _KEYWORDS_TOO for command in reader.commands):
        reader.clear = False
    return CommandLine(tuple(reader.commands), reader.clear and bool(reader.commands), reader.redirected)


def _end_of(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return at if found is None else found.end()


def _take(reader: _Reader, piece: re.Match[str]) -> None:
    kind = piece.lastgroup or ""
    text = piece.group(kind)
    if kind == "blank":
        # A line that is continued goes on within its word.
        if text != "\\\n":
            reader.end_word()
    elif kind == "end":
        reader.end_command()
        reader.clear = reader.clear and text not in "()"
    elif kind == "both":
        reader.redirect_both()
    elif kind == "redirection":
        if reader.within_word:
            # Digits at the end of a word name no descriptor.
            reader.add(piece.group("number"))
        reader.redirect(_DESCRIPTOR if text.endswith("&") else _NOWHERE)
    elif kind == "double":
        reader.add(_ESCAPE_IN_QUOTES.sub(r"\1", text), literal="$" not in text)
    elif kind == "plain":
        # `$'` and `$"` begin quotes with escapes of their own.
        if text.endswith("$") and piece.string[piece.end() : piece.end() + 1] in ("'", '"'):
            reader.clear = False
        reader.add(text, literal=not any(sign in text for sign in "$*?[{"))
    else:
        reader.add(text)


def begins_with(command: tuple[Word, ...], prefix: tuple[Word, ...]) -> bool:
    """Whether a command certainly begins with these words."""
    return command[: len(prefix)] == prefix


def may_begin_with(command: tuple[Word, ...], prefix: tuple[Word, ...]) -> bool:
    """Whether a command may begin with these words, or may run one that does.

    Variables before it, the directory it lies in and what it is wrapped in (`env`, `sudo`, `xargs` and the like) make
    no difference; what a shell is given as text or by a pipe may be anything. Programs and scripts in files that it
    runs are not looked into.
    """
    command = without_assignments(command)
    if not command:
        return False
    first = _name(command[0])
    reach = len(command) if first in _WRAPPERS or first in _WRAPPERS_TOO else 1
    names = {_name(word) for word in command[:reach]}
    if first in _EVALUATE or "eval" in names or (names & _SHELLS and _takes_text(command)):
        return True
    return any(
        _may_begin(command[at : at + len(prefix)], prefix)
        for at in range(reach)
        # Behind a wrapper any word may be the command: one that cannot be told counts where a command is likeliest.
        if at <= 1 or command[at] is not None
    )


def _may_begin(command: tuple[Word, ...], prefix: tuple[Word, ...]) -> bool:
    for place, (word, wanted) in enumerate(zip(command, prefix, strict=False)):
        if word is None:
            return True
        if word != wanted and (place or _name(word) != wanted):
            return False
    return len(command) == len(prefix)


def _name(word: Word) -> Word:
    return None if word is None else word.rpartition("/")[2]


def _takes_text(command: tuple[Word, ...]) -> bool:
    """Whether a shell gets its script as an argument, or by its input for want of any."""
    options = [word is None or word.startswith(("-", "+")) for word in command[1:]]
    return all(options) or any(word is None or _SCRIPT_OPTION.fullmatch(word) is not None for word in command[1:])


def without_assignments(command: tuple[Word, ...]) -> tuple[Word, ...]:
    """Leave out variables that are set before the command's name."""
    for at, word in enumerate(command):
        if word is None or _ASSIGNMENT.fullmatch(word) is None:
            return command[at:]
    return ()
