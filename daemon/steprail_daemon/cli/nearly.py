"""Ids that are nearly right: of another kind, or mistyped. They are named, and never taken for what was meant."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from steprail_daemon.cli.problems import Problem, Refused

if TYPE_CHECKING:
    from steprail_daemon.cli.client import Daemon

_MOST: Final = 3
_ALIKE: Final = 0.85


class Id(click.ParamType[str]):
    """An id, which begins with what tells its kind. One of another kind is refused with what takes that."""

    def __init__(self, name: str, refused: str, advice: str) -> None:
        self.name = name
        self._refused = refused
        self._advice = advice

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Take an id without the blanks around it."""
        text = str(value).strip()
        if not text:
            self.fail(f"it is empty; accepted: the id of a {self.name.lower()}", param, ctx)
        if text.startswith(self._refused):
            self.fail(self._advice.format(text), param, ctx)
        return text


RUN: Final = Id(
    "RUN",
    "ses_",
    "{0} is a session; `steprail watch {0}` shows it, `steprail runs --session {0}` lists its runs",
)
SESSION: Final = Id("SESSION", "run_", "{0} is a run; `steprail show {0}` names its session")


async def meant(daemon: Daemon, refused: Refused) -> Refused:
    """Give a refusal with the ids that are like the one that was not found."""
    try:
        if refused.reason == "RUN_NOT_FOUND":
            wanted = refused.about.get("run_id", "")
            known = [str(run["run_id"]) for run in await daemon.list_runs("")] if wanted else []
        elif refused.reason == "SESSION_NOT_FOUND":
            wanted = refused.about.get("session_id", "")
            known = [str(session["session_id"]) for session in await daemon.list_sessions()] if wanted else []
        else:
            return refused
    except Problem:
        return refused
    if not (alike := _alike(wanted, known)):
        return refused
    return Refused(refused.reason, f"{refused.said}; did you mean {' or '.join(alike)}?", refused.about)


def _alike(wanted: str, known: Sequence[str]) -> list[str]:
    from difflib import get_close_matches  # noqa: PLC0415 - only what was not found needs it

    folded = wanted.casefold()
    beginning = [name for name in known if len(folded) > len("run_") and name.startswith(folded)]
    return (beginning or get_close_matches(folded, known, _MOST, _ALIKE))[:_MOST]
