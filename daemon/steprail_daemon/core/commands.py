"""Everything a run may ask of the world, in imperatives.

The engine carries commands out in their order, with one exception that is the promise of the whole system: all facts
of a batch are committed before any other command of it has an effect. `LowerGate` stands for a fact that only the
engine can word, so it comes among the facts.
"""

from __future__ import annotations

import msgspec

from steprail_daemon.core.events import Timer
from steprail_daemon.core.model import DecisionAction
from steprail_daemon.core.records import Fact


class Emit(msgspec.Struct, frozen=True):
    """Record a fact and, once it is committed, publish it."""

    fact: Fact


class SendPrompt(msgspec.Struct, frozen=True):
    """Give the agent a prompt."""

    prompt_id: str
    text: str


class AnswerBoundary(msgspec.Struct, frozen=True):
    """Answer the agent that waits at a boundary."""

    boundary_id: str
    action: DecisionAction


class AnswerPermission(msgspec.Struct, frozen=True):
    """Answer the agent that asked for leave. `message` is what its model is told on a denial."""

    permission_id: str
    allow: bool
    message: str


class Interrupt(msgspec.Struct, frozen=True):
    """Cut the agent's turn off by its protocol."""


#: Commands that a codec turns into bytes.
AgentCommand = SendPrompt | AnswerBoundary | AnswerPermission | Interrupt


class StartTimer(msgspec.Struct, frozen=True):
    """Fire `timer` at `deadline_at`, replacing one of the same name."""

    timer: Timer
    deadline_at: int


class CancelTimer(msgspec.Struct, frozen=True):
    """Forget `timer` if it is set."""

    timer: Timer


class EndProcess(msgspec.Struct, frozen=True):
    """Run the shutdown ladder over the agent's process tree. `reason` is for the session's state."""

    reason: str


class LowerGate(msgspec.Struct, frozen=True):
    """The gate did not hold: take EXACT from the session's capabilities and record `CapabilitiesChanged` here."""

    reason: str


class FinishRun(msgspec.Struct, frozen=True):
    """The run is over; the session may go on with the next one. Last command of a run, exactly once."""


Command = Emit | AgentCommand | StartTimer | CancelTimer | EndProcess | LowerGate | FinishRun
