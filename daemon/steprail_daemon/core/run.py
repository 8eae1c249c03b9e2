"""A run: the handlers behind the transition table, where the theory is (`core.table`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NoReturn

import msgspec

from steprail_daemon.core import failures, policy
from steprail_daemon.core.boundary import Cause, causes, client_decision, nobody_decided, stop_reason, stop_request
from steprail_daemon.core.commands import (
    AnswerBoundary,
    AnswerPermission,
    CancelTimer,
    Command,
    Emit,
    EndProcess,
    FinishRun,
    Interrupt,
    LowerGate,
    StartTimer,
)
from steprail_daemon.core.errors import IllegalTransition, Invalid, WrongState
from steprail_daemon.core.events import (
    AbortRequested,
    ActivityPastGate,
    AgentExited,
    AgentStartFailed,
    BoundaryCancelled,
    DaemonRestarted,
    DecisionSubmitted,
    PermissionAsked,
    PromptConfirmed,
    PromptSent,
    ProtocolFailed,
    RunEvent,
    StepCompleted,
    StopRequested,
    Timer,
    TimerFired,
    TurnEnded,
)
from steprail_daemon.core.model import (
    Decider,
    Decision,
    DecisionAction,
    DecisionSource,
    Failure,
    OnTimeout,
    PendingDecision,
    ResolutionSource,
    RunSpec,
    RunState,
    Step,
    StopReason,
    StopRequest,
    TurnEndReason,
    Verdict,
    VerdictOutcome,
)
from steprail_daemon.core.records import (
    DecisionAsked,
    DecisionRecorded,
    Fact,
    PermissionResolved,
    RunCreated,
    RunEnded,
    RunStateChanged,
    StepEnded,
    StopAsked,
    TurnFinished,
    TurnStarted,
    UsageCounted,
)
from steprail_daemon.core.replay import (
    fold_decision,
    fold_decision_asked,
    fold_run,
    fold_state,
    fold_step_ended,
    open_run,
)
from steprail_daemon.core.stops import evaluate
from steprail_daemon.core.stops.base import StepFacts
from steprail_daemon.core.table import TABLE
from steprail_daemon.core.usage import incomplete_cost, incomplete_usage
from steprail_daemon.core.views import RunView

QUEUED = RunState.QUEUED
RUNNING = RunState.RUNNING
AWAITING_DECISION = RunState.AWAITING_DECISION
STOPPING = RunState.STOPPING
ABORTING = RunState.ABORTING
COMPLETED = RunState.COMPLETED
STOPPED = RunState.STOPPED
ABORTED = RunState.ABORTED
FAILED = RunState.FAILED

# A member of an enumeration costs a function call to look up; these are on the way to every decision.
_CONTINUE = DecisionAction.CONTINUE
_AUTO = DecisionSource.AUTO
_CLIENT = DecisionSource.CLIENT
_DECISION = Timer.DECISION
_NOT_MATCHED = VerdictOutcome.NOT_MATCHED

#: Why the process of an agent that goes past a boundary is ended.
_GATE_LOST = "its step gate did not hold"


class Run:
    """One run. Feed it what happens, with the time of it, and carry out what it answers, in order.

    `view` shows how it stands; nobody else may change it. Methods that begin with an underscore are the handlers that
    the table names; each takes the event and its time and gives commands.

    The way from a step to its answer holds up the agent and is taken after a pause, when every function and object
    costs several times what a loop shows. So its handlers fold their facts by name and make few objects.
    """

    __slots__ = (
        "_boundary_id",
        "_confirmed",
        "_cost_counted",
        "_decider_failure",
        "_gate_lowered",
        "_interrupted",
        "_noted",
        "_process_ended",
        "_prompt_id",
        "_session_steps",
        "_timers",
        "_usage_counted",
        "view",
    )

    def __init__(self, view: RunView, steps_before: int = 0) -> None:
        self.view = view
        self._session_steps = steps_before
        #: The prompt that was sent; None before.
        self._prompt_id: str | None = None
        self._confirmed = False
        #: The boundary that has no answer yet; empty if there is none.
        self._boundary_id = ""
        self._gate_lowered = False
        self._interrupted = False
        self._process_ended = False
        self._timers: set[Timer] = set()
        #: What went wrong while the agent was being stopped or aborted; it is claimed at the end.
        self._noted: Failure | None = None
        #: A client could not decide: the run fails with this once the agent has confirmed the stop.
        self._decider_failure: Failure | None = None
        self._usage_counted = False
        self._cost_counted = False

    @classmethod
    def create(
        cls, run_id: str, session_id: str, spec: RunSpec, at: int, *, steps_before: int = 0
    ) -> tuple[Run, list[Command]]:
        """Make a run in state QUEUED. `steps_before` counts the completed steps of the session's earlier runs."""
        created = RunCreated(run_id, session_id, spec, at)
        run = cls(open_run(created), steps_before)
        return run, [Emit(created), run._emit(RunStateChanged(QUEUED, None, at))]

    @classmethod
    def restore(cls, view: RunView) -> Run:
        """Take up a live run that was replayed. All that can happen to it is `DaemonRestarted`."""
        return cls(view)

    def handle(self, event: RunEvent, at: int) -> list[Command]:
        """Take what happened at `at` and give what is to be done, in order.

        Raises:
            WrongState: DECISION_NOT_PENDING; nothing changed.
            Invalid: FIELD_INVALID, the decision says neither what to do nor what went wrong; nothing changed.
            IllegalTransition: a bug of the caller; nothing changed.
        """
        view = self.view
        handler = HANDLERS.get((view.state, type(event)))
        if handler is None:
            raise IllegalTransition(f"{type(event).__name__} in state {view.state.name} of run {view.run_id}")
        if at < view.state_since:  # noqa: PLR1730  # a call for what nearly never is
            at = view.state_since
        return handler(self, event, at)

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

    def _answer(self, action: DecisionAction) -> AnswerBoundary:
        boundary_id, self._boundary_id = self._boundary_id, ""
        return AnswerBoundary(boundary_id, action)

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

    def _finish(
        self,
        state: RunState,
        at: int,
        *effects: Command,
        failure: Failure | None = None,
        reason: StopReason | None = None,
        final_verdicts: tuple[Verdict, ...] = (),
    ) -> list[Command]:
        view = self.view
        reason = reason or view.stop_reason
        # Steps add up to the whole only where nothing came after the last one.
        whole = state is STOPPED
        usage = view.usage if whole or self._usage_counted else incomplete_usage(view.usage)
        cost = view.cost if whole or self._cost_counted else incomplete_cost(view.cost)
        return [
            self._emit(RunStateChanged(state, view.state, at, reason, failure)),
            self._emit(RunEnded(state, reason, failure, len(view.steps), usage, cost, final_verdicts)),
            *self._cancel(*Timer),
            *effects,
            FinishRun(),
        ]

    def _fail(self, failure: Failure, at: int, *effects: Command, reason: StopReason | None = None) -> list[Command]:
        """Give the run up. What was complete at a boundary is stored by the agent and can be continued from."""
        steps = len(self.view.steps)
        if steps and failure.resumable_at_step is None:
            failure = msgspec.structs.replace(failure, resumable_at_step=steps)
        return self._finish(FAILED, at, *effects, failure=failure, reason=reason)

    def _turn_facts(self, event: TurnEnded) -> list[Command]:
        facts: list[Command] = []
        if event.usage is not None or event.cost is not None:
            self._usage_counted = event.usage is not None
            self._cost_counted = event.cost is not None
            facts.append(self._emit(UsageCounted(event.usage, event.cost)))
        facts.append(self._emit(TurnFinished(event.reason, event.reason_raw, event.text)))
        return facts

    def _complete(self, at: int) -> list[Command]:
        """A text-only end: no boundary, nobody is asked, what the rules say is noted and changes nothing."""
        view = self.view
        verdicts = evaluate(view.spec.stop_rules, StepFacts(len(view.steps), self._session_steps))
        return self._finish(COMPLETED, at, final_verdicts=verdicts)

    def _step_ended(self, event: StepCompleted) -> tuple[Emit, tuple[Verdict, ...]]:
        step = event.step
        view = self.view
        self._session_steps = event.session_steps
        verdicts = evaluate(view.spec.stop_rules, StepFacts(step.number, event.session_steps))
        ended = StepEnded(step, verdicts)
        fold_step_ended(view, ended)
        return Emit(ended), verdicts

    # --- nothing ----------------------------------------------------------------------------------------------------

    def _ignore(self, _event: RunEvent, _at: int) -> list[Command]:
        return []

    def _refuse_decision(self, event: DecisionSubmitted, _at: int) -> NoReturn:
        view = self.view
        raise WrongState(
            "DECISION_NOT_PENDING",
            f"no decision about step {event.step_id} is pending; the run is {view.state.name}",
            run_id=view.run_id,
            step_id=event.step_id,
        )

    # --- queued -----------------------------------------------------------------------------------------------------

    def _prompt_sent(self, event: PromptSent, at: int) -> list[Command]:
        self._prompt_id = event.prompt_id
        return [self._start_timer(Timer.PROMPT, at + self.view.spec.limits.prompt_timeout_ns)]

    def _start(self, _event: PromptConfirmed, at: int) -> list[Command]:
        if self._prompt_id is None:
            return []  # the tail of an earlier turn; this run has not begun
        self._confirmed = True
        view = self.view
        return [
            self._change(RUNNING, at),
            self._emit(TurnStarted(view.spec.prompt_synthesized, at)),
            *self._cancel(Timer.PROMPT),
            self._start_timer(Timer.HARD_TIMEOUT, at + view.spec.limits.hard_timeout_ns),
        ]

    def _stop_queued(self, event: StopRequested, at: int) -> list[Command]:
        commands = self._note_stop(event, at)
        request = self.view.stop_requested
        if self._prompt_id is None and request is not None:
            commands += self._finish(STOPPED, at, reason=stop_reason([stop_request(request)]))
        return commands

    def _abort_queued(self, event: AbortRequested, at: int) -> list[Command]:
        return self._finish(ABORTED, at) if self._prompt_id is None else self._abort(event, at)

    def _step_queued(self, event: StepCompleted, at: int) -> list[Command]:
        if self._prompt_id is None:
            return [AnswerBoundary(event.boundary_id, DecisionAction.STOP)]  # the tail of an earlier turn
        what = f"it completed a step ({event.boundary_id!r}) before it took the prompt"
        return self._fail(failures.protocol_error(what), at, *self._end_process("protocol error"))

    def _permission_queued(self, event: PermissionAsked, at: int) -> list[Command]:
        if self._prompt_id is None:
            return [AnswerPermission(event.permission_id, False, policy.DENIAL_MESSAGE)]  # the tail of an earlier turn
        return self._permission(event, at)

    def _turn_ended_queued(self, event: TurnEnded, at: int) -> list[Command]:
        if self._prompt_id is None:
            return []  # the tail of an earlier turn; this run has not begun
        facts = self._turn_facts(event)
        if event.reason is TurnEndReason.ERROR:
            return [*facts, *self._fail(failures.turn_failed(event), at)]
        failure = failures.protocol_error(f"it ended a turn ({event.reason_raw!r}) that it had not begun")
        return [*facts, *self._fail(failure, at, *self._end_process("protocol error"))]

    def _start_failed(self, event: AgentStartFailed, at: int) -> list[Command]:
        return self._fail(event.failure, at)

    def _exited_queued(self, event: AgentExited, at: int) -> list[Command]:
        sent = self._prompt_id is not None
        return self._fail(failures.agent_exited(event) if sent else failures.agent_start_failed(event), at)

    # --- a step and its decision ------------------------------------------------------------------------------------

    def _step(self, event: StepCompleted, at: int) -> list[Command]:
        if event.past_gate:
            return self._step_past_gate(event, at)
        step = event.step
        view = self.view
        spec = view.spec
        ended, verdicts = self._step_ended(event)
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
            return self._ask(ended, step, spec.decider, at)
        decided = DecisionRecorded(step.step_id, Decision(action=_CONTINUE, source=_AUTO, decided_at=at))
        fold_decision(view, decided)
        return [ended, Emit(decided), AnswerBoundary(event.boundary_id, _CONTINUE)]

    def _ask(self, ended: Emit, step: Step, decider: Decider, at: int) -> list[Command]:
        view = self.view
        deadline_at = at + decider.timeout_ns
        asked = DecisionAsked(step.step_id, step.number, at, deadline_at, decider.on_timeout)
        fold_decision_asked(view, asked)
        changed = RunStateChanged(AWAITING_DECISION, RUNNING, at)
        fold_state(view, changed)
        self._timers.add(_DECISION)
        return [ended, Emit(asked), Emit(changed), StartTimer(_DECISION, deadline_at)]

    def _stop(self, step_id: str, found: list[Cause], waited_ns: int, at: int) -> list[Command]:
        first = found[0]
        decision = Decision(
            action=DecisionAction.STOP,
            source=first.source,
            rule_id=first.verdict.rule_id,
            reason=first.reason,
            identity=first.identity,
            waited_ns=waited_ns,
            decided_at=at,
        )
        return [
            self._emit(DecisionRecorded(step_id, decision)),
            self._change(STOPPING, at, stop_reason(found)),
            *self._cancel(Timer.DECISION),
            self._start_timer(Timer.STOP, at + self.view.spec.limits.stop_timeout_ns),
            self._answer(DecisionAction.STOP),
        ]

    def _go_on(
        self, pending: PendingDecision, source: DecisionSource, reason: str, identity: str, at: int
    ) -> list[Command]:
        decision = Decision(
            action=_CONTINUE,
            source=source,
            reason=reason,
            identity=identity,
            waited_ns=at - pending.asked_at,
            decided_at=at,
        )
        view = self.view
        decided = DecisionRecorded(pending.step_id, decision)
        fold_decision(view, decided)
        changed = RunStateChanged(RUNNING, AWAITING_DECISION, at)
        fold_state(view, changed)
        boundary_id, self._boundary_id = self._boundary_id, ""
        answer = AnswerBoundary(boundary_id, _CONTINUE)
        timers = self._timers
        if _DECISION not in timers:
            return [Emit(decided), Emit(changed), answer]
        timers.remove(_DECISION)
        return [Emit(decided), Emit(changed), CancelTimer(_DECISION), answer]

    def _pending(self) -> PendingDecision:
        pending = self.view.pending_decision
        assert pending is not None
        return pending

    def _decision(self, event: DecisionSubmitted, at: int) -> list[Command]:
        pending = self._pending()
        if event.step_id != pending.step_id:
            self._refuse_decision(event, at)
        if event.action is _CONTINUE and not event.error:
            return self._go_on(pending, _CLIENT, event.reason, event.identity, at)
        if event.error:
            self._decider_failure = failures.decider_error(event.error)
            cause = client_decision(DecisionSource.CLIENT, event.error, event.identity)
        elif event.action is DecisionAction.STOP:
            cause = client_decision(DecisionSource.CLIENT, event.reason, event.identity)
        else:
            raise Invalid("FIELD_INVALID", "action is not set; accepted are CONTINUE and STOP", field="action")
        return self._stop(pending.step_id, [cause], at - pending.asked_at, at)

    def _stop_pending(self, event: StopRequested, at: int) -> list[Command]:
        pending = self._pending()
        noted = self._note_stop(event, at)
        request = self.view.stop_requested
        assert request is not None
        return [*noted, *self._stop(pending.step_id, [stop_request(request)], at - pending.asked_at, at)]

    def _nobody_decided(self, at: int) -> list[Command]:
        pending = self._pending()
        cause = nobody_decided(pending.default.name)
        if pending.default is OnTimeout.CONTINUE:
            return self._go_on(pending, DecisionSource.TIMEOUT, cause.reason, "", at)
        if pending.default is OnTimeout.ABORT:
            return self._cut_off(at, stop_reason([cause]))
        return self._stop(pending.step_id, [cause], at - pending.asked_at, at)

    def _gave_up_waiting(self, _event: BoundaryCancelled, at: int) -> list[Command]:
        failure = failures.gave_up_waiting(len(self.view.steps))
        return self._fail(failure, at, *self._end_process("it no longer waits at its step boundary"))

    # --- a gate that does not hold ----------------------------------------------------------------------------------

    def _lose_gate(self, what: str, at: int, *, turn_over: bool = False) -> list[Command]:
        cut = [] if turn_over else [*self._interrupt(), *self._end_process(_GATE_LOST)]
        reason = self.view.stop_reason
        if reason is not None:
            reason = msgspec.structs.replace(reason, exact=False, overshoot_requests=1)
        return [*self._lower_gate(what), *self._fail(failures.gate_lost(what), at, *cut, reason=reason)]

    def _activity_past_gate(self, event: ActivityPastGate, at: int) -> list[Command]:
        return self._lose_gate(event.what, at)

    def _step_past_gate(self, event: StepCompleted, at: int) -> list[Command]:
        ended, _ = self._step_ended(event)
        return [ended, *self._lose_gate(_step_was_completed(event), at)]

    def _permission_gated(self, event: PermissionAsked, at: int) -> list[Command]:
        if not event.subagent_id:
            denied = self._resolve(event, policy.DENY_PAST_GATE, ResolutionSource.ABORT)
            return _facts_first([*denied, *self._lose_gate(f"leave was asked for the tool {event.tool!r}", at)])
        if self.view.state is STOPPING:
            return self._resolve(event, policy.DENY_STOPPING, ResolutionSource.POLICY)
        return self._permission(event, at)

    def _turn_ended_gated(self, event: TurnEnded, at: int) -> list[Command]:
        facts = self._turn_facts(event)
        if event.reason is TurnEndReason.COMPLETED:
            return [*facts, *self._lose_gate("the turn was completed", at, turn_over=True)]
        return [*facts, *self._fail(failures.turn_failed(event), at)]

    # --- permissions ------------------------------------------------------------------------------------------------

    def _permission(self, event: PermissionAsked, _at: int) -> list[Command]:
        ruling = policy.judge(self.view.spec.permission_mode, event.tool_kind)
        return self._resolve(event, ruling, ResolutionSource.POLICY)

    def _permission_aborting(self, event: PermissionAsked, _at: int) -> list[Command]:
        return self._resolve(event, policy.DENY_ABORTING, ResolutionSource.ABORT)

    def _resolve(self, event: PermissionAsked, ruling: policy.Ruling, source: ResolutionSource) -> list[Command]:
        message = "" if ruling.allow else policy.DENIAL_MESSAGE
        return [
            self._emit(PermissionResolved(event.permission_id, ruling.allow, source, ruling.reason)),
            AnswerPermission(event.permission_id, ruling.allow, message),
        ]

    # --- stops, aborts, timers --------------------------------------------------------------------------------------

    def _note_stop(self, event: StopRequested, at: int) -> list[Command]:
        """Keep a request for the next boundary; the first one stays."""
        if self.view.stop_requested is not None:
            return []
        return [self._emit(StopAsked(StopRequest(event.source, event.identity, event.reason, at)))]

    def _abort(self, _event: AbortRequested, at: int) -> list[Command]:
        return self._cut_off(at)

    def _cut_off(self, at: int, reason: StopReason | None = None) -> list[Command]:
        return [
            self._change(ABORTING, at, reason),
            *self._cancel(Timer.HARD_TIMEOUT, Timer.DECISION, Timer.STOP, Timer.PROMPT),
            self._start_timer(Timer.ABORT, at + self.view.spec.limits.abort_timeout_ns),
            *(self._interrupt() if self._confirmed else []),
        ]

    def _start_aborting(self, _event: PromptConfirmed, at: int) -> list[Command]:
        if self._confirmed:
            return []
        self._confirmed = True
        return [self._emit(TurnStarted(self.view.spec.prompt_synthesized, at)), *self._interrupt()]

    def _step_aborting(self, event: StepCompleted, _at: int) -> list[Command]:
        ended, _ = self._step_ended(event)
        if not self._boundary_id and not event.past_gate:
            self._boundary_id = event.boundary_id  # it crossed the interrupt and is left unanswered
            return [ended, *self._interrupt()]
        what = _step_was_completed(event)
        if self._noted is None:
            self._noted = failures.gate_lost(what)
        return [ended, *self._lower_gate(what), *self._interrupt(), *self._end_process(_GATE_LOST)]

    def _timer(self, event: TimerFired, at: int) -> list[Command]:
        timer = event.timer
        if timer not in self._timers:
            return []  # it was cancelled while it fired
        self._timers.remove(timer)
        limits = self.view.spec.limits
        if timer is Timer.HARD_TIMEOUT:
            failure = failures.hard_timeout(limits.hard_timeout_ns)
            return self._fail(failure, at, *self._end_process("hard timeout of its run"))
        if timer is Timer.PROMPT:
            failure = failures.prompt_not_taken(limits.prompt_timeout_ns)
            return self._fail(failure, at, *self._end_process(failure.message))
        if timer is Timer.DECISION:
            return self._nobody_decided(at)
        if timer is Timer.STOP:
            return self._give_up(failures.unresponsive("stop", limits.stop_timeout_ns))
        return self._give_up(failures.unresponsive("abort", limits.abort_timeout_ns))

    def _give_up(self, failure: Failure) -> list[Command]:
        """End the process; what became of the run is claimed when it is gone."""
        if self._noted is None:
            self._noted = failure
        return self._end_process(failure.message)

    # --- ends -------------------------------------------------------------------------------------------------------

    def _turn_ended(self, event: TurnEnded, at: int) -> list[Command]:
        facts = self._turn_facts(event)
        if event.reason is TurnEndReason.COMPLETED:
            return [*facts, *self._complete(at)]
        return [*facts, *self._fail(failures.turn_failed(event), at)]

    def _turn_ended_stopping(self, event: TurnEnded, at: int) -> list[Command]:
        if event.reason is not TurnEndReason.STOP_CONDITION:
            return self._turn_ended_gated(event, at)
        facts = self._turn_facts(event)
        if self._decider_failure is not None:
            return [*facts, *self._fail(self._decider_failure, at)]
        return [*facts, *self._finish(STOPPED, at)]

    def _turn_ended_aborting(self, event: TurnEnded, at: int) -> list[Command]:
        facts = self._turn_facts(event)
        if event.reason is TurnEndReason.COMPLETED:
            return [*facts, *self._complete(at)]
        failure = failures.turn_failed(event) if event.reason is TurnEndReason.ERROR else None
        return [*facts, *self._finish(ABORTED, at, failure=self._noted or failure)]

    def _protocol_failed(self, event: ProtocolFailed, at: int) -> list[Command]:
        return self._fail(failures.protocol_error(event.message), at, *self._end_process("protocol error"))

    def _protocol_failed_aborting(self, event: ProtocolFailed, _at: int) -> list[Command]:
        return [*self._cancel(Timer.ABORT), *self._give_up(failures.protocol_error(event.message))]

    def _exited(self, event: AgentExited, at: int) -> list[Command]:
        return self._fail(self._noted or failures.agent_exited(event), at)

    def _exited_aborting(self, event: AgentExited, at: int) -> list[Command]:
        return self._finish(ABORTED, at, failure=self._noted or failures.agent_exited(event))

    def _restarted(self, _event: DaemonRestarted, at: int) -> list[Command]:
        pending = self.view.pending_decision
        commands: list[Command] = []
        if pending is not None:
            decision = Decision(
                action=DecisionAction.STOP,
                source=DecisionSource.RESTART,
                reason="The daemon restarted while the decision was pending.",
                waited_ns=at - pending.asked_at,
                decided_at=at,
            )
            commands.append(self._emit(DecisionRecorded(pending.step_id, decision)))
        return [*commands, *self._fail(failures.daemon_restarted(), at)]


#: The methods that the table's rows name, looked up beforehand.
HANDLERS: Final[dict[tuple[RunState, type], Callable[[Run, Any, int], list[Command]]]] = {
    pair: getattr(Run, row.handler) for pair, row in TABLE.items()
}


def _step_was_completed(event: StepCompleted) -> str:
    return f"step {event.step.number} was completed"


def _facts_first(commands: list[Command]) -> list[Command]:
    """Put facts before effects, each in their order."""
    return sorted(commands, key=lambda command: not isinstance(command, Emit | LowerGate))
