"""What the handlers of a run share: its private notes, the parts of their answers, and the ways in which a run ends."""

from __future__ import annotations

import msgspec

from steprail_daemon.core.commands import (
    CancelTimer,
    Command,
    Emit,
    EndProcess,
    EvaluateExpressions,
    Interrupt,
    LowerGate,
    StartTimer,
)
from steprail_daemon.core.events import RunEvent, StepCompleted, Timer
from steprail_daemon.core.model import (
    Capabilities,
    Cost,
    CostRule,
    CostSupport,
    DecisionSource,
    Failure,
    FinishReason,
    RepetitionRule,
    RunState,
    StepGate,
    StopReason,
    TokenUsageRule,
    ToolCallRule,
    ToolFailuresRule,
    Usage,
    UsageSupport,
    Verdict,
)
from steprail_daemon.core.records import (
    Fact,
    RunStateChanged,
    SteerDelivered,
    SteerDropped,
    StepEnded,
)
from steprail_daemon.core.replay import fold_run, fold_step, spans_at, summarise
from steprail_daemon.core.stops import evaluate, expressions_of
from steprail_daemon.core.stops.base import StepFacts
from steprail_daemon.core.stops.expressions import ExpressionResult
from steprail_daemon.core.stops.tally import NO_TALLY, Tally, conditions
from steprail_daemon.core.views import RunView

# A member of an enumeration costs a function call to look up; these are on the way to every decision.
RUNNING = RunState.RUNNING
AWAITING_DECISION = RunState.AWAITING_DECISION
AWAITING_PERMISSION = RunState.AWAITING_PERMISSION
STOPPING = RunState.STOPPING
ABORTING = RunState.ABORTING
COMPLETED = RunState.COMPLETED
STOPPED = RunState.STOPPED
FAILED = RunState.FAILED
_WAITING = frozenset({AWAITING_DECISION, AWAITING_PERMISSION})
NO_FINISH_REASON = FinishReason.UNKNOWN

#: Why the process of an agent that goes past a boundary is ended.
GATE_LOST = "its step gate did not hold"

_TALLIED = (TokenUsageRule, CostRule, ToolCallRule, ToolFailuresRule, RepetitionRule)


class Evaluation(msgspec.Struct, frozen=True):
    """Expressions that are being evaluated: for a step that is complete and waits, or (None) for the run's end.

    `finish_reason` is that of the last message, at the run's end.
    """

    evaluation_id: int
    completed: StepCompleted | None
    finish_reason: FinishReason = FinishReason.UNKNOWN


class Denial(msgspec.Struct, frozen=True):
    """Who or what denied leave last, for a turn that ends by it."""

    source: DecisionSource
    reason: str
    identity: str


class RunBase:
    """The part of a run that its handlers share. `view` and `capabilities` are public, see `core.run.Run`."""

    __slots__ = (
        "_boundary_id",
        "_confirmed",
        "_deciders",
        "_deciders_gone_at",
        "_denial",
        "_drain_ended",
        "_evaluating",
        "_evaluations",
        "_expressions",
        "_gate_lowered",
        "_inexact",
        "_interrupted",
        "_noted",
        "_overshoot",
        "_overshooting",
        "_own_ids",
        "_permission_deadline",
        "_permissions_asked",
        "_process_ended",
        "_questions_asked",
        "_slow",
        "_steers_given",
        "_steps_before",
        "_stop_failure",
        "_tally",
        "_timers",
        "capabilities",
        "view",
    )

    def __init__(self, view: RunView) -> None:
        spec = view.spec
        self.view = view
        self.capabilities = Capabilities(
            step_gate=spec.step_gate, usage=UsageSupport.UNSUPPORTED, cost=CostSupport.UNSUPPORTED
        )
        self._steps_before = 0
        self._tally = NO_TALLY
        self._expressions = expressions_of(spec.stop_rules)
        #: Whether the agent may go on at a boundary without leave, by what it is.
        self._inexact = spec.step_gate is not StepGate.EXACT
        #: Whether a step needs more than the short way to its answer.
        self._slow = self._inexact or bool(self._expressions)
        self._confirmed = False
        #: The boundary at which the agent waits for an answer; empty if there is none.
        self._boundary_id = ""
        self._gate_lowered = False
        self._interrupted = False
        self._process_ended = False
        self._timers: set[Timer] = set()
        #: What went wrong while the agent was being stopped or aborted; it is claimed at the end.
        self._noted: Failure | None = None
        #: An error stopped the run: it fails with this once the agent has confirmed the stop.
        self._stop_failure: Failure | None = None
        self._evaluations = 0
        self._evaluating: Evaluation | None = None
        #: Open permissions and questions: the agent's own ids by the public ones.
        self._own_ids: dict[str, str] = {}
        self._permissions_asked = 0
        self._questions_asked = 0
        self._permission_deadline = 0
        self._denial: Denial | None = None
        self._deciders = 0
        #: Since when no decider has been registered, after there had been one.
        self._deciders_gone_at: int | None = None
        self._drain_ended = False
        #: So many of the pending steers were handed to the agent; the next step confirms them.
        self._steers_given = 0
        #: Model requests after the boundary at which a run was stopped, and whether the last one is still under way.
        self._overshoot = 0
        self._overshooting = False

    # --- parts of answers -------------------------------------------------------------------------------------------

    def _emit(self, fact: Fact) -> Emit:
        fold_run(self.view, fact)
        return Emit(fact)

    def _change(self, state: RunState, at: int, reason: StopReason | None = None) -> Emit:
        return self._emit(RunStateChanged(state, self.view.state, at, reason))

    def _start_timer(self, timer: Timer, deadline_at: int) -> StartTimer:
        self._timers.add(timer)
        return StartTimer(timer, deadline_at)

    def _cancel(self, *timers: Timer) -> list[Command]:
        live = [timer for timer in timers if timer in self._timers]
        self._timers.difference_update(live)
        return [CancelTimer(timer) for timer in live]

    def _interrupt(self) -> list[Command]:
        if self._interrupted:
            return []
        self._interrupted = True
        return [Interrupt()]

    def _lower_gate(self, what: str) -> list[Command]:
        if self._gate_lowered:
            return []
        self._gate_lowered = True
        return [LowerGate(what)]

    def _end_process(self, reason: str) -> list[Command]:
        if self._process_ended:
            return []
        self._process_ended = True
        return [EndProcess(reason)]

    def _ignore(self, _event: RunEvent, _at: int) -> list[Command]:
        return []

    # --- rules ------------------------------------------------------------------------------------------------------

    def _keep_tally(self, usage_before: Usage | None, cost_before: Cost | None) -> None:
        rules = self.view.spec.stop_rules
        if any(isinstance(condition, _TALLIED) for condition in conditions(rules)):
            self._tally = Tally.for_rules(rules, usage_before, cost_before)

    def _step_ended(
        self, event: StepCompleted, at: int, results: tuple[ExpressionResult, ...] = ()
    ) -> tuple[Emit, tuple[Verdict, ...]]:
        """Judge a step and record it; without `results` the expressions' verdicts are UNKNOWN."""
        step = event.step
        view = self.view
        spec = view.spec
        tally = self._tally
        if tally is not NO_TALLY:
            tally.add(step)
        verdicts: tuple[Verdict, ...] = ()
        if spec.stop_rules:
            number = step.number
            active, wall, started = view.active_ns, 0, view.started_at
            if started is not None:
                wall = at - started
                if view.state not in _WAITING:
                    active += at - view.state_since
            facts = StepFacts(number, self._steps_before + number, step, tally, active, wall)
            verdicts = evaluate(spec.stop_rules, facts, results)
        fold_step(view, summarise(step))
        return Emit(StepEnded(step, verdicts)), verdicts

    def _final_verdicts(
        self, at: int, results: tuple[ExpressionResult, ...], finish_reason: FinishReason
    ) -> tuple[Verdict, ...]:
        view = self.view
        steps, active = len(view.steps), spans_at(view, at).active_ns
        wall = 0 if view.started_at is None else at - view.started_at
        facts = StepFacts(steps, self._steps_before + steps, None, self._tally, active, wall, finish_reason)
        return evaluate(view.spec.stop_rules, facts, results)

    def _evaluate(
        self, completed: StepCompleted | None, finish_reason: FinishReason = NO_FINISH_REASON
    ) -> EvaluateExpressions:
        """Have the expressions evaluated, for a step or, with None, for the run's end."""
        self._evaluations += 1
        self._evaluating = Evaluation(self._evaluations, completed, finish_reason)
        step = None if completed is None else completed.step
        return EvaluateExpressions(self._evaluations, self._expressions, step)

    def _settle_evaluation(self, at: int) -> list[Command]:
        """Record the step whose expressions are being evaluated without waiting for them any longer."""
        waiting, self._evaluating = self._evaluating, None
        if waiting is None or waiting.completed is None:
            return []
        ended, _ = self._step_ended(waiting.completed, at)
        return [ended, *self._steers_delivered()]

    # --- texts for the running turn -----------------------------------------------------------------------------------

    def _steers_delivered(self) -> list[Command]:
        """Note that the agent went on with what it was handed."""
        given, self._steers_given = self._steers_given, 0
        return [self._emit(SteerDelivered(steer.steer_id)) for steer in self.view.pending_steers[:given]]

    def _drop_steers(self, reason: str) -> list[Command]:
        self._steers_given = 0
        return [self._emit(SteerDropped(steer.steer_id, reason)) for steer in list(self.view.pending_steers)]


def facts_first(commands: list[Command]) -> list[Command]:
    """Put facts before effects, each in their order."""
    return sorted(commands, key=lambda command: not isinstance(command, Emit | LowerGate))
