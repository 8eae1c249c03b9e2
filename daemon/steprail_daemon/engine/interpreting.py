"""Hands a run what the agent says and what happens otherwise, and sorts what it answers for what follows."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from steprail_daemon.core import queue
from steprail_daemon.core.assembly import StepAssembly
from steprail_daemon.core.commands import (
    AnswerBoundary,
    AnswerPermission,
    AnswerQuestion,
    Emit,
    EndProcess,
    FinishRun,
    LowerGate,
    SendPrompt,
)
from steprail_daemon.core.events import (
    PASSIVE_EVENTS,
    ActivityPastGate,
    AgentEvent,
    AgentReady,
    AgentSilent,
    BoundaryReached,
    MessageEnded,
    MessageStarted,
    ModelChanged,
    PermissionAsked,
    PermissionWithdrawn,
    PromptConfirmed,
    PromptSent,
    ProtocolFailed,
    QuestionAsked,
    RateLimited,
    RulesEvaluated,
    RunEvent,
    StepCompleted,
    Timer,
    TimerFired,
    ToolStarted,
    TurnEnded,
    UsageReported,
    UsageSpent,
)
from steprail_daemon.core.failures import journal_unavailable
from steprail_daemon.core.model import DecisionAction, FinishReason, RunState, StepGate, StopRule, TurnEndReason
from steprail_daemon.core.policy import DENIAL_MESSAGE
from steprail_daemon.core.records import (
    AgentStarted,
    CapabilitiesChanged,
    Fact,
    UsageCounted,
)
from steprail_daemon.core.replay import SESSION_FACTS
from steprail_daemon.core.run import Run
from steprail_daemon.core.stops import expressions_of, needs
from steprail_daemon.engine.changes import Changes
from steprail_daemon.engine.lineup import RunPlace
from steprail_daemon.engine.permissions import PermissionDesk
from steprail_daemon.engine.settling import Settling
from steprail_daemon.engine.silence import SilenceWatch

#: Calls of one message: a step is given as one message of the API, which has a bound.
MAX_CALLS = 256

# A member of an enumeration costs a function call to look up.
_CONTINUE = DecisionAction.CONTINUE
_SIGNS_OF_A_REQUEST = frozenset({MessageStarted, MessageEnded, ToolStarted})


class Interpreting(Settling):
    """The part of a session's runner that drives its runs."""

    _permissions: PermissionDesk
    _silence: SilenceWatch
    _changes: Changes

    def __init__(self, places: dict[str, RunPlace]) -> None:
        super().__init__(places)
        self._assembly = StepAssembly()
        #: Permissions that policy has not ruled on yet, by the agent's own ids.
        self._ruling: set[str] = set()
        self._prompted = False

    # --- what comes by itself ---------------------------------------------------------------------------------------

    def _timer_fired(self, run_id: str, timer: Timer) -> None:
        self._about(run_id, TimerFired(timer))

    def _silent(self, silence_ns: int) -> None:
        self._outside(lambda: self._drive(AgentSilent(silence_ns)))

    def _rules_evaluated(self, run_id: str, event: RulesEvaluated) -> None:
        self._about(run_id, event)

    def _ruled(self, run_id: str, event: PermissionAsked) -> None:
        """Policy has ruled on a permission. It may no longer be wanted, and is not once its run is over."""
        live = self.run is not None and self.run.view.run_id == run_id
        if live and event.permission_id in self._ruling:
            self._ruling.discard(event.permission_id)
            self._about(run_id, event)

    def _outside(self, happen: Callable[[], None]) -> None:
        self.publish_held()
        if self.ledger.stalled:
            self.ledger.put_off(lambda: self._outside(happen))
            return
        self._begin_run()
        happen()
        self._settle()

    def _about(self, run_id: str, event: RunEvent) -> None:
        """Let something happen to a run, unless it has ended by now."""
        self.publish_held()
        if self.ledger.stalled:
            self.ledger.put_off(lambda: self._about(run_id, event))
            return
        run = self._find(run_id)
        if run is not None:
            self._begin_about(run)
            self._drive(event, run)
            self._settle()

    # --- interpretation ---------------------------------------------------------------------------------------------

    def _find(self, run_id: str) -> Run | None:
        """Find a run that has not ended."""
        run = self.run
        return run if run is not None and run.view.run_id == run_id else self.queued.get(run_id)

    def _begin_about(self, run: Run) -> None:
        if run is self.run:
            self._begin_run()
        else:
            run_id = run.view.run_id
            self._begin(self.places[run_id].run_no, run_id, 0)

    def _begin_run(self) -> None:
        run = self.run
        if run is None:
            self._begin(0, "", 0)
            return
        view = run.view
        step = 0 if view.started_at is None else len(view.steps) + (0 if self._gate_shut else 1)
        # `_begin` written out, as this is on the way to every decision.
        self._subject = view.run_id
        self._at = at = self.world.clock.now()
        self._builder.begin(at, self.places[view.run_id].run_no, view.run_id, step)

    def _one_by_one(self, events: list[AgentEvent]) -> None:
        for event in events:
            if type(event) in PASSIVE_EVENTS:
                if self._gate_shut and type(event) in _SIGNS_OF_A_REQUEST:
                    self._past_gate(event)
                self._builder.add(event)  # type: ignore[arg-type]
                self._assembly.feed(event)  # type: ignore[arg-type]
                if type(event) is RateLimited:
                    self.world.rate_limits.refused(self.view.agent, event)
                elif type(event) is UsageReported:
                    self._count(event)
            else:
                self._active(event)

    def _active(self, event: AgentEvent) -> None:
        kind = type(event)
        if kind is BoundaryReached:
            self._boundary(event)  # type: ignore[arg-type]
        elif kind is AgentReady:
            self._try_prompt()
        elif kind is ModelChanged:
            self._changes.model_changed(event)  # type: ignore[arg-type]
        elif self.run is None:
            self._active_outside_run(event)
        elif kind is PermissionAsked:
            self._permission(self.run.view.run_id, event)  # type: ignore[arg-type]
        else:
            if kind is PromptConfirmed:
                self._took_up(event)  # type: ignore[arg-type]
            elif kind is TurnEnded:
                self._gate_shut = False
                event = self._blamed(self._with_finish_reason(event))  # type: ignore[arg-type]
            elif kind is PermissionWithdrawn:
                self._ruling.discard(event.permission_id)  # type: ignore[union-attr]
            self._drive(event)  # type: ignore[arg-type]

    def _permission(self, run_id: str, event: PermissionAsked) -> None:
        self._ruling.add(event.permission_id)
        ruled = self._permissions.rule(event, lambda ruled: self._ruled(run_id, ruled))
        if ruled is not None:
            self._ruling.discard(event.permission_id)
            self._drive(ruled)

    def _boundary(self, event: BoundaryReached) -> None:
        run = self.run
        if run is None:
            self._active_outside_run(event)
            return
        number = run.next_step_number
        step = self._assembly.complete(event, number, run.view.run_id, self._at)
        if len(step.tool_calls) > MAX_CALLS:
            problem = f"a message has {len(step.tool_calls)} tool calls; at most {MAX_CALLS} are taken"
            self._drive(ProtocolFailed(problem))
            return
        past_gate, self._gate_shut = self._gate_shut, event.held
        self._drive(StepCompleted(event.boundary_id, step, past_gate, event.held))
        self._asks = run.view.pending_decision is not None

    def _with_finish_reason(self, event: TurnEnded) -> TurnEnded:
        if event.finish_reason is not FinishReason.UNKNOWN:
            return event
        return msgspec.structs.replace(event, finish_reason=self._assembly.finish_reason)

    def _blamed(self, event: TurnEnded) -> TurnEnded:
        # A process that was given up over the journal may close its turn before it goes, which is not its own doing.
        if not self._gave_up or event.failure is not None or event.reason is TurnEndReason.COMPLETED:
            return event
        failure = journal_unavailable(self.world.settings.journal_patience_ns)
        return msgspec.structs.replace(event, failure=failure)

    def _count(self, event: UsageReported) -> None:
        """Count what was used beside the steps of a run: a step has its own figures."""
        if self.run is None:
            self._emit(UsageCounted(event.usage, event.cost))
        elif event.side_request or event.subagent_id or event.parent_call_id:
            self._drive(UsageSpent(event.usage, event.cost, event.side_request))

    def _active_outside_run(self, event: AgentEvent) -> None:
        """The agent works although no run is live: it is answered so that it stops, and waits for nobody."""
        if isinstance(event, BoundaryReached):
            if event.held:
                self._commands.append(AnswerBoundary(event.boundary_id, DecisionAction.STOP))
        elif isinstance(event, PermissionAsked):
            self._commands.append(AnswerPermission(event.permission_id, False, DENIAL_MESSAGE))
        elif isinstance(event, QuestionAsked):
            self._commands.append(AnswerQuestion(event.question_id, None))
        elif isinstance(event, ProtocolFailed):
            self._state_reason = event.message
            self._commands.append(EndProcess(event.message))

    def _took_up(self, event: PromptConfirmed) -> None:
        run = self.run
        if run is None or run.view.started_at is not None or not run.view.prompt_id:
            return  # confirmed before, or the tail of an earlier turn
        session = event.agent_session_id or self.view.agent_session_id
        model = event.model or self.view.model
        self._assembly.begin(self._at)
        self._silence.begin(run.view)
        self._emit(AgentStarted(self.view.agent, self.host.version, model, session, self.host.resumed))

    def _past_gate(self, event: AgentEvent) -> None:
        if getattr(event, "subagent_id", "") or getattr(event, "parent_call_id", ""):
            return
        self._gate_shut = False
        self._drive(ActivityPastGate(type(event).__name__))

    def _try_prompt(self) -> None:
        run = self.run
        if run is None or self._prompted or self.draining or not self.host.ready:
            return
        self._prompted = True
        prompt_id = self.world.ids.new_uuid()
        spec = run.view.spec
        self._commands.append(SendPrompt(prompt_id, spec.prompt, _wants_cost(spec.stop_rules)))
        self._drive(PromptSent(prompt_id))

    def _drive(self, event: RunEvent, run: Run | None = None) -> None:
        run = run or self.run
        if run is None:
            return
        self._commands_of = run.view.run_id
        for command in run.handle(event, self._at):
            kind = type(command)
            if kind is Emit:
                fact: Fact = command.fact  # type: ignore[union-attr]
                if type(fact) in SESSION_FACTS:
                    self._emit(fact)
                else:
                    self._builder.add_fact(fact)
            elif kind is AnswerBoundary:
                self._answers = True
                if self._changes.waiting is not None and command.action is _CONTINUE:  # type: ignore[union-attr]
                    self._change_at_boundary()
                self._commands.append(command)
            elif kind is FinishRun:
                self._finish_run(run)
            elif kind is LowerGate:
                self._lower_gate(command.reason)  # type: ignore[union-attr]
            else:
                self._commands.append(command)

    def _change_at_boundary(self) -> None:
        change = self._changes.take()
        self._emit(change)
        self._commands += self._changes.apply(change, ready=True)[0]

    def _finish_run(self, run: Run) -> None:
        view = run.view
        self.places[view.run_id].last_seq = self._builder.seq
        self.ledger.cut()
        if run is self.run:
            self.run = None
            self._assembly.reset()
            self._ruling.clear()
            if view.state is RunState.COMPLETED:
                self.world.rate_limits.served(self.view.agent)
        else:
            del self.queued[view.run_id]
        self._begin(0, "", 0)
        held = queue.after_run(self.view, view)
        if held is not None:
            self._emit(held)
        if self._changes.waiting is not None and self.run is None:
            self._change_at_boundary()
        self._commands.append(FinishRun())

    def _lower_gate(self, reason: str) -> None:
        lowered = msgspec.structs.replace(self.view.capabilities, step_gate=StepGate.BEST_EFFORT)
        self._emit(CapabilitiesChanged(lowered, reason))
        if self.run is not None:
            self.run.capabilities = lowered


def _wants_cost(rules: tuple[StopRule, ...]) -> bool:
    """Whether any of the rules looks at the cost at a boundary."""
    return "cost" in needs(rules) or any("cost_usd" in source for source in expressions_of(rules))
