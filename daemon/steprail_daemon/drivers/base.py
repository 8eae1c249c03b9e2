"""What a driver is: a pure description of one CLI protocol, and a codec between its bytes and core events.

A driver does no I/O. The engine starts what `Driver.plan` describes, feeds the bytes it reads to `Codec.receive`,
carries out what the state machine answers, and after **every** call to the codec writes `Codec.data_to_send()` to the
agent.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final, Protocol

import msgspec

from steprail_daemon.core.commands import AgentCommand
from steprail_daemon.core.events import AgentEvent, MessageDelta
from steprail_daemon.core.model import Capabilities, PermissionMode, ToolKind

#: Characters of one delta: at four bytes each it stays within what one event may hold, 64 KiB.
MAX_DELTA: Final = 16 * 1024

#: Characters of a title: at four bytes each it stays within what one may hold, 1 KiB.
_TITLE_LENGTH: Final = 200


def command_problem(text: str, program: str) -> str:
    """Say why a prompt would not reach the model of a program that takes a `/` for a command; empty if it would."""
    # JavaScript's blanks, which such programs go by, have one that Python's have not.
    bare = text.replace("\ufeff", " ").strip()
    if not bare:
        return "the prompt is empty"
    if bare.startswith("/"):
        return f"a prompt that begins with '/' is a command to {program}, which does not go by its step gate"
    return ""


def kind_of(tool: str, kinds: Mapping[str, ToolKind]) -> ToolKind:
    """Say what a tool does. Tools of MCP servers are OTHER: their names say nothing certain."""
    kind = kinds.get(tool)
    if kind is not None:
        return kind
    return ToolKind.OTHER if tool.startswith("mcp__") else ToolKind.UNKNOWN


def one_line(text: str) -> str:
    """Give a text as a title: in one line, and not too long."""
    # Few texts have line ends, and every call has a title.
    if "\n" in text or "\r" in text:
        text = " ".join(text.split())
    return text[:_TITLE_LENGTH]


def call_title(tool: str, about: str) -> str:
    """Say in one line what a call of `tool` is about; `about` may be empty."""
    about = one_line(about)
    return f"{tool}: {about}"[:_TITLE_LENGTH] if about else tool


def add_deltas(message_id: str, text: str, events: list[AgentEvent]) -> None:
    """Add a part of a message, in several events where it is too long for one."""
    if len(text) <= MAX_DELTA:
        events.append(MessageDelta(message_id, text))
        return
    events.extend([MessageDelta(message_id, text[at : at + MAX_DELTA]) for at in range(0, len(text), MAX_DELTA)])


def version_range(oldest: tuple[int, ...], beyond: tuple[int, ...]) -> str:
    """Word which versions are accepted: from `oldest` on, below `beyond`."""
    return f"{_dotted(oldest)} or later, below {_dotted(beyond)}"


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


class Channel(Enum):
    """Where bytes came from."""

    STDOUT = "stdout"


class LaunchSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What the engine wants started.

    `command` is the configured program with its arguments. `agent_session_id` names the conversation; with `resume`
    it exists already and must be taken up. `isolated_home` is a directory to use as the agent's home, empty for the
    user's.
    """

    command: tuple[str, ...]
    cwd: str
    agent_session_id: str
    resume: bool
    model: str
    permission_mode: PermissionMode
    isolated_home: str = ""
    plan_mode: bool = False
    allowed_tools: tuple[str, ...] = ()
    disallowed_tools: tuple[str, ...] = ()
    #: Added to the agent's own instructions.
    instructions: str = ""


class LaunchPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What to start: arguments, and environment variables to add to the allowed ones.

    `directories` must exist before the start; the engine makes them, for their owner only.
    """

    argv: tuple[str, ...]
    environment: dict[str, str]
    directories: tuple[str, ...] = ()


class ProbeResult(msgspec.Struct, frozen=True):
    """What a program said of itself. `unavailable_reason` is empty if this driver can work with it."""

    version: str
    unavailable_reason: str = ""


class CodecSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a codec needs to know of its session. `line_bytes` is the longest line that is accepted."""

    agent_session_id: str
    permission_mode: PermissionMode
    line_bytes: int
    resume: bool = False
    plan_mode: bool = False


class Codec(Protocol):
    """Bytes in, events out; it owns no pipe. After each call the caller owes a write of `data_to_send()`."""

    def start(self) -> None:
        """Queue the handshake, if the protocol has one. `AgentReady` comes once it is answered."""

    def receive(self, channel: Channel, data: bytes) -> list[AgentEvent]:
        """Take bytes as they came, cut anywhere, and give what they complete, in order.

        Never raises for what the agent sent: that is `ProtocolFailed`, `RawReceived`, or a counted noise line.
        """

    def receive_eof(self, channel: Channel) -> list[AgentEvent]:
        """Take the end of a channel and give what a last, unterminated line completes."""

    def send(self, command: AgentCommand) -> None:
        """Turn a command into bytes to send. A command that no longer makes sense to the agent sends nothing."""

    def data_to_send(self) -> bytes:
        """Give and forget the bytes that must be written now; empty if there are none."""

    def eof_is_safe(self) -> bool:
        """Whether closing the agent's stdin now ends it without it doing any further work."""

    @property
    def noise_lines(self) -> int:
        """Lines that were no part of the protocol and were skipped."""


class Driver(Protocol):
    """One CLI protocol. Stateless; the registry holds one instance of each."""

    @property
    def name(self) -> str:
        """Name as in the configuration's `driver`."""

    @property
    def capabilities(self) -> Capabilities:
        """What the agent can do through this driver."""

    @property
    def options(self) -> frozenset[str]:
        """Which of `allowed_tools`, `disallowed_tools` and `instructions` the agent takes at its start."""

    @property
    def live_changes(self) -> frozenset[str]:
        """What the agent takes while it runs: `model` by `SetModel`, `modes` by `SetPermissionMode`."""

    @property
    def versions(self) -> str:
        """Which versions of the program are accepted, in words; see `version_range`."""

    def probe_argv(self, command: tuple[str, ...]) -> tuple[str, ...]:
        """Give the command line that makes the program tell its version and exit."""

    def read_probe(self, output: bytes, code: int | None) -> ProbeResult:
        """Read the version from the program's stdout and judge it."""

    def plan(self, spec: LaunchSpec) -> LaunchPlan:
        """Describe how to start the program."""

    def codec(self, settings: CodecSettings) -> Codec:
        """Make the codec of one process."""

    def prompt_problem(self, text: str) -> str:
        """Say why `text` is no prompt for this agent; empty if it is one."""
