"""What a check finds, and what it is given."""

from __future__ import annotations

import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Final

from steprail_daemon.cli.client import Daemon, Message
from steprail_daemon.config.load import LoadedConfig


class Mark(Enum):
    """How it is. Only a problem makes the status 1."""

    OK = "ok"
    #: Worth to know; nothing is wrong.
    NOTE = "note"
    #: It works, or cannot be told to be wrong from here.
    WARNING = "warning"
    PROBLEM = "problem"
    NOT_TRIED = "not tried"


@dataclass(frozen=True)
class Finding:
    """One finding. `advice` is one sentence on what to do, there unless it is OK; `figures` are for programs."""

    about: str
    mark: Mark
    text: str
    advice: str = ""
    figures: Mapping[str, int | float | str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        assert bool(self.advice) is (self.mark is not Mark.OK), self

    def plain(self) -> Message:
        """Give it as an object for `--json`."""
        content: dict[str, Any] = {"about": self.about, "mark": self.mark.name, "text": self.text}
        if self.advice:
            content["advice"] = self.advice
        return content | dict(self.figures)


def ok(about: str, text: str, **figures: int | float | str) -> Finding:
    """Give a finding that all is well."""
    return Finding(about, Mark.OK, text, figures=figures)


def note(about: str, text: str, advice: str) -> Finding:
    """Give a finding that is no fault."""
    return Finding(about, Mark.NOTE, text, advice)


def warning(about: str, text: str, advice: str) -> Finding:
    """Give a finding that may be a fault."""
    return Finding(about, Mark.WARNING, text, advice)


def problem(about: str, text: str, advice: str) -> Finding:
    """Give a finding that is a fault."""
    return Finding(about, Mark.PROBLEM, text, advice)


def not_tried(about: str, text: str, advice: str) -> Finding:
    """Give a finding that nothing was found out."""
    return Finding(about, Mark.NOT_TRIED, text, advice)


@dataclass
class Case:
    """What checks are given. `agents` are the names to look at, which are those of the configuration unless `named`.

    `address_named`: somebody said where the daemon is. `connect` gives a daemon at an address. `trying`: agents are
    started. `server` is what the daemon says of itself, once the check `addresses.answer` has asked and if it answered.
    """

    loaded: LoadedConfig
    environ: Mapping[str, str]
    address: str
    connect: Callable[[str], AbstractAsyncContextManager[Daemon]]
    agents: Sequence[str]
    named: bool = False
    address_named: bool = False
    trying: bool = True
    server: Message | None = None


Tell = Callable[[Finding], None]
#: A plain function runs on a thread, and may block.
Check = Callable[[Case, Tell], Awaitable[None]] | Callable[[Case, Tell], None]


def why_not_writable(directory: Path) -> str:
    """Say why nothing can be made in a directory; empty if it can. What it makes to see that has no name."""
    try:
        with tempfile.TemporaryFile(dir=directory):
            return ""
    except OSError as error:
        return error.strerror or str(error)


def nearest(path: Path) -> Path:
    """Give a path, or the nearest thing above it that exists; raises OSError where that cannot be looked at."""
    while not path.exists():
        path = path.parent
    return path


CORRECT_IT: Final = "correct it; `steprail config check` tells what is wrong with the configuration"
