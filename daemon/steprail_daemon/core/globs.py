"""Globs as the API has them: over names of tools, and over paths. Nothing but what is said here is special.

Python's own `fnmatch` gives brackets a meaning and lets `*` span directories, which a rule about paths must not.
"""

from __future__ import annotations

import re
from functools import lru_cache


@lru_cache(maxsize=1024)
def _name(pattern: str) -> re.Pattern[str]:
    first, *others = [
        "".join(["." if char == "?" else re.escape(char) for char in part]) for part in pattern.split("*")
    ]
    if not others:
        return re.compile(first, re.DOTALL)
    # What lies between two stars is taken where it is found first and never looked for again (an atomic group), so that
    # no pattern takes more than the product of both lengths; callers write patterns and agents write names.
    middle = [f"(?>.*?{part})" for part in others[:-1] if part]
    return re.compile("".join([first, *middle, ".*", others[-1]]), re.DOTALL)


def name_matches(pattern: str, name: str) -> bool:
    """Whether a name matches: `*` stands for any characters, `?` for one; case matters."""
    return _name(pattern).fullmatch(name) is not None


def path_matches(pattern: str, path: str) -> bool:
    """Whether a path matches: `*` and `?` stay within a directory, `**` spans directories; case matters.

    `a/**` matches everything below `a`, `**/b` a `b` at any depth, also at the top. `**` beside other characters of a
    name is no more than `*`. The time is bounded by the product of both lengths.
    """
    parts, names = pattern.split("/"), path.split("/")
    # Which beginnings of `names` the parts so far match, by their lengths.
    reached = {0}
    for number, part in enumerate(parts, 1):
        if part == "**":
            # At the end it stands for something; within, also for nothing.
            least = min(reached, default=len(names) + 1) + (number == len(parts))
            reached = set(range(least, len(names) + 1))
        else:
            reached = {at + 1 for at in reached if at < len(names) and name_matches(part, names[at])}
    return len(names) in reached
