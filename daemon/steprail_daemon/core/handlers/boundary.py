"""A step and its decision: by rule, by limit, by a client, by nobody in time; and the texts that go along.

The way from a step to its answer holds up the agent and is taken after a pause, when every function and object costs
several times what a loop shows. So `_step` and what it calls fold their facts by name and make few objects; what needs
more (expressions, steers, an inexact gate) goes the long way by `_step_slow`.
"""

from __future__ import annotations

from typing import NoReturn

from msgspec.structs import replace

from steprail_daemon.core.boundary import (
    Cause,
    causes,
    rule_errors,
    stop_reason,
)
from steprail_daemon.core.commands import AnswerBoundary, CancelTimer, Command, Emit, StartTimer
from steprail_daemon.core.errors import WrongState
from steprail_daemon.core.events import (
    RulesEvaluated,
    SteerSubmitted,
    StepCompleted,
    Timer,
)
from steprail_daemon.core.handlers.base import (
    ABORTING,
    AWAITING_DECISION,
    AWAITING_PERMISSION,
    RUNNING,
    STOPPING,
    facts_first,
)
from steprail_daemon.core.handlers.gate import Gate
from steprail_daemon.core.model import (
    Decider,
    Decision,
    DecisionAction,
    DecisionSource,
    PendingDecision,
    ResolutionSource,
    StepGate,
    VerdictOutcome,
)
from steprail_daemon.core.records import (
    DecisionAsked,
    DecisionRecorded,
    RunStateChanged,
    SteerAccepted,
)
from steprail_daemon.core.replay import fold_decision, fold_decision_asked, fold_state
from steprail_daemon.core.stops.expressions import ExpressionResult

# A member of an enumeration costs a function call to look up; these are on the way to every decision.
_CONTINUE = DecisionAction.CONTINUE
_STOP = DecisionAction.STOP
_AUTO = DecisionSource.AUTO
_CLIENT = DecisionSource.CLIENT
_DECISION = Timer.DECISION
_DISCONNECT = Timer.DISCONNECT
_NOT_MATCHED = VerdictOutcome.NOT_MATCHED


class Boundary(Gate):
    """Handlers of steps, decisions and steers."""

    __slots__ = ()

    # --- a step is complete -----------------------------------------------------------------------------------------

    def _step(self, event: StepCompleted, at: int) -> list[Command]:
        if self._slow or event.past_gate or not event.held:
            return self._step_slow(event, at)
        step = event.step
        view = self.view
        spec = view.spec
        ended, verdicts = self._step_ended(event, at)
        # Nearly always nothing stops; then there are no causes to be worded.
        stops = view.stop_requested is not None or step.number >= spec.limits.max_steps
        for verdict in verdicts:
            if verdict.outcome is not _NOT_MATCHED:
                stops = True
        if stops:
            found = causes(view.stop_requested, step.number, spec.limits.max_steps, spec.stop_rules, verdicts)
            if found:
                self._boundary_id = event.boundary_id
                return [ended, *self._stop(step.step_id, found, 0, at)]
        if spec.decider is not None:
            self._boundary_id = event.boundary_id
            return self._ask(ended, event, spec.decider, at)
        decided = DecisionRecorded(step.step_id, Decision(action=_CONTINUE, source=_AUTO, decided_at=at))
        fold_decision(view, decided)
        return [ended, Emit(decided), AnswerBoundary(event.boundary_id, _CONTINUE)]

    def _step_asked(self, event: StepCompleted, at: int) -> list[Command]:
        """A step that is complete while something is open: the main loop no longer waits for that."""
        reason = "the step was complete before anybody answered"
        closed, _ = self._close_asks(ResolutionSource.AGENT, reason, only_main_loop=True)
        if not closed:
            return self._step(event, at)
        return facts_first([*closed, *self._ask_or_run(at), *self._watch_asks(), *self._step(event, at)])

    def _step_slow(self, event: StepCompleted, at: int) -> list[Command]:
        if self.view.turn_ended:
            # The turn is over; whatever goes on there is no part of the run.
            return [AnswerBoundary(event.boundary_id, _STOP)] if event.held else []
        inexact = self._inexact or not event.held
        if not inexact and (event.past_gate or self._evaluating is not None):
            return self._step_past_gate(event, at)
        self._inexact = inexact
        if self._evaluating is not None:
            return self._step_overtaking(event, at)
        self._boundary_id = event.boundary_id if event.held else ""
        if self._expressions:
            return [self._evaluate(event)]
        return self._judge(event, (), at)

    def _step_overtaking(self, event: StepCompleted, at: int) -> list[Command]:
        """An agent that is not held completed a further step while the last one's expressions were evaluated."""
        waiting, self._evaluating = self._evaluating, None
        assert waiting is not None
        assert waiting.completed is not None
        commands = self._judge(waiting.completed, (), at)
        state = self.view.state
        if state is ABORTING:
            commands += self._step_aborting(event, at)
        elif state is STOPPING:
            commands += self._step_past_gate(event, at)
        else:
            commands += self._step_slow(event, at)
        return facts_first(commands)

    def _rules_evaluated(self, event: RulesEvaluated, at: int) -> list[Command]:
        waiting = self._evaluating
        if waiting is None or waiting.evaluation_id != event.evaluation_id:
            return []
        self._evaluating = None
        if waiting.completed is None:
            return self._complete(at, results=event.results, finish_reason=waiting.finish_reason)
        return self._judge(waiting.completed, event.results, at)

    def _judge(self, event: StepCompleted, results: tuple[ExpressionResult, ...], at: int) -> list[Command]:
        """Decide about a step, the long way."""
        step, view = event.step, self.view
        spec = view.spec
        ended, verdicts = self._step_ended(event, at, results)
        delivered = self._steers_delivered()
        errors = rule_errors(spec.stop_rules, results)
        found = causes(
            view.stop_requested, step.number, spec.limits.max_steps, spec.stop_rules, verdicts, errors=errors
        )
        if found:
            return [ended, *delivered, *self._stop(step.step_id, found, 0, at)]
        if spec.decider is not None:
            if not event.held:
                return [ended, *delivered, *self._lose_gate("it did not wait at its boundary", at)]
            return [*delivered, *self._ask(ended, event, spec.decider, at)]
        decided = DecisionRecorded(step.step_id, Decision(action=_CONTINUE, source=_AUTO, decided_at=at))
        commands = [ended, *delivered, self._emit(decided)]
        if event.held:
            self._boundary_id = ""
            commands.append(AnswerBoundary(event.boundary_id, _CONTINUE, self._take_guidance()))
        return commands

    # --- asking and answering ---------------------------------------------------------------------------------------

    def _ask(self, ended: Emit, event: StepCompleted, decider: Decider, at: int) -> list[Command]:
        view = self.view
        step = event.step
        deadline_at = at + decider.timeout_ns
        asked = DecisionAsked(step.step_id, step.number, at, deadline_at, decider.on_timeout)
        fold_decision_asked(view, asked)
        changed = RunStateChanged(AWAITING_DECISION, view.state, at)
        fold_state(view, changed)
        self._timers.add(_DECISION)
        commands: list[Command] = [ended, Emit(asked), Emit(changed), StartTimer(_DECISION, deadline_at)]
        if self._deciders_gone_at is not None:
            commands += self._watch_deciders(decider)
        return commands

    def _stop(self, step_id: str, found: list[Cause], waited_ns: int, at: int) -> list[Command]:
        first = found[0]
        decision = Decision(
            action=_STOP,
            source=first.source,
            rule_id=first.verdict.rule_id,
            reason=first.reason,
            identity=first.identity,
            waited_ns=waited_ns,
            decided_at=at,
        )
        decided = self._emit(DecisionRecorded(step_id, decision))
        reason = stop_reason(found)
        if self._inexact:
            reason = replace(reason, exact=False)
            if self.view.spec.step_gate is StepGate.UNSUPPORTED:
                self._noted = self._noted or first.failure
                return [decided, *self._cut_off(at, reason)]
        self._stop_failure = first.failure
        closed, answers = self._close_asks(ResolutionSource.ABORT, "the run is being stopped")
        boundary_id, self._boundary_id = self._boundary_id, ""
        return [
            decided,
            *closed,
            *self._drop_steers("the run was stopped first"),
            self._change(STOPPING, at, reason),
            *self._cancel(_DECISION, _DISCONNECT, Timer.PERMISSION),
            self._start_timer(Timer.STOP, at + self.view.spec.limits.stop_timeout_ns),
            *answers,
            *([AnswerBoundary(boundary_id, _STOP)] if boundary_id else self._interrupt()),
        ]

    def _go_on(
        self,
        pending: PendingDecision,
        source: DecisionSource,
        reason: str,
        identity: str,
        at: int,
        *,
        guidance: str = "",
        model: str = "",
    ) -> list[Command]:
        decision = Decision(
            action=_CONTINUE,
            source=source,
            reason=reason,
            identity=identity,
            waited_ns=at - pending.asked_at,
            decided_at=at,
            guidance=guidance,
            model=model,
        )
        view = self.view
        decided = DecisionRecorded(pending.step_id, decision)
        fold_decision(view, decided)
        changed = RunStateChanged(AWAITING_PERMISSION if self._own_ids else RUNNING, AWAITING_DECISION, at)
        fold_state(view, changed)
        boundary_id, self._boundary_id = self._boundary_id, ""
        texts = self._take_guidance(guidance) if guidance or self._slow else ()
        answer = AnswerBoundary(boundary_id, _CONTINUE, texts, model)
        timers = self._timers
        commands: list[Command] = [Emit(decided), Emit(changed)]
        if _DECISION in timers:
            timers.remove(_DECISION)
            commands.append(CancelTimer(_DECISION))
        if _DISCONNECT in timers:
            timers.remove(_DISCONNECT)
            commands.append(CancelTimer(_DISCONNECT))
        commands.append(answer)
        return commands

    def _watch_deciders(self, decider: Decider) -> list[Command]:
        gone_at = self._deciders_gone_at
        assert gone_at is not None
        return [self._start_timer(_DISCONNECT, gone_at + decider.disconnect_grace_ns)]

    # --- texts for the running turn ---------------------------------------------------------------------------------

    def _steer(self, event: SteerSubmitted, at: int) -> list[Command]:
        view = self.view
        held = self._evaluating is not None
        if view.stop_requested is not None or view.turn_ended or held or view.spec.step_gate is not StepGate.EXACT:
            self._refuse_steer(event, at)
        if not self.capabilities.steer:
            raise WrongState("CAPABILITY_MISSING", "this agent takes no text within a turn", capability="steer")
        self._slow = True
        return [self._emit(SteerAccepted(event.steer_id, event.text, event.identity))]

    def _refuse_steer(self, _event: SteerSubmitted, _at: int) -> NoReturn:
        view = self.view
        what = "was asked to stop" if view.stop_requested is not None else f"is {view.state.name}"
        raise WrongState(
            "STEER_NOT_POSSIBLE",
            f"the run {what}; a text is taken while the agent works towards a boundary at which it can be given it",
            run_id=view.run_id,
        )

    def _take_guidance(self, guidance: str = "") -> tuple[str, ...]:
        """Give what the agent gets with its next step: the steers that it has not got yet, then the decision's."""
        steers = self.view.pending_steers
        texts = [steer.text for steer in steers[self._steers_given :]]
        self._steers_given = len(steers)
        return (*texts, guidance) if guidance else tuple(texts)
