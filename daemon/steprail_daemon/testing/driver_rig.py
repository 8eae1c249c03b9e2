"""What the driver conformance kit needs to know of an agent: how to make it work, and what its model was asked.

A rig runs one agent program whose model is scripted. `docs/writing-a-driver.md` says how to write one.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final, Protocol

import anyio
import msgspec

from steprail_daemon.engine.settings import AgentSettings

#: What each request of `Work` costs, in every rig.
INPUT_TOKENS: Final = 100
OUTPUT_TOKENS: Final = 20

#: Name under which the kit configures the agent.
AGENT: Final = "kit"

#: Bound on everything that an agent does and a check waits for, in seconds.
WAIT: Final = 30.0

#: How long something lasts that only an interrupt ends, in seconds; a check that waits for its own end fails first.
ENDLESS: Final = 300


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """What the agent does with one prompt: `steps` messages of `calls` tool calls each, then the message `text`.

    Each call prints `output`, or `output_bytes` letters x if that is set. Each request takes `INPUT_TOKENS` and
    `OUTPUT_TOKENS`. The other fields say what is out of the ordinary, for every call or request of the turn.
    """

    steps: int = 1
    calls: int = 1
    text: str = "All of the work is done."
    output: str = "fine"
    output_bytes: int = 0
    #: Every call fails.
    fails: bool = False
    #: Every call needs leave in the mode ASK; it runs a command that begins with `Rig.asking_command`.
    asks: bool = False
    #: In place of its calls, each step asks a person one question that has options.
    question: bool = False
    #: Not empty: in place of its calls, each step proposes this text as a plan.
    plan: str = ""
    #: The model does not answer the turn's first request before `ENDLESS` seconds.
    slow_model: bool = False
    #: The first call of each step does not end by itself before `ENDLESS` seconds.
    slow_tool: bool = False
    #: The provider refuses the turn's requests with 429, and asks to be left alone for a second if it can say so.
    rate_limited: bool = False


class Rig(Protocol):
    """One agent program and its scripted model. What is asked about requests concerns those of the main loop."""

    #: The driver's name in `drivers.registry`.
    driver: str
    #: A line, without its end, that is well-formed in the agent's protocol and means nothing to any version of it.
    unknown_line: bytes
    #: How the command of a call that asks for leave begins, such as `touch`.
    asking_command: str

    def agent(self) -> AgentSettings:
        """Give the agent's configuration: named `AGENT`, with a home of its own, in the mode BYPASS."""

    def prompt(self, work: Work) -> str:
        """Give the prompt that makes the agent do `work`. Any other prompt makes it answer with one message."""

    def requests(self) -> int:
        """Count the requests that the model has got so far."""

    async def request(self, number: int) -> None:
        """Wait until the model got its request of this number, counted from 1. The caller has the bound."""

    def carried(self) -> int:
        """Count the results that the latest request carried, of calls that ran to their end or were denied."""

    def changes(self) -> int | None:
        """Count the calls with `Work.asks` that really ran so far; None if this program cannot tell."""

    def saw(self, text: str) -> bool | None:
        """Tell whether a request so far held a text that came with an answer at the gate; None: it cannot tell."""

    def told_of_stop(self) -> bool | None:
        """Tell whether the latest request told the model of an earlier stop; None if this program cannot tell."""

    def model(self) -> str | None:
        """Give the model that the latest request was for; None if this program cannot tell."""


#: Makes a rig that lives in a directory of its own, empty at first.
MakeRig = Callable[[Path], AbstractContextManager[Rig]]


class RequestLog:
    """A pipe with a name, into which an agent program writes one line for each request to its model.

    What was written before a call is counted by it: there is no file to watch and no reader that may be late.
    """

    def __init__(self, path: Path) -> None:
        os.mkfifo(path, 0o600)
        self.path = path
        # Open for both, it never is at its end, and no writer waits for us.
        self._pipe = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._rest = b""
        self._lines: list[bytes] = []

    @property
    def lines(self) -> list[bytes]:
        """The lines so far."""
        while True:
            try:
                data = os.read(self._pipe, 1 << 16)
            except BlockingIOError:
                return self._lines
            *lines, self._rest = (self._rest + data).split(b"\n")
            self._lines += lines

    async def wait(self, count: int) -> None:
        """Wait until there are `count` lines."""
        while len(self.lines) < count:
            await anyio.wait_readable(self._pipe)

    def close(self) -> None:
        """Let go of the pipe."""
        os.close(self._pipe)


def text_after(word: str, text: str) -> str:
    """Give what follows the last occurrence of `word`; empty if there is none. For rigs that find work in a prompt."""
    return text.rpartition(word)[2] if word in text else ""


def as_json(work: Work) -> str:
    """Give work as JSON, on one line."""
    return msgspec.json.encode(work).decode()


def from_json(text: str) -> Work:
    """Give the work that a JSON object at the beginning of a text stands for.

    Raises:
        msgspec.DecodeError: there is none.
    """
    found: Any = msgspec.json.decode(text.splitlines()[0] if text else "")
    return msgspec.convert(found, Work)
