"""Everything a run may ask of the world, in imperatives.

The engine carries commands out in their order, with one exception that is the promise of the whole system: all facts
of a batch are committed before any other command of it has an effect. `LowerGate` stands for a fact that only the
engine can word, so it comes among the facts.
"""

from __future__ import annotations

import msgspec

from steprail_daemon.core.events import Timer
from steprail_daemon.core.model import (
    DecisionAction,
    PermissionAlternative,
    PermissionMode,
    QuestionItemAnswer,
    Step,
)
from steprail_daemon.core.records import Fact


class Emit(msgspec.Struct, frozen=True):
    """Record a fact and, once it is committed, publish it."""

    fact: Fact


class SendPrompt(msgspec.Struct, frozen=True):
    """Give the agent a prompt. `wants_cost`: something of the run needs the cost at each boundary."""

    prompt_id: str
    text: str
    wants_cost: bool = False


class AnswerBoundary(msgspec.Struct, frozen=True):
    """Answer the agent that waits at a boundary.

    With CONTINUE, `guidance` are texts that its model gets with the next step, in order, and `model` is the one to use
    from the next request on; empty: none, unchanged.
    """

    boundary_id: str
    action: DecisionAction
    guidance: tuple[str, ...] = ()
    model: str = ""


class AnswerPermission(msgspec.Struct, frozen=True):
    """Answer the agent that asked for leave. `permission_id` is the agent's own.

    `message` is what its model is told on a denial. `alternative` is what to do in place of the call, with `allow`.
    """

    permission_id: str
    allow: bool
    message: str
    alternative: PermissionAlternative | None = None


class AnswerQuestion(msgspec.Struct, frozen=True):
    """Answer the agent that asked a person; `answers` None: nobody will. `question_id` is the agent's own."""

    question_id: str
    answers: tuple[QuestionItemAnswer, ...] | None


class Interrupt(msgspec.Struct, frozen=True):
    """Cut the agent's turn off by its protocol."""


class SetModel(msgspec.Struct, frozen=True):
    """Use `model` from the next request on. Only for agents that can; `ModelChanged` answers."""

    model: str


class SetPermissionMode(msgspec.Struct, frozen=True):
    """Change what the agent may do without asking, and whether it plans without acting."""

    permission_mode: PermissionMode
    plan_mode: bool


#: Commands that a codec turns into bytes.
AgentCommand = (
    SendPrompt | AnswerBoundary | AnswerPermission | AnswerQuestion | Interrupt | SetModel | SetPermissionMode
)


class EvaluateExpressions(msgspec.Struct, frozen=True):
    """Evaluate CEL expressions on how the run stands; `RulesEvaluated` answers, within the bound of the evaluation.

    `expressions` are the sources, in the order of the rules and depth first within groups. `step` is the one that was
    just completed and is not in the run's view yet; None at the end of a run.
    """

    evaluation_id: int
    expressions: tuple[str, ...]
    step: Step | None


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


Command = Emit | AgentCommand | EvaluateExpressions | StartTimer | CancelTimer | EndProcess | LowerGate | FinishRun
